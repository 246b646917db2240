/* SPDX-License-Identifier: MIT
 *
 * embedding_backward.comp.
 */
#include "push.h"

PUSH_BEGIN(embedding_backward)
    word64 dwte, dwpe, dout, tokens, order;
    uint rows, row_items, T;
    uint table_rows, vocabulary, first_token;
    uint positions; /* T, or 0: no dwpe */
    uint words;     /* 0: no dwte, and no order */
    uint first_row, some_rows;
    TEXELS_1(dout)
PUSH_END(embedding_backward)
