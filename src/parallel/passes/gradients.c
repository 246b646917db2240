/* SPDX-License-Identifier: MIT
 *
 * Pass: the slots of each micro-batch's gradients, and when they are cleared, merged and reduced.
 *
 * Ring order: there is one slot, in which micro-batches accumulate one after the other. Tree order:
 * there is a stack of slots. Each micro-batch is pushed, and sibling subtrees are merged, so the
 * first slots finally have the rank's maximal subtrees in index order. If weight halves are
 * delayed, several micro-batches have slots of their own before they are pushed. In both orders a
 * piece is reduced as soon as the backward pass of the last micro-batch has completed it. A call
 * that finds no earlier gradients of its block in the slot does not read it, and overwrites the
 * gradients for which it declares that.
 */
#include <assert.h>

#include "../../base/base.h"
#include "../plan/exchange.h"
#include "../plan/frozen.h"
#include "../plan/list.h"
#include "passes.h"
#include "stages.h"

struct node {
    int level, index, slot;
};

/* A micro-batch in a chunk of this rank. */
struct leaf {
    int slot;                /* slot of its gradients */
    int first_merge, merges; /* subtrees that it completes, in p->pairs */
};

struct pair {
    int left, right; /* slots: the right one is added to the left one */
};

enum { MOST_DEPTH = 64 };

struct accumulation {
    struct rf_writer w;
    struct rf_plan *plan;
    bool tree;
    bool at_once;        /* a slot is cleared and merged as a whole: one micro-batch at a time */
    struct leaf *leaves; /* by chunk and local micro-batch */
    struct pair *pairs;
    int pair_count;
    int left;        /* number of the rank's subtrees at the end */
    int held;        /* 2bw: number of slots, the first ones, that keep these until the update */
    bool behind;     /* 2bw: the last backward passes belong to the previous step */
    int micro_batch; /* the local micro-batch whose slot was cleared last; -1: none */
    int *cleared;    /* the same by piece */
    int *age;        /* by piece: blocks since its 16-bit sum was sent; -1: none */
    int *only;       /* by block: the only micro-batch with gradients in the slot; or one of: */
    int incomplete;  /* number of this rank's blocks whose last micro-batch is still to come */
};

enum { NONE = -1, SEVERAL = -2 };

static bool is_backward(const struct rf_instruction *i)
{
    return i->verb == RF_VERB_BACKWARD_INPUT || i->verb == RF_VERB_BACKWARD_WEIGHT;
}

static int grad(struct accumulation *p, int slot, int piece)
{
    return rf_value_of(p->plan, RF_VALUE_GRAD, -1, -1, slot, piece);
}

/* Clears one piece, or all (-1). A stage with only frozen blocks has none. */
static void write_zero(struct accumulation *p, int slot, int piece)
{
    if (p->plan->trained_pieces == 0)
        return;
    rf_write(&p->w, RF_VERB_ZERO, RF_LANE_COMPUTE, -1, -1);
    for (int k = 0; k < p->plan->trained_pieces; k++)
        if (piece < 0 || k == piece)
            rf_write_out(&p->w, RF_ROLE_GRAD, grad(p, slot, k));
}

/* Holds the sum, because the next step's backward passes come before this step's update. */
static void write_hold(struct accumulation *p, int piece)
{
    rf_write(&p->w, RF_VERB_HOLD, RF_LANE_COMPUTE, -1, -1);
    for (int slot = 0; slot < p->held; slot++)
        rf_write_in(&p->w, RF_ROLE_FROM, grad(p, p->held + slot, piece));
    for (int slot = 0; slot < p->held; slot++)
        rf_write_out(&p->w, RF_ROLE_TO, grad(p, slot, piece));
}

