/* SPDX-License-Identifier: MIT
 *
 * Pass: the instructions after the backward passes: losses are shared, tied uses added, the norm
 * computed, and the parameters updated.
 */
#include "update.h"
#include "../../base/base.h"
#include "../plan/frozen.h"
#include "../plan/list.h"
#include "passes.h"

static int single(struct rf_writer *w, enum rf_value_kind kind)
{
    return rf_value_of(w->plan, kind, -1, -1, -1, -1);
}

static int of_piece(struct rf_writer *w, enum rf_value_kind kind, int slot, int piece)
{
    return rf_value_of(w->plan, kind, -1, -1, slot, piece);
}

void rf_write_loss(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    w->behind = rf_plan_lags(plan);
    rf_write(w, RF_VERB_LOSS, rf_plan_loss_lane(plan), -1, -1);
    w->behind = 0;
    const bool has = rf_plan_has_losses(plan);
    const int slot = rf_plan_lags(plan) ? RF_SLOT_BEFORE : -1;
    for (int local = 0; has && local < plan->local_micro_batches; local++)
        rf_write_in(
            w, RF_ROLE_TARGETS,
            rf_value_of(w->plan, RF_VALUE_TARGETS, -1, rf_plan_micro_batch(plan, local), slot, -1));
    for (int local = 0; has && local < plan->local_micro_batches; local++)
        rf_write_in(
            w, RF_ROLE_LOSSES,
            rf_value_of(w->plan, RF_VALUE_LOSSES, -1, rf_plan_micro_batch(plan, local), slot, -1));
    if (!plan->policy.forward_only)
        rf_write_out(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
    rf_write_transfer(
        w, (struct rf_transfer){.op = RF_COLL_ALL_REDUCE,
                                .count = rf_plan_loss_elements(plan->policy.micro_batches),
                                .dtype = RF_F64,
                                .order = RF_ORDER_RING});
}

/* The gradient of a use that nothing is added to is for the caller. */
static void leave_apart(struct rf_writer *w, int piece)
{
    const int values[] = {of_piece(w, RF_VALUE_GRAD, 0, piece),
                          of_piece(w, RF_VALUE_GRAD_SHARD, -1, piece)};
    for (int k = 0; k < 2; k++)
        if (values[k] >= 0)
            w->plan->values[values[k]].may_stay_unread = true;
        else
            w->status = values[k];
}

void rf_write_ties(struct rf_writer *w, int piece)
{
    const struct rf_plan *plan = w->plan;
    for (int i = 0; i < plan->param_count; i++) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->grad_piece < 0 || plan->pieces[param->grad_piece].use != i)
            continue;
        const int owners = plan->params[param->owner].grad_piece;
        if (piece >= 0 && piece != owners)
            continue;
        if (rf_plan_leaves_apart(plan)) {
            leave_apart(w, param->grad_piece);
            continue;
        }
        const int owner = of_piece(w, RF_VALUE_GRAD_SHARD, -1, owners);
        rf_write(w, RF_VERB_TIE, RF_LANE_COMPUTE, -1, -1);
        rf_write_in(w, RF_ROLE_SUM, owner);
        rf_write_in(w, RF_ROLE_USE_TERM, of_piece(w, RF_VALUE_GRAD_SHARD, -1, param->grad_piece));
        rf_write_out(w, RF_ROLE_SUM, owner);
    }
}

/* Sends this rank's gradients of a parameter to another rank that uses it, or receives that rank's.
 */
static void write_tied(struct rf_writer *w, enum rf_verb verb, int value, int param, int stage)
{
    const struct rf_plan *plan = w->plan;
    const bool sends = verb == RF_VERB_SEND;
    const struct rf_plan_param *holder = &plan->params[rf_plan_holder(plan, param)];
    /* Without a flush, these have separate lanes, so that they do not wait for messages of blocks'
     * outputs. */
    const int apart = rf_plan_lags(plan) ? RF_LANE_SEND_GRAD_BACK - RF_LANE_SEND_GRAD : 0;
    const enum rf_lane lane =
        (enum rf_lane)((int)(sends ? RF_LANE_SEND_GRAD : RF_LANE_RECV_GRAD) + apart);
    rf_write(w, verb, lane, -1, -1);
    if (sends)
        rf_write_in(w, RF_ROLE_GRAD, value);
    else
        rf_write_out(w, RF_ROLE_GRAD, value);
    rf_write_transfer(
        w, (struct rf_transfer){.op = sends ? RF_COLL_SEND : RF_COLL_RECV,
                                .count = plan->pieces[holder->grad_piece].counts[plan->shard],
                                .dtype = RF_F32,
                                .peer = rf_plan_rank_at(plan, stage, plan->dp_rank),
                                .tag = rf_message_tag((int)lane)});
}

