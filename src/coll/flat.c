/* SPDX-License-Identifier: MIT
 *
 * Short messages: every rank sends its whole input to the ranks that fold it, in one round: to all
 * (all-reduce, all-gather) or to the root (reduce). Each chunk is folded in exactly the ring's
 * order, so the bits do not depend on the size. Also the simplest algorithm, for comparison: all to
 * rank 0 and back ("naive").
 */
#include "algorithm.h"

#include <math.h>

#include "../base/base.h"

/* The places of all ranks' inputs on a rank that folds: its own in IN, others in temporary memory;
 * and space for a list of operands after them. */
static struct rf_operand *make_places(struct rf_sched *sched, const struct rf_coll_desc *desc,
                                      size_t bytes)
{
    struct rf_operand *places =
        rf_sched_scratch(sched, 2 * (size_t)desc->ranks, sizeof(struct rf_operand));
    for (int r = 0; places && r < desc->ranks; r++)
        places[r] = r == desc->rank ? rf_in(0) : rf_tmp(rf_sched_temp(sched, bytes));
    return places;
}

/* Receives every other rank's input, if this rank `folds`, and sends its own to all ranks, or only
 * to `root` if that is >= 0. Returns a step that joins all of them. */
static uint32_t exchange(struct rf_sched *sched, const struct rf_coll_desc *desc,
                         const struct rf_operand *places, size_t bytes, int root)
{
    uint32_t join = rf_sched_join(sched);
    for (int distance = 1; distance < desc->ranks; distance++) {
        int from = (desc->rank + distance) % desc->ranks;
        int to = (desc->rank - distance + desc->ranks) % desc->ranks;
        if (root < 0 || desc->rank == root)
            rf_sched_dep(sched, join, rf_sched_recv(sched, from, 0, places[from], bytes));
        if (root < 0 || to == root)
            rf_sched_dep(sched, join, rf_sched_send(sched, to, 0, rf_in(0), bytes));
    }
    return join;
}

static uint32_t fold_chunk(struct rf_sched *sched, const struct rf_coll_desc *desc,
                           struct rf_operand *places, struct rf_byte_range piece, int start,
                           uint32_t after)
{
    struct rf_operand *operands = places + desc->ranks;
    for (int i = 0; i < desc->ranks; i++) {
        operands[i] = places[(start + i) % desc->ranks];
        operands[i].offset += piece.offset;
    }
    uint32_t fold = rf_sched_fold(sched, rf_out(piece.offset), operands, (uint32_t)desc->ranks,
                                  piece.bytes, desc->order == RF_ORDER_TREE, desc->redop == RF_AVG);
    rf_sched_dep(sched, fold, after);
    return fold;
}

/* OUT = the sum of all places; the folds also wait for the sends, because OUT may be IN. Returns a
 * step that joins the folds. */
static uint32_t fold_all(struct rf_sched *sched, const struct rf_coll_desc *desc,
                         struct rf_operand *places, size_t bytes, uint32_t after)
{
    if (desc->order == RF_ORDER_TREE)
        return fold_chunk(sched, desc, places, (struct rf_byte_range){0, bytes}, 0, after);
    uint32_t join = rf_sched_join(sched);
    for (int c = 0; c < desc->ranks; c++) {
        struct rf_byte_range piece = rf_chunk(desc->count, desc->ranks, c, sched->element_bytes);
        if (piece.bytes > 0)
            rf_sched_dep(sched, join, fold_chunk(sched, desc, places, piece, c, after));
    }
    return join;
}

static void build_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    size_t bytes = desc->count * sched->element_bytes;
    struct rf_operand *places = make_places(sched, desc, bytes);
    if (!places)
        return;
    fold_all(sched, desc, places, bytes, exchange(sched, desc, places, bytes, -1));
    rf_free(places);
}

