/* SPDX-License-Identifier: MIT
 *
 * Initializes a run's memory when it is opened: the parameters by counter-based random numbers,
 * which are the same on every rank and mesh; the tables of norm and decay; the block of scalars.
 */
#include "../base/base.h"
#include "../optim/scalars.h"
#include "run.h"
#include "stored.h"

static int fill_param(struct rf_run *run, int index, float *values)
{
    const struct rf_param_desc *desc = rf_plan_desc(run->plan, index);
    const uint64_t logical = (uint64_t)run->plan->params[index].logical;
    const struct rf_param_cut *cut = &run->plan->params[index].cut;
    const struct rf_own_part own = rf_run_own_part(run, index);
    for (uint64_t done = 0; done < own.count;) {
        const struct rf_cut_run r = rf_cut_run_at(cut, own.first + done);
        for (uint64_t i = 0; i < r.count && done < own.count; i++, done++)
            values[done] = desc->init_std != 0
                               ? desc->init_std * rf_philox_normal(run->seed, logical, r.first + i)
                               : desc->init_value;
    }
    return own.count ? rf_stored_write(own.tensor, values) : 0;
}

int rf_run_init_params(struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    int64_t most = 1;
    int rc = 0;
    for (int i = 0; i < plan->param_count; i++)
        most = plan->params[i].count > most ? plan->params[i].count : most;
    float *values = rf_alloc((size_t)most * sizeof(*values));
    if (!values)
        return rf_fail(RF_ENOMEM, "run: out of host memory for %lld initial values",
                       (long long)most);
    for (int i = 0; rc == 0 && i < plan->param_count; i++)
        if (plan->params[i].owner == i)
            rc = fill_param(run, i, values);
    rf_free(values);
    if (rc == 0)
        rc = rf_run_refresh_copy(run);
    return rc < 0 ? rc : rf_run_refresh_before(run, true);
}

static void fill_decay(const struct rf_plan *plan, uint32_t *words)
{
    for (int i = 0; i < plan->param_count; i++) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->owner != i || param->grad_first == RF_NO_GRAD ||
            !(rf_plan_desc(plan, i)->flags & RF_PARAM_DECAY))
            continue;
        const struct rf_plan_piece *piece = &plan->pieces[param->piece];
        const uint64_t begin = piece->first + piece->borders[plan->shard];
        struct rf_plan_span span = {param->first, rf_plan_padded(plan, (uint64_t)param->count)};
        if (!rf_plan_clip(&span, begin, rf_plan_padded(plan, piece->counts[plan->shard])))
            continue;
        const uint64_t first = span.first - begin + rf_plan_state_first(plan, param->piece);
        for (uint64_t w = 0; w < span.count / RF_FLAT_GRAIN; w++)
            words[first / RF_FLAT_GRAIN + w] = 1;
    }
}

static int upload(struct rf_tensor region, const void *data, uint64_t bytes)
{
    return bytes ? rf_buffer_write(region.buffer, region.offset, data, bytes) : 0;
}

static int upload_places(struct rf_run *run)
{
    const uint64_t count = rf_plan_place_words(run->plan, run->plan->shard);
    uint32_t *words = rf_alloc((count + 1) * sizeof(*words));
    int rc = words ? 0 : rf_fail(RF_ENOMEM, "run: out of host memory for the tables");
    if (rc == 0 && count > 0)
        rc = rf_plan_fill_places(run->plan, words);
    if (rc == 0)
        rc = upload(run->regions[RF_REGION_PLACES], words, count * sizeof(*words));
    rf_free(words);
    return rc;
}

int rf_run_upload_tables(struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    if (plan->policy.forward_only)
        return 0;
    struct rf_step_scalars *scalars = rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    *scalars = (struct rf_step_scalars){.loss_scale = plan->policy.loss_scale};
    rf_step_scalars_seed(scalars, run->seed);
    if (!plan->trains)
        return 0;
    RETURN_IF_ERROR(upload_places(run));
    const uint64_t words = rf_plan_state_elements(plan, plan->shard) / RF_FLAT_GRAIN;
    struct rf_norm_chunk *chunks = rf_alloc((plan->chunk_count + 1) * sizeof(*chunks));
    uint32_t *decay = rf_alloc((words + 1) * sizeof(*decay));
    int rc = 0;
    if (!chunks || !decay) {
        rc = rf_fail(RF_ENOMEM, "run: out of host memory for the tables");
    } else {
        rf_plan_fill_chunks(plan, chunks);
        fill_decay(plan, decay);
        rc = upload(run->regions[RF_REGION_CHUNKS], chunks, plan->chunk_count * sizeof(*chunks));
        if (rc == 0)
            rc = upload(run->regions[RF_REGION_DECAY], decay, words * sizeof(*decay));
    }
    rf_free(chunks);
    rf_free(decay);
    return rc;
}
