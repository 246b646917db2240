#version 450
/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy of logits in parts of columns (cross_entropy.comp, PART), one row per
 * invocation:
 *   STAGE 0  sums = this part's sum of exp(logit - greatest) with the maximum of all parts; then,
 *            after those of all rows, the target's logit, if it is in this part
 *   STAGE 1  lse and the loss of the row from the sums of all parts
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#define NOT_A_NUMBER uintBitsToFloat(0x7fc00000u)

#if STAGE == 0
#include "push/cross_entropy_sums.h"

void main()
{
    uint index = flat_index(), row = min(index, pc.rows - 1);
    float most = Floats(pc.most).at[row], greatest = Floats(pc.greatest).at[row];
    float wanted = Floats(pc.wanted).at[row];
    float share = greatest == most ? 1.0 : exp(most - greatest); /* exp(0) may not be 1 */
    precise float total = Floats(pc.total).at[row] * share;
    if (index < pc.rows) {
        Floats(pc.sums).at[row] = total;
        Floats(pc.sums).at[pc.rows + row] = wanted;
    }
}
#else
#include "push/cross_entropy_losses.h"

void main()
{
    uint index = flat_index(), row = min(index, pc.rows - 1);
    float greatest = Floats(pc.greatest).at[row], total = Floats(pc.sums).at[row];
    float wanted = Floats(pc.sums).at[pc.rows + row];
    int label = Ints(pc.targets).at[row];
    bool counted = label >= 0, known = uint(label) < pc.vocabulary;
    precise float loss = (greatest - wanted) + log(total), lse = greatest + log(total);
    /* See cross_entropy.comp. */
    uint sum_bits = floatBitsToUint(total);
    bool finite = (floatBitsToUint(greatest) & 0x7f800000u) != 0x7f800000u;
    bool sound = finite && sum_bits >= 0x3f000000u && sum_bits < 0x7f800000u;
    sound = sound && (known || !counted);
    if (index < pc.rows) {
        Floats(pc.lse).at[row] = sound ? lse : NOT_A_NUMBER;
        Floats(pc.losses).at[row] = counted ? (sound ? loss : NOT_A_NUMBER) : 0.0;
    }
}
#endif
