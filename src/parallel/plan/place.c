/* SPDX-License-Identifier: MIT
 *
 * The size of every value, and the place of those that live as long as the run. Used by the pass
 * and by the checker, which compares every plan with it.
 */
#include "exchange.h"
#include "list.h"
#include "plan.h"

bool rf_value_is_temporary(const struct rf_plan *plan, enum rf_value_kind kind)
{
    switch (kind) {
    case RF_VALUE_OUT:
    case RF_VALUE_DOUT:
    case RF_VALUE_SAVED:
    case RF_VALUE_SAVED_FOR_WEIGHT:
    case RF_VALUE_EXCHANGE:
    case RF_VALUE_GRAD_NARROW:
    case RF_VALUE_GRAD_NARROW_SHARD:
    case RF_VALUE_HOST_OUT:
    case RF_VALUE_HOST_SAVED:
    case RF_VALUE_GRAD_TIED:
    case RF_VALUE_HOST_STATE:
        return true;
    case RF_VALUE_PARAM:
    case RF_VALUE_COPY:
        return plan->units;
    case RF_VALUE_GRAD:
        return plan->stage >= 2 || rf_plan_in_backward(plan);
    case RF_VALUE_GRAD_SHARD:
        return rf_plan_in_backward(plan);
    case RF_VALUE_GRAD_PART:
        return plan->stage >= 2 && plan->policy.order == RF_ORDER_RING;
    default:
        return false;
    }
}

int rf_value_storage(const struct rf_plan *plan, int value)
{
    const struct rf_value *v = &plan->values[value];
    const struct rf_value whole = {
        .kind = RF_VALUE_GRAD, .block = -1, .slot = 0, .piece = v->piece};
    return v->kind == RF_VALUE_GRAD_SHARD && plan->shards == 1 && rf_plan_in_backward(plan)
               ? rf_value_find(plan, &whole, -1)
               : value;
}

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

/* Single pieces follow the masters. */
static uint64_t skipped(const struct rf_plan *plan, const struct rf_plan_piece *piece)
{
    return piece->single ? rf_plan_bare_elements(plan, plan->shard) : 0;
}

/* A shard is in its piece or, if no rank keeps the whole piece, next to the other shards. */
static void place_shard(const struct rf_plan *plan, struct rf_value *v)
{
    const struct rf_plan_piece *piece = &plan->pieces[v->piece];
    const uint64_t count = piece->counts[plan->shard];
    const uint64_t bytes = rf_plan_padded(plan, count) * sizeof(float);
    const uint64_t within = piece->first + piece->borders[plan->shard];
    const uint64_t param = plan->units ? piece->shard_first : within;
    const uint64_t sums = count * (uint64_t)(plan->sum_slots - 1);
    const uint64_t last = piece->part_first + rf_plan_padded(plan, sums);
    switch (v->kind) {
    case RF_VALUE_STATE: {
        const int k = rf_state_of_slot(v->slot);
        const struct rf_plan_span span =
            rf_plan_states_on_disk(plan)
                ? rf_plan_disk_span(plan, v->piece, rf_block_of_slot(v->slot))
                : (struct rf_plan_span){0, rf_plan_padded(plan, count)};
        const uint64_t first = rf_plan_state_first(plan, v->piece) + span.first;
        const uint64_t at = rf_plan_state_offset(plan, k, plan->shard, first);
        place(v, RF_REGION_STATE + k, at,
              rf_plan_state_offset(plan, k, plan->shard, first + span.count) - at);
        break;
    }
    case RF_VALUE_COPY_SHARD:
        place(v, RF_REGION_COPY, param * sizeof(uint16_t), bytes / 2);
        break;
    case RF_VALUE_PARAM_SHARD:
        place(v, RF_REGION_PARAMS, (param - skipped(plan, piece)) * sizeof(float), bytes);
        break;
    case RF_VALUE_HOST_GRAD:
        place(v, RF_REGION_HOST_GRADS, piece->shard_first * sizeof(float), bytes);
        break;
    case RF_VALUE_GRAD_PART: /* the highest of them is the shard */
        place(v, RF_REGION_GRADS, (last - sums) * sizeof(float),
              count ? (sums + rf_plan_padded(plan, count)) * sizeof(float) : 0);
        break;
    default:
        place(v, RF_REGION_GRADS, (plan->stage >= 2 ? last : within) * sizeof(float), bytes);
    }
}

