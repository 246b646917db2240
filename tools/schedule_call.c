/* SPDX-License-Identifier: MIT
 *
 * Properties of a call that do not depend on its algorithm: each rank's role, input and output, and
 * the minimum of bytes sent.
 */
#include "schedule.h"

/* ---- ranks ----------------------------------------------------------------------------------- */

bool schedule_desc_of(const struct schedule_call *call, int rank, struct rf_schedule_desc *out)
{
    *out = call->desc;
    if (rf_coll_is_point(call->desc.op)) { /* between rank 0 and the root */
        if (rank != 0 && rank != call->desc.root)
            return false;
        if (rank != 0) {
            out->op = call->desc.op == RF_COLL_SEND ? RF_COLL_RECV : RF_COLL_SEND;
            out->root = 0;
        }
    }
    if (call->same) { /* an all-to-all: the counts sent to this rank */
        for (int r = 0; r < out->ranks; r++)
            call->same[r] = call->counts[rank];
        out->recv_counts = call->same;
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct rf_schedule_range schedule_side(const struct schedule_call *call, int rank,
                                       enum rf_schedule_space space)
{
    struct rf_schedule_desc desc;
    struct rf_schedule_range range;
    if (!schedule_desc_of(call, rank, &desc) ||
        rf_schedule_get_side(&desc, rank, space, &range) < 0)
        return (struct rf_schedule_range){0, 0};
    return range;
}

/* ---- the least ------------------------------------------------------------------------------- */

uint64_t schedule_elements(const struct schedule_call *call)
{
    uint64_t elements = call->desc.op == RF_COLL_BARRIER ? 0 : call->desc.count;
    for (int r = 0; call->counts && r < call->desc.ranks; r++)
        elements = (r ? elements : 0) + call->counts[r];
    return elements;
}

bool schedule_is_of_each(const struct schedule_call *call)
{
    return !call->counts && rf_coll_has_shares(call->desc.op);
}

static uint64_t share_out(uint64_t bytes, uint64_t times, uint64_t ranks)
{
    return (uint64_t)(((unsigned __int128)bytes * times + ranks - 1) / ranks);
}

/* Elements of the largest share; without with_root: of any rank but the root. */
static uint64_t largest_share(const struct rf_schedule_desc *desc, bool with_root)
{
    uint64_t largest = 0;
    for (int r = 0; r < desc->ranks; r++) {
        const uint64_t share = desc->counts ? desc->counts[r] : desc->count;
        if ((with_root || r != desc->root) && share > largest)
            largest = share;
    }
    return largest;
}

uint64_t schedule_least_bytes(const struct schedule_call *call, const char **formula)
{
    const struct rf_schedule_desc *desc = &call->desc;
    const uint64_t element = rf_dtype_bytes(desc->dtype), ranks = (uint64_t)desc->ranks;
    const bool gathers = desc->op == RF_COLL_ALL_GATHER || desc->op == RF_COLL_GATHER;
    const uint64_t whole =
        schedule_side(call, desc->root, gathers ? RF_SCHEDULE_OUT : RF_SCHEDULE_IN).count * element;
    const uint64_t larger = largest_share(desc, true) * element;
    uint64_t least = 0;
    *formula = NULL;
    if (ranks == 1)
        return 0;
    switch (desc->op) {
    case RF_COLL_ALL_REDUCE:
        *formula = "2 (N-1)/N K";
        return share_out(whole, 2 * (ranks - 1), ranks);
    case RF_COLL_ALL_GATHER:
        *formula = desc->counts ? "the larger of (N-1)/N K and the largest piece" : "(N-1)/N K";
        least = share_out(whole, ranks - 1, ranks);
        return larger > least ? larger : least;
    case RF_COLL_REDUCE_SCATTER:
    case RF_COLL_ALL_TO_ALL:
        *formula = desc->counts ? "K less a piece" : "(N-1)/N K";
        for (int r = 0; r < desc->ranks; r++) {
            const uint64_t own = (desc->counts ? desc->counts[r] : desc->count) * element;
            least = whole - own > least ? whole - own : least;
        }
        return least;
    case RF_COLL_GATHER:
        *formula = desc->counts ? "the largest piece" : "K/N";
        return largest_share(desc, false) * element;
    case RF_COLL_SCATTER:
        *formula = desc->counts ? "K less a piece" : "(N-1)/N K";
        return whole - (desc->counts ? desc->counts[desc->root] : desc->count) * element;
    case RF_COLL_BROADCAST:
    case RF_COLL_REDUCE:
        *formula = "K";
        return whole;
    case RF_COLL_SEND:
    case RF_COLL_RECV:
        *formula = "K";
        return desc->root == 0 ? 0 : desc->count * element;
    default:
        return 0;
    }
}
