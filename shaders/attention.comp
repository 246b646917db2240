#version 450
/* SPDX-License-Identifier: MIT
 *
 * Causal attention, forward, with a running maximum (Milakov, Gimelshein 2018; Dao et al. 2022):
 * a lane holds ROWS query rows. Workgroups: (blocks of queries, heads, batch).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"

layout(push_constant) uniform Push {
    uvec2 out_, lse, qkv;
    uint T, channels, heads;
    float scale;
    uint qkv_first;
} pc;
VIEW(0, qkv)

const float LOWEST = -1e38;

void main()
{
    uint T = pc.T, channels = pc.channels, stride = 3 * channels;
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z, lanes = gl_WorkGroupSize.x;
    uint q0 = batch * T * stride + head * D, k0 = q0 + channels, v0 = k0 + channels;
    uint first = gl_WorkGroupID.x * ROWS * lanes;
    uint end = min(first + ROWS * lanes, T);
    first += gl_LocalInvocationID.x;

    vec4 q[ROWS * D4], o[ROWS * D4];
    float top[ROWS], total[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = q0 + min(first + r * lanes, T - 1) * stride;
        [[unroll]] for (uint d = 0; d < D4; d++) {
            q[r * D4 + d] = head_load(FROM(qkv), row, d) * pc.scale;
            o[r * D4 + d] = vec4(0.0);
        }
        top[r] = LOWEST;
        total[r] = 0.0;
    }
    for (uint block = 0; block < end; block += BLOCK) {
        float s[ROWS * BLOCK];
        [[unroll]] for (uint i = 0; i < ROWS * BLOCK; i++)
            s[i] = 0.0;
        MINE(key, qkv, k0, stride, block, T)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(key, qkv, k0, stride, block, T, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    s[r * BLOCK + j] = dot_add(q[r * D4 + d], t, s[r * BLOCK + j]);
            }
        }
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            uint row = first + r * lanes;
            float highest = top[r], sum = 0.0;
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                uint at = r * BLOCK + j;
                s[at] = block + j <= row ? s[at] : LOWEST;
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
        MINE(value, qkv, v0, stride, block, T)
        [[unroll]] for (uint d = 0; d < D4; d++) {
            [[unroll]] for (uint j = 0; j < BLOCK; j++) {
                vec4 t = SPREAD(value, qkv, v0, stride, block, T, j, d);
                [[unroll]] for (uint r = 0; r < ROWS; r++)
                    o[r * D4 + d] = fma(vec4(s[r * BLOCK + j]), t, o[r * D4 + d]);
            }
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = first + r * lanes;
        float inverse = 1.0 / total[r];
        if (row < T) {
            Floats(pc.lse).at[(batch * pc.heads + head) * T + row] = top[r] + log(total[r]);
            [[unroll]] for (uint d = 0; d < D4; d++)
                head_store(pc.out_, (batch * T + row) * channels + head * D, d,
                           o[r * D4 + d] * inverse);
        }
    }
}
