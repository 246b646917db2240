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

void main()
{
    uint key_head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z, head0 = key_head * pc.group;
    Rows k = Rows(pc.k, batch * pc.k_batch + key_head * pc.k_head, pc.k_row, pc.keys);
    Rows v = Rows(pc.v, batch * pc.v_batch + key_head * pc.v_head, pc.v_row, pc.keys);
    Rows q = Rows(pc.q, batch * pc.q_batch + head0 * pc.q_head, pc.q_row, pc.queries);
    Rows dout = Rows(pc.dout, batch * pc.out_batch + head0 * pc.out_head, pc.out_row, pc.queries);
    uint row0 = gl_WorkGroupID.x * TILE, begin = first_query(row0) / TILE * TILE;
    uint l0 = (batch * gl_NumWorkGroups.y * pc.group + head0) * pc.queries, m = my_m(), n = my_n();

    float dk[8 * PAIRS], dv[8 * PAIRS];
    [[unroll]] for (uint i = 0; i < 8 * PAIRS; i++) {
        dk[i] = 0.0;
        dv[i] = 0.0;
    }
    for (uint g = 0; g < pc.group; g++) {
        for (uint query0 = begin; query0 < pc.queries; query0 += TILE) {
            float s[16], dp[16];
            dots(k, row0, q, query0, s);
            dots(v, row0, dout, query0, dp);
            [[unroll]] for (uint c = 0; c < 4; c++) {
                uint query = query0 + n * 4 + c, at = l0 + min(query, pc.queries - 1);
                float lse = Floats(pc.lse).at[at], delta = Floats(pc.delta).at[at];
                [[unroll]] for (uint r = 0; r < 4; r++) {
                    bool sees = query < pc.queries && seen(query, row0 + m + r);
                    float p = sees ? exp(s[r * 4 + c] * pc.scale - lse) : 0.0;
                    s[r * 4 + c] = p;
                    dp[r * 4 + c] = p * (dp[r * 4 + c] - delta);
                }
            }
            set_all_weights(s);
            MIX_ROWS(dout, query0, dv)
            barrier();
            set_all_weights(dp);
            MIX_ROWS(q, query0, dk)
        }
        q.start += pc.q_head;
        dout.start += pc.out_head;
        l0 += pc.queries;
    }
    k.base = pc.dk;
    v.base = pc.dv;
    ROWS_STORE(k, row0, dk, pc.scale)
    ROWS_STORE(v, row0, dv, 1.0)
}
