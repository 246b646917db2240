/* SPDX-License-Identifier: MIT
 *
 * All-reduce by recursive halving and doubling (Rabenseifner 2004), for 2^k ranks: a ring's bytes
 * in 2 log2(N) rounds. In each round of the first half two ranks that differ in one bit swap halves
 * of the range they share and add what they get; the second half gathers the finished ranges the
 * same way back. The first half alone is a reduce-scatter. The sum is a pairwise tree over ranks,
 * the lower rank on the left.
 */
#include "algorithm.h"

enum { MOST_ROUNDS = 31 };

static struct rf_byte_range range(const struct rf_sched *sched, const struct rf_coll_desc *desc,
                                  int first, int count)
{
    struct rf_byte_range begin = rf_chunk(desc->count, desc->ranks, first, sched->element_bytes);
    struct rf_byte_range last =
        rf_chunk(desc->count, desc->ranks, first + count - 1, sched->element_bytes);
    return (struct rf_byte_range){begin.offset, last.offset + last.bytes - begin.offset};
}

/* The first half only, in staging memory: a rank ends with the sum of its own share. */
static void build_reduce_scatter(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    const size_t share = desc->count * sched->element_bytes;
    struct rf_operand mine = rf_in(0); /* of all data; it shrinks to the share */
    uint32_t ready = RF_NO_STEP, tag = 0;
    for (int half = desc->ranks / 2; half > 0; half /= 2, tag++) {
        const int peer = desc->rank ^ half;
        const bool lower = desc->rank < peer;
        const size_t bytes = (size_t)half * share;
        struct rf_operand keep = mine, give = mine, theirs = rf_tmp(rf_sched_temp(sched, bytes));
        keep.offset += lower ? 0 : bytes;
        give.offset += lower ? bytes : 0;
        rf_sched_dep(sched, rf_sched_send(sched, peer, tag, give, bytes), ready);
        const struct rf_operand to = half == 1 ? rf_out(0) : rf_tmp(rf_sched_temp(sched, bytes));
        const uint32_t recv = rf_sched_recv(sched, peer, tag, theirs, bytes);
        const uint32_t sum =
            rf_sched_reduce(sched, to, lower ? keep : theirs, lower ? theirs : keep, bytes);
        rf_sched_dep(sched, sum, recv);
        rf_sched_dep(sched, sum, ready);
        mine = to;
        ready = sum;
    }
}

static void build_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    int rank = desc->rank;
    uint32_t sent[MOST_ROUNDS], ready = RF_NO_STEP;
    struct rf_byte_range given[MOST_ROUNDS], kept[MOST_ROUNDS];
    int rounds = 0;
    for (int half = desc->ranks / 2; half > 0; half /= 2, rounds++) {
        int peer = rank ^ half, base = rank & ~(2 * half - 1);
        bool lower = rank < peer;
        given[rounds] = range(sched, desc, base + (lower ? half : 0), half);
        kept[rounds] = range(sched, desc, base + (lower ? 0 : half), half);
        struct rf_byte_range keep = kept[rounds], give = given[rounds];
        struct rf_operand mine = rounds == 0 ? rf_in(keep.offset) : rf_out(keep.offset);
        struct rf_operand theirs = rf_tmp(rf_sched_temp(sched, keep.bytes));
        sent[rounds] = RF_NO_STEP;
        if (give.bytes > 0) {
            sent[rounds] =
                rf_sched_send(sched, peer, (uint32_t)rounds,
                              rounds == 0 ? rf_in(give.offset) : rf_out(give.offset), give.bytes);
            rf_sched_dep(sched, sent[rounds], ready);
        }
        if (keep.bytes == 0)
            continue;
        uint32_t recv = rf_sched_recv(sched, peer, (uint32_t)rounds, theirs, keep.bytes);
        uint32_t sum = rf_sched_reduce(sched, rf_out(keep.offset), lower ? mine : theirs,
                                       lower ? theirs : mine, keep.bytes);
        rf_sched_dep(sched, sum, recv);
        rf_sched_dep(sched, sum, ready);
        ready = sum;
    }
    /* The half sent away in round i comes back finished, to the place it was sent from. */
    for (int i = rounds - 1; i >= 0; i--) {
        int peer = rank ^ (desc->ranks >> (i + 1));
        uint32_t tag = (uint32_t)(rounds + i), join = rf_sched_join(sched);
        rf_sched_dep(sched, join, ready);
        if (kept[i].bytes > 0)
            rf_sched_dep(sched,
                         rf_sched_send(sched, peer, tag, rf_out(kept[i].offset), kept[i].bytes),
                         ready);
        if (given[i].bytes > 0) {
            uint32_t recv =
                rf_sched_recv(sched, peer, tag, rf_out(given[i].offset), given[i].bytes);
            rf_sched_dep(sched, recv, sent[i]);
            rf_sched_dep(sched, join, recv);
        }
        ready = join;
    }
}