/* Merges one piece, or all (-1). */
static void write_merge(struct accumulation *p, struct pair slots, int piece)
{
    const int first = piece < 0 ? 0 : piece;
    const int end = piece < 0 ? p->plan->trained_pieces : piece + 1;
    if (first >= end)
        return;
    rf_write(&p->w, RF_VERB_MERGE, RF_LANE_COMPUTE, -1, -1);
    for (int k = first; k < end; k++)
        rf_write_in(&p->w, RF_ROLE_SUM, grad(p, slots.left, k));
    for (int k = first; k < end; k++)
        rf_write_in(&p->w, RF_ROLE_TERM, grad(p, slots.right, k));
    for (int k = first; k < end; k++)
        rf_write_out(&p->w, RF_ROLE_SUM, grad(p, slots.left, k));
}

/* The chunk of this rank that contains a block. */
static int chunk_of(const struct accumulation *p, int block)
{
    return block < 0 ? 0 : p->plan->stage_of[block] / p->plan->mesh.pp;
}

static struct leaf *leaf_of(const struct accumulation *p, int block, int local)
{
    return &p->leaves[chunk_of(p, block) * p->plan->local_micro_batches + local];
}

/* Whether the top two nodes of a stack are siblings. */
static bool siblings(const struct node *stack, int depth)
{
    const struct node *left = &stack[depth - 2], *top = &stack[depth - 1];
    return depth > 1 && left->level == top->level && left->index % 2 == 0 &&
           left->index + 1 == top->index;
}

static void push(struct node *stack, int *depth, struct node leaf, struct accumulation *p)
{
    stack[(*depth)++] = leaf;
    for (; siblings(stack, *depth); --*depth) {
        struct node *left = &stack[*depth - 2];
        if (p)
            p->pairs[p->pair_count++] = (struct pair){left->slot, stack[*depth - 1].slot};
        *left = (struct node){left->level + 1, left->index / 2, left->slot};
    }
}

/* Assigns slots to the leaves of one chunk, in the order of its calls. A leaf that begins one of
 * the final subtrees gets that subtree's slot. Any other leaf gets the lowest free slot after it,
 * or, if later subtrees may have begun, after all of these. */
struct assignment {
    struct accumulation *p;
    struct leaf *leaves;
    const struct node *parts; /* the final subtrees */
    bool deferred;
    bool *taken; /* slots */
    struct node stack[MOST_DEPTH];
    int depth;
};

static void open_leaf(struct assignment *a, int local)
{
    const int m = rf_plan_micro_batch(a->p->plan, local), left = a->p->left;
    int part = left - 1;
    while (part > 0 && a->parts[part].index << a->parts[part].level > m)
        part--;
    int slot = part;
    if (a->parts[part].index << a->parts[part].level != m)
        for (slot = a->deferred ? left : part + 1; a->taken[slot];)
            slot++;
    a->taken[slot] = true;
    a->leaves[local].slot = slot;
    a->p->plan->slots = slot >= a->p->plan->slots ? slot + 1 : a->p->plan->slots;
}

static void close_leaf(struct assignment *a, int local)
{
    struct accumulation *p = a->p;
    struct leaf *leaf = &a->leaves[local];
    leaf->first_merge = p->pair_count;
    push(a->stack, &a->depth, (struct node){0, rf_plan_micro_batch(p->plan, local), leaf->slot}, p);
    leaf->merges = p->pair_count - leaf->first_merge;
    for (int k = leaf->first_merge; k < p->pair_count; k++)
        a->taken[p->pairs[k].right] = false;
}

static int assign_chunk(struct accumulation *p, int chunk, const struct node *parts,
                        const struct rf_pipeline_call *calls, int count)
{
    const int all = p->plan->local_micro_batches;
    struct assignment a = {.p = p,
                           .leaves = p->leaves + (size_t)chunk * (size_t)all,
                           .parts = parts,
                           .deferred = rf_plan_delays_weights(p->plan),
                           .taken = rf_alloc((size_t)(2 * all + 1) * sizeof(*a.taken))};
    if (!a.taken)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the slots");
    for (int k = 0; k < count; k++) {
        if (calls[k].chunk != chunk)
            continue;
        if (calls[k].verb == RF_VERB_BACKWARD_INPUT)
            open_leaf(&a, calls[k].micro_batch);
        else if (calls[k].verb == RF_VERB_BACKWARD_WEIGHT)
            close_leaf(&a, calls[k].micro_batch);
    }
    rf_free(a.taken);
    return 0;
}

