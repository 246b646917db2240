#version 450
/* SPDX-License-Identifier: MIT
 *
 * Causal attention, gradients of keys and values: a lane holds ROWS key rows and walks the queries
 * from its own row on. dV = P' dO, dK = scale dS' Q. Runs after attention_backward_query.comp,
 * which writes delta.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(push_constant) uniform Push {
    uvec2 dqkv, dout, out_unused, lse, qkv, delta;
    uint T, channels, heads;
    float scale;
    uint qkv_first, dout_first, lse_first, delta_first;
} pc;
VIEW(0, qkv)
VIEW(1, dout)
VIEW(2, lse)
VIEW(3, delta)

void main()
{
    uint T = pc.T, channels = pc.channels, stride = 3 * channels;
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z, lanes = gl_WorkGroupSize.x;
    uint q0 = batch * T * stride + head * D, k0 = q0 + channels, v0 = k0 + channels;
    uint o0 = batch * T * channels + head * D, l0 = (batch * pc.heads + head) * T;
    uint start = gl_WorkGroupID.x * ROWS * lanes;
    uint first = start + gl_LocalInvocationID.x;
    float scale = pc.scale;

    vec4 k[ROWS * D4], v[ROWS * D4], dk[ROWS * D4], dv[ROWS * D4];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = min(first + r * lanes, T - 1) * stride;
        [[unroll]] for (uint d = 0; d < D4; d++) {
            k[r * D4 + d] = head_load(FROM(qkv), k0 + row, d) * scale;
            v[r * D4 + d] = head_load(FROM(qkv), v0 + row, d);
            dk[r * D4 + d] = vec4(0.0);
            dv[r * D4 + d] = vec4(0.0);
        }
    }
    for (uint block = start & ~(BLOCK - 1); block < T; block += BLOCK) {
        float s[ROWS * BLOCK], dp[ROWS * BLOCK];
        [[unroll]] for (uint i = 0; i < ROWS * BLOCK; i++) {
            s[i] = 0.0;
            dp[i] = 0.0;
        }
        MINE_SCALAR(lse, lse, l0, block, T)
        MINE_SCALAR(delta, delta, l0, block, T)
        MINE(query, qkv, q0, stride, block, T)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(query, qkv, q0, stride, block, T, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    s[r * BLOCK + j] = dot_add(k[r * D4 + d], t, s[r * BLOCK + j]);
            }
        }
        [[unroll]] for (uint j = 0; j < BLOCK; j++) {
            float t = SPREAD_SCALAR(lse, lse, l0, block, T, j);
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                bool seen = block + j >= first + r * lanes && block + j < T;
                s[r * BLOCK + j] = seen ? exp(s[r * BLOCK + j] - t) : 0.0;
            }
        }
        MINE(dout, dout, o0, channels, block, T)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(dout, dout, o0, channels, block, T, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++) {
                    dp[r * BLOCK + j] = dot_add(v[r * D4 + d], t, dp[r * BLOCK + j]);
                    dv[r * D4 + d] = fma(vec4(s[r * BLOCK + j]), t, dv[r * D4 + d]);
                }
            }
        }
        [[unroll]] for (uint j = 0; j < BLOCK; j++) {
            float t = SPREAD_SCALAR(delta, delta, l0, block, T, j);
            [[unroll]] for (uint r = 0; r < ROWS; r++)
                s[r * BLOCK + j] *= dp[r * BLOCK + j] - t;
        }
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(query, qkv, q0, stride, block, T, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    dk[r * D4 + d] = fma(vec4(s[r * BLOCK + j]), t, dk[r * D4 + d]);
            }
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = first + r * lanes;
        if (row < T) {
            [[unroll]] for (uint d = 0; d < D4; d++) {
                head_store(pc.dqkv, k0 + row * stride, d, dk[r * D4 + d] * scale);
                head_store(pc.dqkv, v0 + row * stride, d, dv[r * D4 + d]);
            }
        }
    }
}
