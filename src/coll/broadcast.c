/* SPDX-License-Identifier: MIT
 *
 * Broadcast in OUT, from the root down a tree, segment by segment: a binomial tree if latency
 * dominates, a chain if bandwidth does (each rank then sends the data once). Also, for comparison,
 * from the root to all ranks ("flat").
 */
#include <math.h>

#include "algorithm.h"

#include "../base/base.h"

enum { MOST_CHILDREN = 32 };

/* Sends every segment on to the children when it arrives. Ranks are relative to the root here. */
static void pass_down(struct rf_sched *sched, const struct rf_coll_desc *desc, int parent,
                      const int *children, int child_count)
{
    struct rf_byte_range whole = {0, desc->count * sched->element_bytes};
    struct rf_cut cut = rf_cut(whole.bytes, desc->segment_bytes, sched->element_bytes, 1);
    for (uint32_t j = 0; j < cut.count; j++) {
        struct rf_byte_range piece = rf_segment(whole, cut.segment, j);
        uint32_t recv = RF_NO_STEP;
        if (parent >= 0)
            recv = rf_sched_recv(sched, (parent + desc->root) % desc->ranks, j,
                                 rf_out(piece.offset), piece.bytes);
        for (int i = 0; i < child_count; i++) {
            uint32_t send = rf_sched_send(sched, (children[i] + desc->root) % desc->ranks, j,
                                          rf_out(piece.offset), piece.bytes);
            rf_sched_dep(sched, send, recv);
        }
    }
}

static void build_tree(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    int relative = (desc->rank - desc->root + desc->ranks) % desc->ranks;
    int bit = 1;
    while (bit < desc->ranks && !(relative & bit))
        bit *= 2;
    /* Below its lowest set bit a rank has one child per bit; the largest subtree is served first.
     */
    int children[MOST_CHILDREN], count = 0;
    for (int below = bit / 2; below > 0; below /= 2)
        if (relative + below < desc->ranks)
            children[count++] = relative + below;
    pass_down(sched, desc, relative == 0 ? -1 : relative - bit, children, count);
}

static void build_chain(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    int relative = (desc->rank - desc->root + desc->ranks) % desc->ranks;
    int child = relative + 1;
    pass_down(sched, desc, relative - 1, &child, child < desc->ranks);
}

static void build_flat(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    const bool is_root = desc->rank == desc->root;
    int *children = rf_sched_scratch(sched, (size_t)desc->ranks, sizeof(*children));
    for (int i = 1; children && i < desc->ranks; i++)
        children[i - 1] = i;
    if (children)
        pass_down(sched, desc, is_root ? -1 : 0, children, is_root ? desc->ranks - 1 : 0);
    rf_free(children);
}

/* ---- the records ----------------------------------------------------------------------------- */

enum { SHORTEST_SEGMENT = 64 << 10, LONGEST_SEGMENT = 1 << 20 };

/* The root of a tree sends log2(N) times as much as that of a chain, which matters if links are the
 * limit. With shared memory, ranks wait less in a tree, until all together reach the memory
 * bandwidth; with three ranks, the root alone copies everything that is sent. */
static bool prefers_tree_broadcast(const struct rf_coll_desc *desc)
{
    const size_t shared_limit = desc->ranks == 3 ? 256 * 1024 : 4 * 1024 * 1024;
    return desc->ranks <= 2 || rf_coll_bytes(desc) <= (desc->shared ? shared_limit : 64 * 1024);
}

static double cost_tree_broadcast(const struct rf_cost_view *v)
{
    return v->rounds * rf_cost_hop(v, v->bytes);
}

static uint64_t sent_tree_broadcast(const struct rf_coll_desc *desc)
{
    uint64_t sent = 0;
    for (int64_t child = 1; child < rf_subtree(desc); child *= 2)
        sent += rf_coll_bytes(desc);
    return sent;
}

static double cost_chain_broadcast(const struct rf_cost_view *v)
{
    double first = v->bytes < v->segment ? v->bytes : v->segment;
    return (v->others - 1) * (v->m->round_s + first * v->m->byte_s) + rf_cost_hop(v, v->bytes);
}

static uint64_t sent_chain_broadcast(const struct rf_coll_desc *desc)
{
    const int last = (desc->root + desc->ranks - 1) % desc->ranks;
    return desc->rank == last ? 0 : rf_coll_bytes(desc);
}

/* In a chain each rank but the last waits for one segment, and every segment costs a message: the
 * sum is minimal if both are equal. */
static size_t segment_chain(const struct rf_coll_desc *desc)
{
    const struct rf_coll_model *model = desc->model;
    if (!model || desc->ranks < 3)
        return rf_usual_segment(desc);
    double bytes = (double)desc->count * (double)rf_dtype_bytes(desc->dtype);
    double best = sqrt(bytes * model->fan_message_s / ((desc->ranks - 2) * model->byte_s));
    size_t segment = SHORTEST_SEGMENT;
    while (segment < LONGEST_SEGMENT && (double)segment * M_SQRT2 < best)
        segment *= 2;
    return segment;
}

const struct rf_algorithm rf_tree_broadcast = {
    .op = RF_COLL_BROADCAST,
    .name = "tree",
    .note = "up to 64 KiB; up to 4 MiB if ranks share memory (three ranks: 256 KiB); every size on "
            "two ranks",
    .bytes = "K log2 N (the root)",
    .why_not = rf_why_no_peers,
    .preferred = prefers_tree_broadcast,
    .cost = cost_tree_broadcast,
    .build = build_tree,
    .sent = sent_tree_broadcast,
    .rounds = {.tree = 1},
};

const struct rf_algorithm rf_chain_broadcast = {
    .op = RF_COLL_BROADCAST,
    .name = "chain",
    .note = "long",
    .bytes = "K",
    .why_not = rf_why_no_peers,
    .cost = cost_chain_broadcast,
    .build = build_chain,
    .sent = sent_chain_broadcast,
    .rounds = {.around = 1},
    .segment = segment_chain,
};

const struct rf_algorithm rf_flat_broadcast = {
    .op = RF_COLL_BROADCAST,
    .name = "flat",
    .note = "never chosen: from the root to all, for comparison",
    .bytes = "(N-1) K (the root)",
    .why_not = rf_why_no_peers,
    .never_by_size = true,
    .build = build_flat,
    .sent = rf_sent_by_root,
    .rounds = {.fixed = 1},
};
