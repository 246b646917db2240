#version 450
/* SPDX-License-Identifier: MIT
 *
 * Attention, gradients of keys and values, for CPU drivers: a lane holds ROWS key rows and walks,
 * head by head, the queries that see them. dV = P' dO, dK = scale dS' Q. Runs after
 * attention_backward_query.comp, which writes delta.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define PUSH_FIRST dk
#define PUSH_SECOND dv
#include "attention_rows.glsl"

VIEW(0, q)
VIEW(1, k)
VIEW(2, v)
VIEW(3, dout)
VIEW(4, lse)
VIEW(5, delta)

void main()
{
    uint queries = pc.queries, keys = key_count(), group = group_size();
    uint lanes = gl_WorkGroupSize.x;
    uint key_head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z, head0 = key_head * group;
    uint k0 = batch * pc.k_batch + key_head * pc.k_head;
    uint v0 = batch * pc.v_batch + key_head * pc.v_head;
    uint q0 = batch * pc.q_batch + head0 * pc.q_head;
    uint o0 = batch * pc.out_batch + head0 * pc.out_head;
    uint l0 = (batch * gl_NumWorkGroups.y * group + head0) * queries;
    uint start = gl_WorkGroupID.x * ROWS * lanes, last = start + ROWS * lanes;
    uint first = start + gl_LocalInvocationID.x;
    float scale = pc.scale;

    vec4 k[ROWS * D4], v[ROWS * D4], dk[ROWS * D4], dv[ROWS * D4];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = min(first + r * lanes, keys - 1);
        [[unroll]] for (uint d = 0; d < D4; d++) {
            k[r * D4 + d] = head_load(FROM(k), k0 + row * pc.k_row, d) * scale;
            v[r * D4 + d] = head_load(FROM(v), v0 + row * pc.v_row, d);
            dk[r * D4 + d] = vec4(0.0);
            dv[r * D4 + d] = vec4(0.0);
        }
    }
    uint begin = first_query(start) & ~(BLOCK - 1);
    for (uint g = 0; g < group; g++) {
        for (uint block = begin; block < queries; block += BLOCK) {
            if (is_beyond(batch, block, last))
                break;
            float s[ROWS * BLOCK], dp[ROWS * BLOCK];
            [[unroll]] for (uint i = 0; i < ROWS * BLOCK; i++) {
                s[i] = 0.0;
                dp[i] = 0.0;
            }
            MINE_SCALAR(lse, lse, l0, block, queries)
            MINE_SCALAR(delta, delta, l0, block, queries)
            MINE(query, q, q0, pc.q_row, block, queries)
            [[unroll]] for (uint d = 0; d < D4; d++) {
                [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                    vec4 t = SPREAD(query, j, d);
                    [[unroll]] for (uint r = 0; r < ROWS; r++)
                        s[r * BLOCK + j] = dot_add(k[r * D4 + d], t, s[r * BLOCK + j]);
                }
            }
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                float t = SPREAD_SCALAR(lse, j);
                uint from = start_of(batch, block + j);
                [[unroll]] for (uint r = 0; r < ROWS; r++) {
                    bool sees = seen(block + j, first + r * lanes, from) && block + j < queries;
                    s[r * BLOCK + j] = sees ? exp(s[r * BLOCK + j] - t) : 0.0;
                }
            }
            MINE(dout, dout, o0, pc.out_row, block, queries)
            [[unroll]] for (uint d = 0; d < D4; d++) {
                [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                    vec4 t = SPREAD(dout, j, d);
                    [[unroll]] for (uint r = 0; r < ROWS; r++) {
                        dp[r * BLOCK + j] = dot_add(v[r * D4 + d], t, dp[r * BLOCK + j]);
                        dv[r * D4 + d] = fma(vec4(s[r * BLOCK + j]), t, dv[r * D4 + d]);
                    }
                }
            }
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                float t = SPREAD_SCALAR(delta, j);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    s[r * BLOCK + j] *= dp[r * BLOCK + j] - t;
            }
            [[unroll]] for (uint d = 0; d < D4; d++) {
                [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                    vec4 t = SPREAD(query, j, d);
                    [[unroll]] for (uint r = 0; r < ROWS; r++)
                        dk[r * D4 + d] = fma(vec4(s[r * BLOCK + j]), t, dk[r * D4 + d]);
                }
            }
        }
        q0 += pc.q_head;
        o0 += pc.out_head;
        l0 += queries;
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = first + r * lanes;
        if (row < keys) {
            [[unroll]] for (uint d = 0; d < D4; d++) {
                head_store(pc.dk, k0 + row * pc.k_row, d, dk[r * D4 + d] * scale);
                head_store(pc.dv, v0 + row * pc.v_row, d, dv[r * D4 + d]);
            }
        }
    }
}
