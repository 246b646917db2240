/* SPDX-License-Identifier: MIT
 *
 * loss_scale.comp.
 */
#include "push.h"

PUSH_BEGIN(loss_scale)
    word64 scalars;
    float growth, backoff;
    uint interval;
PUSH_END(loss_scale)
