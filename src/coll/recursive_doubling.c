/* SPDX-License-Identifier: MIT
 *
 * All-reduce by recursive doubling (Thakur, Rabenseifner, Gropp 2005), for short messages and 2^k
 * ranks: in round i each rank exchanges its partial sum with the rank that differs in bit i, so it
 * sends log2(N) messages instead of flat.c's N-1. Lower ranks are the left operand, so the sum is
 * the pairwise tree over ranks and equal everywhere.
 */
#include "algorithm.h"

static void build_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    size_t bytes = desc->count * sched->element_bytes;
    struct rf_operand mine = rf_in(0);
    uint32_t ready = RF_NO_STEP, first_send = RF_NO_STEP;
    uint32_t round = 0;
    for (int bit = 1; bit < desc->ranks; bit *= 2, round++) {
        int peer = desc->rank ^ bit;
        bool last = bit * 2 >= desc->ranks;
        struct rf_operand theirs = rf_tmp(rf_sched_temp(sched, bytes));
        struct rf_operand sum = last ? rf_out(0) : rf_tmp(rf_sched_temp(sched, bytes));
        uint32_t recv = rf_sched_recv(sched, peer, round, theirs, bytes);
        uint32_t send = rf_sched_send(sched, peer, round, mine, bytes);
        rf_sched_dep(sched, send, ready);
        first_send = round == 0 ? send : first_send;
        bool lower = desc->rank < peer;
        uint32_t reduce =
            rf_sched_reduce(sched, sum, lower ? mine : theirs, lower ? theirs : mine, bytes);
        rf_sched_dep(sched, reduce, recv);
        rf_sched_dep(sched, reduce, ready);
        if (last)
            rf_sched_dep(sched, reduce, first_send); /* OUT may be IN */
        mine = sum;
        ready = reduce;
    }
}

/* ---- the record ------------------------------------------------------------------------------ */

/* With four ranks a second round costs more than one more short message. */
static bool prefers_recursive_doubling(const struct rf_coll_desc *desc)
{
    size_t least = desc->ranks == 4 ? 4 * 1024 : 0;
    return desc->ranks >= 4 && rf_coll_bytes(desc) > least && rf_coll_bytes(desc) <= 64 * 1024;
}

static double cost_recursive_doubling_all_reduce(const struct rf_cost_view *v)
{
    return rf_cost_uncut(v->bytes, RF_UNCUT,
                         v->rounds * (rf_cost_hop(v, v->bytes) + v->bytes * v->m->fold_byte_s));
}

static uint64_t sent_recursive_doubling_all_reduce(const struct rf_coll_desc *desc)
{
    uint64_t sent = 0;
    for (int64_t bit = 1; bit < desc->ranks; bit *= 2)
        sent += rf_coll_bytes(desc);
    return sent;
}

const struct rf_algorithm rf_recursive_doubling_all_reduce = {
    .op = RF_COLL_ALL_REDUCE,
    .name = "recursive_doubling",
    .note =
        "up to 64 KiB on a power of two of ranks, 8 or more; over 4 KiB on four; any or tree order",
    .bytes = "K log2 N",
    .why_not = rf_why_no_doubling,
    .preferred = prefers_recursive_doubling,
    .cost = cost_recursive_doubling_all_reduce,
    .build = build_all_reduce,
    .sent = sent_recursive_doubling_all_reduce,
    .rounds = {.log = 1},
    .whole = true,
};