/* Sends one part of a long message to the root, which folds it while the next parts arrive. */
static void reduce_part(struct rf_sched *sched, const struct rf_coll_desc *desc,
                        struct rf_operand *places, struct rf_byte_range part, int start,
                        uint32_t tag)
{
    if (desc->rank != desc->root) {
        rf_sched_send(sched, desc->root, tag, rf_in(part.offset), part.bytes);
        return;
    }
    const uint32_t join = rf_sched_join(sched);
    for (int distance = 1; distance < desc->ranks; distance++) {
        const int from = (desc->rank + distance) % desc->ranks;
        struct rf_operand to = places[from];
        to.offset += part.offset;
        rf_sched_dep(sched, join, rf_sched_recv(sched, from, tag, to, part.bytes));
    }
    fold_chunk(sched, desc, places, part, desc->order == RF_ORDER_TREE ? 0 : start, join);
}

static void reduce_in_parts(struct rf_sched *sched, const struct rf_coll_desc *desc,
                            struct rf_operand *places)
{
    uint32_t tag = 0;
    for (int c = 0; c < desc->ranks; c++) {
        struct rf_byte_range chunk = rf_chunk(desc->count, desc->ranks, c, sched->element_bytes);
        struct rf_cut cut = rf_cut(chunk.bytes, desc->segment_bytes, sched->element_bytes, 1);
        for (uint32_t i = 0; i < cut.count && chunk.bytes > 0; i++)
            reduce_part(sched, desc, places, rf_segment(chunk, cut.segment, i), c, tag++);
    }
}

static void build_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    size_t bytes = desc->count * sched->element_bytes;
    if (desc->is_window || (desc->segment_bytes > 0 && bytes > desc->segment_bytes)) {
        struct rf_operand *places =
            desc->rank == desc->root ? make_places(sched, desc, bytes) : NULL;
        if (places || desc->rank != desc->root)
            reduce_in_parts(sched, desc, places);
        rf_free(places);
        return;
    }
    if (desc->rank != desc->root) {
        rf_sched_send(sched, desc->root, 0, rf_in(0), bytes);
        return;
    }
    struct rf_operand *places = make_places(sched, desc, bytes);
    if (!places)
        return;
    fold_all(sched, desc, places, bytes, exchange(sched, desc, places, bytes, desc->root));
    rf_free(places);
}

static void build_naive_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    size_t bytes = desc->count * sched->element_bytes;
    if (desc->rank != 0) {
        uint32_t send = rf_sched_send(sched, 0, 0, rf_in(0), bytes);
        rf_sched_dep(sched, rf_sched_recv(sched, 0, 1, rf_out(0), bytes), send);
        return;
    }
    struct rf_operand *places = make_places(sched, desc, bytes);
    if (!places)
        return;
    uint32_t sums = fold_all(sched, desc, places, bytes, exchange(sched, desc, places, bytes, 0));
    for (int to = 1; to < desc->ranks; to++)
        rf_sched_dep(sched, rf_sched_send(sched, to, 1, rf_out(0), bytes), sums);
    rf_free(places);
}

static void build_all_gather(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct rf_byte_range own = rf_share(desc, desc->counts, desc->rank, sched->element_bytes);
    for (int distance = 1; distance < desc->ranks; distance++) {
        int from = (desc->rank + distance) % desc->ranks;
        int to = (desc->rank - distance + desc->ranks) % desc->ranks;
        struct rf_byte_range share = rf_share(desc, desc->counts, from, sched->element_bytes);
        if (share.bytes > 0)
            rf_sched_exchange(
                sched, rf_sched_recv(sched, from, 0, rf_out(share.offset), share.bytes), own.bytes);
        if (own.bytes > 0)
            rf_sched_send(sched, to, 0, rf_in(0), own.bytes);
    }
    if (own.bytes > 0)
        rf_sched_copy(sched, rf_out(own.offset), rf_in(0), own.bytes);
}

/* ---- the records ----------------------------------------------------------------------------- */

/* One round, but N-1 times the data; for two ranks that equals the ring. Above this size the ring's
 * segments are twice as fast on TCP (messages that exceed the socket's buffer slow the connection
 * down afterwards), and make no difference in shared memory. */
static bool prefers_flat(const struct rf_coll_desc *desc)
{
    size_t limit = desc->ranks == 2 ? 256 * 1024 : desc->ranks <= 4 ? 8 * 1024 : 1024;
    return rf_coll_bytes(desc) <= limit;
}

