/* SPDX-License-Identifier: MIT
 *
 * Direct reduction: every rank sends each chunk of its input straight to the chunk's owner, who
 * folds all contributions at once in a given order; for an all-reduce the owner then sends the
 * result to all. A ring's bytes in two rounds instead of 2(N-1), and any fold order: around the
 * ring from the chunk's own rank, or pairwise. Reduce-scatter, all-reduce in either order, and the
 * sums over micro-batches (forest.c, prefix.c) are this one builder with different contributions.
 *
 */
#include "direct.h"

#include "../base/base.h"

enum { CACHE_BYTES = 8 << 20, SHORTEST_SEGMENT = 64 << 10 };

struct direct {
    struct rf_sched *sched;
    const struct rf_direct *plan;
    int rank, ranks;
    struct rf_cut cut;
    uint32_t parts;       /* of all ranks together */
    uint32_t window;      /* slots per part of another rank */
    uint32_t *first_slot; /* [rank] in units of parts, counted over the other ranks */
    uint32_t *folds;      /* [segment] */
    uint32_t *receives;   /* for the current segment */
    uint32_t receive_count;
    struct rf_operand *operands;
    size_t temp, slot_bytes;
    size_t own_sum;      /* temporary memory for this rank's sums, if OUT cannot hold them */
    uint32_t most_parts; /* maximum over ranks */
};

static int parts_of(const struct direct *direct, int rank)
{
    return direct->plan->part_counts ? direct->plan->part_counts[rank] : 1;
}

static int neighbour(const struct direct *direct, int distance)
{
    return (direct->rank + distance + direct->ranks) % direct->ranks;
}

static struct rf_operand slot(const struct direct *direct, int rank, int part, uint32_t segment)
{
    uint32_t index = direct->first_slot[rank] + (uint32_t)part;
    size_t number = (size_t)index * direct->window + segment % direct->window;
    return rf_tmp(direct->temp + number * direct->slot_bytes);
}

static struct rf_byte_range own_piece(const struct direct *direct, uint32_t segment)
{
    return rf_segment(direct->plan->chunk(direct->plan, direct->rank), direct->cut.segment,
                      segment);
}

/* Whether `rank` receives the sums of others. */
static bool collects(const struct direct *direct, int rank)
{
    const struct rf_direct *plan = direct->plan;
    return plan->sums == RF_SUMS_TO_ALL || (plan->sums == RF_SUMS_TO_ROOT && rank == plan->root);
}

/* The place of this rank's result: its final place if all results are collected, `offset` in OUT if
 * it stays here, else temporary memory. */
static struct rf_operand result(const struct direct *direct, struct rf_byte_range own,
                                size_t offset)
{
    if (collects(direct, direct->rank))
        return rf_out(own.offset);
    size_t base = direct->plan->chunk(direct->plan, direct->rank).offset;
    if (direct->plan->sums == RF_SUMS_STAY)
        return rf_out(offset + own.offset - base);
    return rf_tmp(direct->own_sum + own.offset - base);
}

static void receive_parts(struct direct *direct, uint32_t segment)
{
    struct rf_byte_range own = own_piece(direct, segment);
    direct->receive_count = 0;
    if (own.bytes == 0)
        return;
    for (int distance = 1; distance < direct->ranks; distance++) {
        int from = neighbour(direct, distance);
        for (int part = 0; part < parts_of(direct, from); part++) {
            uint32_t recv =
                rf_sched_recv(direct->sched, from, (uint32_t)part * direct->cut.count + segment,
                              slot(direct, from, part, segment), own.bytes);
            rf_sched_allow_zero_copy(direct->sched, recv);
            if (segment >= direct->window)
                rf_sched_dep(direct->sched, recv, direct->folds[segment - direct->window]);
            direct->receives[direct->receive_count++] = recv;
        }
    }
}

