/* SPDX-License-Identifier: MIT
 *
 * Messages of a call that come one after the other, on the longest way through all ranks, by
 * formula. What is cut into segments or windows counts once: only the first of them is waited for.
 * Named by the rows of table.c, where no name means one; tests/coll/rounds_test.cc holds each of
 * them against the lists.
 */
#include "../base/base.h"
#include "table.h"

uint64_t rf_rounds_none(int ranks)
{
    return 0;
}

/* There and back. */
uint64_t rf_rounds_two(int ranks)
{
    return 2;
}

/* Each round reaches twice as many ranks. */
uint64_t rf_rounds_log(int ranks)
{
    uint64_t rounds = 0;
    for (int64_t reached = 1; reached < ranks; reached *= 2)
        rounds++;
    return rounds;
}

/* Of a tree in which a rank sends to all its children at the same time: the most bits that are set
 * in a place. */
uint64_t rf_rounds_tree(int ranks)
{
    uint64_t rounds = 0;
    for (; ranks > 1; ranks /= 2)
        rounds++;
    return rounds;
}

uint64_t rf_rounds_log_twice(int ranks)
{
    return 2 * rf_rounds_log(ranks);
}

uint64_t rf_rounds_around(int ranks)
{
    return (uint64_t)ranks - 1;
}

uint64_t rf_rounds_around_twice(int ranks)
{
    return 2 * rf_rounds_around(ranks);
}

/* Within a host, between hosts, and within again. */
uint64_t rf_rounds_hierarchical_twice(int ranks)
{
    return 4;
}
