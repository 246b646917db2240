#version 450
/* SPDX-License-Identifier: MIT
 *
 * Attention of single queries to a cache of keys and values, one chunk of keys for each workgroup:
 * the maximum of the scores, the sum of their exponentials, and the sum of the values weighted by
 * these. attend_cache_join.comp joins the chunks. Chunks begin at fixed positions, so the bits of a
 * row depend on nothing but its query and the keys up to its position (the split over keys of
 * Dao et al. 2023, Flash-Decoding).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint LANES = 64, CHUNK = 128;

#include "push/attend_cache.h"

shared float score[CHUNK];

/* Elements of a head from `e` on; beyond its end they are 0. */
vec4 four(uvec2 base, uint first, uint e)
{
#if VEC
    return load4(base, first + e);
#else
    return load4_within(base, first, e, pc.size, 0.0);
#endif
}

void main()
{
    uint lane = gl_LocalInvocationID.x, group = flat_group();
    uint chunk = group % pc.chunks, head = group / pc.chunks % pc.heads;
    uint row = group / pc.chunks / pc.heads;
    if (row >= pc.rows)
        return;
    uint position = min(Uints(pc.position).at[row], pc.cached - 1);
    uint sequence = min(Uints(pc.sequence).at[row], pc.sequences - 1);
    uint first = chunk * CHUNK;
    if (first > position)
        return;
    uint count = min(CHUNK, position + 1 - first), stride = pc.key_heads * pc.size;
    uint base = (sequence * pc.cached + first) * stride + head / (pc.heads / pc.key_heads) * pc.size;
    uint query = row * pc.q_row + head * pc.size;

    for (uint j = lane; j < count; j += LANES) {
        precise vec4 sum = vec4(0.0);
        for (uint e = 0; e < pc.size; e += 4)
            sum = fma(four(pc.q, query, e), four(pc.keys, base + j * stride, e), sum);
        score[j] = join4(sum) * pc.scale;
    }
    barrier();
    float most = score[0];
    for (uint j = 1; j < count; j++)
        most = max(most, score[j]);
    barrier();
    for (uint j = lane; j < count; j += LANES)
        score[j] = exp(score[j] - most);
    barrier();

    uint to = (group * (pc.size + 2));
    if (lane == 0) {
        precise float sum = 0.0;
        for (uint j = 0; j < count; j++)
            sum += score[j];
        Floats(pc.partial).at[to] = most;
        Floats(pc.partial).at[to + 1] = sum;
    }
    for (uint e = lane; e < pc.size; e += LANES) {
        precise float sum = 0.0;
        for (uint j = 0; j < count; j++)
            sum = fma(score[j], load1(pc.values, base + j * stride + e), sum);
        Floats(pc.partial).at[to + 2 + e] = sum;
    }
}
