#version 450
/* SPDX-License-Identifier: MIT
 *
 * Attention, gradient of the queries, for CPU drivers: a lane holds ROWS query rows and walks the keys.
 * P = exp(s - lse), dS = P (dO V' - delta), dQ = scale dS K. Writes delta = rowsum(dO O), which
 * the key pass reads.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define PUSH_FIRST mixed
#define PUSH_SECOND dq
#include "attention_rows.glsl"

VIEW(0, q)
VIEW(1, k)
VIEW(2, v)
VIEW(3, dout)
VIEW(4, mixed)

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
    float scale = pc.scale;
    first += gl_LocalInvocationID.x;

    vec4 q[ROWS * D4], dout[ROWS * D4], dq[ROWS * D4];
    float lse[ROWS], delta[ROWS];
    uint start[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = min(first + r * lanes, queries - 1);
        delta[r] = 0.0;
        [[unroll]] for (uint d = 0; d < D4; d++) {
            q[r * D4 + d] = head_load(FROM(q), q0 + row * pc.q_row, d) * scale;
            dout[r * D4 + d] = head_load(FROM(dout), o0 + row * pc.out_row, d);
            delta[r] = dot_add(dout[r * D4 + d], head_load(FROM(mixed), o0 + row * pc.out_row, d),
                               delta[r]);
            dq[r * D4 + d] = vec4(0.0);
        }
        lse[r] = Floats(pc.lse).at[l0 + row];
        start[r] = start_of(batch, row);
    }
    for (uint block = begin; block < end; block += BLOCK) {
        float s[ROWS * BLOCK], dp[ROWS * BLOCK];
        [[unroll]] for (uint i = 0; i < ROWS * BLOCK; i++) {
            s[i] = 0.0;
            dp[i] = 0.0;
        }
        MINE(key, k, k0, pc.k_row, block, keys)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(key, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    s[r * BLOCK + j] = dot_add(q[r * D4 + d], t, s[r * BLOCK + j]);
            }
        }
        MINE(value, v, v0, pc.v_row, block, keys)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(value, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    dp[r * BLOCK + j] = dot_add(dout[r * D4 + d], t, dp[r * BLOCK + j]);
            }
        }
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                uint at = r * BLOCK + j;
                bool sees = seen(first + r * lanes, block + j, start[r]);
                float p = sees ? exp(s[at] - lse[r]) : 0.0;
                s[at] = p * (dp[at] - delta[r]);
            }
        }
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(key, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    dq[r * D4 + d] = fma(vec4(s[r * BLOCK + j]), t, dq[r * D4 + d]);
            }
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = first + r * lanes;
        if (row < queries) {
            Floats(pc.delta).at[l0 + row] = delta[r];
            [[unroll]] for (uint d = 0; d < D4; d++)
                head_store(pc.dq, q0 + row * pc.q_row, d, dq[r * D4 + d] * scale);
        }
    }
}
