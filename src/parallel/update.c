/* SPDX-License-Identifier: MIT
 *
 * Pass: what follows the backward passes: losses are shared, tied uses added, the norm taken, and
 * the parameters updated.
 */
#include "../base/base.h"
#include "list.h"
#include "passes.h"

static int single(struct rf_writer *w, enum rf_value_kind kind)
{
    return rf_value_of(w->plan, kind, -1, -1, -1, -1);
}

static int of_piece(struct rf_writer *w, enum rf_value_kind kind, int slot, int piece)
{
    return rf_value_of(w->plan, kind, -1, -1, slot, piece);
}

static void write_loss(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    const int first = plan->first_micro_batch[plan->rank];
    rf_write(w, RF_VERB_LOSS, RF_LANE_DATA, -1, -1);
    for (int m = first; m < first + plan->local_micro_batches; m++) {
        rf_write_in(w, rf_value_of(w->plan, RF_VALUE_TARGETS, -1, m, -1, -1));
        rf_write_in(w, rf_value_of(w->plan, RF_VALUE_LOSSES, -1, m, -1, -1));
    }
    if (!plan->policy.forward_only)
        rf_write_out(w, single(w, RF_VALUE_SCALARS));
    rf_write_transfer(
        w, (struct rf_transfer){.op = RF_COLL_ALL_REDUCE,
                                .count = rf_plan_loss_elements(plan->policy.micro_batches),
                                .dtype = RF_F64,
                                .order = RF_ORDER_RING});
}

/* In tree order, by the order of registration. */
static void write_ties(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    for (int i = 0; i < plan->param_count; i++) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->grad_piece < 0 || plan->pieces[param->grad_piece].use != i)
            continue;
        const int owner = of_piece(w, RF_VALUE_GRAD, 0, plan->params[param->owner].grad_piece);
        rf_write(w, RF_VERB_TIE, RF_LANE_COMPUTE, -1, -1);
        rf_write_in(w, owner);
        rf_write_in(w, of_piece(w, RF_VALUE_GRAD, 0, param->grad_piece));
        rf_write_out(w, owner);
    }
}

/* A value of each piece that has parameters and is trained. */
static void operands(struct rf_writer *w, enum rf_value_kind kind, int slot, bool out)
{
    for (int k = 0; k < w->plan->trained_pieces; k++) {
        if (w->plan->pieces[k].use >= 0)
            continue;
        if (out)
            rf_write_out(w, of_piece(w, kind, slot, k));
        else
            rf_write_in(w, of_piece(w, kind, slot, k));
    }
}

static void write_norm(struct rf_writer *w)
{
    rf_write(w, RF_VERB_NORM, RF_LANE_COMPUTE, -1, -1);
    operands(w, RF_VALUE_GRAD, 0, false);
    rf_write_in(w, single(w, RF_VALUE_CHUNKS));
    rf_write_out(w, single(w, RF_VALUE_PARTIALS));
    rf_write_out(w, single(w, RF_VALUE_NORM));
    rf_write(w, RF_VERB_BEGIN_STEP, RF_LANE_COMPUTE, -1, -1);
    rf_write_in(w, single(w, RF_VALUE_NORM));
    rf_write_in(w, single(w, RF_VALUE_SCALARS));
    rf_write_out(w, single(w, RF_VALUE_SCALARS));
}

static void write_step(struct rf_writer *w)
{
    const struct rf_policy *policy = &w->plan->policy;
    rf_write(w, RF_VERB_STEP, RF_LANE_COMPUTE, -1, -1);
    operands(w, RF_VALUE_GRAD, 0, false);
    rf_write_in(w, single(w, RF_VALUE_DECAY));
    rf_write_in(w, single(w, RF_VALUE_SCALARS));
    for (int outs = 0; outs < 2; outs++) {
        operands(w, RF_VALUE_PARAM, -1, outs);
        for (int k = 0; k < RF_STATE_COUNT; k++)
            if (rf_optimizer_has(&policy->optimizer, (enum rf_optimizer_state)k))
                operands(w, RF_VALUE_STATE, k, outs);
    }
    if (w->plan->copy_type != RF_F32)
        operands(w, RF_VALUE_COPY, -1, true);
    if (policy->loss_scale == 0)
        return;
    rf_write(w, RF_VERB_END_STEP, RF_LANE_COMPUTE, -1, -1);
    rf_write_in(w, single(w, RF_VALUE_SCALARS));
    rf_write_out(w, single(w, RF_VALUE_SCALARS));
}

/* Rank 0 alone has updated: its scalars and parameters go to all. */
static void write_broadcasts(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    const bool root = plan->rank == 0;
    rf_write(w, RF_VERB_BROADCAST, RF_LANE_DATA, -1, -1);
    if (root)
        rf_write_in(w, single(w, RF_VALUE_SCALARS));
    else
        rf_write_out(w, single(w, RF_VALUE_SCALARS));
    rf_write_transfer(w, (struct rf_transfer){.op = RF_COLL_BROADCAST,
                                              .count = sizeof(struct rf_step_scalars),
                                              .dtype = RF_U8,
                                              .order = RF_ORDER_RING});
    if (plan->train_elements == 0)
        return;
    rf_write(w, RF_VERB_BROADCAST, RF_LANE_DATA, -1, -1);
    operands(w, RF_VALUE_PARAM, -1, !root);
    rf_write_transfer(w, (struct rf_transfer){.op = RF_COLL_BROADCAST,
                                              .count = plan->train_elements,
                                              .dtype = RF_F32,
                                              .order = RF_ORDER_RING,
                                              .algorithm = RF_TO_RANK_0});
    if (root || plan->copy_type == RF_F32)
        return;
    rf_write(w, RF_VERB_CAST, RF_LANE_COMPUTE, -1, -1);
    operands(w, RF_VALUE_PARAM, -1, false);
    operands(w, RF_VALUE_COPY, -1, true);
}

int rf_pass_update(struct rf_plan *plan)
{
    struct rf_list *list = &plan->lists[RF_LIST_STEP], written = {0};
    struct rf_writer w = {.plan = plan, .list = &written};
    for (int i = 0; i < list->count; i++)
        rf_write_copy(&w, &list->instructions[i]);
    write_loss(&w);
    if (!plan->policy.forward_only) {
        write_ties(&w);
        if (rf_plan_updates(plan) && plan->train_elements > 0) {
            write_norm(&w);
            write_step(&w);
        }
        if (plan->policy.update_on_rank_0)
            write_broadcasts(&w);
    }
    return rf_write_end(&w, list);
}
