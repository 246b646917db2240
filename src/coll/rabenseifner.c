/* SPDX-License-Identifier: MIT
 *
 * All-reduce by recursive halving and doubling (Rabenseifner 2004), for 2^k ranks: a ring's bytes
 * in 2 log2(N) rounds. In each round of the first half two ranks that differ in one bit swap halves
 * of the range they share and add what they get; the second half gathers the finished ranges the
 * same way back. The first half alone is a reduce-scatter. The sum is a pairwise tree over ranks,
 * the lower rank on the left. Called by table.c.
 */
#include "sched.h"

enum { MOST_ROUNDS = 31 };

static struct rf_byte_range range(const struct rf_sched *sched, const struct rf_coll_desc *desc,
                                  int first, int count)
{
    struct rf_byte_range begin = rf_chunk(desc->count, desc->ranks, first, sched->element_bytes);
    struct rf_byte_range last =
        rf_chunk(desc->count, desc->ranks, first + count - 1, sched->element_bytes);
    return (struct rf_byte_range){begin.offset, last.offset + last.bytes - begin.offset};
}

/* The first half, in staging memory: a rank ends with the sum of its own share. */
void rf_build_halving_reduce_scatter(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    const size_t share = desc->count * sched->element_bytes;
    struct rf_operand mine = rf_in(0); /* of the whole; it shrinks to the share */
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

void rf_build_rabenseifner_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
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
    /* What was given away in round i comes back finished, into the place it was sent from. */
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