/* ---- the records ----------------------------------------------------------------------------- */

static const char *why_not_rabenseifner(const struct rf_coll_desc *desc)
{
    const char *why = rf_why_no_doubling(desc);
    return why || desc->order == RF_ORDER_ANY ? why : "it does not add in tree order";
}

/* 2 log2(N) rounds, compared with direct's two, which have N-1 messages each. */
static bool prefers_rabenseifner(const struct rf_coll_desc *desc)
{
    return desc->ranks >= 16 && rf_coll_bytes(desc) <= 4 * 1024 * 1024;
}

static double cost_rabenseifner_all_reduce(const struct rf_cost_view *v)
{
    return rf_cost_uncut(v->bytes / 2, RF_LONGEST_EXCHANGED,
                         2 * v->rounds * v->m->round_s +
                             v->others * v->share * (2 * v->m->byte_s + v->m->fold_byte_s));
}

/* In each round the current range is halved. The half that is sent away now and the kept half,
 * which is sent the same way when finished, are together the whole range. */
static uint64_t sent_rabenseifner_all_reduce(const struct rf_coll_desc *desc)
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

static const char *why_not_halving(const struct rf_coll_desc *desc)
{
    return desc->counts ? "its pieces must be of one length" : why_not_rabenseifner(desc);
}

static bool prefers_halving(const struct rf_coll_desc *desc)
{
    return !desc->shared && desc->ranks > 3 && rf_coll_piece_bytes(desc) <= 16 * 1024;
}

static double cost_halving_reduce_scatter(const struct rf_cost_view *v)
{
    return rf_cost_uncut(v->bytes / 2, RF_LONGEST_EXCHANGED,
                         v->rounds * v->m->round_s +
                             v->others * v->share * (v->m->byte_s + v->m->fold_byte_s));
}

const struct rf_algorithm rf_rabenseifner_all_reduce = {
    .op = RF_COLL_ALL_REDUCE,
    .name = "rabenseifner",
    .note = "64 KiB to 4 MiB on a power of two of ranks, 16 or more; any order",
    .bytes = "2 (N-1)/N K",
    .why_not = why_not_rabenseifner,
    .preferred = prefers_rabenseifner,
    .cost = cost_rabenseifner_all_reduce,
    .build = build_all_reduce,
    .sent = sent_rabenseifner_all_reduce,
    .rounds = {.log = 2},
    .whole = true,
};

const struct rf_algorithm rf_halving_reduce_scatter = {
    .op = RF_COLL_REDUCE_SCATTER,
    .name = "halving",
    .note = "pieces up to 16 KiB on a power of two of ranks, 4 or more, that share no memory; any "
            "order",
    .bytes = "(N-1)/N K",
    .why_not = why_not_halving,
    .preferred = prefers_halving,
    .cost = cost_halving_reduce_scatter,
    .build = build_reduce_scatter,
    .sent = rf_sent_to_all,
    .rounds = {.log = 1},
    .whole = true,
};
