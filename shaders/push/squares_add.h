/* SPDX-License-Identifier: MIT
 *
 * squares_add.comp.
 */
#include "push.h"

PUSH_BEGIN(squares_add)
    word64 out_, x;
    uint count, each, results;
PUSH_END(squares_add)
