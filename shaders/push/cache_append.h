/* SPDX-License-Identifier: MIT
 *
 * cache_append.comp.
 */
#include "push.h"

PUSH_BEGIN(cache_append)
    word64 qkv, keys, values, angles, sequence, position;
    uint items, columns; /* items: of all rows; columns: elements from one row of qkv to the next */
    uint heads, key_heads, size, sequences, cached; /* cached: positions of a sequence */
PUSH_END(cache_append)