/* The next lower rank folds this rank's part right after its own, so it is served first. A sum is
 * received at the place its part was sent from, because OUT may be part 0. */
static void send_parts(struct direct *direct, uint32_t segment)
{
    const struct rf_direct *plan = direct->plan;
    for (int distance = 1; distance < direct->ranks; distance++) {
        int to = neighbour(direct, -distance);
        struct rf_byte_range piece =
            rf_segment(plan->chunk(plan, to), direct->cut.segment, segment);
        if (piece.bytes == 0)
            continue;
        uint32_t first = RF_NO_STEP;
        for (int part = 0; part < parts_of(direct, direct->rank); part++) {
            uint32_t send =
                rf_sched_send(direct->sched, to, (uint32_t)part * direct->cut.count + segment,
                              rf_in((size_t)part * plan->stride_bytes + piece.offset), piece.bytes);
            first = part == 0 ? send : first;
        }
        if (collects(direct, direct->rank)) {
            uint32_t sum =
                rf_sched_recv(direct->sched, to, direct->most_parts * direct->cut.count + segment,
                              rf_out(piece.offset), piece.bytes);
            rf_sched_dep(direct->sched, sum, first);
        }
    }
}

/* Lists the operands of this rank's sums in order; returns their number. */
static uint32_t list_operands(struct direct *direct, struct rf_byte_range own, uint32_t segment)
{
    const struct rf_direct *plan = direct->plan;
    const size_t base = plan->chunk(plan, direct->rank).offset;
    uint32_t count = 0;
    for (; count < plan->held_count; count++) {
        direct->operands[count] = rf_out(plan->held[count].offset + own.offset - base);
        direct->operands[count].level = (uint64_t)plan->held[count].level & 63;
    }
    for (int i = 0; i < direct->ranks; i++) {
        int rank = plan->tree ? i : neighbour(direct, i);
        for (int part = 0; part < parts_of(direct, rank); part++) {
            struct rf_operand operand = rank == direct->rank
                                            ? rf_in((size_t)part * plan->stride_bytes + own.offset)
                                            : slot(direct, rank, part, segment);
            operand.level = plan->levels ? plan->levels[count - plan->held_count] : 0;
            direct->operands[count++] = operand;
        }
    }
    return count;
}

/* Adds another of this rank's sums, after step `before`. */
static uint32_t add_sum(struct direct *direct, const struct rf_direct_sum *sum,
                        struct rf_byte_range own, uint32_t before)
{
    struct rf_sched *sched = direct->sched;
    uint32_t step =
        rf_sched_fold(sched, result(direct, own, sum->offset), direct->operands + sum->first,
                      sum->count, own.bytes, direct->plan->tree, sched->redop == RF_AVG);
    rf_sched_dep(sched, step, before);
    for (uint32_t i = 0; before == RF_NO_STEP && i < direct->receive_count; i++)
        rf_sched_dep(sched, step, direct->receives[i]);
    return step;
}

static void fold(struct direct *direct, uint32_t segment)
{
    const struct rf_direct *plan = direct->plan;
    struct rf_byte_range own = own_piece(direct, segment);
    if (own.bytes == 0)
        return;
    const struct rf_direct_sum all = {.count = list_operands(direct, own, segment)};
    uint32_t step = RF_NO_STEP;
    if (!plan->several)
        step = add_sum(direct, &all, own, step);
    for (uint32_t i = 0; i < plan->several_count; i++)
        step = add_sum(direct, &plan->several[i], own, step);
    direct->folds[segment] = step;
    const struct rf_operand sum = result(direct, own, 0);
    for (int distance = 1; distance < direct->ranks; distance++) {
        int to = neighbour(direct, -distance);
        if (!collects(direct, to))
            continue;
        uint32_t send = rf_sched_send(
            direct->sched, to, direct->most_parts * direct->cut.count + segment, sum, own.bytes);
        rf_sched_dep(direct->sched, send, step);
    }
}

