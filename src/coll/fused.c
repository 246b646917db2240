/* SPDX-License-Identifier: MIT
 *
 * All-reduce among ranks that reach each other's memory: each folds its chunk out of all ranks'
 * inputs and writes the sum into all ranks' outputs, so that every input is read once and every
 * output written once. Chunks and folds are those of the ring, so the bits are the same. If a
 * rank's buffers cannot be reached, all see it in the addresses and continue with another schedule.
 *
 *
 * In place is safe: a chunk is read and written by its owner alone.
 */
#include "algorithm.h"

enum { SEGMENT_BYTES = 256 << 10 };

/* Tags that no other schedule begins with. */
enum { TAG_ADDRESSES = RF_MAX_TAG, TAG_ENDED = RF_MAX_TAG - 1 };

static_assert(sizeof(struct rf_addresses) <= RF_TEMP_ALIGNMENT, "one place for each rank");

/* All ranks exchange addresses. Nothing is read before all have arrived. */
static uint32_t agree(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    const size_t place = RF_TEMP_ALIGNMENT;
    size_t table = rf_sched_temp(sched, place * (size_t)desc->ranks);
    struct rf_operand own = rf_tmp(table + place * (size_t)desc->rank);
    uint32_t addresses = rf_sched_exchange_addresses(sched, own),
             agreed = rf_sched_agree(sched, rf_tmp(table));
    for (int distance = 1; distance < desc->ranks; distance++) {
        int to = (desc->rank + distance) % desc->ranks;
        int from = (desc->rank - distance + desc->ranks) % desc->ranks;
        uint32_t send = rf_sched_send(sched, to, TAG_ADDRESSES, own, sizeof(struct rf_addresses));
        uint32_t recv =
            rf_sched_recv(sched, from, TAG_ADDRESSES, rf_tmp(table + place * (size_t)from),
                          sizeof(struct rf_addresses));
        rf_sched_dep(sched, send, addresses);
        rf_sched_dep(sched, agreed, send);
        rf_sched_dep(sched, agreed, recv);
    }
    rf_sched_dep(sched, agreed, addresses);
    sched->address_bytes = sched->sent_bytes;
    return agreed;
}

static void build_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct rf_byte_range own = rf_chunk(desc->count, desc->ranks, desc->rank, sched->element_bytes);
    bool tree = desc->order == RF_ORDER_TREE;
    size_t segment = SEGMENT_BYTES / (size_t)desc->ranks / 64 * 64;
    uint32_t before = agree(sched, desc), ended = rf_sched_join(sched);
    sched->buffer_bytes = desc->count * sched->element_bytes;
    rf_sched_dep(sched, ended, before);
    for (size_t j = 0; j * segment < own.bytes; j++) {
        struct rf_byte_range piece = rf_segment(own, segment, j);
        uint32_t fold = rf_sched_reduce_all(sched, piece.offset, piece.bytes, desc->rank, tree,
                                            desc->redop == RF_AVG);
        rf_sched_dep(sched, fold, before);
        rf_sched_dep(sched, ended, fold);
    }
    for (int distance = 1; distance < desc->ranks; distance++) {
        int to = (desc->rank + distance) % desc->ranks;
        int from = (desc->rank - distance + desc->ranks) % desc->ranks;
        rf_sched_dep(sched, rf_sched_send(sched, to, TAG_ENDED, rf_out(0), 0), ended);
        rf_sched_dep(sched, rf_sched_recv(sched, from, TAG_ENDED, rf_out(0), 0), before);
    }
}

/* ---- the record ------------------------------------------------------------------------------ */

/* Shorter ones are sent whole to all ranks. Two ranks send each other messages up to the second: a
 * sum is published as it is added, which is faster once the data exceed private caches. */
enum { SHORTEST_SHARED = 32 << 10, LONGEST_SUM_OF_TWO = 1 << 20 };

static const char *why_not_fused(const struct rf_coll_desc *desc)
{
    return desc->ranks > 1 && desc->shared && desc->count > 0
               ? NULL
               : "it needs two ranks or more that share memory, and elements";
}

/* Shorter ones travel inside the lines that would announce them. */
static bool prefers_fused(const struct rf_coll_desc *desc)
{
    return rf_coll_bytes(desc) > 8 * 1024;
}

static const char *fallback_fused(const struct rf_coll_desc *desc, struct rf_coll_desc *other)
{
    const size_t bytes = rf_coll_bytes(desc);
    const bool shares = bytes > SHORTEST_SHARED && !rf_why_not_shared(desc);
    *other = *desc;
    other->shared = shares && desc->shared;
    if (!shares)
        return NULL;
    return desc->ranks == 2 && bytes <= LONGEST_SUM_OF_TWO ? "direct" : "shared";
}

const struct rf_algorithm rf_fused_all_reduce = {
    .op = RF_COLL_ALL_REDUCE,
    .name = "fused",
    .note = "over 8 KiB on buffers of `rf_comm_alloc` that all ranks reach",
    .bytes = "2 (N-1)/N K",
    .why_not = why_not_fused,
    .preferred = prefers_fused,
    .build = build_all_reduce,
    .rounds = {.fixed = 2},
    .whole = true,
    .shares_memory = true,
    .fallback = fallback_fused,
};
