/* SPDX-License-Identifier: MIT
 *
 * attend_cache.comp and attend_cache_join.comp.
 */
#include "push.h"

PUSH_BEGIN(attend_cache)
    word64 out_, q, keys, values, partial, sequence, position;
    uint rows, heads, key_heads, size, chunks;
    uint q_row, out_row; /* elements from one row to the next */
    uint sequences, cached; /* cached: positions of a sequence */
    float scale;
PUSH_END(attend_cache)
