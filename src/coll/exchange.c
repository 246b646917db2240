/* SPDX-License-Identifier: MIT
 *
 * Every rank to every rank: all-to-all by pairs, and Bruck's all-gather (Bruck et al. 1997) for
 * short pieces, in log2(N) messages where flat.c sends N-1.
 */
#include "algorithm.h"

/* Rank i sends to i-1, i-2, ... and receives from i+1, i+2, ..., segment by segment, so that ranks
 * do not all send to the same one first. */
static void build_all_to_all(struct rf_sched *sched, const struct rf_coll_desc *desc)
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
        /* Only the two ends of a piece know its length. */
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

/* Bytes of the `count` shares from rank `first` on, wrapping around. */
static size_t bytes_from(const struct rf_coll_desc *desc, size_t element, int first, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (desc->counts ? desc->counts[(first + i) % desc->ranks] : desc->count) * element;
    return bytes;
}

/* In temporary memory a rank holds its own share, the next rank's, and so on. In each round it
 * receives as many shares as it has, from the rank that far ahead. */
static void build_bruck_all_gather(struct rf_sched *sched, const struct rf_coll_desc *desc)
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
    /* Two copies rotate the result: this rank's share and those above it, then those below. */
    size_t above = bytes_from(desc, element, rank, ranks - rank), below = all - above;
    if (above > 0)
        rf_sched_dep(sched, rf_sched_copy(sched, rf_out(below), rf_tmp(temp), above), ready);
    if (below > 0)
        rf_sched_dep(sched, rf_sched_copy(sched, rf_out(0), rf_tmp(temp + above), below), ready);
}

/* ---- the records ----------------------------------------------------------------------------- */

/* Fewer messages than flat, but more bytes. */
static bool prefers_bruck(const struct rf_coll_desc *desc)
{
    return desc->shared ? desc->ranks > 8 && rf_coll_piece_bytes(desc) <= 2048
                        : desc->ranks > 3 && rf_coll_piece_bytes(desc) <= 16 * 1024;
}

static double cost_bruck_all_gather(const struct rf_cost_view *v)
{
    return rf_cost_uncut(v->bytes / 2, RF_LONGEST_UNCUT,
                         v->rounds * v->m->round_s + v->others * v->share * v->m->byte_s +
                             2 * v->bytes * v->m->fold_byte_s); /* two copies of all data */
}

/* In each round the pieces that it has, which are its own and those of the ranks after it: twice as
 * many in each round except the last. */
static uint64_t sent_bruck(const struct rf_coll_desc *desc)
{
    uint64_t sent = 0;
    for (int has = 1; has < desc->ranks; has *= 2)
        for (int k = 0; k < has && k < desc->ranks - has; k++)
            sent += rf_piece_bytes(desc, desc->rank + k);
    return sent;
}

const struct rf_algorithm rf_pairs_all_to_all = {
    .op = RF_COLL_ALL_TO_ALL,
    .name = "pairs",
    .note = "every size",
    .bytes = "(N-1)/N K",
    .why_not = rf_why_no_peers,
    .build = build_all_to_all,
    .sent = rf_sent_to_all,
    .rounds = {.fixed = 1},
};

const struct rf_algorithm rf_bruck_all_gather = {
    .op = RF_COLL_ALL_GATHER,
    .name = "bruck",
    .note = "pieces up to 2 KiB on more than 8 ranks; without shared memory up to 16 KiB on four "
            "or more",
    .bytes = "(N-1)/N K",
    .why_not = rf_why_no_peers,
    .preferred = prefers_bruck,
    .cost = cost_bruck_all_gather,
    .build = build_bruck_all_gather,
    .sent = rf_sent_to_all,
    .sent_counts = sent_bruck,
    .rounds = {.log = 1},
    .whole = true,
};