static int assign_slots(struct accumulation *p)
{
    const int all = p->plan->local_micro_batches, chunks = p->plan->stage_count / p->plan->mesh.pp;
    struct node parts[MOST_DEPTH];
    struct rf_pipeline_call *calls = NULL;
    int count = 0, rc = 0;
    p->plan->slots = p->left = 1;
    if (!p->tree || all == 0)
        return 0;
    p->left = 0;
    for (int local = 0; local < all; local++)
        push(parts, &p->left, (struct node){0, rf_plan_micro_batch(p->plan, local), 0}, NULL);
    RETURN_IF_ERROR(rf_plan_calls(p->plan, all, true, &calls, &count));
    for (int chunk = 0; rc == 0 && chunk < chunks; chunk++)
        rc = assign_chunk(p, chunk, parts, calls, count);
    rf_free(calls);
    return rc;
}

/* Whether the slot has no gradients of the call's block except those of the same micro-batch. */
static bool is_fresh(const struct accumulation *p, int block, int local)
{
    return p->tree || p->only[block] == NONE || p->only[block] == local;
}

static void clear(struct accumulation *p, int block, int local)
{
    const struct rf_plan *plan = p->plan;
    const struct rf_plan_param *params = &plan->params[plan->first_param[block]];
    if (p->at_once && p->micro_batch != local && (p->tree || local == 0))
        write_zero(p, leaf_of(p, block, local)->slot, -1);
    p->micro_batch = local;
    for (int k = 0; !p->at_once && k < plan->blocks[block].param_count; k++) {
        const int piece = params[k].grad_piece;
        if (piece < 0 || p->cleared[piece] >= local || (!p->tree && p->cleared[piece] != NONE))
            continue;
        p->cleared[piece] = local;
        write_zero(p, leaf_of(p, block, local)->slot, piece);
    }
}

/* Writes the call, with the gradients of its block's parameters. */
static void write_backward(struct accumulation *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->plan;
    const struct rf_plan_param *params = &plan->params[plan->first_param[i->block]];
    const int local = rf_plan_local(plan, i->micro_batch);
    const int slot = leaf_of(p, i->block, local)->slot;
    p->w.behind = i->behind;
    rf_write(&p->w, i->verb, i->lane, i->block, i->micro_batch);
    p->w.behind = 0;
    rf_write_phase(&p->w, i->phase);
    rf_write_ins_of(&p->w, i);
    for (int writes = is_fresh(p, i->block, local); writes < 2; writes++) {
        if (writes)
            rf_write_outs_of(&p->w, i);
        for (int k = 0, next = 0; k < plan->blocks[i->block].param_count; k++) {
            if (params[k].grad_operand != next)
                continue;
            const int value = grad(p, slot, params[k].grad_piece);
            if (writes)
                rf_write_out(&p->w, RF_ROLE_GRAD, value);
            else
                rf_write_in(&p->w, RF_ROLE_GRAD, value);
            next++;
        }
    }
}

/* The kind of a sum received in 16 bits: in place, unless each rank has a shard of it. */
static enum rf_value_kind narrow_sum(const struct rf_plan *plan)
{
    return plan->shards > 1 ? RF_VALUE_GRAD_NARROW_SHARD : RF_VALUE_GRAD_NARROW;
}

