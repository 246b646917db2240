/* SPDX-License-Identifier: MIT
 *
 * Pass: where the gradients of each micro-batch go, when they are cleared, merged and reduced.
 *
 * Ring order: one slot; micro-batches accumulate in it one after the other. Tree order: a stack of
 * slots; each micro-batch is pushed, and sibling subtrees are merged, so that what is left are the
 * rank's maximal subtrees, in index order. Either way a piece is reduced as soon as the last
 * micro-batch's backward pass has completed it. A call that finds no earlier gradients of its block
 * in the slot does not read it: what it declares as written, it may write.
 */
#include <assert.h>

#include "../base/base.h"
#include "list.h"
#include "passes.h"

struct node {
    int level, index;
};

struct pass {
    struct rf_writer w;
    struct rf_plan *plan;
    bool tree;
    int micro_batch, slot; /* whose backward pass is under way, and where its gradients go */
    int merges;            /* that it allows */
    bool fresh;            /* nothing was in the slot before */
    struct node stack[64];
    int depth;
    int *age; /* of a piece's sum that has travelled in 16 bits: blocks since; -1: none */
};

static bool is_backward(const struct rf_instruction *i)
{
    return i->verb == RF_VERB_BACKWARD_INPUT || i->verb == RF_VERB_BACKWARD_WEIGHT;
}

static int grad(struct pass *p, int slot, int piece)
{
    return rf_value_of(p->plan, RF_VALUE_GRAD, -1, -1, slot, piece);
}

static void write_zero(struct pass *p)
{
    rf_write(&p->w, RF_VERB_ZERO, RF_LANE_COMPUTE, -1, -1);
    for (int k = 0; k < p->plan->trained_pieces; k++)
        rf_write_out(&p->w, grad(p, p->slot, k));
}

/* Adds slot `right` to the one before it: one piece, or all (-1). */
static void write_merge(struct pass *p, int right, int piece)
{
    const int first = piece < 0 ? 0 : piece;
    const int end = piece < 0 ? p->plan->trained_pieces : piece + 1;
    rf_write(&p->w, RF_VERB_MERGE, RF_LANE_COMPUTE, -1, -1);
    for (int k = first; k < end; k++)
        rf_write_in(&p->w, grad(p, right - 1, k));
    for (int k = first; k < end; k++)
        rf_write_in(&p->w, grad(p, right, k));
    for (int k = first; k < end; k++)
        rf_write_out(&p->w, grad(p, right - 1, k));
}

/* How many merges the top of the stack allows: subtrees that are left and right sibling. */
static int mergeable(const struct pass *p)
{
    struct node top = p->stack[p->depth - 1];
    int merges = 0;
    for (int at = p->depth - 2; at >= 0; at--) {
        struct node left = p->stack[at];
        if (left.level != top.level || left.index % 2 != 0 || left.index + 1 != top.index)
            break;
        top = (struct node){left.level + 1, left.index / 2};
        merges++;
    }
    return merges;
}

static void pop_merged(struct pass *p)
{
    for (; p->merges > 0; p->merges--) {
        p->depth--;
        struct node *left = &p->stack[p->depth - 1];
        *left = (struct node){left->level + 1, left->index / 2};
    }
}

static void begin_micro_batch(struct pass *p, int micro_batch)
{
    p->fresh = p->tree || p->micro_batch < 0;
    p->micro_batch = micro_batch;
    if (p->tree) {
        p->slot = p->depth;
        p->stack[p->depth++] = (struct node){0, micro_batch};
        p->merges = mergeable(p);
    }
    if (p->slot >= p->plan->slots)
        p->plan->slots = p->slot + 1;
    if (p->fresh)
        write_zero(p);
}

/* The call as it was, with the gradients of its block's parameters. */
static void write_backward(struct pass *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->plan;
    const int first = plan->first_param[i->block];
    rf_write(&p->w, i->verb, i->lane, i->block, i->micro_batch);
    for (int k = 0; k < i->ins; k++)
        rf_write_in(&p->w, plan->operands[i->first_operand + k]);
    for (int writes = p->fresh; writes < 2; writes++) {
        for (int k = 0; writes && k < i->outs; k++)
            rf_write_out(&p->w, plan->operands[i->first_operand + i->ins + k]);
        for (int k = 0; k < plan->blocks[i->block].param_count; k++) {
            const int piece = plan->params[first + k].grad_piece;
            bool before = piece < 0;
            for (int other = 0; other < k && !before; other++)
                before = plan->params[first + other].grad_piece == piece;
            if (!before && writes)
                rf_write_out(&p->w, grad(p, p->slot, piece));
            else if (!before)
                rf_write_in(&p->w, grad(p, p->slot, piece));
        }
    }
}

/* Where a sum in 16 bits arrives: in place, unless each rank has a shard of it. */
static enum rf_value_kind narrow_sum(const struct rf_plan *plan)
{
    return plan->shards > 1 ? RF_VALUE_GRAD_NARROW_SHARD : RF_VALUE_GRAD_NARROW;
}

