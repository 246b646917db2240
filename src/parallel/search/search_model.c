/* SPDX-License-Identifier: MIT
 *
 * A model for the search: its parameters, and the memory and exchanges of its blocks for one
 * micro-batch, on one tensor rank. All values come from plans of that rank without data-parallel
 * ranks and stages, one for each number of tensor ranks and size of micro-batch.
 */
#include "../../base/base.h"
#include "../../coll/table.h"
#include "../passes/passes.h"
#include "../plan/exchange.h"
#include "../predict/simulate.h"
#include "search.h"

/* Stops after a pass: the list, which takes most of the time, is not needed. */
static int plan_one(const struct rf_search_model *model, const struct rf_policy *policy, int tp,
                    int64_t sequences, rf_plan_pass *last, struct rf_plan **out)
{
    const struct rf_mesh mesh = {.dp = 1, .tp = tp};
    struct rf_policy one = *policy;
    one.batch = sequences;
    one.micro_batches = 1;
    one.zero = one.offload = one.disk = 0;
    one.device_bytes = 0;
    one.stages = RF_STAGES_EVEN;
    one.pipeline = RF_PIPELINE_1F1B;
    one.stage_blocks = NULL;
    one.stage_count = 0;
    one.update_on_rank_0 = one.keep_gathered = one.no_prefetch = false;
    return rf_plan_build_until((struct rf_blocks){model->blocks, model->block_count}, &mesh, &one,
                               0, last, out);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void take_params(const struct rf_plan *plan, struct rf_search_view *out)
{
    for (int k = 0; k < plan->param_count; k++)
        out->params[k] = (struct rf_search_param){
            .block = plan->params[k].block,
            .logical = plan->params[k].logical,
            .count = rf_plan_padded(plan, (uint64_t)plan->params[k].count),
            .narrow = rf_plan_narrow(&plan->params[k]),
            .trained = rf_plan_trains(plan, k),
            .coded = rf_plan_coded(plan, k),
            .bare = plan->params[k].bare,
            .single = plan->params[k].single,
            .summed = rf_plan_sums_tensor(plan, k),
            .chunks = rf_cut_count_chunks(&plan->params[k].cut, RF_NORM_CHUNK, 0, UINT64_MAX)};
    out->param_count = plan->param_count;
    out->copy_type = plan->copy_type;
}

int rf_search_view_open(const struct rf_search_model *model, const struct rf_policy *policy, int tp,
                        struct rf_search_view *out)
{
    struct rf_plan *plan = NULL;
    *out = (struct rf_search_view){.model = model, .tp = tp};
    if (tp > 1 && model->heads > 0 && model->heads % tp)
        return rf_fail(RF_EINVAL, "%d tensor ranks cannot share %d heads", tp, model->heads);
    RETURN_IF_ERROR(plan_one(model, policy, tp, 1, rf_pass_layout, &plan));
    out->params = rf_alloc(((size_t)plan->param_count + 1) * sizeof(*out->params));
    if (out->params)
        take_params(plan, out);
    rf_plan_destroy(plan);
    return out->params ? 0 : rf_fail(RF_ENOMEM, "search: out of memory for parameters");
}

void rf_search_view_close(struct rf_search_view *view)
{
    rf_free(view->params);
    *view = (struct rf_search_view){0};
}

/* ---- one size of micro-batch ----------------------------------------------------------------- */

static double work_s(const struct rf_search_view *view, const struct rf_sim_rates *rates,
                     const struct rf_work *work)
{
    const double given = view->model->block_flops_per_s;
    struct rf_sim_cost cost = {{0}};
    rf_sim_work_cost(work, given > 0 ? given : rates->block_flops_per_s, rates, &cost);
    return rf_sim_cost_s(&cost);
}

/* The exchanges of one call: seconds. Adds this rank's bytes to *sent. */
static double exchanges_s(const struct rf_plan *plan, const struct rf_sim_rates *rates, int block,
                          enum rf_call call, uint64_t *largest, uint64_t *sent)
{
    static const enum rf_coll_op ops[] = {[RF_EXCHANGE_SUM] = RF_COLL_ALL_REDUCE,
                                          [RF_EXCHANGE_MAX] = RF_COLL_ALL_REDUCE,
                                          [RF_EXCHANGE_GATHER] = RF_COLL_ALL_GATHER,
                                          [RF_EXCHANGE_SCATTER] = RF_COLL_REDUCE_SCATTER};
    const struct rf_plan_group *group = &plan->groups[RF_LANE_TENSOR];
    const uint64_t ranks = (uint64_t)plan->mesh.tp;
    const struct rf_exchange *x;
    double seconds = 0;
    for (int k = 0; (x = rf_plan_exchange(plan, block, call, k)); k++) {
        const uint64_t count = (uint64_t)rf_shape_count(x->shape);
        const uint64_t bytes = count * rf_dtype_bytes(x->dtype);
        const bool both = ops[x->kind] == RF_COLL_ALL_REDUCE;
        const struct rf_coll_desc desc = {.op = ops[x->kind],
                                          .ranks = plan->mesh.tp,
                                          .count = both ? count : count / ranks,
                                          .dtype = x->dtype,
                                          .order = RF_ORDER_RING};
        uint64_t rounds = 0;
        if (rf_coll_count_rounds(&desc, NULL, &rounds) < 0)
            rounds = 1;
        const uint64_t passed = (both ? 2 : 1) * bytes / ranks * (ranks - 1);
        seconds += rf_link_s(rates, group, desc.op, rounds, passed);
        *sent += passed;
        *largest = bytes > *largest ? bytes : *largest;
    }
    return seconds;
}

static void take_block(const struct rf_search_view *view, const struct rf_sim_rates *rates,
                       const struct rf_plan *plan, int b, const struct rf_block_cost *cost,
                       struct rf_search_block *out)
{
    const struct rf_block_sizes *sizes = &plan->sizes[b];
    *out = (struct rf_search_block){
        .out = rf_plan_aligned((uint64_t)rf_shape_count(sizes->out) * rf_dtype_bytes(sizes->dtype)),
        .saved = rf_plan_aligned(sizes->saved),
        .saved_for_weight = rf_plan_aligned(sizes->saved_for_weight),
        .scratch = rf_plan_aligned(sizes->scratch),
        .forward_s = work_s(view, rates, &cost->forward),
        .input_s = work_s(view, rates, &cost->backward_input[0]),
        .weight_s = work_s(view, rates, &cost->backward_weight[0])};
    if (view->tp == 1)
        return;
    out->forward_s +=
        exchanges_s(plan, rates, b, RF_CALL_FORWARD, &out->exchange, &out->sent_forward);
    out->input_s +=
        exchanges_s(plan, rates, b, RF_CALL_BACKWARD_INPUT, &out->exchange, &out->sent_back);
    out->weight_s +=
        exchanges_s(plan, rates, b, RF_CALL_BACKWARD_WEIGHT, &out->exchange, &out->sent_back);
}

static int ask(const struct rf_search_view *view, const struct rf_policy *policy,
               const struct rf_sim_rates *rates, int64_t sequences, struct rf_search_rows *out)
{
    const int count = view->model->block_count;
    struct rf_plan *plan = NULL;
    RETURN_IF_ERROR(plan_one(view->model, policy, view->tp, sequences, rf_pass_recompute, &plan));
    struct rf_block_cost *costs = rf_alloc((size_t)count * sizeof(*costs));
    int rc = costs ? rf_block_costs(plan, costs)
                   : rf_fail(RF_ENOMEM, "search: out of memory for %d blocks", count);
    out->recompute = rf_plan_recompute(plan);
    for (int b = 0; rc == 0 && b < count; b++) {
        take_block(view, rates, plan, b, &costs[b], &out->blocks[b]);
        out->blocks[b].in = b > 0 ? out->blocks[b - 1].out : 0;
    }
    rf_free(costs);
    rf_plan_destroy(plan);
    return rc;
}

int rf_search_rows_open(const struct rf_search_view *view, const struct rf_policy *policy,
                        const struct rf_sim_rates *rates, int64_t sequences,
                        struct rf_search_rows *out)
{
    const int count = view->model->block_count;
    *out = (struct rf_search_rows){.rows = sequences * policy->seq};
    out->blocks = rf_alloc((size_t)count * sizeof(*out->blocks));
    if (!out->blocks)
        return rf_fail(RF_ENOMEM, "search: out of memory for %d blocks", count);
    out->status = ask(view, policy, rates, sequences, out);
    if (out->status < 0)
        snprintf(out->reason, sizeof(out->reason), "%s", rf_last_error()->message);
    return out->status == RF_ENOMEM ? RF_ENOMEM : 0;
}

void rf_search_rows_close(struct rf_search_rows *rows)
{
    rf_free(rows->blocks);
    *rows = (struct rf_search_rows){0};
}
