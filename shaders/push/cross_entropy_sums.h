/* SPDX-License-Identifier: MIT
 *
 * The first stage of cross_entropy_join.comp.
 */
#include "push.h"

PUSH_BEGIN(cross_entropy_sums)
    word64 sums, most, total, wanted, greatest;
    uint rows;
PUSH_END(cross_entropy_sums)