/* The rank with the first use of a parameter adds the gradients of ranks with other blocks, in
 * their order, and sends them the sum. */
static void write_shared(struct rf_writer *w, int param)
{
    struct rf_plan *plan = w->plan;
    const int home = plan->home_of[plan->params[param].block], here = plan->pp_rank;
    const int holder = rf_plan_holder(plan, param);
    if (holder < 0)
        return;
    const int piece = plan->params[holder].grad_piece;
    const int sum = of_piece(w, RF_VALUE_GRAD_SHARD, -1, piece);
    for (int back = 0; back < 2; back++)
        for (int stage = 0; stage < plan->mesh.pp; stage++) {
            if (stage == home || !rf_plan_uses(plan, param, stage) ||
                (here != home && here != stage))
                continue;
            if (here == stage) {
                write_tied(w, back ? RF_VERB_RECV : RF_VERB_SEND, sum, param, home);
                continue;
            }
            if (back) {
                write_tied(w, RF_VERB_SEND, sum, param, stage);
                continue;
            }
            const int other = of_piece(w, RF_VALUE_GRAD_TIED, stage, piece);
            write_tied(w, RF_VERB_RECV, other, param, stage);
            rf_write(w, RF_VERB_TIE, RF_LANE_COMPUTE, -1, -1);
            rf_write_in(w, RF_ROLE_SUM, sum);
            rf_write_in(w, RF_ROLE_SHARD_TERM, other);
            rf_write_out(w, RF_ROLE_SUM, sum);
        }
}

/* The next parameter after `after` that is used twice; -1: none. Few are. */
static int next_shared(const struct rf_plan *plan, int after)
{
    int next = -1;
    for (int i = 0; i < plan->param_count; i++) {
        const int first = plan->params[i].logical;
        if (first != i && first > after && (next < 0 || first < next))
            next = first;
    }
    return next;
}

static void write_all_shared(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    if (plan->mesh.pp == 1 || rf_plan_leaves_apart(plan))
        return;
    for (int i = next_shared(plan, -1); i >= 0; i = next_shared(plan, i))
        if (rf_plan_trains(plan, i))
            write_shared(w, i);
}

void rf_write_tensor_sums(struct rf_writer *w, int piece)
{
    const struct rf_plan *plan = w->plan;
    for (int k = 0; k < plan->trained_pieces; k++) {
        if (plan->pieces[k].use >= 0 || !plan->pieces[k].sums_tensor || (piece >= 0 && k != piece))
            continue;
        const int value = of_piece(w, RF_VALUE_GRAD_SHARD, -1, k);
        rf_write(w, RF_VERB_REDUCE, RF_LANE_TENSOR, -1, -1);
        rf_write_in(w, RF_ROLE_TERM, value);
        rf_write_out(w, RF_ROLE_SUM, value);
        rf_write_transfer(w, (struct rf_transfer){.op = RF_COLL_ALL_REDUCE,
                                                  .count = plan->pieces[k].counts[plan->shard],
                                                  .dtype = RF_F32,
                                                  .order = RF_ORDER_RING});
    }
}

/* A range of pieces, of those with this type of states. One launch updates all trained ones, which
 * are adjacent; or one, of which this rank has a shard. */
struct updated {
    int first, end;
    enum rf_dtype states; /* RF_DTYPE_COUNT: any */
};

static struct updated all_pieces(const struct rf_writer *w)
{
    return (struct updated){0, w->plan->trained_pieces, RF_DTYPE_COUNT};
}

static struct updated one_piece(int piece)
{
    return (struct updated){piece, piece + 1, RF_DTYPE_COUNT};
}