/* Reduces this rank's part of a sum over the ranks. */
static void write_reduce(struct accumulation *p, int piece)
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
    if (rf_plan_compresses(plan))
        transfer.compressed = piece + 1;
    const int sent = narrow ? rf_value_of(p->plan, RF_VALUE_GRAD_NARROW, -1, -1, -1, piece) : -1;
    if (narrow)
        rf_write_narrow(&p->w, grad(p, 0, piece), sent);
    rf_write(&p->w, RF_VERB_REDUCE, plan->shard_lane, -1, -1);
    for (int slot = 0; !narrow && slot < p->left; slot++)
        rf_write_in(&p->w, RF_ROLE_TERM, grad(p, slot, piece));
    if (narrow)
        rf_write_in(&p->w, RF_ROLE_TERM, sent);
    if (rf_plan_updates(plan))
        rf_write_out(&p->w, RF_ROLE_SUM,
                     rf_value_of(p->plan, narrow ? narrow_sum(plan) : RF_VALUE_GRAD_SHARD, -1, -1,
                                 -1, piece));
    rf_write_transfer(&p->w, transfer);
    rf_write_replicas(&p->w, piece);
    p->age[piece] = narrow && rf_plan_updates(plan) ? 0 : -1;
}

/* Widens the sums that were sent at least `age` blocks ago. */
static void widen(struct accumulation *p, int age)
{
    for (int k = 0; k < p->plan->trained_pieces; k++) {
        if (p->age[k] < age || p->age[k] < 0)
            continue;
        p->age[k] = -1;
        rf_write_widen(&p->w, rf_value_of(p->plan, narrow_sum(p->plan), -1, -1, -1, k),
                       rf_value_of(p->plan, RF_VALUE_GRAD_SHARD, -1, -1, -1, k));
    }
}

/* Merges the subtrees that the micro-batch completes, in one piece or in all (-1). */
static void merge(struct accumulation *p, int local, int piece)
{
    const struct leaf *leaf = leaf_of(p, piece < 0 ? -1 : p->plan->pieces[piece].block, local);
    for (int i = 0; i < leaf->merges; i++)
        write_merge(p, p->pairs[leaf->first_merge + i], piece);
}

/* Merges all pieces whose last block this is. */
static void merge_block(struct accumulation *p, int block, int local)
{
    for (int k = 0; k < p->plan->trained_pieces; k++)
        if (p->plan->pieces[k].block == block)
            merge(p, local, k);
}

/* If the number of micro-batches is not a power of two, the right edge of the tree is incomplete.
 * Its subtrees are folded from the right, as in the reduction over ranks. For one piece, or all
 * (-1). */
static void fold(struct accumulation *p, int piece)
{
    for (int slot = p->left - 1; p->plan->mesh.dp == 1 && p->w.status == 0 && slot > 0; slot--)
        write_merge(p, (struct pair){slot - 1, slot}, piece);
}

static void complete_block(struct accumulation *p, int block, int local)
{
    const struct rf_plan *plan = p->plan;
    for (int k = 0; k < plan->trained_pieces; k++) {
        if (p->age[k] >= 0)
            p->age[k]++;
        if (plan->pieces[k].block != block)
            continue;
        if (p->held)
            write_hold(p, k);
        else
            merge(p, local, k);
        if (p->held)
            fold(p, k);
        if (plan->mesh.dp > 1)
            write_reduce(p, k);
    }
    p->incomplete--;
    widen(p, p->incomplete == 0 ? 0 : RF_SETTLE);
}

/* From here on, backward passes belong to a new step. */
static void begin_step(struct accumulation *p)
{
    for (int k = 0; k < p->plan->piece_count; k++)
        p->age[k] = p->cleared[k] = NONE;
    p->incomplete = 0;
    for (int b = 0; b < p->plan->block_count; b++) {
        p->only[b] = NONE;
        p->incomplete += rf_plan_holds(p->plan, b) && rf_plan_block_trains(p->plan, b);
    }
    p->behind = false;
}

