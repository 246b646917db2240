#version 450
#if UNITS
#pragma use_vulkan_memory_model
#extension GL_KHR_shader_subgroup_basic : require
#endif
/* SPDX-License-Identifier: MIT
 *
 * Attention, gradients of keys and values, by tiles: the other half of attention_tiled_query.comp,
 * after which it runs. The query heads that share a key head are added in their order.
 * Workgroups: (tiles of keys, key heads, batch).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define PUSH_FIRST dk
#define PUSH_SECOND dv
#include "attention_tiled.glsl"

/* 1: values first, then keys, each with half the registers; computes the first product twice. */
layout(constant_id = 10) const uint SPLIT = 0;

void main()
{
    uint key_head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z, head0 = key_head * group_size();
    Rows k = Rows(pc.k, batch * pc.k_batch + key_head * pc.k_head, pc.k_row, key_count());
    Rows v = Rows(pc.v, batch * pc.v_batch + key_head * pc.v_head, pc.v_row, key_count());
    Rows q0 = Rows(pc.q, batch * pc.q_batch + head0 * pc.q_head, pc.q_row, pc.queries);
    Rows dout0 = Rows(pc.dout, batch * pc.out_batch + head0 * pc.out_head, pc.out_row, pc.queries);
    uint row0 = gl_WorkGroupID.x * TILE, begin = first_query(row0) / TILE * TILE;
    uint m = my_m(), n = my_n();

    [[unroll]] for (uint part = 0; part <= SPLIT; part++) {
        bool of_values = part == 0, of_keys = part == SPLIT;
        float dk[EACH_M * 2 * PAIRS], dv[EACH_M * 2 * PAIRS];
        [[unroll]] for (uint i = 0; i < EACH_M * 2 * PAIRS; i++) {
            dk[i] = 0.0;
            dv[i] = 0.0;
        }
        Rows q = q0, dout = dout0;
        uint l0 = (batch * gl_NumWorkGroups.y * group_size() + head0) * pc.queries;
        for (uint g = 0; g < group_size(); g++) {
            for (uint query0 = begin; query0 < pc.queries; query0 += TILE) {
                if (is_beyond(batch, query0, row0 + TILE))
                    break;
                float s[16], dp[16];
                dots(k, row0, q, query0, s);
                [[unroll]] for (uint c = 0; c < EACH_N; c++) {
                    uint query = query0 + n * EACH_N + c;
                    uint start = start_of(batch, query);
                    float lse = Floats(pc.lse).at[l0 + min(query, pc.queries - 1)];
                    [[unroll]] for (uint r = 0; r < EACH_M; r++) {
                        bool sees = query < pc.queries && seen(query, row0 + m + r, start);
                        s[r * 4 + c] = sees ? exp(s[r * 4 + c] * pc.scale - lse) : 0.0;
                    }
                }
                if (of_values) {
                    set_all_weights(s);
                    MIX_ROWS(dout, query0, dv)
                } else {
                    SET_ASIDE(s)
                }
                if (of_keys) {
                    dots(v, row0, dout, query0, dp);
                    [[unroll]] for (uint c = 0; c < EACH_N; c++) {
                        uint query = query0 + n * EACH_N + c;
                        float delta = Floats(pc.delta).at[l0 + min(query, pc.queries - 1)];
                        [[unroll]] for (uint r = 0; r < EACH_M; r++)
                            dp[r * 4 + c] = ASIDE(s, r, c) * (dp[r * 4 + c] - delta);
                    }
                    set_all_weights(dp);
                    MIX_ROWS(q, query0, dk)
                }
            }
            q.start += pc.q_head;
            dout.start += pc.out_head;
            l0 += pc.queries;
        }
        if (of_keys) {
            Rows to = Rows(pc.dk, k.start, k.stride, k.count);
            ROWS_STORE(to, row0, dk, pc.scale)
        }
        if (of_values) {
            Rows to = Rows(pc.dv, v.start, v.stride, v.count);
            ROWS_STORE(to, row0, dv, 1.0)
        }
    }
}
