/* SPDX-License-Identifier: MIT
 *
 * cross_entropy.comp.
 */
#include "push.h"

PUSH_BEGIN(cross_entropy)
    word64 logits, targets, losses, lse, wanted;
    uint rows, vocabulary, first_column;
    float smoothing, z_loss;
    TEXELS_1(logits)
PUSH_END(cross_entropy)
