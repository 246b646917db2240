/* SPDX-License-Identifier: MIT
 *
 * Pass: sharded gradients (ZeRO-2 and 3). Micro-batches are processed in rounds, one for each rank.
 * As soon as a piece's gradients of a round are complete, they are added over the ranks, and each
 * rank keeps its shard of the sum. So a piece's gradients live from the first block that adds to
 * them to the end of their reduction. In a pipeline several rounds are in flight at once, each in
 * its own slot. Ring order: a round's shard is added to that of the earlier rounds. Tree order: the
 * owner pushes the ranks' gradients, which are adjacent in the tree, onto its partial sums. In the
 * last round some ranks may have no micro-batch: in ring order they contribute zeros, in tree order
 * nothing.
 */
#include "../../base/base.h"
#include "../plan/exchange.h"
#include "../plan/frozen.h"
#include "../plan/list.h"
#include "passes.h"

struct rounds {
    struct rf_writer w;
    struct rf_plan *plan;
    bool tree;
    int micro_batch, round; /* of the call */
    int *round_of;          /* by piece and slot: the round whose gradients it holds; NONE: empty */
    int incomplete;         /* blocks of this rank whose last round is still to come */
    struct sum *sums;
};

enum { NONE = -1 };

/* The state of a piece's sum that is in flight. */
struct sum {
    int age;        /* blocks since the transfer began; -1: nothing is in flight */
    bool first;     /* it is the first round's, written to the shard itself */
    bool last;      /* it is the last round's */
    bool of_copies; /* it is the sum over the copies of the shard */
};

static int of_piece(struct rounds *p, enum rf_value_kind kind, int piece)
{
    return rf_value_of(p->plan, kind, -1, -1, -1, piece);
}

static int *slot_at(const struct rounds *p, int piece, int slot)
{
    return &p->round_of[(size_t)piece * (size_t)rf_plan_rounds(p->plan) + (size_t)slot];
}

/* The lowest slot with this round; one must exist. */
static int find_slot(const struct rounds *p, int piece, int round)
{
    int slot = 0;
    while (slot < p->plan->slots && *slot_at(p, piece, slot) != round)
        slot++;
    return slot;
}

/* The gradient of this round. */
static int grad(struct rounds *p, int piece)
{
    return rf_value_of(p->plan, RF_VALUE_GRAD, -1, -1, find_slot(p, piece, p->round), piece);
}

/* Gradients that calls overwrite are cleared only if there are no calls. */
static void clear(struct rounds *p, int piece)
{
    const bool phantom = p->micro_batch == RF_PHANTOM;
    if (find_slot(p, piece, p->round) < p->plan->slots)
        return;
    const int slot = find_slot(p, piece, NONE);
    p->plan->slots += slot == p->plan->slots;
    *slot_at(p, piece, slot) = p->round;
    rf_write(&p->w, phantom ? RF_VERB_ZERO_WHOLE : RF_VERB_ZERO, RF_LANE_COMPUTE, -1, -1);
    rf_write_out(&p->w, RF_ROLE_GRAD, grad(p, piece));
}

/* Writes the call, with the gradients of its block's parameters. */
static void write_backward(struct rounds *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->plan;
    const struct rf_plan_param *params = &plan->params[plan->first_param[i->block]];
    for (int k = 0; k < plan->blocks[i->block].param_count; k++)
        if (params[k].grad_piece >= 0)
            clear(p, params[k].grad_piece);
    rf_write_copy(&p->w, i);
    if (p->w.status < 0)
        return;
    struct rf_instruction *written = &p->w.list->instructions[p->w.list->count - 1];
    written->first_operand = plan->operand_count;
    written->ins = written->outs = 0;
    rf_write_ins_of(&p->w, i);
    rf_write_outs_of(&p->w, i);
    for (int k = 0, next = 0; k < plan->blocks[i->block].param_count; k++) {
        if (params[k].grad_operand != next)
            continue;
        rf_write_out(&p->w, RF_ROLE_GRAD, grad(p, params[k].grad_piece));
        next++;
    }
}

