/* SPDX-License-Identifier: MIT
 *
 * layernorm_fold.comp.
 */
#include "push.h"

PUSH_BEGIN(layernorm_fold)
    word64 dgamma, dbeta, partial;
    uint row_items, blocks, parts;
    TEXELS_1(partial)
PUSH_END(layernorm_fold)
