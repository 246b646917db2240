/* SPDX-License-Identifier: MIT
 *
 * embedding.comp.
 */
#include "push.h"

PUSH_BEGIN(embedding)
    word64 out_, tokens, wte, wpe, places;
    uint rows, row_items, T;
    uint table_rows, vocabulary, first_token;
    uint positions; /* 0: no wpe */
    TEXELS_2(wte, wpe)
PUSH_END(embedding)
