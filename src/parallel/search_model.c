/* SPDX-License-Identifier: MIT
 *
 * A model as the search sees it: its parameters, and what its blocks keep and take for one
 * micro-batch, on one tensor rank. Blocks are asked once for each size of micro-batch.
 */
#include "../base/base.h"
#include "search.h"
#include "simulate.h"

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static int find_owner(const struct rf_search_view *view, const struct rf_param_desc *desc)
{
    int at = 0;
    for (int b = 0; b < view->model->block_count; b++)
        for (int k = 0; k < view->model->blocks[b].param_count; k++, at++)
            if (strcmp(view->model->blocks[b].params[k].name, desc->tied_to) == 0)
                return at < view->param_count ? view->params[at].logical : view->param_count;
    return view->param_count;
}

static void add_param(struct rf_search_view *view, int block, const struct rf_param_desc *desc)
{
    const uint64_t count = rf_search_tensor_count(desc, view->tp);
    struct rf_search_param *param = &view->params[view->param_count];
    *param = (struct rf_search_param){.block = block,
                                      .logical = view->param_count,
                                      .count = rf_padded(count),
                                      .narrow = desc->dtype != RF_F32,
                                      .trained = (desc->flags & RF_PARAM_FROZEN) == 0};
    if (desc->tied_to)
        param->logical = find_owner(view, desc);
    param->trained = view->params[param->logical].trained;
    if (param->narrow)
        view->copy_type = desc->dtype;
    if (param->logical == view->param_count && param->trained)
        view->chunks += (count + RF_NORM_CHUNK - 1) / RF_NORM_CHUNK;
    view->param_count++;
}

int rf_search_view_open(const struct rf_search_model *model, int tp, struct rf_search_view *out)
{
    int total = 0;
    *out = (struct rf_search_view){.model = model, .tp = tp, .copy_type = RF_F32};
    RETURN_IF_ERROR(rf_search_tensor_check(model, tp));
    for (int b = 0; b < model->block_count; b++)
        total += model->blocks[b].param_count;
    out->params = rf_alloc(((size_t)total + 1) * sizeof(*out->params));
    if (!out->params)
        return rf_fail(RF_ENOMEM, "search: out of memory for %d parameters", total);
    for (int b = 0; b < model->block_count; b++)
        for (int k = 0; k < model->blocks[b].param_count; k++)
            add_param(out, b, &model->blocks[b].params[k]);
    return 0;
}

void rf_search_view_close(struct rf_search_view *view)
{
    rf_free(view->params);
    *view = (struct rf_search_view){0};
}

/* ---- one size of micro-batch ----------------------------------------------------------------- */

/* The model on one rank, with one micro-batch of the size: a plan to ask blocks with. */
static int ask(const struct rf_search_model *model, const struct rf_policy *policy,
               int64_t sequences, struct rf_search_rows *out)
{
    const struct rf_mesh mesh = {.dp = 1};
    struct rf_policy one = *policy;
    struct rf_plan *plan = NULL;
    one.batch = sequences;
    one.micro_batches = 1;
    one.zero = one.offload = 0;
    one.device_bytes = 0;
    one.update_on_rank_0 = one.keep_gathered = one.no_prefetch = false;
    RETURN_IF_ERROR(rf_plan_build(model->blocks, model->block_count, &mesh, &one, 0, &plan));
    out->recompute = rf_plan_recompute(plan);
    memcpy(out->sizes, plan->sizes, (size_t)model->block_count * sizeof(*out->sizes));
    const int rc = rf_block_costs(plan, out->costs);
    rf_plan_destroy(plan);
    out->by_formula = rc == RF_ENOTSUP || rc == RF_EINVAL;
    for (int b = 0; out->by_formula && b < model->block_count; b++)
        rf_search_tensor_cost(&model->blocks[b], &out->sizes[b], policy->seq, b == 0,
                              &out->costs[b]);
    if (out->by_formula)
        snprintf(out->reason, sizeof(out->reason), "%s", rf_last_error()->message);
    return out->by_formula ? 0 : rc;
}

int rf_search_rows_open(const struct rf_search_model *model, const struct rf_policy *policy,
                        int64_t sequences, struct rf_search_rows *out)
{
    const size_t count = (size_t)model->block_count;
    *out = (struct rf_search_rows){.rows = sequences * policy->seq};
    out->sizes = rf_alloc(count * sizeof(*out->sizes));
    out->costs = rf_alloc(count * sizeof(*out->costs));
    if (!out->sizes || !out->costs)
        return rf_fail(RF_ENOMEM, "search: out of memory for %d blocks", model->block_count);
    out->status = ask(model, policy, sequences, out);
    if (out->status < 0)
        snprintf(out->reason, sizeof(out->reason), "%s", rf_last_error()->message);
    return out->status == RF_ENOMEM ? RF_ENOMEM : 0;
}

void rf_search_rows_close(struct rf_search_rows *rows)
{
    rf_free(rows->sizes);
    rf_free(rows->costs);
    *rows = (struct rf_search_rows){0};
}

/* ---- cut over tensor ranks ------------------------------------------------------------------- */

static double seconds(const struct rf_search_view *view, int block, struct rf_work work,
                      const struct rf_sim_rates *rates)
{
    const double given = view->model->block_flops_per_s;
    struct rf_sim_cost cost = {{0}};
    rf_search_tensor_work(&view->model->blocks[block], view->tp, &work);
    rf_sim_work_cost(&work, given > 0 ? given : rates->block_flops_per_s, rates, &cost);
    return rf_sim_cost_s(&cost);
}

/* Tensor ranks are neighbours. */
static double exchange_s(const struct rf_search_view *view, const struct rf_sim_rates *rates,
                         uint64_t bytes)
{
    const struct rf_plan_group group = {.first = 0, .stride = 1, .size = view->tp};
    return rf_link_s(rates, &group, RF_COLL_ALL_REDUCE, 2, bytes);
}

void rf_search_cut_blocks(const struct rf_search_view *view, const struct rf_search_rows *rows,
                          const struct rf_sim_rates *rates, struct rf_search_block *blocks)
{
    uint64_t in = 0;
    for (int b = 0; b < view->model->block_count; b++) {
        const struct rf_block *block = &view->model->blocks[b];
        const struct rf_block_cost *cost = &rows->costs[b];
        struct rf_block_sizes sizes = rows->sizes[b];
        rf_search_tensor_sizes(block, view->tp, &sizes);
        struct rf_search_block *to = &blocks[b];
        *to = (struct rf_search_block){.in = in,
                                       .saved = aligned(sizes.saved),
                                       .handoff = aligned(sizes.handoff),
                                       .scratch = aligned(sizes.scratch)};
        to->out = aligned((uint64_t)rf_shape_count(sizes.out) * rf_dtype_bytes(sizes.dtype));
        in = to->out;
        to->forward_s = seconds(view, b, cost->forward, rates);
        to->input_s = seconds(view, b, cost->backward_input[0], rates);
        to->weight_s = seconds(view, b, cost->backward_weight[0], rates);
        if (view->tp == 1)
            continue;
        const int exchanges = rf_search_tensor_exchanges(block);
        const uint64_t sent = 2 * to->out / (uint64_t)view->tp * (uint64_t)(view->tp - 1);
        to->exchanged = (uint64_t)exchanges * sent;
        to->forward_s += exchanges * exchange_s(view, rates, sent);
        to->input_s += exchanges * exchange_s(view, rates, sent);
    }
}
