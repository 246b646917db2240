/* SPDX-License-Identifier: MIT
 *
 * Broadcast in OUT, from the root down a tree, segment by segment: a binomial tree where latency
 * counts, a chain where bandwidth does (each rank then sends the data once). And, for comparison,
 * from the root to everybody ("flat"). Called by table.c.
 */
#include "sched.h"

#include "../base/base.h"

enum { MOST_CHILDREN = 32 };

/* Sends every segment on to the children as it comes in. Ranks are relative to the root here. */
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

void rf_build_tree_broadcast(struct rf_sched *sched, const struct rf_coll_desc *desc)
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

void rf_build_chain_broadcast(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    int relative = (desc->rank - desc->root + desc->ranks) % desc->ranks;
    int child = relative + 1;
    pass_down(sched, desc, relative - 1, &child, child < desc->ranks);
}

void rf_build_flat_broadcast(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    const bool is_root = desc->rank == desc->root;
    int *children = rf_sched_scratch(sched, (size_t)desc->ranks, sizeof(*children));
    for (int i = 1; children && i < desc->ranks; i++)
        children[i - 1] = i;
    if (children)
        pass_down(sched, desc, is_root ? -1 : 0, children, is_root ? desc->ranks - 1 : 0);
    rf_free(children);
}
