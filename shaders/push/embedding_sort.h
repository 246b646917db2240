/* SPDX-License-Identifier: MIT
 *
 * embedding_sort.comp.
 */
#include "push.h"

PUSH_BEGIN(embedding_sort)
    word64 tokens, from, to, counts; /* from 0: rows in their own order */
    uint rows, table_rows, vocabulary, first_token, block_rows, blocks, shift, digits;
PUSH_END(embedding_sort)