static double cost_flat_all_reduce(const struct rf_cost_view *v)
{
    return rf_cost_uncut(v->bytes, RF_UNCUT,
                         rf_cost_fan(v, v->bytes) + v->others * v->bytes * v->m->fold_byte_s);
}

/* Two ranks that share memory both fold, a half each. That pays off for long sums, because it sends
 * half as much again. Over a network the root folds while the rest arrives. */
static bool prefers_flat_reduce(const struct rf_coll_desc *desc)
{
    const size_t limit = desc->ranks == 2 ? 256 * 1024 : 64 * 1024;
    return rf_coll_bytes(desc) <= limit || (desc->ranks == 2 && !desc->shared);
}

/* While the root adds a part, nobody receives. So a sender waits once the data in flight fills the
 * buffers, and nothing overlaps the last part's sum. With a quarter of the size that suits ranks
 * that both send and receive, 1 and 4 MiB over TCP take a seventh less time. */
static size_t segment_flat_reduce(const struct rf_coll_desc *desc)
{
    return rf_usual_segment(desc) / (desc->shared ? 1 : 4);
}

static uint64_t sent_naive_all_reduce(const struct rf_coll_desc *desc)
{
    return desc->rank == 0 ? rf_sent_to_all(desc) : rf_coll_bytes(desc);
}

static bool prefers_flat_gather(const struct rf_coll_desc *desc)
{
    return desc->ranks == 2 || rf_coll_piece_bytes(desc) <= 256 * 1024;
}

static double cost_flat_all_gather(const struct rf_cost_view *v)
{
    return rf_cost_uncut(v->share, v->ranks > 2 ? RF_UNCUT : HUGE_VAL, rf_cost_fan(v, v->share));
}

static uint64_t sent_own_piece(const struct rf_coll_desc *desc)
{
    return ((uint64_t)desc->ranks - 1) * rf_piece_bytes(desc, desc->rank);
}

const struct rf_algorithm rf_flat_all_reduce = {
    .op = RF_COLL_ALL_REDUCE,
    .name = "flat",
    .note = "up to 256 KiB on two ranks, 8 KiB on three and four, 1 KiB on more",
    .bytes = "(N-1) K",
    .why_not = rf_why_no_peers,
    .preferred = prefers_flat,
    .cost = cost_flat_all_reduce,
    .build = build_all_reduce,
    .sent = rf_sent_to_all,
    .rounds = {.fixed = 1},
    .whole = true,
};

const struct rf_algorithm rf_naive_all_reduce = {
    .op = RF_COLL_ALL_REDUCE,
    .name = "naive",
    .note = "never chosen: all to rank 0 and back, for comparison",
    .bytes = "(N-1) K (rank 0)",
    .why_not = rf_why_no_peers,
    .never_by_size = true,
    .build = build_naive_all_reduce,
    .sent = sent_naive_all_reduce,
    .rounds = {.fixed = 2},
    .whole = true,
};

const struct rf_algorithm rf_flat_reduce = {
    .op = RF_COLL_REDUCE,
    .name = "flat",
    .note = "up to 64 KiB (two ranks: 256 KiB); every size on two ranks that share no memory",
    .bytes = "K",
    .why_not = rf_why_no_peers,
    .preferred = prefers_flat_reduce,
    .cost = cost_flat_all_reduce,
    .build = build_reduce,
    .sent = rf_sent_to_root,
    .rounds = {.fixed = 1},
    .segment = segment_flat_reduce,
};

const struct rf_algorithm rf_flat_all_gather = {
    .op = RF_COLL_ALL_GATHER,
    .name = "flat",
    .note = "pieces up to 256 KiB; every size on two ranks",
    .bytes = "(N-1)/N K",
    .why_not = rf_why_no_peers,
    .preferred = prefers_flat_gather,
    .cost = cost_flat_all_gather,
    .build = build_all_gather,
    .sent = rf_sent_to_all,
    .sent_counts = sent_own_piece,
    .rounds = {.fixed = 1},
};
