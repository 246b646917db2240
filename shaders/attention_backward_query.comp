#version 450
/* SPDX-License-Identifier: MIT
 *
 * Causal attention, gradient of the queries: a lane holds ROWS query rows and walks the keys.
 * P = exp(s - lse), dS = P (dO V' - delta), dQ = scale dS K. Writes delta = rowsum(dO O), which
 * the key pass reads.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(push_constant) uniform Push {
    uvec2 dqkv, dout, mixed, lse, qkv, delta;
    uint T, channels, heads;
    float scale;
    uint qkv_first, dout_first, mixed_first;
} pc;
VIEW(0, qkv)
VIEW(1, dout)
VIEW(2, mixed)

void main()
{
    uint T = pc.T, channels = pc.channels, stride = 3 * channels;
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z, lanes = gl_WorkGroupSize.x;
    uint q0 = batch * T * stride + head * D, k0 = q0 + channels, v0 = k0 + channels;
    uint o0 = batch * T * channels + head * D, l0 = (batch * pc.heads + head) * T;
    uint first = gl_WorkGroupID.x * ROWS * lanes;
    uint end = min(first + ROWS * lanes, T);
    float scale = pc.scale;
    first += gl_LocalInvocationID.x;

    vec4 q[ROWS * D4], dout[ROWS * D4], dq[ROWS * D4];
    float lse[ROWS], delta[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = min(first + r * lanes, T - 1);
        delta[r] = 0.0;
        [[unroll]] for (uint d = 0; d < D4; d++) {
            q[r * D4 + d] = head_load(FROM(qkv), q0 + row * stride, d) * scale;
            dout[r * D4 + d] = head_load(FROM(dout), o0 + row * channels, d);
            delta[r] = dot_add(dout[r * D4 + d], head_load(FROM(mixed), o0 + row * channels, d),
                               delta[r]);
            dq[r * D4 + d] = vec4(0.0);
        }
        lse[r] = Floats(pc.lse).at[l0 + row];
    }
    for (uint block = 0; block < end; block += BLOCK) {
        float s[ROWS * BLOCK], dp[ROWS * BLOCK];
        [[unroll]] for (uint i = 0; i < ROWS * BLOCK; i++) {
            s[i] = 0.0;
            dp[i] = 0.0;
        }
        MINE(key, qkv, k0, stride, block, T)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(key, qkv, k0, stride, block, T, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    s[r * BLOCK + j] = dot_add(q[r * D4 + d], t, s[r * BLOCK + j]);
            }
        }
        MINE(value, qkv, v0, stride, block, T)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(value, qkv, v0, stride, block, T, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    dp[r * BLOCK + j] = dot_add(dout[r * D4 + d], t, dp[r * BLOCK + j]);
            }
        }
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                uint at = r * BLOCK + j;
                float p = block + j <= first + r * lanes ? exp(s[at] - lse[r]) : 0.0;
                s[at] = p * (dp[at] - delta[r]);
            }
        }
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(key, qkv, k0, stride, block, T, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    dq[r * D4 + d] = fma(vec4(s[r * BLOCK + j]), t, dq[r * D4 + d]);
            }
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = first + r * lanes;
        if (row < T) {
            Floats(pc.delta).at[l0 + row] = delta[r];
            [[unroll]] for (uint d = 0; d < D4; d++)
                head_store(pc.dqkv, q0 + row * stride, d, dq[r * D4 + d] * scale);
        }
    }
}
