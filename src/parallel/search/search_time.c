/* SPDX-License-Identifier: MIT
 *
 * The time of a step by formula, to sort candidates: compute, the idle part of the pipeline, and
 * communication and copies that compute does not hide. The best candidates are then simulated
 * (search.c), which replaces these times.
 */
#include <math.h>

#include "../../base/base.h"
#include "../../coll/table.h"
#include "../predict/simulate.h"
#include "search.h"

/* ---- links ----------------------------------------------------------------------------------- */

/* A collective of `bytes` in total, in `pieces` pieces of equal size. */
static double collective_s(const struct rf_search_case *c, enum rf_coll_op op,
                           struct rf_plan_group group, double bytes, double pieces)
{
    const bool both = op == RF_COLL_ALL_REDUCE;
    const double passed = (both ? 2 : 1) * bytes * (group.size - 1) / group.size;
    struct rf_coll_desc desc = {.op = op,
                                .ranks = group.size,
                                .count = (size_t)(bytes / pieces / sizeof(float)),
                                .dtype = RF_F32,
                                .order = RF_ORDER_RING};
    uint64_t rounds = 0;
    if (group.size <= 1 || bytes <= 0)
        return 0;
    if (op != RF_COLL_ALL_REDUCE)
        desc.count /= (size_t)group.size;
    if (rf_coll_count_rounds(&desc, NULL, &rounds) < 0)
        rounds = 1;
    return rf_link_s(c->rates, &group, op, (uint64_t)(pieces * (double)rounds), (uint64_t)passed);
}