static void place_piece(const struct rf_plan *plan, struct rf_value *v)
{
    const struct rf_plan_piece *piece = &plan->pieces[v->piece];
    const uint64_t count = rf_plan_padded(plan, piece->count);
    const uint64_t slot = v->kind == RF_VALUE_GRAD ? (uint64_t)v->slot * plan->slot_elements : 0;
    const uint64_t element = v->kind == RF_VALUE_COPY ? sizeof(uint16_t) : sizeof(float);
    const int region = v->kind == RF_VALUE_PARAM   ? RF_REGION_PARAMS
                       : v->kind != RF_VALUE_COPY  ? RF_REGION_GRADS
                       : v->slot == RF_SLOT_BEFORE ? RF_REGION_COPY_BEFORE
                                                   : RF_REGION_COPY;
    const uint64_t skip = v->kind == RF_VALUE_PARAM ? skipped(plan, piece) : 0;
    place(v, region, (slot + piece->first - skip) * element, count * element);
}

/* A block of states, at its largest on any rank, so that all have the same places. */
static uint64_t block_bytes(const struct rf_plan *plan, const struct rf_value *v)
{
    const enum rf_dtype type = rf_plan_state_type(plan, v->piece);
    const uint64_t each = rf_plan_disk_block(plan, v->piece);
    const uint64_t from = (uint64_t)rf_block_of_slot(v->slot) * each;
    const uint64_t left = rf_plan_largest_shard(plan, &plan->pieces[v->piece]) - from;
    const uint64_t count = left < each ? left : each;
    return type == RF_U8 ? count / RF_STATE_BLOCK * RF_STATE_BLOCK_BYTES
                         : count * rf_dtype_bytes(type);
}

/* The size of a value that lifetimes.c will place. */
static uint64_t passing_bytes(const struct rf_plan *plan, const struct rf_value *v)
{
    switch (v->kind) {
    case RF_VALUE_OUT:
    case RF_VALUE_HOST_OUT:
    case RF_VALUE_DOUT:
        return out_bytes(plan, v->block);
    case RF_VALUE_SAVED:
    case RF_VALUE_HOST_SAVED:
        return plan->sizes[v->block].saved;
    case RF_VALUE_SAVED_FOR_WEIGHT:
        return plan->sizes[v->block].saved_for_weight;
    case RF_VALUE_HOST_STATE:
        return block_bytes(plan, v);
    case RF_VALUE_EXCHANGE:
        return rf_exchange_value_bytes(plan, rf_plan_exchange_of(plan, v));
    case RF_VALUE_GRAD_SHARD:
    case RF_VALUE_GRAD_PART:
    case RF_VALUE_GRAD_TIED:
        return rf_plan_largest_shard(plan, &plan->pieces[v->piece]) * sizeof(float);
    case RF_VALUE_GRAD_NARROW_SHARD:
        return rf_plan_largest_shard(plan, &plan->pieces[v->piece]) * sizeof(uint16_t);
    case RF_VALUE_COPY:
    case RF_VALUE_GRAD_NARROW:
        return rf_plan_padded(plan, plan->pieces[v->piece].count) * sizeof(uint16_t);
    default:
        return rf_plan_padded(plan, plan->pieces[v->piece].count) * sizeof(float);
    }
}

static void place_input(const struct rf_plan *plan, struct rf_value *v)
{
    const int before = v->slot == RF_SLOT_BEFORE ? plan->local_micro_batches : 0;
    const int local = rf_plan_local(plan, v->micro_batch) + before;
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
        [RF_VALUE_WORKSPACE] = RF_REGION_WORKSPACE, [RF_VALUE_SQUARES] = RF_REGION_SQUARES,
        [RF_VALUE_PLACES] = RF_REGION_PLACES,
    };
    const int region = regions[v->kind];
    if (v->kind == RF_VALUE_SCALARS && rf_plan_lags(plan))
        place(v, region, v->slot > 0 ? (uint64_t)v->slot * RF_SCALARS_STRIDE : 0,
              RF_SCALARS_STRIDE);
    else
        place(v, region, 0, plan->regions[region].bytes);
}

void rf_place_value(const struct rf_plan *plan, struct rf_value *v)
{
    if (rf_value_is_temporary(plan, v->kind))
        v->bytes = passing_bytes(plan, v);
    else if (v->kind == RF_VALUE_SQUARES && v->piece >= 0)
        place(v, RF_REGION_SQUARES, plan->pieces[v->piece].first_chunk * sizeof(float),
              plan->pieces[v->piece].chunks * sizeof(float));
    else if (v->kind == RF_VALUE_PARAM_SHARD || v->kind == RF_VALUE_COPY_SHARD ||
             v->kind == RF_VALUE_GRAD_SHARD || v->kind == RF_VALUE_GRAD_PART ||
             v->kind == RF_VALUE_HOST_GRAD || v->kind == RF_VALUE_STATE)
        place_shard(plan, v);
    else if (v->piece >= 0)
        place_piece(plan, v);
    else if (v->micro_batch >= 0)
        place_input(plan, v);
    else
        place_single(plan, v);
}