static void write_instruction(struct accumulation *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->plan;
    if (!is_backward(i)) {
        rf_write_copy(&p->w, i);
        return;
    }
    const int local = rf_plan_local(plan, i->micro_batch);
    const bool last = local + 1 == plan->local_micro_batches;
    if (p->behind && !i->behind)
        begin_step(p);
    p->behind = i->behind;
    clear(p, i->block, local);
    write_backward(p, i);
    p->only[i->block] = is_fresh(p, i->block, local) ? local : SEVERAL;
    if (i->verb != RF_VERB_BACKWARD_WEIGHT || !rf_plan_ends_call(plan, i))
        return;
    if (p->held)
        merge_block(p, i->block, local);
    if (p->held ? last && i->behind : last && plan->mesh.dp > 1)
        complete_block(p, i->block, local);
    else if (p->held)
        return;
    else if (!p->at_once)
        merge_block(p, i->block, local);
    else if (i->block == plan->first_back)
        merge(p, local, -1);
}

static int open_accumulation(struct accumulation *p)
{
    const size_t pieces = (size_t)p->plan->piece_count + 1;
    const size_t chunks = (size_t)(p->plan->stage_count / p->plan->mesh.pp);
    const size_t leaves = chunks * (size_t)p->plan->local_micro_batches + 1;
    p->leaves = rf_alloc(leaves * sizeof(*p->leaves));
    p->pairs = rf_alloc(leaves * sizeof(*p->pairs));
    p->cleared = rf_alloc(pieces * sizeof(*p->cleared));
    p->age = rf_alloc(pieces * sizeof(*p->age));
    p->only = rf_alloc(((size_t)p->plan->block_count + 1) * sizeof(*p->only));
    if (!p->leaves || !p->pairs || !p->cleared || !p->age || !p->only)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the pieces");
    begin_step(p);
    RETURN_IF_ERROR(assign_slots(p));
    p->held = rf_plan_lags(p->plan) ? p->left : 0;
    for (size_t k = 0; k + 1 < leaves; k++)
        p->leaves[k].slot += p->held;
    for (int k = 0; k < p->pair_count; k++) {
        p->pairs[k].left += p->held;
        p->pairs[k].right += p->held;
    }
    p->plan->slots += p->held;
    return 0;
}

static void close_accumulation(struct accumulation *p)
{
    rf_free(p->leaves);
    rf_free(p->pairs);
    rf_free(p->cleared);
    rf_free(p->age);
    rf_free(p->only);
}

/* Writes a training list. If a rank has done all backward passes of a step when the next one
 * begins, that list begins with the work after them. */
static int write_list(struct accumulation *p, enum rf_list_id id)
{
    struct rf_list *list = &p->plan->lists[id], written = {0};
    p->w.list = &written;
    if (p->held && id != RF_LIST_FILL && rf_plan_leftovers(p->plan) == 0) {
        for (int b = p->plan->block_count - 1; b >= 0; b--)
            if (rf_plan_holds(p->plan, b) && rf_plan_block_trains(p->plan, b))
                complete_block(p, b, p->plan->local_micro_batches - 1);
        begin_step(p);
    }
    for (int i = 0; p->w.status == 0 && i < list->count; i++)
        write_instruction(p, &list->instructions[i]);
    if (!p->held)
        fold(p, -1);
    return rf_write_end(&p->w, list);
}

int rf_pass_gradients(struct rf_plan *plan)
{
    static const enum rf_list_id ids[] = {RF_LIST_FILL, RF_LIST_STEP, RF_LIST_DRAIN};
    struct accumulation p = {.w = {.plan = plan},
                             .plan = plan,
                             .tree = plan->policy.order == RF_ORDER_TREE,
                             .at_once = plan->mesh.pp == 1 && !rf_plan_in_backward(plan),
                             .micro_batch = -1};
    if (plan->policy.forward_only || plan->stage >= 2)
        return 0;
    int rc = open_accumulation(&p);
    for (int k = 0; rc == 0 && k < 3; k++)
        if (ids[k] == RF_LIST_STEP || p.held)
            rc = write_list(&p, ids[k]);
    assert(!p.tree || plan->mesh.dp == 1 ||
           p.left == rf_forest_nodes(&plan->forest, plan->dp_rank, NULL));
    close_accumulation(&p);
    return rc;
}
