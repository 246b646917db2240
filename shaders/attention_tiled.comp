#version 450
#if UNITS
#pragma use_vulkan_memory_model
#extension GL_KHR_shader_subgroup_basic : require
#endif
/* SPDX-License-Identifier: MIT
 *
 * Attention, forward, by tiles, with a running maximum (Dao 2023, FlashAttention-2, algorithm 1).
 * Workgroups: (tiles of queries, heads, batch).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define PUSH_FIRST out_
#define PUSH_SECOND unused
#include "attention_tiled.glsl"

void main()
{
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z, key_head = head / group_size();
    Rows q = Rows(pc.q, batch * pc.q_batch + head * pc.q_head, pc.q_row, pc.queries);
    Rows k = Rows(pc.k, batch * pc.k_batch + key_head * pc.k_head, pc.k_row, key_count());
    Rows v = Rows(pc.v, batch * pc.v_batch + key_head * pc.v_head, pc.v_row, key_count());
    Rows o = Rows(pc.out_, batch * pc.out_batch + head * pc.out_head, pc.out_row, pc.queries);
    uint row0 = gl_WorkGroupID.x * TILE, end = keys_seen(row0 + TILE), m = my_m(), n = my_n();

    float sum[EACH_M * 2 * PAIRS], top[4], total[4]; /* total: over this invocation's columns */
    [[unroll]] for (uint i = 0; i < EACH_M * 2 * PAIRS; i++)
        sum[i] = 0.0;
    uint start[4];
    [[unroll]] for (uint r = 0; r < EACH_M; r++) {
        top[r] = LOWEST;
        total[r] = 0.0;
        start[r] = start_of(batch, row0 + m + r);
    }
    for (uint key0 = keys_begin(batch, row0, TILE); key0 < end; key0 += TILE) {
        float s[16], highest[4];
        dots(q, row0, k, key0, s);
        [[unroll]] for (uint r = 0; r < EACH_M; r++) {
            highest[r] = top[r];
            [[unroll]] for (uint c = 0; c < EACH_N; c++) {
                bool sees = seen(row0 + m + r, key0 + n * EACH_N + c, start[r]);
                s[r * 4 + c] = sees ? s[r * 4 + c] * pc.scale : LOWEST;
                highest[r] = max(highest[r], s[r * 4 + c]);
            }
        }
        JOIN_ROWS(highest, max)
        [[unroll]] for (uint r = 0; r < EACH_M; r++) {
            float shrink = exp(top[r] - highest[r]);
            top[r] = highest[r];
            total[r] *= shrink;
            [[unroll]] for (uint c = 0; c < EACH_N; c++) {
                s[r * 4 + c] = exp(s[r * 4 + c] - highest[r]);
                total[r] += s[r * 4 + c];
            }
            [[unroll]] for (uint c = 0; c < 2 * PAIRS; c++)
                sum[r * 2 * PAIRS + c] *= shrink;
        }
        set_all_weights(s);
        MIX_ROWS(v, key0, sum)
    }
    JOIN_ROWS(total, plus)
    float inverse[4];
    [[unroll]] for (uint r = 0; r < EACH_M; r++) {
        inverse[r] = 1.0 / total[r];
        if (n == 0 && row0 + m + r < pc.queries)
            Floats(pc.lse).at[(batch * gl_NumWorkGroups.y + head) * pc.queries + row0 + m + r] =
                top[r] + log(total[r]);
    }
    ROWS_STORE(o, row0, sum, inverse[r])
}