/* A message to the next stage. */
static double message_s(const struct rf_search_case *c, uint64_t bytes)
{
    const int pp = c->probe.mesh.pp, stride = c->probe.mesh.dp * c->probe.mesh.tp;
    const struct rf_plan_group all = {.stride = stride, .size = pp};
    struct rf_plan_group pair = {.stride = stride, .size = 2};
    /* The slowest of all stages. */
    pair.first = rf_link_is_intra_host(c->rates, &all) || c->rates->host_ranks == 0
                     ? 0
                     : c->rates->host_ranks - 1;
    return rf_link_s(c->rates, &pair, RF_COLL_SEND, 1, bytes);
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

struct sums {
    /* Per micro-batch: all ranks' calls except weight halves; the maximum of a rank. */
    double all, most;
    double weights; /* the maximum of a rank's weight halves */
    double both;    /* forward and backward input of the rank with the most calls */
    double message; /* in both directions */
};

static double calls_s(const struct rf_search_rank *r)
{
    return r->forward_s + r->again_s + r->input_s + r->weight_s;
}

static struct sums sum_up(const struct rf_search_case *c)
{
    struct sums s = {0};
    uint64_t largest = 0;
    for (int k = 0; k < c->ranks->pipeline.ranks; k++) {
        const struct rf_search_rank *r = &c->ranks->ranks[k];
        s.all += calls_s(r) - r->weight_s;
        s.weights = fmax(s.weights, r->weight_s);
        largest = r->to_next > largest ? r->to_next : largest;
        if (calls_s(r) <= s.most)
            continue;
        s.most = calls_s(r);
        s.both = calls_s(r) - r->weight_s;
    }
    if (c->ranks->pipeline.ranks > 1)
        s.message = 2 * message_s(c, largest / (uint64_t)c->ranks->pipeline.chunks);
    return s;
}

/* The calls of all micro-batches, including the time that a rank waits for others
 * (docs/parallelism.md). */
static double pipeline_s(const struct rf_search_case *c)
{
    const struct rf_pipeline *p = &c->ranks->pipeline;
    const struct sums s = sum_up(c);
    const double m = c->probe.local_micro_batches, ranks = p->ranks;
    const double fill = s.all - s.both + (ranks - 1) * s.message;
    if (p->ranks == 1)
        return m * s.most;
    switch (p->kind) {
    case RF_PIPELINE_NAIVE:
        return m * (s.all + s.weights + (ranks - 1) * s.message);
    case RF_PIPELINE_INTERLEAVED:
        return m * s.most + (s.all - s.both) / p->chunks + (ranks - 1) * s.message;
    case RF_PIPELINE_ZBH1:
        return m * s.most + fmax(fill - (ranks - 1) * s.weights, (ranks - 1) * s.message);
    case RF_PIPELINE_2BW: /* in the middle of other steps */
        return m * s.most;
    case RF_PIPELINE_ZBV:
        return m * s.most + (ranks - 1) * s.message +
               fmax(0, 2 * ranks - m) / (2 * ranks) * (s.all - s.both) / 2;
    default:
        return m * s.most + fill;
    }
}

/* ---- exposed communication ------------------------------------------------------------------- */

/* Sums of gradients over the ranks and gathers of parameters, beyond the compute that overlaps with
 * them. r: the rank with the most parameters. */
static double exposed_s(const struct rf_search_case *c, const struct rf_search_rank *r)
{
    const struct rf_plan *plan = &c->probe;
    const int shards = plan->shards;
    const double element = rf_plan_narrows(plan) ? 2 : 4, grads = element * (double)r->trained;
    const double rounds = rf_plan_rounds(plan);
    const double pieces = 1 + 4 * (double)r->trained / (double)plan->policy.bucket_bytes;
    const double units = plan->stage >= 2 ? c->view->model->block_count : pieces;
    const struct rf_plan_group all = plan->groups[RF_LANE_DATA];
    const struct rf_plan_group shard = plan->groups[plan->shard_lane];
    const struct rf_plan_group copy = plan->groups[RF_LANE_REPLICATE];
    const double backward = r->input_s + r->weight_s + r->again_s;
    if (plan->stage == 0) {
        const double sum = collective_s(c, RF_COLL_ALL_REDUCE, all, grads, pieces);
        return fmax(sum / pieces, sum - backward);
    }
    const double reduce = collective_s(c, RF_COLL_REDUCE_SCATTER, shard, grads, units);
    const double copied = collective_s(c, RF_COLL_ALL_REDUCE, copy, grads / shards, units);
    const double gathers = (double)rf_search_gathers(plan, r);
    if (!plan->units || plan->keep_units) {
        const double gather = collective_s(c, RF_COLL_ALL_GATHER, shard, gathers, units);
        const double exposed = plan->units ? fmax(gather / units, gather - r->forward_s) : gather;
        const double sums = plan->stage >= 2 ? rounds * reduce : reduce;
        const double hidden = plan->stage >= 2 ? rounds * backward : backward;
        return exposed + fmax((reduce + copied) / units, sums + copied - hidden);
    }
    const double visits = 2 * rounds * units;
    const double gather = collective_s(c, RF_COLL_ALL_GATHER, shard, gathers, visits);
    const double computed = rounds * (backward + r->forward_s);
    return fmax(gather / visits + (reduce + copied) / units,
                gather + rounds * reduce + copied - computed);
}

/* Norm and optimizer, with their communication. */
static double update_s(const struct rf_search_case *c, const struct rf_search_rank *r)
{
    const struct rf_plan *plan = &c->probe;
    const uint64_t count = r->trained / (uint64_t)plan->shards;
    const double partials = RF_EXACT_WORDS * sizeof(int32_t);
    const struct rf_plan_group shard =
        plan->shards > 1 ? plan->groups[plan->shard_lane] : (struct rf_plan_group){0};
    const struct rf_plan_group pipeline = plan->groups[RF_LANE_PIPELINE];
    const struct rf_plan_group tensor = plan->groups[RF_LANE_TENSOR];
    struct rf_work work = {0}, norm = {.read = 4 * count};
    struct rf_sim_cost cost = {{0}}, norm_cost = {{0}};
    rf_optimizer_work(&plan->policy.optimizer, count,
                      rf_plan_update_types(plan, plan->policy.state_dtype), &work);
    rf_sim_work_cost(&work, c->rates->flops_per_s, c->rates, &cost);
    rf_sim_work_cost(&norm, c->rates->flops_per_s, c->rates, &norm_cost);
    const double bytes = (double)work.read + (double)work.written;
    double seconds = rf_sim_cost_s(&norm_cost);
    seconds += plan->policy.offload & RF_OFFLOAD_OPTIMIZER ? bytes / c->rates->host_bytes_per_s
                                                           : rf_sim_cost_s(&cost);
    seconds += collective_s(c, RF_COLL_ALL_REDUCE, shard, partials, 1);
    seconds += collective_s(c, RF_COLL_ALL_REDUCE, tensor, partials, 1);
    seconds += collective_s(c, RF_COLL_ALL_REDUCE, tensor, 4 * (double)r->summed / plan->shards, 1);
    return seconds + collective_s(c, RF_COLL_ALL_REDUCE, pipeline, partials, 1);
}

/* Copies to and from the host, beyond the compute that overlaps with them. */
static double copies_s(const struct rf_search_case *c, const struct rf_search_rank *r)
{
    const struct rf_plan *plan = &c->probe;
    const double rate = c->rates->host_bytes_per_s, m = plan->local_micro_batches;
    const double backward = r->input_s + r->weight_s + r->again_s;
    const double params = 2 * (double)r->narrow + 4 * (double)(r->all - r->narrow);
    double seconds = 0;
    if (plan->policy.offload & RF_OFFLOAD_ACTIVATIONS) {
        const double moved = (double)r->kept / rate;
        seconds += m * (fmax(0, moved - r->forward_s) + fmax(0, moved - backward));
    }
    if (rf_plan_evicts(plan))
        seconds += 4 * (double)r->trained / plan->shards / rate;
    if (plan->policy.offload & RF_OFFLOAD_PARAMS && plan->shards == 1)
        seconds += m * (fmax(0, params / rate - r->forward_s) + fmax(0, params / rate - backward));
    else if (rf_plan_params_with_host(plan) && plan->shards == 1)
        seconds += fmax(0, params / rate - r->forward_s);
    return seconds;
}

double rf_search_step_s(const struct rf_search_case *c)
{
    const struct rf_search_rank *r = &c->ranks->ranks[c->ranks->heaviest];
    return pipeline_s(c) + exposed_s(c, r) + update_s(c, r) + copies_s(c, r);
}
