/* SPDX-License-Identifier: MIT
 *
 * Functions shared by cross_entropy.comp and cross_entropy_team.comp: adding blocks of a row to
 * running sums, and the results of the sums. Included after the constants SMOOTHED and PART and the
 * push constants.
 */
#include "compensated.glsl"

const float LOWEST = -3.402823466e38;
#define NOTHING uintBitsToFloat(0xff800000u) /* minus infinity: adds 0 */
#define NOT_A_NUMBER uintBitsToFloat(0x7fc00000u)

float greatest = LOWEST;
float total = 0.0, lost = 0.0; /* sum of exp(logit - greatest) */
vec4 plain = vec4(0.0); /* sum of logits */

/* Four quads, which begin at columns column, column + stride, ...; beyond the row's end they are
 * NOTHING. */
void add_block(vec4 x[4], uint column, uint stride, uint limit)
{
    if (SMOOTHED != 0) {
        precise vec4 sum = plain;
        [[unroll]] for (uint k = 0; k < 4; k++)
            sum += mix(vec4(0.0), x[k], within(column + stride * k, limit));
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

struct Target {
    bool counted, known; /* not ignored; among these columns */
    float logit;         /* of the target, if it is known */
};
Target find_target(uint row, uint base)
{
    int label = Ints(pc.targets).at[row];
    uint column = PART != 0 ? uint(label) - pc.first_column : uint(label);
    Target target;
    target.counted = label >= 0;
    target.known = column < pc.vocabulary && (PART == 0 || target.counted);
    target.logit = one_logit(base + (target.known ? column : 0));
    return target;
}

/* Writes the results of greatest, total and the sum of logits of a row, if `live`. */
void finish(uint row, bool live, Target target, float plain_sum)
{
    if (PART != 0) {
        if (live) {
            Floats(pc.lse).at[row] = greatest;
            Floats(pc.losses).at[row] = total;
            Floats(pc.wanted).at[row] = target.known ? target.logit : 0.0;
        }
        return;
    }
    precise float loss = (greatest - target.logit) + log(total), lse = greatest + log(total);
    if (SMOOTHED != 0) {
        loss += pc.smoothing * (target.logit - plain_sum / float(pc.vocabulary));
        loss += pc.z_loss * lse * lse;
    }
    /* The loss and the gradient (which uses lse) are zero if the target is outside the vocabulary
     * or the row has no softmax. A row with a softmax adds exp(0) for its largest logit. Tested by
     * bits, because a compiler may assume that there are no NaNs. */
    uint sum_bits = floatBitsToUint(total);
    bool finite = (floatBitsToUint(greatest) & 0x7f800000u) != 0x7f800000u;
    bool sound = finite && sum_bits >= 0x3f000000u && sum_bits < 0x7f800000u;
    sound = sound && (target.known || !target.counted);
    loss = sound ? loss : NOT_A_NUMBER;
    if (live) {
        Floats(pc.lse).at[row] = sound ? lse : NOT_A_NUMBER;
        Floats(pc.losses).at[row] = target.counted ? loss : 0.0;
    }
}