/* All parts of a few segments should fit in the cache together. Depends only on values that all
 * ranks know. */
static size_t segment_for(size_t wanted, uint32_t parts)
{
    size_t share = CACHE_BYTES / ((size_t)parts * RF_WINDOW);
    share = share < SHORTEST_SEGMENT ? SHORTEST_SEGMENT : share;
    return wanted < share ? wanted : share;
}

static void prepare(struct direct *direct, const struct rf_coll_desc *desc)
{
    struct rf_sched *sched = direct->sched;
    direct->first_slot = rf_sched_scratch(sched, (size_t)direct->ranks, sizeof(uint32_t));
    if (!direct->first_slot)
        return;
    uint32_t others = 0;
    size_t longest = 0;
    for (int r = 0; r < direct->ranks; r++) {
        uint32_t parts = (uint32_t)parts_of(direct, r);
        struct rf_byte_range piece = direct->plan->chunk(direct->plan, r);
        direct->first_slot[r] = others;
        others += r == direct->rank ? 0 : parts;
        direct->parts += parts;
        direct->most_parts = parts > direct->most_parts ? parts : direct->most_parts;
        longest = piece.bytes > longest ? piece.bytes : longest;
    }
    direct->cut = rf_cut(longest, segment_for(desc->segment_bytes, direct->parts),
                         sched->element_bytes, direct->most_parts + 1);
    direct->window = direct->cut.count < RF_WINDOW ? direct->cut.count : RF_WINDOW;
    direct->slot_bytes = longest < direct->cut.segment ? longest : direct->cut.segment;
    direct->slot_bytes = (direct->slot_bytes + 63) / 64 * 64;
    direct->temp = rf_sched_temp(sched, (size_t)others * direct->window * direct->slot_bytes);
    if (direct->plan->sums == RF_SUMS_TO_ROOT && direct->rank != direct->plan->root)
        direct->own_sum =
            rf_sched_temp(sched, direct->plan->chunk(direct->plan, direct->rank).bytes);
    direct->folds = rf_sched_scratch(sched, direct->cut.count, sizeof(uint32_t));
    direct->receives = rf_sched_scratch(sched, others, sizeof(uint32_t));
    direct->operands = rf_sched_scratch(sched, (size_t)direct->parts + direct->plan->held_count,
                                        sizeof(struct rf_operand));
}

void rf_direct_build(struct rf_sched *sched, const struct rf_coll_desc *desc,
                     const struct rf_direct *plan)
{
    struct direct direct = {.sched = sched, .plan = plan, .rank = desc->rank, .ranks = desc->ranks};
    prepare(&direct, desc);
    for (uint32_t j = 0; sched->status == 0 && j < direct.cut.count; j++) {
        receive_parts(&direct, j);
        send_parts(&direct, j);
        fold(&direct, j);
    }
    rf_free(direct.first_slot);
    rf_free(direct.folds);
    rf_free(direct.receives);
    rf_free(direct.operands);
}

struct rf_byte_range rf_direct_ragged_chunk(const struct rf_direct *plan, int rank)
{
    return rf_chunk(plan->count, plan->ranks, rank, plan->element_bytes);
}

struct rf_byte_range rf_direct_share_chunk(const struct rf_direct *plan, int rank)
{
    struct rf_coll_desc desc = {.count = plan->count};
    return rf_share(&desc, plan->counts, rank, plan->element_bytes);
}

static void build_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    rf_direct_build(sched, desc,
                    &(struct rf_direct){.count = desc->count,
                                        .ranks = desc->ranks,
                                        .element_bytes = sched->element_bytes,
                                        .chunk = rf_direct_ragged_chunk,
                                        .tree = desc->order == RF_ORDER_TREE,
                                        .sums = RF_SUMS_TO_ALL});
}

