#version 450
/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy, first half, one row per invocation: lse[i] = log sum exp(logits[i]) and
 * the loss of the row, in one pass over the logits with a running maximum. Sums are over blocks of
 * 16. With label smoothing, the target has the share 1 - smoothing, and the rest is divided equally
 * among all columns. PART: for columns from first_column on, writes the maximum of the logits to
 * lse, the sum of exp(logit - maximum) to losses, and the target's logit to wanted, or 0 if the
 * target is in another part.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint SMOOTHED = 0; /* smoothing or z_loss is not 0 */
layout(constant_id = 2) const uint PART = 0;

#include "push/cross_entropy.h"
VIEW(0, logits)

#include "cross_entropy.glsl"

void main()
{
    uint index = flat_index();
    uint row = min(index, pc.rows - 1);
    uint vocabulary = pc.vocabulary, whole = vocabulary & ~15u, base = row * vocabulary;
    Target target = find_target(row, base);

    vec4 x[4];
    for (uint c = 0; c < whole; c += 16) {
        [[unroll]] for (uint k = 0; k < 4; k++)
            x[k] = load4(FROM(logits), base + c + 4 * k);
        add_block(x, c, 4, vocabulary);
    }
    if (whole < vocabulary) {
        [[unroll]] for (uint k = 0; k < 4; k++)
            x[k] = load4_within(FROM(logits), base, whole + 4 * k, vocabulary, NOTHING);
        add_block(x, whole, 4, vocabulary);
    }
    finish(row, index < pc.rows, target, join4(plain));
}
