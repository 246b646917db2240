/* SPDX-License-Identifier: MIT
 *
 * Pass: where every value lies in the run's memory.
 */
#include "../base/base.h"
#include "passes.h"

static void place(struct rf_value *v, int region, uint64_t offset, uint64_t bytes)
{
    v->region = region;
    v->offset = offset;
    v->bytes = bytes;
}

static uint64_t out_bytes(const struct rf_plan *plan, int block)
{
    const struct rf_block_sizes *sizes = &plan->sizes[block];
    return (uint64_t)rf_shape_count(sizes->out) * rf_dtype_bytes(sizes->dtype);
}

static void place_shard(const struct rf_plan *plan, struct rf_value *v)
{
    const struct rf_plan_piece *piece = &plan->pieces[v->piece];
    const uint64_t bytes = rf_padded(piece->counts[plan->shard]) * sizeof(float);
    const uint64_t first = piece->first + piece->cuts[plan->shard];
    if (v->kind == RF_VALUE_STATE)
        place(v, RF_REGION_STATE + v->slot, piece->state_first * sizeof(float), bytes);
    else if (v->kind == RF_VALUE_COPY_SHARD)
        place(v, RF_REGION_COPY, first * sizeof(uint16_t), bytes / 2);
    else
        place(v, v->kind == RF_VALUE_PARAM_SHARD ? RF_REGION_PARAMS : RF_REGION_GRADS,
              first * sizeof(float), bytes);
}

static void place_piece(const struct rf_plan *plan, struct rf_value *v)
{
    const struct rf_plan_piece *piece = &plan->pieces[v->piece];
    const uint64_t count = rf_padded(piece->count);
    const uint64_t slot = v->kind == RF_VALUE_GRAD ? (uint64_t)v->slot * plan->slot_elements : 0;
    const uint64_t element = v->kind == RF_VALUE_COPY ? sizeof(uint16_t) : sizeof(float);
    const int region = v->kind == RF_VALUE_PARAM  ? RF_REGION_PARAMS
                       : v->kind == RF_VALUE_COPY ? RF_REGION_COPY
                                                  : RF_REGION_GRADS;
    place(v, region, (slot + piece->first) * element, count * element);
}

/* One micro-batch at a time is under way: all have the same memory. Without a backward pass two
 * outputs take turns, and what is saved is scratch. */
static void place_activation(const struct rf_plan *plan, struct rf_value *v)
{
    const bool training = !plan->policy.forward_only;
    const int turn = RF_REGION_DOUT0 + v->block % 2;
    switch (v->kind) {
    case RF_VALUE_OUT:
        place(v, training ? RF_REGION_OUT(v->block) : turn, 0, out_bytes(plan, v->block));
        break;
    case RF_VALUE_DOUT:
        place(v, turn, 0, out_bytes(plan, v->block));
        break;
    case RF_VALUE_SAVED:
        place(v, RF_REGION_SAVED(training ? v->block : 0), 0, plan->sizes[v->block].saved);
        break;
    default:
        place(v, RF_REGION_HANDOFF, 0, plan->sizes[v->block].handoff);
    }
}

static void place_input(const struct rf_plan *plan, struct rf_value *v)
{
    const int local = v->micro_batch - plan->first_micro_batch[plan->rank];
    const int region = v->kind == RF_VALUE_TOKENS    ? RF_REGION_TOKENS
                       : v->kind == RF_VALUE_TARGETS ? RF_REGION_TARGETS
                                                     : RF_REGION_LOSSES;
    const uint64_t bytes = (uint64_t)plan->rows * sizeof(int32_t);
    place(v, region, (uint64_t)local * bytes, bytes);
}

static void place_single(const struct rf_plan *plan, struct rf_value *v)
{
    static const int regions[RF_VALUE_KINDS] = {
        [RF_VALUE_SCALARS] = RF_REGION_SCALARS,     [RF_VALUE_NORM] = RF_REGION_NORM,
        [RF_VALUE_PARTIALS] = RF_REGION_PARTIALS,   [RF_VALUE_CHUNKS] = RF_REGION_CHUNKS,
        [RF_VALUE_DECAY] = RF_REGION_DECAY,         [RF_VALUE_SCRATCH] = RF_REGION_SCRATCH,
        [RF_VALUE_WORKSPACE] = RF_REGION_WORKSPACE,
    };
    const int region = regions[v->kind];
    place(v, region, 0, plan->regions[region].bytes);
}

void rf_place_value(const struct rf_plan *plan, struct rf_value *v)
{
    if (v->kind == RF_VALUE_PARAM_SHARD || v->kind == RF_VALUE_COPY_SHARD ||
        v->kind == RF_VALUE_GRAD_SHARD || v->kind == RF_VALUE_STATE)
        place_shard(plan, v);
    else if (v->piece >= 0)
        place_piece(plan, v);
    else if (v->block >= 0)
        place_activation(plan, v);
    else if (v->micro_batch >= 0)
        place_input(plan, v);
    else
        place_single(plan, v);
}

int rf_pass_place(struct rf_plan *plan)
{
    for (int i = 0; i < plan->value_count; i++)
        rf_place_value(plan, &plan->values[i]);
    return 0;
}
