/* SPDX-License-Identifier: MIT
 *
 * Bytes that one rank sends, by formula: what the list of each algorithm would say, without the
 * list. The formulas are for calls whose ranks have equal pieces, for some with a count for each
 * rank, and for sums over micro-batches, cut into windows and segments or not. Named by the rows of
 * table.c; tests/coll/sent_test.cc holds each of them against the lists.
 */
#include "../base/base.h"
#include "table.h"
#include "windows.h"

/* Chunk c of the call, counted around the end. */
static uint64_t chunk_bytes(const struct rf_coll_desc *desc, int c)
{
    return rf_chunk(desc->count, desc->ranks, c % desc->ranks, rf_dtype_bytes(desc->dtype)).bytes;
}

static uint64_t others(const struct rf_coll_desc *desc)
{
    return (uint64_t)desc->ranks - 1;
}

/* ---- one size of message, and who sends it --------------------------------------------------- */

uint64_t rf_sent_nothing(const struct rf_coll_desc *desc)
{
    return 0;
}

uint64_t rf_sent_to_all(const struct rf_coll_desc *desc)
{
    return others(desc) * rf_coll_bytes(desc);
}

/* Of a send the root is the peer. */
uint64_t rf_sent_to_root(const struct rf_coll_desc *desc)
{
    return desc->rank == desc->root ? 0 : rf_coll_bytes(desc);
}

uint64_t rf_sent_by_root(const struct rf_coll_desc *desc)
{
    return desc->rank == desc->root ? rf_sent_to_all(desc) : 0;
}

uint64_t rf_sent_naive_all_reduce(const struct rf_coll_desc *desc)
{
    return desc->rank == 0 ? rf_sent_to_all(desc) : rf_coll_bytes(desc);
}

/* ---- a count for each rank --------------------------------------------------------------------
 */

static uint64_t piece_bytes(const struct rf_coll_desc *desc, int rank)
{
    return (uint64_t)desc->counts[rank % desc->ranks] * rf_dtype_bytes(desc->dtype);
}

uint64_t rf_sent_other_pieces(const struct rf_coll_desc *desc)
{
    return (uint64_t)rf_coll_bytes(desc) - piece_bytes(desc, desc->rank);
}

uint64_t rf_sent_own_piece(const struct rf_coll_desc *desc)
{
    return others(desc) * piece_bytes(desc, desc->rank);
}

/* All pieces but that of the neighbour to whom it sends. */
uint64_t rf_sent_around(const struct rf_coll_desc *desc)
{
    return (uint64_t)rf_coll_bytes(desc) - piece_bytes(desc, desc->rank + 1);
}

/* In each round the pieces that it has, which are its own and those of the ranks after it: twice as
 * many in each, but for the last. */
