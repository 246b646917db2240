#version 450
#if UNITS
#pragma use_vulkan_memory_model
#extension GL_KHR_shader_subgroup_basic : require
#endif
/* SPDX-License-Identifier: MIT
 *
 * Attention, gradient of the queries, by tiles (Dao 2023, FlashAttention-2, algorithm 2, with its
 * two halves in separate kernels, so that no sum is shared). Writes delta = rowsum(dO O), which the
 * key pass reads. Workgroups: (tiles of queries, heads, batch).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define PUSH_FIRST mixed
#define PUSH_SECOND dq
#include "attention_tiled.glsl"

void main()
{
    uint head = gl_WorkGroupID.y, batch = gl_WorkGroupID.z, key_head = head / group_size();
    Rows q = Rows(pc.q, batch * pc.q_batch + head * pc.q_head, pc.q_row, pc.queries);
    Rows k = Rows(pc.k, batch * pc.k_batch + key_head * pc.k_head, pc.k_row, key_count());
    Rows v = Rows(pc.v, batch * pc.v_batch + key_head * pc.v_head, pc.v_row, key_count());
    Rows o = Rows(pc.mixed, batch * pc.out_batch + head * pc.out_head, pc.out_row, pc.queries);
    Rows dout = Rows(pc.dout, o.start, o.stride, o.count);
    Rows dq = Rows(pc.dq, q.start, q.stride, q.count);
    uint row0 = gl_WorkGroupID.x * TILE, end = keys_seen(row0 + TILE), m = my_m(), n = my_n();
    uint l0 = (batch * gl_NumWorkGroups.y + head) * pc.queries;

    float sum[EACH_M * 2 * PAIRS], lse[4], delta[4];
    [[unroll]] for (uint i = 0; i < EACH_M * 2 * PAIRS; i++)
        sum[i] = 0.0;
    uint start[4];
    [[unroll]] for (uint r = 0; r < EACH_M; r++) {
        start[r] = start_of(batch, row0 + m + r);
        lse[r] = Floats(pc.lse).at[l0 + min(row0 + m + r, pc.queries - 1)];
        delta[r] = 0.0;
        for (uint d = n; d < D4; d += ACROSS)
            delta[r] += dot(row_load(dout, row0 + m + r, d), row_load(o, row0 + m + r, d));
    }
    JOIN_ROWS(delta, plus)
    [[unroll]] for (uint r = 0; r < EACH_M; r++)
        if (n == 0 && row0 + m + r < pc.queries)
            Floats(pc.delta).at[l0 + row0 + m + r] = delta[r];

    for (uint key0 = keys_begin(batch, row0, TILE); key0 < end; key0 += TILE) {
        float s[16], dp[16];
        dots(q, row0, k, key0, s);
        [[unroll]] for (uint r = 0; r < EACH_M; r++)
            [[unroll]] for (uint c = 0; c < EACH_N; c++) {
                bool sees = seen(row0 + m + r, key0 + n * EACH_N + c, start[r]);
                s[r * 4 + c] = sees ? exp(s[r * 4 + c] * pc.scale - lse[r]) : 0.0;
            }
        SET_ASIDE(s)
        dots(dout, row0, v, key0, dp);
        [[unroll]] for (uint r = 0; r < EACH_M; r++)
            [[unroll]] for (uint c = 0; c < EACH_N; c++)
                dp[r * 4 + c] = ASIDE(s, r, c) * (dp[r * 4 + c] - delta[r]);
        set_all_weights(dp);
        MIX_ROWS(k, key0, sum)
    }
    ROWS_STORE(dq, row0, sum, pc.scale)
}