static bool is_updated(const struct rf_plan *plan, struct updated u, int piece)
{
    return plan->pieces[piece].use < 0 &&
           (u.states == RF_DTYPE_COUNT || u.states == rf_plan_state_type(plan, piece));
}

/* One value for each of these pieces that has parameters. */
static void operands(struct rf_writer *w, struct updated u, enum rf_role role,
                     enum rf_value_kind kind, int slot, bool out)
{
    for (int k = u.first; k < u.end; k++) {
        if (!is_updated(w->plan, u, k))
            continue;
        if (out)
            rf_write_out(w, role, of_piece(w, kind, slot, k));
        else
            rf_write_in(w, role, of_piece(w, kind, slot, k));
    }
}

static void share_partials(struct rf_writer *w, enum rf_lane lane)
{
    rf_write(w, RF_VERB_NORM_SHARE, lane, -1, -1);
    rf_write_in(w, RF_ROLE_PARTIALS, single(w, RF_VALUE_PARTIALS));
    rf_write_out(w, RF_ROLE_PARTIALS, single(w, RF_VALUE_PARTIALS));
    rf_write_transfer(w, (struct rf_transfer){.op = RF_COLL_ALL_REDUCE,
                                              .count = RF_EXACT_WORDS,
                                              .dtype = RF_I32,
                                              .order = RF_ORDER_RING});
}

void rf_write_partials(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    rf_write(w, RF_VERB_NORM_PARTIAL, RF_LANE_COMPUTE, -1, -1);
    if (rf_plan_in_backward(plan)) {
        operands(w, all_pieces(w), RF_ROLE_SQUARES, RF_VALUE_SQUARES, -1, false);
    } else {
        operands(w, all_pieces(w), RF_ROLE_GRAD, RF_VALUE_GRAD_SHARD, -1, false);
        rf_write_in(w, RF_ROLE_CHUNKS, single(w, RF_VALUE_CHUNKS));
    }
    rf_write_out(w, RF_ROLE_SQUARES, single(w, RF_VALUE_SQUARES));
    rf_write_out(w, RF_ROLE_PARTIALS, single(w, RF_VALUE_PARTIALS));
    if (plan->shards > 1)
        share_partials(w, plan->shard_lane);
    if (rf_plan_tensor_ranks(plan) > 1)
        share_partials(w, RF_LANE_TENSOR);
    if (plan->mesh.pp > 1)
        share_partials(w, RF_LANE_PIPELINE);
}

void rf_write_norm(struct rf_writer *w)
{
    rf_write(w, RF_VERB_NORM, RF_LANE_COMPUTE, -1, -1);
    rf_write_in(w, RF_ROLE_PARTIALS, single(w, RF_VALUE_PARTIALS));
    rf_write_out(w, RF_ROLE_NORM, single(w, RF_VALUE_NORM));
}

