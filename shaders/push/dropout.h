/* SPDX-License-Identifier: MIT
 *
 * dropout.comp.
 */
#include "push.h"

PUSH_BEGIN(dropout)
    word64 out_, x;
    word64 device_seed; /* address; 0: the seed is here */
    word64 seed, site, first_word;
    uint items, threshold;
    float scale;
    TEXELS_1(x)
PUSH_END(dropout)
