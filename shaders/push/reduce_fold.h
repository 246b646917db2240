/* SPDX-License-Identifier: MIT
 *
 * reduce_fold.comp.
 */
#include "push.h"

PUSH_BEGIN(reduce_fold)
    word64 out_, x;
    uint count, results;
PUSH_END(reduce_fold)
