/* SPDX-License-Identifier: MIT
 *
 * Pass: the instructions of one step on one rank, for data parallelism.
 *
 * Ring order: one gradient slot; micro-batches accumulate in it one after the other. Tree order: a
 * stack of slots; each micro-batch is pushed, and sibling subtrees are merged, so that what is left
 * are the rank's maximal subtrees, in index order. Either way a bucket is reduced as soon as the
 * last micro-batch's backward pass has completed it.
 */
#include <assert.h>

#include "../base/base.h"
#include "passes.h"

struct node {
    int level, index;
};

struct builder {
    struct rf_plan *plan;
    int status;
    struct node stack[64];
    int depth;
};

static void emit(struct builder *b, struct rf_instruction instruction)
{
    struct rf_plan *plan = b->plan;
    if (b->status < 0)
        return;
    if (plan->instruction_count == plan->instruction_room) {
        int room = plan->instruction_room ? 2 * plan->instruction_room : 256;
        struct rf_instruction *grown =
            rf_realloc(plan->instructions, (size_t)room * sizeof(*grown));
        if (!grown) {
            b->status = rf_fail(RF_ENOMEM, "plan: out of memory for %d instructions", room);
            return;
        }
        plan->instructions = grown;
        plan->instruction_room = room;
    }
    plan->instructions[plan->instruction_count++] = instruction;
}

static void emit_verb(struct builder *b, enum rf_verb verb, int slot)
{
    emit(b, (struct rf_instruction){
                .verb = verb, .block = -1, .micro_batch = -1, .a = slot, .bucket = -1});
}

static void emit_block(struct builder *b, enum rf_verb verb, int block, int micro_batch, int slot)
{
    emit(b, (struct rf_instruction){
                .verb = verb, .block = block, .micro_batch = micro_batch, .a = slot, .bucket = -1});
}

static void emit_merge(struct builder *b, int slot, int bucket)
{
    emit(b, (struct rf_instruction){.verb = RF_VERB_MERGE,
                                    .block = -1,
                                    .micro_batch = -1,
                                    .a = slot - 1,
                                    .b = slot,
                                    .bucket = bucket});
}

/* Tree order: uses of tied parameters are added to their owners' gradients, in registration order.
 */
static void emit_ties(struct builder *b)
{
    for (int i = 0; i < b->plan->param_count; i++) {
        const struct rf_plan_param *param = &b->plan->params[i];
        if (param->owner == i || param->grad_first == RF_NO_GRAD)
            continue;
        emit(b, (struct rf_instruction){.verb = RF_VERB_TIE,
                                        .block = -1,
                                        .micro_batch = -1,
                                        .a = param->owner,
                                        .b = i,
                                        .bucket = -1});
    }
}

/* How many merges the top of the stack allows: subtrees that are left and right sibling. */
static int mergeable(const struct builder *b)
{
    struct node top = b->stack[b->depth - 1];
    int merges = 0;
    for (int at = b->depth - 2; at >= 0; at--) {
        struct node left = b->stack[at];
        if (left.level != top.level || left.index % 2 != 0 || left.index + 1 != top.index)
            break;
        top = (struct node){left.level + 1, left.index / 2};
        merges++;
    }
    return merges;
}

static void pop_merged(struct builder *b, int merges)
{
    for (; merges > 0; merges--) {
        b->depth--;
        struct node *left = &b->stack[b->depth - 1];
        *left = (struct node){left->level + 1, left->index / 2};
    }
}

static void emit_reductions(struct builder *b, int block, int merges)
{
    const struct rf_plan *plan = b->plan;
    for (int k = 0; k < plan->bucket_count; k++) {
        if (plan->buckets[k].block != block)
            continue;
        for (int i = 0; i < merges; i++)
            emit_merge(b, b->depth - 1 - i, k);
        emit_verb(b, RF_VERB_REDUCE, k);
    }
}

static void emit_micro_batch(struct builder *b, int local)
{
    const struct rf_plan *plan = b->plan;
    const bool tree = plan->policy.order == RF_ORDER_TREE;
    const bool last = local + 1 == plan->local_micro_batches;
    const bool reduces = plan->mesh.dp > 1 && last;
    int slot = 0, merges = 0;

    if (tree) {
        slot = b->depth;
        b->stack[b->depth++] = (struct node){0, plan->first_micro_batch[plan->rank] + local};
        if (b->depth > b->plan->slots)
            b->plan->slots = b->depth;
        merges = mergeable(b);
    }
    if (tree || local == 0)
        emit_verb(b, RF_VERB_ZERO_GRADS, slot);
    for (int block = 0; block < plan->block_count; block++)
        emit_block(b, RF_VERB_FORWARD, block, local, slot);
    for (int block = plan->block_count - 1; block >= 0; block--) {
        emit_block(b, RF_VERB_BACKWARD_INPUT, block, local, slot);
        emit_block(b, RF_VERB_BACKWARD_WEIGHT, block, local, slot);
        if (reduces)
            emit_reductions(b, block, merges);
    }
    if (!reduces)
        for (int i = 0; i < merges; i++)
            emit_merge(b, b->depth - 1 - i, -1);
    pop_merged(b, merges);
}

static void emit_training(struct builder *b)
{
    struct rf_plan *plan = b->plan;
    const bool tree = plan->policy.order == RF_ORDER_TREE;
    plan->slots = 1;
    for (int local = 0; local < plan->local_micro_batches; local++)
        emit_micro_batch(b, local);
    if (tree && plan->mesh.dp == 1)
        /* Not a power of two: the tree's right edge is cut off, and what is there is folded from
         * the right, as the reduction over ranks does it. */
        for (; b->depth > 1; b->depth--)
            emit_merge(b, b->depth - 1, -1);
    assert(!tree || plan->mesh.dp == 1 ||
           b->depth == rf_forest_nodes(&plan->forest, plan->rank, NULL));
    emit_verb(b, RF_VERB_LOSS, -1);
    if (tree)
        emit_ties(b);
    if (rf_plan_updates(plan)) {
        emit_verb(b, RF_VERB_NORM, -1);
        emit_verb(b, RF_VERB_STEP, -1);
    }
    if (plan->policy.update_on_rank_0)
        emit_verb(b, RF_VERB_SPREAD, -1);
}

int rf_pass_instructions(struct rf_plan *plan)
{
    struct builder b = {.plan = plan};
    if (plan->policy.forward_only) {
        for (int local = 0; local < plan->local_micro_batches; local++)
            for (int block = 0; block < plan->block_count; block++)
                emit_block(&b, RF_VERB_FORWARD, block, local, -1);
        emit_verb(&b, RF_VERB_LOSS, -1);
    } else {
        emit_training(&b);
    }
    return b.status;
}
