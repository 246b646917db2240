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
#include "compensated.glsl"

layout(constant_id = 1) const uint SMOOTHED = 0; /* smoothing or z_loss is not 0 */
layout(constant_id = 2) const uint PART = 0;

#include "push/cross_entropy.h"
VIEW(0, logits)

const float LOWEST = -3.402823466e38;
#define NOTHING uintBitsToFloat(0xff800000u) /* minus infinity: adds 0 */
#define NOT_A_NUMBER uintBitsToFloat(0x7fc00000u)

float greatest = LOWEST;
float total = 0.0, lost = 0.0; /* sum of exp(logit - greatest) */
vec4 plain = vec4(0.0); /* sum of logits */

void add_block(vec4 x[4], uint column, uint limit)
{
    if (SMOOTHED != 0) {
        precise vec4 sum = plain;
        [[unroll]] for (uint k = 0; k < 4; k++)
            sum += mix(vec4(0.0), x[k], within(column + 4 * k, limit));
        plain = sum;
    }
    float top = max(greatest, max4(max(max(x[0], x[1]), max(x[2], x[3]))));
    precise vec4 e = (exp(x[0] - top) + exp(x[1] - top)) + (exp(x[2] - top) + exp(x[3] - top));
    float share = greatest == top ? 1.0 : exp(greatest - top); /* on some devices exp(0) is not 1 */
    total *= share;
    lost *= share;
    add_to(total, lost, join4(e));
    greatest = top;
}

/* Not through the view, because its texels may be quads. */
float one_logit(uint e)
{
#if TYPE == TYPE_F32
    return Floats(pc.logits).at[e];
#else
    return load1(pc.logits, e);
#endif
}

void main()
{
    uint index = flat_index();
    uint row = min(index, pc.rows - 1);
    uint vocabulary = pc.vocabulary, whole = vocabulary & ~15u, base = row * vocabulary;
    int label = Ints(pc.targets).at[row];
    uint target_column = PART != 0 ? uint(label) - pc.first_column : uint(label);
    bool counted = label >= 0, known = target_column < vocabulary && (PART == 0 || counted);
    float wanted = one_logit(base + (known ? target_column : 0));

    vec4 x[4];
    for (uint c = 0; c < whole; c += 16) {
        [[unroll]] for (uint k = 0; k < 4; k++)
            x[k] = load4(FROM(logits), base + c + 4 * k);
        add_block(x, c, vocabulary);
    }
    if (whole < vocabulary) {
        [[unroll]] for (uint k = 0; k < 4; k++)
            x[k] = load4_within(FROM(logits), base, whole + 4 * k, vocabulary, NOTHING);
        add_block(x, whole, vocabulary);
    }
    if (PART != 0) {
        if (index < pc.rows) {
            Floats(pc.lse).at[row] = greatest;
            Floats(pc.losses).at[row] = total;
            Floats(pc.wanted).at[row] = known ? wanted : 0.0;
        }
        return;
    }
    precise float loss = (greatest - wanted) + log(total), lse = greatest + log(total);
    if (SMOOTHED != 0) {
        loss += pc.smoothing * (wanted - join4(plain) / float(vocabulary));
        loss += pc.z_loss * lse * lse;
    }
    /* There is no loss and no gradient (which uses lse) if the target is outside the vocabulary or
     * the row has no softmax. A row with a softmax adds exp(0) for its largest logit. Tested by
     * bits, because a compiler may assume that there are no NaNs. */
    uint sum_bits = floatBitsToUint(total);
    bool finite = (floatBitsToUint(greatest) & 0x7f800000u) != 0x7f800000u;
    bool sound = finite && sum_bits >= 0x3f000000u && sum_bits < 0x7f800000u;
    sound = sound && (known || !counted);
    loss = sound ? loss : NOT_A_NUMBER;
    if (index < pc.rows) {
        Floats(pc.lse).at[row] = sound ? lse : NOT_A_NUMBER;
        Floats(pc.losses).at[row] = counted ? loss : 0.0;
    }
}
