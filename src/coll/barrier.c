/* SPDX-License-Identifier: MIT
 *
 * Dissemination barrier (Hensgen, Finkel, Manber 1988): in round i each rank sends to the one 2^i
 * ahead that it and all it has received from have come. Empty messages, which still carry the
 * contract; so it also serves collectives of nothing.
 */
#include "algorithm.h"

static void build_barrier(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    uint32_t received = RF_NO_STEP; /* joins all rounds so far: receives may finish in any order */
    uint32_t round = 0;
    for (int64_t ahead = 1; ahead < desc->ranks; ahead *= 2, round++) {
        int to = (int)((desc->rank + ahead) % desc->ranks);
        int from = (int)((desc->rank + desc->ranks - ahead) % desc->ranks);
        uint32_t recv = rf_sched_recv(sched, from, round, rf_tmp(0), 0);
        uint32_t send = rf_sched_send(sched, to, round, rf_tmp(0), 0);
        rf_sched_dep(sched, send, received);
        uint32_t join = rf_sched_join(sched);
        rf_sched_dep(sched, join, recv);
        rf_sched_dep(sched, join, received);
        received = join;
    }
}

/* ---- the record ------------------------------------------------------------------------------ */

static const char *is_empty(const struct rf_coll_desc *desc)
{
    /* Counts of an all-to-all differ between ranks. */
    bool empty = !desc->recv_counts && (rf_operation(desc->op)->out == RF_SHAPE_NONE ||
                                        (desc->count == 0 && !rf_coll_is_point(desc->op)));
    return empty ? NULL : "it is for calls without elements";
}

const struct rf_algorithm rf_dissemination = {
    .op = RF_COLL_NONE,
    .name = "dissemination",
    .note = "calls without elements: nothing but the contract",
    .bytes = "0",
    .why_not = is_empty,
    .build = build_barrier,
    .sent = rf_sent_nothing,
    .rounds = {.log = 1},
    .whole = true,
};
