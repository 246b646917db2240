/* SPDX-License-Identifier: MIT
 *
 * The second stage of cross_entropy_join.comp.
 */
#include "push.h"

PUSH_BEGIN(cross_entropy_losses)
    word64 losses, lse, greatest, sums, targets;
    uint rows, vocabulary;
PUSH_END(cross_entropy_losses)
