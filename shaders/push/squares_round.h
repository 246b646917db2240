/* SPDX-License-Identifier: MIT
 *
 * squares_round.comp.
 */
#include "push.h"

PUSH_BEGIN(squares_round)
    word64 out_, x;
PUSH_END(squares_round)
