/* SPDX-License-Identifier: MIT
 *
 * Plans and simulates the best candidates of a search, so that its answers agree with their plans.
 * Begins with the fastest by formula. A candidate whose plan turns out slower moves to its place,
 * and the next one follows. Candidates that would take too much work keep the values of the
 * formulas. Called by search.c.
 */
#include "../../base/base.h"
#include "../passes/passes.h"
#include "search.h"

/* Calls of blocks on all stages, of all plans together: this limits the work to a few seconds. */
enum { MOST_CALLS = 300000 };

static int64_t calls_of(const struct rf_search_model *model, const struct rf_candidate *c)
{
    const int64_t rounds = (c->micro_batches - 1) / c->mesh.dp + 1;
    const int64_t calls = (c->recompute ? 4 : 3) * rounds * model->block_count;
    /* With tensor ranks a layer's call has three phases, with exchanges between them, which every
     * rank of a stage simulates. */
    return c->mesh.tp > 1 ? calls * (5 + (int64_t)c->mesh.dp * c->mesh.tp / 8) : calls;
}

static void take_bytes(const struct rf_bytes *all, int ranks, struct rf_candidate *c)
{
    uint64_t sent = 0;
    c->device_bytes = 0;
    for (int k = 0; k < ranks; k++) {
        sent = all[k].sent > sent ? all[k].sent : sent;
        if (rf_device_bytes(&all[k]) > c->device_bytes) {
            c->device_bytes = rf_device_bytes(&all[k]);
            c->bytes = all[k];
        }
    }
    c->bytes.sent = sent;
}

static int simulate(const struct rf_plan *plan, const struct rf_search_model *model,
                    const struct rf_search_opts *opts, struct rf_candidate *c)
{
    struct rf_block_cost *costs = rf_alloc((size_t)model->block_count * sizeof(*costs));
    struct rf_bytes *bytes = rf_alloc((size_t)rf_plan_ranks(plan) * sizeof(*bytes));
    struct rf_sim_opts sim_opts = {.costs = costs, .rates = opts->rates};
    struct rf_sim *sim = NULL;
    struct rf_sim_result result;
    int rc = costs && bytes ? 0 : rf_fail(RF_ENOMEM, "search: out of memory for a plan");
    if (model->block_flops_per_s > 0)
        sim_opts.rates.block_flops_per_s = model->block_flops_per_s;
    if (rc == 0)
        rc = rf_block_costs(plan, costs);
    if (rc == 0)
        rc = rf_plan_simulate_job(plan, &sim_opts, &sim);
    if (rc == 0)
        rc = rf_plan_all_ranks(plan, NULL, bytes, NULL);
    if (rc == 0) {
        rf_sim_get_result(sim, 0, &result);
        c->step_s = result.step_s;
        c->bubble = rf_plan_bubble(plan);
        c->planned = true;
        take_bytes(bytes, rf_plan_ranks(plan), c);
    }
    rf_sim_destroy(sim);
    rf_free(costs);
    rf_free(bytes);
    return rc;
}

/* The idle share from the order of calls, without a plan. */
static void find_bubble(const struct rf_search_model *model, const struct rf_search_opts *opts,
                        struct rf_candidate *c)
{
    struct rf_plan probe = {.blocks = model->blocks, .block_count = model->block_count};
    probe.mesh = c->mesh;
    probe.policy = rf_search_policy(opts, c);
    probe.local_micro_batches = rf_plan_rounds(&probe);
    c->bubble = rf_plan_bubble(&probe);
}

/* Removes the candidate at a place, with this reason. */
static int drop(struct rf_search *s, int place, const char *reason)
{
    struct rf_rejection r = {.candidate = *s->order[place]};
    snprintf(r.reason, sizeof(r.reason), "%s", reason);
    memmove(s->order + place, s->order + place + 1,
            (size_t)(s->count - place - 1) * sizeof(*s->order));
    s->count--;
    return rf_search_reject(s, &r);
}

/* *slower: it takes longer than the formula said. */
static int plan_one(struct rf_search *s, const struct rf_search_model *model,
                    const struct rf_search_opts *opts, int place)
{
    struct rf_candidate *c = s->order[place];
    struct rf_mesh mesh = c->mesh;
    struct rf_policy policy = rf_search_policy(opts, c);
    struct rf_plan *plan = NULL;
    char reason[RF_REJECTION_BYTES];
    policy.device_bytes = 0;
    mesh.shard = c->zero ? mesh.shard : 0;
    int rc = rf_plan_build((struct rf_blocks){model->blocks, model->block_count}, &mesh, &policy, 0,
                           &plan);
    if (rc == 0)
        rc = simulate(plan, model, opts, c);
    rf_plan_destroy(plan);
    if (rc == RF_ENOMEM)
        return rc;
    if (rc < 0) {
        snprintf(reason, sizeof(reason), "%s", rf_last_error()->message);
        return drop(s, place, reason);
    }
    if (opts->policy.device_bytes && c->device_bytes > opts->policy.device_bytes) {
        rf_search_say_too_large(c, opts->policy.device_bytes, reason);
        if (s->nearest.step_s == 0 || c->device_bytes < s->nearest.device_bytes)
            s->nearest = *c;
        return drop(s, place, reason);
    }
    for (; place + 1 < s->count && rf_search_is_before(s->order[place + 1], c); place++) {
        s->order[place] = s->order[place + 1];
        s->order[place + 1] = c;
    }
    return 0;
}

int rf_search_plan_best(struct rf_search *s, const struct rf_search_model *models,
                        const struct rf_search_opts *opts)
{
    const int64_t top = opts->top ? opts->top : 20;
    int64_t left = MOST_CALLS;
    int place = 0;
    /* A few more, whose plans may be faster than the formulas predict. */
    while (place < s->count && place < top + top / 2) {
        struct rf_candidate *c = s->order[place];
        const struct rf_search_model *model = &models[c->model];
        const int64_t calls = calls_of(model, c);
        if (!c->planned && calls <= left) {
            left -= calls;
            RETURN_IF_ERROR(plan_one(s, model, opts, place));
            continue;
        }
        if (!c->planned)
            find_bubble(model, opts, c);
        place++;
    }
    rf_search_sort(s->order, place);
    return 0;
}
