/* SPDX-License-Identifier: MIT
 *
 * The sum of micro-batches in tree order, round by round: in each every rank brings the next leaf,
 * by index, and the owner of a chunk adds them to a binary counter of partial sums, the slots of
 * OUT. So after any round the leaves so far, a prefix, are there as their maximal aligned subtrees,
 * and at the end the sum has the bits of the forest's. Its sizes are public.
 */
#include "direct.h"

#include "../base/base.h"

static int top_of(int leaves)
{
    return 31 - __builtin_clz((unsigned)leaves);
}

/* The lowest level with a slot: after whole rounds there is nothing below the largest power of two
 * that divides the ranks. */
static int lowest_of(int leaves, int ranks)
{
    return leaves > ranks ? __builtin_ctz((unsigned)ranks) : top_of(leaves);
}

int rf_prefix_rounds(int leaves, int ranks)
{
    return leaves < 1 || ranks < 1 ? 0 : (leaves - 1) / ranks + 1;
}

int rf_prefix_slots(int leaves, int ranks)
{
    return leaves < 1 || ranks < 1 ? 0 : top_of(leaves) - lowest_of(leaves, ranks) + 1;
}

uint32_t rf_prefix_levels(int leaves, int ranks, int rounds)
{
    const int all = rf_prefix_rounds(leaves, ranks);
    if (rounds < 1 || rounds > all)
        return 0;
    const uint32_t levels =
        rounds < all ? (uint32_t)rounds * (uint32_t)ranks : 1u << top_of(leaves);
    return levels >> lowest_of(leaves, ranks);
}

struct rf_prefix_round rf_prefix_round(const struct rf_coll_desc *desc)
{
    const int leaves = desc->leaves, ranks = desc->ranks;
    const uint32_t first = (uint32_t)desc->round * (uint32_t)ranks;
    const uint32_t left = (uint32_t)leaves - first;
    struct rf_prefix_round round = {.lowest = lowest_of(leaves, ranks),
                                    .last = left <= (uint32_t)ranks};
    round.leaves = round.last ? (int)left : ranks;
    if (round.last) {
        round.reads = first;
        round.writes = 1u << top_of(leaves);
        return round;
    }
    /* Levels above the highest one that becomes 1 do not change. */
    const uint32_t end = first + (uint32_t)ranks;
    const uint32_t changed = (2u << top_of((int)(first ^ end))) - 1;
    round.reads = first & changed;
    round.writes = end & changed;
    return round;
}

int rf_prefix_check(const struct rf_coll_desc *desc)
{
    const char *op = rf_coll_op_name(desc->op);
    const int rounds = rf_prefix_rounds(desc->leaves, desc->ranks);
    if (desc->leaves < 1)
        return rf_fail(RF_EINVAL, "%s: %d leaves; at least one is needed", op, desc->leaves);
    if (desc->round < 0 || desc->round >= rounds)
        return rf_fail(RF_EINVAL, "%s: %d leaves on %d ranks come in rounds 0 to %d, not in %d", op,
                       desc->leaves, desc->ranks, rounds - 1, desc->round);
    if (!desc->counts)
        return rf_fail(RF_EINVAL, "%s: the counts of %d ranks are NULL", op, desc->ranks);
    if (desc->dtype != RF_F32 || desc->redop != RF_SUM)
        return rf_fail(RF_EINVAL, "%s: sums of f32 only", op);
    return 0;
}

/* ---- the list -------------------------------------------------------------------------------- */

enum { LEVELS = 31 };

struct counter {
    struct rf_direct_held held[LEVELS];
    struct rf_direct_sum sums[LEVELS];
    uint32_t held_count, sum_count;
};

/* The operands are the held partial sums, from the highest level on, and then the round's leaves.
 * Each sum uses the next few operands: the highest sum uses all held ones, because it ends the
 * subtree that they begin. */
static void count_up(struct counter *counter, const struct rf_prefix_round *round,
                     size_t slot_bytes)
{
    for (int level = LEVELS; level-- > 0;)
        if (round->reads >> level & 1)
            counter->held[counter->held_count++] = (struct rf_direct_held){
                .offset = (size_t)(level - round->lowest) * slot_bytes, .level = level};
    const uint32_t operands = counter->held_count + (uint32_t)round->leaves;
    uint32_t next = 0;
    for (int level = LEVELS; level-- > 0;) {
        if (!(round->writes >> level & 1))
            continue;
        uint32_t count = 1u << level;
        if (next == 0)
            count += counter->held_count - round->reads;
        if (round->last)
            count = operands;
        counter->sums[counter->sum_count++] = (struct rf_direct_sum){
            .first = next, .count = count, .offset = (size_t)(level - round->lowest) * slot_bytes};
        next += count;
    }
    assert(next == operands);
}

static void build_prefix(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    const struct rf_prefix_round round = rf_prefix_round(desc);
    struct counter counter = {0};
    count_up(&counter, &round, desc->counts[desc->rank] * sched->element_bytes);
    int *parts = rf_sched_scratch(sched, (size_t)desc->ranks, sizeof(*parts));
    if (!parts)
        return;
    for (int r = 0; r < round.leaves; r++)
        parts[r] = 1;
    struct rf_coll_desc own = *desc;
    if (own.segment_bytes == 0)
        own.segment_bytes = RF_TREE_SEGMENT;
    rf_direct_build(sched, &own,
                    &(struct rf_direct){.count = desc->count,
                                        .ranks = desc->ranks,
                                        .element_bytes = sched->element_bytes,
                                        .chunk = rf_direct_share_chunk,
                                        .counts = desc->counts,
                                        .part_counts = parts,
                                        .tree = true,
                                        .sums = RF_SUMS_STAY,
                                        .held = counter.held,
                                        .held_count = counter.held_count,
                                        .several = counter.sums,
                                        .several_count = counter.sum_count});
    rf_free(parts);
}

/* ---- the record ------------------------------------------------------------------------------ */

static uint64_t sent_prefix_reduce_scatter(const struct rf_coll_desc *desc)
{
    const bool has_leaf = desc->rank < rf_prefix_round(desc).leaves;
    const size_t sent = has_leaf ? desc->count - desc->counts[desc->rank] : 0;
    return sent * rf_dtype_bytes(desc->dtype);
}

const struct rf_algorithm rf_prefix_reduce_scatter = {
    .op = RF_COLL_PREFIX_REDUCE_SCATTER,
    .name = "prefix",
    .note = "every size",
    .bytes = "(N-1)/N K of each leaf",
    .build = build_prefix,
    .sent = sent_prefix_reduce_scatter,
    .rounds = {.fixed = 1},
};
