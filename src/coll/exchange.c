/* SPDX-License-Identifier: MIT
 *
 * Every rank to every rank: all-to-all by pairs, and Bruck's all-gather (Bruck et al. 1997) for
 * short pieces, in log2(N) messages where flat.c sends N-1. Called by table.c.
 */
#include "sched.h"

/* Rank i sends to i-1, i-2, ... and receives from i+1, i+2, ..., segment by segment, so that no two
 * ranks aim at the same one first. */
void rf_build_pairs_all_to_all(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    size_t element = sched->element_bytes;
    const size_t *in = desc->counts, *out = in ? desc->recv_counts : NULL;
    for (int distance = 0; distance < desc->ranks; distance++) {
        int from = (desc->rank + distance) % desc->ranks;
        int to = (desc->rank - distance + desc->ranks) % desc->ranks;
        struct rf_byte_range get = rf_share(desc, out, from, element);
        struct rf_byte_range put = rf_share(desc, in, to, element);
        struct rf_byte_range back = rf_share(desc, in, from, element);
        if (distance == 0) {
            if (put.bytes > 0)
                rf_sched_copy(sched, rf_out(get.offset), rf_in(put.offset), put.bytes);
            continue;
        }
        /* Both ends of a piece know its length, and no more. */
        struct rf_cut get_cut = rf_cut(get.bytes, desc->segment_bytes, element, 1);
        struct rf_cut put_cut = rf_cut(put.bytes, desc->segment_bytes, element, 1);
        for (uint32_t j = 0; j < get_cut.count || j < put_cut.count; j++) {
            struct rf_byte_range piece = rf_segment(get, get_cut.segment, j);
            if (piece.bytes > 0)
                rf_sched_exchange(sched,
                                  rf_sched_recv(sched, from, j, rf_out(piece.offset), piece.bytes),
                                  rf_segment(back, get_cut.segment, j).bytes);
            piece = rf_segment(put, put_cut.segment, j);
            if (piece.bytes > 0)
                rf_sched_send(sched, to, j, rf_in(piece.offset), piece.bytes);
        }
    }
}

/* Bytes of the `count` shares from rank `first` on, around the end. */
static size_t bytes_from(const struct rf_coll_desc *desc, size_t element, int first, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (desc->counts ? desc->counts[(first + i) % desc->ranks] : desc->count) * element;
    return bytes;
}

/* In temporary memory a rank holds the shares of itself, the next one, and so on; in each round it
 * gets as many again as it has, from the rank that far ahead. */
void rf_build_bruck_all_gather(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    int ranks = desc->ranks, rank = desc->rank;
    size_t element = sched->element_bytes;
    size_t all = bytes_from(desc, element, 0, ranks), held = bytes_from(desc, element, rank, 1);
    size_t temp = rf_sched_temp(sched, all);
    uint32_t ready = RF_NO_STEP, round = 0;
    if (held > 0)
        ready = rf_sched_copy(sched, rf_tmp(temp), rf_in(0), held);
    for (int have = 1; have < ranks; have *= 2, round++) {
        int count = have < ranks - have ? have : ranks - have;
        int from = (rank + have) % ranks, to = (rank - have + ranks) % ranks;
        size_t get = bytes_from(desc, element, from, count);
        size_t put = bytes_from(desc, element, rank, count);
        uint32_t join = rf_sched_join(sched);
        rf_sched_dep(sched, join, ready);
        if (put > 0)
            rf_sched_dep(sched, rf_sched_send(sched, to, round, rf_tmp(temp), put), ready);
        if (get > 0)
            rf_sched_dep(sched, join, rf_sched_recv(sched, from, round, rf_tmp(temp + held), get));
        held += get;
        ready = join;
    }
    /* Two copies turn it back: this rank and those above it, then those below. */
    size_t above = bytes_from(desc, element, rank, ranks - rank), below = all - above;
    if (above > 0)
        rf_sched_dep(sched, rf_sched_copy(sched, rf_out(below), rf_tmp(temp), above), ready);
    if (below > 0)
        rf_sched_dep(sched, rf_sched_copy(sched, rf_out(0), rf_tmp(temp + above), below), ready);
}