/* This rank's part of a sum over the ranks. */
static void write_reduce(struct pass *p, int piece)
{
    const struct rf_plan *plan = p->plan;
    struct rf_transfer transfer = {.op = RF_COLL_ALL_REDUCE,
                                   .count = plan->pieces[piece].count,
                                   .dtype = plan->policy.reduce_dtype,
                                   .order = plan->policy.order};
    const bool sharded = plan->shards > 1, narrow = rf_plan_narrows(plan);
    if (p->tree)
        transfer.op = sharded ? RF_COLL_FOREST_REDUCE_SCATTER : RF_COLL_FOREST_ALL_REDUCE;
    else if (sharded)
        transfer.op = RF_COLL_REDUCE_SCATTER;
    if (sharded)
        transfer.counts = plan->pieces[piece].counts;
    if (plan->policy.update_on_rank_0) {
        transfer.op = RF_COLL_REDUCE;
        transfer.algorithm = RF_TO_RANK_0;
    }
    if (narrow)
        rf_write_cast(&p->w, RF_VALUE_GRAD, RF_VALUE_GRAD_NARROW, piece);
    rf_write(&p->w, RF_VERB_REDUCE, plan->shard_lane, -1, -1);
    for (int slot = 0; !narrow && (slot < p->depth - p->merges || slot == 0); slot++)
        rf_write_in(&p->w, grad(p, slot, piece));
    if (narrow)
        rf_write_in(&p->w, rf_value_of(p->plan, RF_VALUE_GRAD_NARROW, -1, -1, -1, piece));
    if (rf_plan_updates(plan))
        rf_write_out(&p->w, rf_value_of(p->plan, narrow ? narrow_sum(plan) : RF_VALUE_GRAD_SHARD,
                                        -1, -1, -1, piece));
    rf_write_transfer(&p->w, transfer);
    rf_write_replicas(&p->w, piece);
    p->age[piece] = narrow && rf_plan_updates(plan) ? 0 : -1;
}

/* Sums that have travelled long enough. */
static void widen(struct pass *p, int age)
{
    for (int k = 0; k < p->plan->trained_pieces; k++) {
        if (p->age[k] < age || p->age[k] < 0)
            continue;
        p->age[k] = -1;
        rf_write_cast(&p->w, narrow_sum(p->plan), RF_VALUE_GRAD_SHARD, k);
    }
}

static void complete_block(struct pass *p, int block)
{
    const struct rf_plan *plan = p->plan;
    for (int k = 0; k < plan->trained_pieces; k++) {
        if (p->age[k] >= 0)
            p->age[k]++;
        if (plan->pieces[k].block != block)
            continue;
        for (int i = 0; i < p->merges; i++)
            write_merge(p, p->depth - 1 - i, k);
        write_reduce(p, k);
    }
    widen(p, block == 0 ? 0 : RF_SETTLE);
}

static void end_micro_batch(struct pass *p, bool reduced)
{
    for (int i = 0; !reduced && i < p->merges; i++)
        write_merge(p, p->depth - 1 - i, -1);
    pop_merged(p);
}

static void write_instruction(struct pass *p, const struct rf_instruction *i, int last)
{
    const bool reduces = p->plan->mesh.dp > 1 && i->micro_batch == last;
    if (!is_backward(i)) {
        rf_write_copy(&p->w, i);
        return;
    }
    if (i->micro_batch != p->micro_batch)
        begin_micro_batch(p, i->micro_batch);
    write_backward(p, i);
    if (i->verb != RF_VERB_BACKWARD_WEIGHT)
        return;
    if (reduces)
        complete_block(p, i->block);
    if (i->block == 0)
        end_micro_batch(p, reduces);
}

int rf_pass_gradients(struct rf_plan *plan)
{
    struct rf_list *list = &plan->lists[RF_LIST_STEP], written = {0};
    struct pass p = {.w = {.plan = plan, .list = &written},
                     .plan = plan,
                     .tree = plan->policy.order == RF_ORDER_TREE,
                     .micro_batch = -1};
    const int last = rf_plan_micro_batch(plan, plan->local_micro_batches - 1);
    if (plan->policy.forward_only || plan->stage >= 2)
        return 0;
    p.age = rf_alloc(((size_t)plan->piece_count + 1) * sizeof(*p.age));
    if (!p.age)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the pieces");
    for (int k = 0; k < plan->piece_count; k++)
        p.age[k] = -1;
    for (int i = 0; i < list->count; i++)
        write_instruction(&p, &list->instructions[i], last);
    if (p.tree && plan->mesh.dp == 1)
        /* Not a power of two: the tree's right edge is cut off, and what is there is folded from
         * the right, as the reduction over ranks does it. */
        for (; p.depth > 1; p.depth--)
            write_merge(&p, p.depth - 1, -1);
    assert(!p.tree || plan->mesh.dp == 1 ||
           p.depth == rf_forest_nodes(&plan->forest, plan->rank, NULL));
    rf_free(p.age);
    return rf_write_end(&p.w, list);
}