static void build_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    rf_direct_build(sched, desc,
                    &(struct rf_direct){.count = desc->count,
                                        .ranks = desc->ranks,
                                        .element_bytes = sched->element_bytes,
                                        .chunk = rf_direct_ragged_chunk,
                                        .tree = desc->order == RF_ORDER_TREE,
                                        .sums = RF_SUMS_TO_ROOT,
                                        .root = desc->root});
}

static void build_reduce_scatter(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    rf_direct_build(sched, desc,
                    &(struct rf_direct){.count = desc->count,
                                        .ranks = desc->ranks,
                                        .element_bytes = sched->element_bytes,
                                        .counts = desc->counts,
                                        .chunk = rf_direct_share_chunk,
                                        .tree = desc->order == RF_ORDER_TREE});
}

/* ---- the records ----------------------------------------------------------------------------- */

/* Two rounds, compared with the ring's 2(N-1). */
static bool prefers_direct(const struct rf_coll_desc *desc)
{
    return rf_why_no_ring_order(desc) || (desc->ranks > 2 && rf_coll_bytes(desc) <= 512 * 1024);
}

/* Long messages that reach a rank from all others at once delay each other, which a trial of short
 * ones does not show: 88 % of links of 1 Gbit/s at 4 MiB, compared with the ring's 95 %. */
static double cost_direct_all_reduce(const struct rf_cost_view *v)
{
    const double held_up = v->share >= RF_UNCUT && v->others > 1 ? 1.08 : 1;
    return 2 * held_up * rf_cost_fan(v, v->share) + v->others * v->share * v->m->fold_byte_s;
}

/* Every other chunk to its owner, and the sum of its own chunk to all. */
static uint64_t sent_direct_all_reduce(const struct rf_coll_desc *desc)
{
    uint64_t own = rf_chunk_bytes(desc, desc->rank);
    return rf_coll_bytes(desc) - own + ((uint64_t)desc->ranks - 1) * own;
}

static uint64_t sent_direct_reduce(const struct rf_coll_desc *desc)
{
    uint64_t own = rf_chunk_bytes(desc, desc->rank);
    return rf_coll_bytes(desc) - (desc->rank == desc->root ? own : 0);
}

static double cost_direct_reduce_scatter(const struct rf_cost_view *v)
{
    return rf_cost_fan(v, v->share) + v->others * v->share * v->m->fold_byte_s;
}

static uint64_t sent_other_pieces(const struct rf_coll_desc *desc)
{
    return (uint64_t)rf_coll_bytes(desc) - rf_piece_bytes(desc, desc->rank);
}

const struct rf_algorithm rf_direct_all_reduce = {
    .op = RF_COLL_ALL_REDUCE,
    .name = "direct",
    .note =
        "up to 512 KiB on more than two ranks; every size of 16-bit types, averages and tree order",
    .bytes = "2 (N-1)/N K",
    .why_not = rf_why_no_peers,
    .preferred = prefers_direct,
    .cost = cost_direct_all_reduce,
    .build = build_all_reduce,
    .sent = sent_direct_all_reduce,
    .rounds = {.fixed = 2},
};

const struct rf_algorithm rf_direct_reduce = {
    .op = RF_COLL_REDUCE,
    .name = "direct",
    .note = "long: summed in pieces everywhere, gathered by the root",
    .bytes = "K",
    .why_not = rf_why_no_peers,
    .cost = cost_direct_all_reduce,
    .build = build_reduce,
    .sent = sent_direct_reduce,
    .rounds = {.fixed = 2},
};

const struct rf_algorithm rf_direct_reduce_scatter = {
    .op = RF_COLL_REDUCE_SCATTER,
    .name = "direct",
    .note = "every size",
    .bytes = "(N-1)/N K",
    .why_not = rf_why_no_peers,
    .cost = cost_direct_reduce_scatter,
    .build = build_reduce_scatter,
    .sent = rf_sent_to_all,
    .sent_counts = sent_other_pieces,
    .rounds = {.fixed = 1},
};
