/* SPDX-License-Identifier: MIT
 *
 * What one of several tensor ranks has of a block, by formula: the one place to change where plans
 * of tensor ranks say it themselves. Parameters are cut as they declare (rf_param_desc.split). Of a
 * block with cut parameters products are divided, and of what it keeps 24 of 34 parts; the rest,
 * which are inputs of norms and what is added to the residual, is on every rank (Korthikanti et al.
 * 2022, table 2, without sequence parallelism). After each product whose columns are cut its sums
 * are added over the ranks in forward, and the gradient of the input of its counterpart in
 * backward: twice a transformer layer (Shoeybi et al. 2019).
 */
#include "../base/base.h"
#include "search.h"

enum { WHOLE_PARTS = 10, CUT_PARTS = 24 };

/* The length of what is cut; 0: nothing is. */
static int64_t cut_length(const struct rf_param_desc *desc)
{
    const struct rf_shape *shape = &desc->shape;
    const int segments = desc->split.segments > 0 ? desc->split.segments : 1;
    if (desc->split.kind == RF_SPLIT_NONE || shape->ndim < 1)
        return 0;
    return shape->dim[desc->split.kind == RF_SPLIT_ROWS ? 0 : shape->ndim - 1] / segments;
}

int rf_search_tensor_check(const struct rf_search_model *model, int tp)
{
    bool cut = tp == 1;
    if (tp > 1 && model->heads > 0 && model->heads % tp)
        return rf_fail(RF_EINVAL, "%d tensor ranks cannot share %d heads", tp, model->heads);
    for (int b = 0; tp > 1 && b < model->block_count; b++)
        for (int k = 0; k < model->blocks[b].param_count; k++) {
            const struct rf_param_desc *desc = &model->blocks[b].params[k];
            const int64_t length = cut_length(desc);
            cut |= length > 0;
            if (length % tp)
                return rf_fail(RF_EINVAL, "%d tensor ranks cannot share the %lld %s of %s", tp,
                               (long long)length,
                               desc->split.kind == RF_SPLIT_ROWS ? "rows" : "columns", desc->name);
        }
    return cut ? 0
               : rf_fail(RF_EINVAL, "%d tensor ranks: no parameter says how it is to be cut", tp);
}

uint64_t rf_search_tensor_count(const struct rf_param_desc *desc, int tp)
{
    const uint64_t count = (uint64_t)rf_shape_count(desc->shape);
    return cut_length(desc) > 0 ? count / (uint64_t)tp : count;
}

int rf_search_tensor_exchanges(const struct rf_block *block)
{
    int count = 0;
    for (int k = 0; k < block->param_count; k++)
        count += block->params[k].split.kind == RF_SPLIT_COLUMNS;
    return count;
}

static bool is_cut(const struct rf_block *block)
{
    for (int k = 0; k < block->param_count; k++)
        if (cut_length(&block->params[k]) > 0)
            return true;
    return false;
}

static uint64_t share(uint64_t amount, int tp)
{
    const uint64_t t = (uint64_t)tp, all = (WHOLE_PARTS + CUT_PARTS) * t;
    return (uint64_t)((double)amount / (double)all * (double)(WHOLE_PARTS * t + CUT_PARTS));
}

void rf_search_tensor_sizes(const struct rf_block *block, int tp, struct rf_block_sizes *sizes)
{
    if (tp == 1 || !is_cut(block))
        return;
    sizes->saved = share(sizes->saved, tp);
    sizes->handoff = share(sizes->handoff, tp);
    sizes->scratch = share(sizes->scratch, tp);
}

void rf_search_tensor_work(const struct rf_block *block, int tp, struct rf_work *work)
{
    if (tp == 1 || !is_cut(block))
        return;
    work->flops /= (uint64_t)tp;
    work->repeated /= (uint64_t)tp;
    work->read = share(work->read, tp);
    work->written = share(work->written, tp);
}

/* As in a transformer layer: a multiply-add for each weight and token, and half of the pairs of
 * tokens in attention, twice as many in its backward pass. */
void rf_search_tensor_cost(const struct rf_block *block, const struct rf_block_sizes *sizes,
                           int64_t seq, bool first, struct rf_block_cost *out)
{
    const int last = sizes->out.ndim - 1;
    const uint64_t columns = last < 0 ? 1 : (uint64_t)sizes->out.dim[last];
    const uint64_t outputs = (uint64_t)rf_shape_count(sizes->out), rows = outputs / columns;
    const uint64_t attention =
        rf_search_tensor_exchanges(block) > 0 ? 2 * outputs * (uint64_t)seq : 0;
    uint64_t weights = 0, bytes = 0;
    for (int k = 0; k < block->param_count; k++) {
        const uint64_t count = (uint64_t)rf_shape_count(block->params[k].shape);
        weights += block->params[k].shape.ndim == 2 && !first ? count : 0;
        bytes += count * rf_dtype_bytes(block->params[k].dtype);
    }
    const struct rf_work forward = {.launches = 1,
                                    .flops = 2 * rows * weights + attention,
                                    .read = bytes + sizes->saved,
                                    .written = sizes->saved};
    struct rf_work backward = forward;
    backward.flops += attention;
    *out = (struct rf_block_cost){.forward = forward};
    for (int k = 0; k < 2; k++) {
        out->backward_input[k] = backward;
        out->backward_weight[k] = forward;
        out->backward_weight[k].flops = 2 * rows * weights;
        out->backward_weight[k].written += 4 * weights;
    }
}

bool rf_search_tensor_runs(const struct rf_search_model *model, int tp)
{
    for (int b = 0; b < model->block_count; b++)
        for (int k = 0; k < model->blocks[b].param_count; k++)
            if (rf_search_tensor_count(&model->blocks[b].params[k], tp) > INT32_MAX)
                return false;
    return true;
}
