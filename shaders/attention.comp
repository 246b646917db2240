#version 450
/* SPDX-License-Identifier: MIT
 *
 * Attention, forward, for CPU drivers, with a running maximum (Milakov, Gimelshein 2018; Dao et al.
 * 2022): a lane holds ROWS query rows. Workgroups: (blocks of queries, heads, batch).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define PUSH_FIRST out_
#define PUSH_SECOND unused
#include "attention_rows.glsl"

VIEW(0, q)
VIEW(1, k)
VIEW(2, v)

void main()
{
    uint queries = pc.queries, keys = key_count(), lanes = gl_WorkGroupSize.x;
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z, key_head = head / group_size();
    uint q0 = batch * pc.q_batch + head * pc.q_head;
    uint k0 = batch * pc.k_batch + key_head * pc.k_head;
    uint v0 = batch * pc.v_batch + key_head * pc.v_head;
    uint o0 = batch * pc.out_batch + head * pc.out_head;
    uint l0 = (batch * gl_NumWorkGroups.y + head) * queries;
    uint first = gl_WorkGroupID.x * ROWS * lanes;
    uint begin = keys_begin(batch, first, BLOCK), end = keys_seen(first + ROWS * lanes);
    first += gl_LocalInvocationID.x;

    vec4 q[ROWS * D4], o[ROWS * D4];
    float top[ROWS], total[ROWS];
    uint start[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = q0 + min(first + r * lanes, queries - 1) * pc.q_row;
        [[unroll]] for (uint d = 0; d < D4; d++) {
            q[r * D4 + d] = head_load(FROM(q), row, d) * pc.scale;
            o[r * D4 + d] = vec4(0.0);
        }
        top[r] = LOWEST;
        total[r] = 0.0;
        start[r] = start_of(batch, first + r * lanes);
    }
    for (uint block = begin; block < end; block += BLOCK) {
        float s[ROWS * BLOCK];
        [[unroll]] for (uint i = 0; i < ROWS * BLOCK; i++)
            s[i] = 0.0;
        MINE(key, k, k0, pc.k_row, block, keys)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(key, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    s[r * BLOCK + j] = dot_add(q[r * D4 + d], t, s[r * BLOCK + j]);
            }
        }
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            uint row = first + r * lanes;
            float highest = top[r], sum = 0.0;
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                uint at = r * BLOCK + j;
                s[at] = seen(row, block + j, start[r]) ? s[at] : LOWEST;
                highest = max(highest, s[at]);
            }
            float shrink = exp(top[r] - highest);
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                s[r * BLOCK + j] = exp(s[r * BLOCK + j] - highest);
                sum += s[r * BLOCK + j];
            }
            top[r] = highest;
            total[r] = total[r] * shrink + sum;
            [[unroll]] for (uint d = 0; d < D4; d++)
                o[r * D4 + d] *= shrink;
        }
        MINE(value, v, v0, pc.v_row, block, keys)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(value, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    o[r * D4 + d] = fma(vec4(s[r * BLOCK + j]), t, o[r * D4 + d]);
            }
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = first + r * lanes;
        float inverse = 1.0 / total[r];
        if (row < queries) {
            Floats(pc.lse).at[l0 + row] = top[r] + log(total[r]);
            [[unroll]] for (uint d = 0; d < D4; d++)
                head_store(pc.out_, o0 + row * pc.out_row, d, o[r * D4 + d] * inverse);
        }
    }
}
