/* SPDX-License-Identifier: MIT
 *
 * The 16-bit copies of parameters, and the places that determine the rounding of their elements.
 */
#include "../base/base.h"
#include "run.h"

struct rf_tensor rf_run_copy(const struct rf_run *run, uint64_t count)
{
    struct rf_tensor copy = run->regions[RF_REGION_COPY];
    copy.shape = rf_shape1((int64_t)count);
    copy.dtype = run->plan->copy_type;
    return copy;
}

struct rf_tensor rf_run_places(const struct rf_run *run, int piece)
{
    const struct rf_plan *plan = run->plan;
    const uint64_t word = rf_plan_state_first(plan, piece) / RF_FLAT_GRAIN * 2;
    struct rf_tensor places = run->regions[RF_REGION_PLACES];
    if (!plan->place_runs)
        return (struct rf_tensor){0};
    places = rf_as(places, RF_I32);
    places.offset += word * sizeof(int32_t);
    places.shape = rf_shape1((int64_t)(rf_plan_place_words(plan, plan->shard) - word));
    return places;
}

static int round_piece(const struct rf_run *run, struct rf_tensor params, struct rf_tensor copies,
                       int piece, bool before)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_plan_piece *p = &plan->pieces[piece];
    const struct rf_optimizer_part part = {.param = params,
                                           .copy = copies,
                                           .first = p->first + p->cuts[plan->shard],
                                           .places = rf_run_places(run, piece)};
    return rf_optimizer_copy(run->stream, &plan->policy.optimizer, &part, rf_run_scalars(run),
                             before);
}

/* A part of a tensor. */
static struct rf_tensor elements_of(struct rf_tensor t, uint64_t first, uint64_t count)
{
    t.offset += first * rf_dtype_bytes(t.dtype);
    t.shape = rf_shape1((int64_t)count);
    return t;
}

int rf_run_round_copies(const struct rf_run *run, struct rf_tensor params, struct rf_tensor copies,
                        bool before)
{
    const struct rf_plan *plan = run->plan;
    if (!plan->policy.optimizer.stochastic_rounding || plan->policy.forward_only)
        return rf_cast(run->stream, copies, params);
    for (int k = 0; k < plan->trained_pieces; k++) {
        const struct rf_plan_piece *p = &plan->pieces[k];
        const uint64_t count = p->counts[plan->shard];
        if (p->use < 0 && count > 0)
            RETURN_IF_ERROR(
                round_piece(run, elements_of(params, rf_plan_state_first(plan, k), count),
                            elements_of(copies, rf_plan_state_first(plan, k), count), k, before));
    }
    return 0;
}

int rf_run_refresh_copy(struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    const uint64_t all = rf_plan_master_elements(plan, plan->shard);
    struct rf_tensor params = rf_as(run->regions[RF_REGION_PARAMS], RF_F32);
    params.shape = rf_shape1((int64_t)all);
    if (!rf_plan_step_copies(plan) || all == 0)
        return 0;
    /* The copies of frozen parameters, too. */
    RETURN_IF_ERROR(rf_cast(run->stream, rf_run_copy(run, all), params));
    if (plan->policy.optimizer.stochastic_rounding)
        RETURN_IF_ERROR(rf_run_round_copies(run, params, rf_run_copy(run, all), false));
    return rf_stream_wait(run->stream);
}

int rf_run_refresh_before(struct rf_run *run, bool level)
{
    const struct rf_plan *plan = run->plan;
    struct rf_tensor before = run->regions[RF_REGION_STATE + RF_STATE_BEFORE];
    struct rf_tensor copy = run->regions[RF_REGION_COPY_BEFORE];
    if (!rf_plan_lags(plan) || plan->train_elements == 0)
        return 0;
    before = rf_as(before, RF_F32);
    before.shape = rf_shape1((int64_t)plan->train_elements);
    if (level)
        RETURN_IF_ERROR(
            rf_stream_copy(run->stream, (struct rf_buffer_place){before.buffer, before.offset},
                           (struct rf_buffer_place){run->regions[RF_REGION_PARAMS].buffer,
                                                    run->regions[RF_REGION_PARAMS].offset},
                           rf_tensor_bytes(before)));
    if (copy.buffer) {
        copy.dtype = plan->copy_type;
        copy.shape = before.shape;
        RETURN_IF_ERROR(rf_run_round_copies(run, before, copy, true));
    }
    return rf_stream_wait(run->stream);
}
