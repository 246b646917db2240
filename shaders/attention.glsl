/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by all attention kernels: operands with strides, and the keys that a query
 * sees. Queries are (B,T_q,H,D), keys and values (B,T_k,K,D); query head h reads key head h /
 * group. Causal masks are aligned at the end: the last query sees the last key. A gradient has the
 * strides of its tensor. With views, a source's address is the number of its first texel instead.
 */
layout(constant_id = 1) const uint D = 64;   /* elements of a head */
layout(constant_id = 4) const uint FULL = 0; /* 1: every query sees every key; 0: causal */
/* 0, or with starts of documents the number of query heads per key head. Then the number of keys
 * equals that of queries, and pc.keys and pc.group hold the address of the starts, as there is no
 * space for another. */
layout(constant_id = 12) const uint PACKED = 0;
const uint D4 = (D + 3) / 4;
const float LOWEST = -1e38; /* the score of a masked key */

/* PUSH_FIRST, PUSH_SECOND: the includer's names of the last two addresses. */
#include "push/attention.h"

#undef FROM
#if VIEWS
#define FROM(t) view_##t, pc.t.x
#else
#define FROM(t) pc.t
#endif

uint key_count()
{
    return PACKED != 0 ? pc.queries : pc.keys;
}
uint group_size()
{
    return PACKED != 0 ? PACKED : pc.group;
}
/* The first key that a query sees. Never later than the query, whatever memory holds. */
uint start_of(uint batch, uint query)
{
    if (PACKED == 0)
        return 0;
    uint row = min(query, pc.queries - 1);
    return min(Uints(uvec2(pc.keys, pc.group)).at[batch * pc.queries + row], row);
}
/* The number of keys minus the number of queries; causal only if it is not negative. */
uint ahead()
{
    return FULL != 0 ? 0 : key_count() - pc.queries;
}
/* start: the query's first key. */
bool seen(uint query, uint key, uint start)
{
    return FULL != 0 ? key < pc.keys : key <= query + ahead() && (PACKED == 0 || key >= start);
}
/* No query from `first` on sees a key before this one. A multiple of `block`. */
uint keys_begin(uint batch, uint first, uint block)
{
    return PACKED != 0 ? start_of(batch, first) / block * block : 0;
}
/* Whether the queries from `query` on, whose starts do not decrease, see no key below `end`. */
bool is_beyond(uint batch, uint query, uint end)
{
    return PACKED != 0 && start_of(batch, query) >= end;
}
/* Queries below `end` see only keys from 0 to here. */
uint keys_seen(uint end)
{
    return FULL != 0 ? pc.keys : min(end, pc.queries) + ahead();
}
/* The first query that sees the key. */
uint first_query(uint key)
{
    return FULL != 0 || key < ahead() ? 0 : key - ahead();
}

/* Four elements of a head's row that starts at element `row`, zero beyond D. */
vec4 head_load(SOURCE, uint row, uint d)
{
#if VEC
    return load4(THIS, row + 4 * d);
#else
    return load4_within(THIS, row, 4 * d, D, 0.0);
#endif
}