uint64_t rf_sent_bruck(const struct rf_coll_desc *desc)
{
    uint64_t sent = 0;
    for (int has = 1; has < desc->ranks; has *= 2)
        for (int k = 0; k < has && k < desc->ranks - has; k++)
            sent += piece_bytes(desc, desc->rank + k);
    return sent;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* All chunks twice, but the one that it completes and the one that its neighbour has completed. */
uint64_t rf_sent_ring_all_reduce(const struct rf_coll_desc *desc)
{
    return 2 * (uint64_t)rf_coll_bytes(desc) - chunk_bytes(desc, desc->rank + 1) -
           chunk_bytes(desc, desc->rank + 2);
}

/* Every other chunk to its owner, and the sum of its own to all. */
uint64_t rf_sent_direct_all_reduce(const struct rf_coll_desc *desc)
{
    uint64_t own = chunk_bytes(desc, desc->rank);
    return rf_coll_bytes(desc) - own + others(desc) * own;
}

uint64_t rf_sent_direct_reduce(const struct rf_coll_desc *desc)
{
    uint64_t own = chunk_bytes(desc, desc->rank);
    return rf_coll_bytes(desc) - (desc->rank == desc->root ? own : 0);
}

uint64_t rf_sent_recursive_doubling_all_reduce(const struct rf_coll_desc *desc)
{
    uint64_t sent = 0;
    for (int64_t bit = 1; bit < desc->ranks; bit *= 2)
        sent += rf_coll_bytes(desc);
    return sent;
}

/* In each round the range in hand is cut in two: the half that is given away now, and the one that
 * is kept, which goes the same way when it is finished, are the whole range. */
uint64_t rf_sent_rabenseifner_all_reduce(const struct rf_coll_desc *desc)
{
    const size_t element = rf_dtype_bytes(desc->dtype);
    uint64_t sent = 0;
    for (int ranks = desc->ranks; ranks > 1; ranks /= 2) {
        const int first = desc->rank & ~(ranks - 1);
        struct rf_byte_range begin = rf_chunk(desc->count, desc->ranks, first, element);
        struct rf_byte_range last = rf_chunk(desc->count, desc->ranks, first + ranks - 1, element);
        sent += last.offset + last.bytes - begin.offset;
    }
    return sent;
}

/* ---- trees from the root on ------------------------------------------------------------------ */

/* Places of the subtree under this rank, itself among them: as many as its lowest bit says, where
 * there are so many ranks. */
static int64_t subtree(const struct rf_coll_desc *desc)
{
    const int64_t place = (desc->rank - (int64_t)desc->root + desc->ranks) % desc->ranks;
    int64_t places = 1;
    while (places < desc->ranks && !(place & places))
        places *= 2;
    return places < desc->ranks - place ? places : desc->ranks - place;
}

uint64_t rf_sent_tree_broadcast(const struct rf_coll_desc *desc)
{
    uint64_t sent = 0;
    for (int64_t child = 1; child < subtree(desc); child *= 2)
        sent += rf_coll_bytes(desc);
    return sent;
}

uint64_t rf_sent_chain_broadcast(const struct rf_coll_desc *desc)
{
    const int last = (desc->root + desc->ranks - 1) % desc->ranks;
    return desc->rank == last ? 0 : rf_coll_bytes(desc);
}

uint64_t rf_sent_tree_gather(const struct rf_coll_desc *desc)
{
    return desc->rank == desc->root ? 0 : (uint64_t)subtree(desc) * rf_coll_bytes(desc);
}

uint64_t rf_sent_tree_scatter(const struct rf_coll_desc *desc)
{
    return (uint64_t)(subtree(desc) - 1) * rf_coll_bytes(desc);
}

/* ---- sums over micro-batches ------------------------------------------------------------------
 */

/* Of each window every other chunk of each part of its own to the chunk's owner, and the sum of its
 * own chunk to all. Windows are alike but for the last. */
uint64_t rf_sent_forest_all_reduce(const struct rf_coll_desc *desc)
{
    const uint64_t parts = (uint64_t)rf_forest_nodes(desc->forest, desc->rank, NULL);
    const uint64_t all = rf_coll_bytes(desc);
    struct rf_windows windows = {.desc = desc};
    rf_windows_cut(&windows, desc, all, true);
    struct rf_coll_desc window = *desc, last = *desc;
    const uint64_t before = windows.count - 1;
    if (before > 0)
        window.count = windows.width / rf_dtype_bytes(desc->dtype);
    last.count = desc->count - before * window.count;
    const uint64_t own = before * chunk_bytes(&window, desc->rank) + chunk_bytes(&last, desc->rank);
    return parts * (all - own) + others(desc) * own;
}

uint64_t rf_sent_forest_reduce_scatter(const struct rf_coll_desc *desc)
{
    const uint64_t parts = (uint64_t)rf_forest_nodes(desc->forest, desc->rank, NULL);
    return parts * (desc->count - desc->counts[desc->rank]) * rf_dtype_bytes(desc->dtype);
}

uint64_t rf_sent_prefix_reduce_scatter(const struct rf_coll_desc *desc)
{
    const bool has_leaf = desc->rank < rf_prefix_round(desc).leaves;
    const size_t sent = has_leaf ? desc->count - desc->counts[desc->rank] : 0;
    return sent * rf_dtype_bytes(desc->dtype);
}
