/* SPDX-License-Identifier: MIT
 *
 * fixed.comp.
 */
#include "push.h"

PUSH_BEGIN(fixed)
    word64 out_, x, term;
    uint items;
PUSH_END(fixed)