static bool is_last(const struct rounds *p)
{
    return p->round + 1 == rf_plan_rounds(p->plan);
}

static void add_copies(struct rounds *p, int piece)
{
    const bool narrow = rf_plan_narrows(p->plan);
    if (!p->plan->groups[RF_LANE_REPLICATE].size)
        return;
    if (narrow)
        rf_write_narrow(&p->w, of_piece(p, RF_VALUE_GRAD_SHARD, piece),
                        of_piece(p, RF_VALUE_GRAD_NARROW_SHARD, piece));
    rf_write_replicas(&p->w, piece);
    if (narrow)
        p->sums[piece] = (struct sum){.first = true, .of_copies = true};
}

/* Adds the finished sum to the shard. */
static void add_round(struct rounds *p, int piece)
{
    const struct sum sum = p->sums[piece];
    const int shard = of_piece(p, RF_VALUE_GRAD_SHARD, piece);
    p->sums[piece].age = -1;
    if (rf_plan_narrows(p->plan))
        rf_write_widen(&p->w, of_piece(p, RF_VALUE_GRAD_NARROW_SHARD, piece),
                       sum.first ? shard : of_piece(p, RF_VALUE_GRAD_PART, piece));
    if (!sum.first) {
        rf_write(&p->w, RF_VERB_MERGE, RF_LANE_COMPUTE, -1, -1);
        rf_write_in(&p->w, RF_ROLE_SUM, shard);
        rf_write_in(&p->w, RF_ROLE_SHARD_TERM, of_piece(p, RF_VALUE_GRAD_PART, piece));
        rf_write_out(&p->w, RF_ROLE_SUM, shard);
    }
    if (sum.last)
        add_copies(p, piece);
}

/* Adds the sums whose transfers began at least `age` blocks ago. */
static void add_rounds(struct rounds *p, int age)
{
    for (int k = 0; k < p->plan->trained_pieces; k++)
        if (p->sums[k].age >= age)
            add_round(p, k);
}

static void reduce_ring(struct rounds *p, int piece)
{
    const struct rf_plan_piece *q = &p->plan->pieces[piece];
    const bool first = p->round == 0, narrow = rf_plan_narrows(p->plan);
    const enum rf_value_kind wide = first ? RF_VALUE_GRAD_SHARD : RF_VALUE_GRAD_PART;
    if (p->sums[piece].age >= 0)
        add_round(p, piece);
    if (narrow)
        rf_write_narrow(&p->w, grad(p, piece), of_piece(p, RF_VALUE_GRAD_NARROW, piece));
    rf_write(&p->w, RF_VERB_REDUCE, p->plan->shard_lane, -1, -1);
    rf_write_in(&p->w, RF_ROLE_TERM,
                narrow ? of_piece(p, RF_VALUE_GRAD_NARROW, piece) : grad(p, piece));
    rf_write_out(&p->w, RF_ROLE_SUM,
                 of_piece(p, narrow ? RF_VALUE_GRAD_NARROW_SHARD : wide, piece));
    rf_write_transfer(&p->w, (struct rf_transfer){.op = RF_COLL_REDUCE_SCATTER,
                                                  .count = q->count,
                                                  .dtype = p->plan->policy.reduce_dtype,
                                                  .order = RF_ORDER_RING,
                                                  .counts = q->counts});
    if (narrow || !first)
        p->sums[piece] = (struct sum){.first = first, .last = is_last(p)};
    else if (is_last(p))
        add_copies(p, piece);
}

