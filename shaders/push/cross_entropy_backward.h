/* SPDX-License-Identifier: MIT
 *
 * cross_entropy_backward.comp.
 */
#include "push.h"

PUSH_BEGIN(cross_entropy_backward)
    word64 dlogits, logits, targets, lse;
    word64 device_scale; /* address of a factor for `scale`, or 0 */
    uint rows, vocabulary;
    uint row_groups;   /* workgroups per row */
    uint first_column; /* of all; vocabulary columns from this one on are here */
    float scale, z_loss;
    float target_share, each_share; /* 1 - smoothing, smoothing / vocabulary */
    TEXELS_1(logits)
    DIGITS
PUSH_END(cross_entropy_backward)
