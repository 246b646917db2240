#version 450
/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy, second half: dlogits = scale (exp(logits - lse) (1 + 2 z_loss lse) - (1 -
 * smoothing) onehot(target) - smoothing / vocabulary). It is zero in an ignored row, and NaN if lse
 * is NaN. In place or not. Each invocation does UNROLL groups of four columns of one row.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* The same as in src/ops/cross_entropy.c. */
#if WIDE
#define UNROLL 16
#else
#define UNROLL 4
#endif

#include "push/cross_entropy_backward.h"
VIEW(0, logits)
WRITTEN_FLOATS(0, dlogits)

void main()
{
#if WIDE
    uint group = UNIFORM_GROUP(gl_WorkGroupID.x);
#else
    uint group = flat_group();
#endif
    uint row = min(group / pc.row_groups, pc.rows - 1);
    bool live = group < pc.rows * pc.row_groups;
    uint part = group - group / pc.row_groups * pc.row_groups;
    uint vocabulary = pc.vocabulary, base = row * vocabulary;
    uvec2 dlogits = pc.dlogits;
    int label = Ints(pc.targets).at[row];
    float lse = Floats(pc.lse).at[row], scale = pc.scale;
    float factor = Floats(readable(pc.device_scale, pc.lse)).at[0];
    scale *= pc.device_scale == uvec2(0) ? 1.0 : factor;
    bool counted = label >= 0, sound = (floatBitsToUint(lse) & 0x7f800000u) != 0x7f800000u;
    float otherwise = counted && !sound ? uintBitsToFloat(0x7fc00000u) : 0.0;
    float share = 1.0 + 2.0 * pc.z_loss * lse, on = pc.target_share, off = pc.each_share;
    uint first = 4 * (part * UNROLL * gl_WorkGroupSize.x + gl_LocalInvocationID.x);
    uint stride = 4 * gl_WorkGroupSize.x, limit = live ? vocabulary : 0;

    vec4 result[UNROLL];
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint column = first + k * stride;
        uvec4 columns = uvec4(column) + uvec4(0, 1, 2, 3);
#if WIDE
        [[unroll]] for (uint c = 0; c < 4; c++)
            columns[c] = WITHIN_ROW(column, c, vocabulary);
#endif
#if VEC
        vec4 x = load4(FROM(logits), base + min(column, vocabulary - 4));
#elif WIDE
        uvec4 e = base + columns;
        vec4 x = vec4(load1(FROM(logits), e.x), load1(FROM(logits), e.y), load1(FROM(logits), e.z),
                      load1(FROM(logits), e.w));
#else
        vec4 x = load4_within(FROM(logits), base, column, vocabulary, 0.0);
#endif
        vec4 hot = mix(vec4(0.0), vec4(on), equal(columns, uvec4(uint(label) - pc.first_column)));
        vec4 d = scale * (exp(x - lse) * share - hot - off);
        result[k] = counted && sound ? d : vec4(otherwise);
    }
#if WIDE
    uint from = 4 * part * UNROLL * gl_WorkGroupSize.x;
    [[unroll]] for (uint k = 0; k < UNROLL; k++)
        PUT_FLOATS(dlogits, base, from + k * stride, vocabulary, result[k])
#else
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint column = first + k * stride;
#if VEC
        if (column < limit)
            store4(dlogits, base + column, result[k]);
#else
        store4_within(dlogits, base, column, limit, result[k]);
#endif
    }
#endif
}