void rf_write_begin_step(struct rf_writer *w)
{
    const bool known = !rf_plan_in_backward(w->plan);
    rf_write(w, RF_VERB_BEGIN_STEP, RF_LANE_COMPUTE, -1, -1);
    if (known)
        rf_write_in(w, RF_ROLE_NORM, single(w, RF_VALUE_NORM));
    rf_write_in(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
    if (!known)
        rf_write_out(w, RF_ROLE_NORM, single(w, RF_VALUE_NORM));
    rf_write_out(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
}

static void write_updated(struct rf_writer *w, struct updated u, enum rf_value_kind gradients)
{
    const struct rf_plan *plan = w->plan;
    operands(w, u, RF_ROLE_GRAD, gradients, -1, false);
    rf_write_in(w, RF_ROLE_DECAY, single(w, RF_VALUE_DECAY));
    if (plan->place_runs)
        rf_write_in(w, RF_ROLE_PLACES, single(w, RF_VALUE_PLACES));
    rf_write_in(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
    for (int outs = 0; outs < 2; outs++) {
        operands(w, u, RF_ROLE_PARAM, rf_plan_stored(plan), -1, outs);
        for (int k = 0; k < RF_PLAN_STATES; k++)
            if (rf_plan_has_state(plan, k))
                operands(w, u, rf_state_role(k), RF_VALUE_STATE, k, outs);
    }
    if (rf_plan_step_copies(plan) && rf_plan_lags(plan))
        operands(w, u, RF_ROLE_COPY_BEFORE, RF_VALUE_COPY, RF_SLOT_BEFORE, true);
    if (rf_plan_step_copies(plan))
        operands(w, u, RF_ROLE_COPY, RF_VALUE_COPY_SHARD, -1, true);
}

static void write_update(struct rf_writer *w, struct updated u)
{
    rf_write(w, RF_VERB_STEP, RF_LANE_COMPUTE, -1, -1);
    write_updated(w, u, RF_VALUE_GRAD_SHARD);
}

static void write_cast(struct rf_writer *w)
{
    if (!rf_plan_step_copies(w->plan))
        return;
    rf_write(w, RF_VERB_CAST, RF_LANE_COMPUTE, -1, -1);
    operands(w, all_pieces(w), RF_ROLE_PARAM, RF_VALUE_PARAM, -1, false);
    if (w->plan->policy.optimizer.stochastic_rounding) /* the roundings of rank 0 */
        rf_write_in(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
    if (w->plan->place_runs)
        rf_write_in(w, RF_ROLE_PLACES, single(w, RF_VALUE_PLACES));
    operands(w, all_pieces(w), RF_ROLE_COPY, RF_VALUE_COPY, -1, true);
}

void rf_write_piece_update(struct rf_writer *w, int piece)
{
    write_update(w, one_piece(piece));
    if (w->plan->shards > 1 && !w->plan->units)
        rf_write_gather(w, piece, RF_F32);
}

static void write_shards(struct rf_writer *w)
{
    for (int k = 0; k < w->plan->trained_pieces; k++)
        if (w->plan->pieces[k].use < 0)
            rf_write_piece_update(w, k);
}

/* All pieces that this rank has whole: at once, or one launch for each type of states. */
static void write_whole(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    static const enum rf_dtype types[] = {RF_U8, RF_F32};
    if (!rf_plan_codes(plan)) {
        write_update(w, all_pieces(w));
        return;
    }
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        const struct updated u = {0, plan->trained_pieces, types[t]};
        bool any = false;
        for (int k = 0; k < plan->trained_pieces; k++)
            any = any || is_updated(plan, u, k);
        if (any)
            write_update(w, u);
    }
}

static bool host_updates(const struct rf_plan *plan)
{
    return (plan->policy.offload & RF_OFFLOAD_OPTIMIZER) != 0;
}

/* Copies the gradients that the host's optimizer reads, as soon as they are complete. */
static void write_evictions(struct rf_writer *w)
{
    for (int k = 0; rf_plan_evicts(w->plan) && k < w->plan->trained_pieces; k++) {
        if (w->plan->pieces[k].use >= 0)
            continue;
        rf_write(w, RF_VERB_EVICT, RF_LANE_EVICT, -1, -1);
        rf_write_in(w, RF_ROLE_FROM, of_piece(w, RF_VALUE_GRAD_SHARD, -1, k));
        rf_write_out(w, RF_ROLE_TO, of_piece(w, RF_VALUE_HOST_GRAD, -1, k));
    }
}

/* Piece by piece. Blocks use the result when they next fetch or gather it. */
static void write_host_steps(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    for (int k = 0; k < plan->trained_pieces; k++) {
        if (plan->pieces[k].use >= 0)
            continue;
        rf_write(w, RF_VERB_HOST_STEP, RF_LANE_HOST, -1, -1);
        write_updated(w, one_piece(k),
                      rf_plan_evicts(plan) ? RF_VALUE_HOST_GRAD : RF_VALUE_GRAD_SHARD);
    }
}

static void write_step(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    if (host_updates(plan))
        write_host_steps(w);
    else if (plan->shards > 1)
        write_shards(w);
    else if (plan->train_elements > 0) /* a rank's blocks may have none */
        write_whole(w);
    if (plan->policy.loss_scale == 0)
        return;
    rf_write(w, RF_VERB_END_STEP, RF_LANE_COMPUTE, -1, -1);
    rf_write_in(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
    rf_write_out(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
}

/* If only rank 0 updates, its scalars and parameters are sent to all ranks. */
static void write_broadcasts(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    const bool root = plan->dp_rank == 0;
    rf_write(w, RF_VERB_BROADCAST, RF_LANE_DATA, -1, -1);
    if (root)
        rf_write_in(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
    else
        rf_write_out(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
    rf_write_transfer(w, (struct rf_transfer){.op = RF_COLL_BROADCAST,
                                              .count = sizeof(struct rf_step_scalars),
                                              .dtype = RF_U8,
                                              .order = RF_ORDER_RING});
    if (plan->train_elements == 0)
        return;
    rf_write(w, RF_VERB_BROADCAST, RF_LANE_DATA, -1, -1);
    operands(w, all_pieces(w), RF_ROLE_PARAM,
             plan->policy.no_masters ? RF_VALUE_COPY : RF_VALUE_PARAM, -1, !root);
    rf_write_transfer(w, (struct rf_transfer){.op = RF_COLL_BROADCAST,
                                              .count = plan->train_elements,
                                              .dtype = rf_plan_stored_type(plan),
                                              .order = RF_ORDER_RING,
                                              .algorithm = RF_TO_RANK_0});
    if (!root)
        write_cast(w);
}

static bool updates(const struct rf_plan *plan)
{
    return rf_plan_updates(plan) && plan->trains;
}

/* The instructions for complete gradients. */
static void write_sums(struct rf_writer *w)
{
    rf_write_ties(w, -1);
    write_all_shared(w);
    rf_write_tensor_sums(w, -1);
    write_evictions(w);
    if (updates(w->plan))
        rf_write_partials(w);
}

static void write_results(struct rf_writer *w)
{
    if (updates(w->plan)) {
        rf_write_norm(w);
        rf_write_begin_step(w);
        write_step(w);
    }
    if (w->plan->policy.update_on_rank_0)
        write_broadcasts(w);
}

/* The host blocks in the loss until all earlier transfers have ended, and learns of their errors.
 * So transfers that the update needs come before the loss. */
static void write_training(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    const bool alone = plan->shards == 1 && plan->mesh.pp == 1 && rf_plan_tensor_ranks(plan) == 1;
    if (alone)
        rf_write_loss(w);
    write_sums(w);
    if (!alone)
        rf_write_loss(w);
    write_results(w);
}

/* Without a flush a list ends with the update of the previous step. Ranks have its gradients at
 * different times, which does not matter if they share their norms early enough. The first rank has
 * them after as many backward passes as there are ranks after it. The other ranks share after about
 * as many: a rank begins a forward pass, which takes about a third of its time for a micro-batch,
 * after the rank before it. */
static void write_lag_list(struct rf_writer *w, const struct rf_list *list)
{
    const struct rf_plan *plan = w->plan;
    const int behind = plan->mesh.pp - 1 - plan->pp_rank / 3;
    int first = 0, made = 0;
    bool summed = false;
    while (first < plan->block_count &&
           !(rf_plan_holds(plan, first) && rf_plan_block_trains(plan, first)))
        first++;
    for (int k = 0; k < list->count; k++) {
        const struct rf_instruction *i = &list->instructions[k];
        if (!summed && made == behind && rf_verb_calls_block(i->verb)) {
            write_sums(w);
            summed = true;
        }
        rf_write_copy(w, i);
        made += i->verb == RF_VERB_BACKWARD_WEIGHT && i->block == first;
    }
    if (!summed)
        write_sums(w);
    rf_write_loss(w);
    write_results(w);
}

static int write_list(struct rf_plan *plan, enum rf_list_id id)
{
    struct rf_list *list = &plan->lists[id], written = {0};
    struct rf_writer w = {.plan = plan, .list = &written};
    if (rf_plan_lags(plan)) {
        write_lag_list(&w, list);
        return rf_write_end(&w, list);
    }
    for (int i = 0; i < list->count; i++)
        rf_write_copy(&w, &list->instructions[i]);
    if (plan->policy.forward_only)
        rf_write_loss(&w);
    else
        write_training(&w);
    return rf_write_end(&w, list);
}

int rf_pass_update(struct rf_plan *plan)
{
    if (rf_plan_in_backward(plan))
        return 0;           /* in_backward.c */
    if (rf_plan_lags(plan)) /* if no step is in progress, none ends */
        RETURN_IF_ERROR(write_list(plan, RF_LIST_DRAIN));
    return write_list(plan, RF_LIST_STEP);
}