static void push_tree(struct rounds *p, int piece)
{
    const struct rf_plan_piece *q = &p->plan->pieces[piece];
    const bool one = p->round == 0 && is_last(p);
    const int parts = one ? -1 : of_piece(p, RF_VALUE_GRAD_PART, piece);
    rf_write(&p->w, RF_VERB_REDUCE, p->plan->shard_lane, -1, -1);
    if (p->micro_batch != RF_PHANTOM)
        rf_write_in(&p->w, RF_ROLE_TERM, grad(p, piece));
    if (p->round > 0)
        rf_write_in(&p->w, RF_ROLE_SUM, parts);
    rf_write_out(&p->w, RF_ROLE_SUM, is_last(p) ? of_piece(p, RF_VALUE_GRAD_SHARD, piece) : parts);
    rf_write_transfer(&p->w, (struct rf_transfer){.op = RF_COLL_PREFIX_REDUCE_SCATTER,
                                                  .count = q->count,
                                                  .dtype = RF_F32,
                                                  .order = RF_ORDER_TREE,
                                                  .counts = q->counts,
                                                  .round = p->round});
}

/* Adds the ranks' gradients of this round. Their slot is then free. */
static void reduce(struct rounds *p, int piece)
{
    const bool phantom = p->micro_batch == RF_PHANTOM;
    if (phantom && !p->tree)
        clear(p, piece);
    if (p->tree)
        push_tree(p, piece);
    else
        reduce_ring(p, piece);
    if (!phantom || !p->tree)
        *slot_at(p, piece, find_slot(p, piece, p->round)) = NONE;
}

static void complete_block(struct rounds *p, int block)
{
    const struct rf_plan *plan = p->plan;
    for (int k = 0; k < plan->trained_pieces; k++) {
        if (p->sums[k].age >= 0)
            p->sums[k].age++;
        if (plan->pieces[k].block == block)
            reduce(p, k);
    }
    p->incomplete -= is_last(p);
    add_rounds(p, p->incomplete == 0 ? 0 : RF_SETTLE);
    if (p->incomplete == 0) /* the sums over the copies, which have just begun */
        add_rounds(p, 0);
}

/* Only in the last round may ranks have no micro-batch. */
static int round_of(const struct rf_plan *plan, int micro_batch)
{
    return micro_batch == RF_PHANTOM ? rf_plan_rounds(plan) - 1 : rf_plan_local(plan, micro_batch);
}

static void write_instruction(struct rounds *p, const struct rf_instruction *i)
{
    const bool weight = i->verb == RF_VERB_BACKWARD_WEIGHT;
    if (!weight && i->verb != RF_VERB_BACKWARD_INPUT) {
        rf_write_copy(&p->w, i);
        return;
    }
    p->micro_batch = i->micro_batch;
    p->round = round_of(p->plan, i->micro_batch);
    if (i->micro_batch == RF_PHANTOM)
        rf_write_copy(&p->w, i);
    else
        write_backward(p, i);
    if (weight && rf_plan_ends_call(p->plan, i))
        complete_block(p, i->block);
}

static int open_rounds(struct rounds *p)
{
    const size_t pieces = (size_t)p->plan->piece_count;
    const size_t slots = pieces * (size_t)rf_plan_rounds(p->plan);
    p->round_of = rf_alloc((slots + 1) * sizeof(*p->round_of));
    p->sums = rf_alloc((pieces + 1) * sizeof(*p->sums));
    if (!p->round_of || !p->sums)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the pieces");
    for (size_t k = 0; k < slots; k++)
        p->round_of[k] = NONE;
    for (size_t k = 0; k < pieces; k++)
        p->sums[k].age = -1;
    for (int b = 0; b < p->plan->block_count; b++)
        p->incomplete += rf_plan_holds(p->plan, b) && rf_plan_block_trains(p->plan, b);
    p->plan->slots = 1;
    return 0;
}

int rf_pass_rounds(struct rf_plan *plan)
{
    struct rf_list *list = &plan->lists[RF_LIST_STEP], written = {0};
    struct rounds p = {.w = {.plan = plan, .list = &written},
                       .plan = plan,
                       .tree = plan->policy.order == RF_ORDER_TREE};
    if (plan->stage < 2 || plan->policy.forward_only)
        return 0;
    p.w.status = open_rounds(&p);
    for (int i = 0; i < list->count && p.w.status == 0; i++)
        write_instruction(&p, &list->instructions[i]);
    rf_free(p.round_of);
    rf_free(p.sums);
    return rf_write_end(&p.w, list);
}
