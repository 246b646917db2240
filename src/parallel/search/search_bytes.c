/* SPDX-License-Identifier: MIT
 *
 * The bytes of a candidate by formula: the memory of its ranks, by category as in bytes.c and
 * lifetimes.c, and the bytes that they send. Memory that lives as long as the run is the same as in
 * a plan, except for the padding of shards. For temporary values the formula knows which are alive
 * at once, but not their places. Tests compare it with plans.
 */
#include "../../base/base.h"
#include "../../coll/coll.h"
#include "search.h"

static uint64_t shard_of(const struct rf_plan *plan, uint64_t elements)
{
    return plan->shards > 1 ? rf_plan_padded(plan, elements / (uint64_t)plan->shards) : elements;
}

/* The number of slots for sums of gradients over micro-batches. */
static uint64_t slots(const struct rf_plan *plan)
{
    uint64_t count = 1;
    if (plan->policy.order != RF_ORDER_TREE)
        return 1;
    if (plan->stage >= 2)
        return (uint64_t)rf_prefix_slots((int)plan->policy.micro_batches, plan->mesh.dp);
    for (int m = plan->local_micro_batches; m > 1; m /= 2)
        count++;
    return count;
}

static void add_params(const struct rf_plan *plan, const struct rf_search_rank *r,
                       struct rf_bytes *out)
{
    const uint64_t elements = rf_plan_shards_params(plan) ? shard_of(plan, r->all) : r->all;
    const uint64_t bare = rf_plan_shards_params(plan) ? shard_of(plan, r->bare) : r->bare;
    const uint64_t single = rf_plan_shards_params(plan) ? shard_of(plan, r->single) : r->single;
    uint64_t stored = plan->policy.no_masters ? 0 : 4 * (elements - bare);
    stored += plan->copy_type != RF_F32 ? (rf_plan_lags(plan) ? 4 : 2) * (elements - single) : 0;
    out->params = stored;
    if (rf_plan_params_with_host(plan))
        out->host += stored;
    if (plan->units && plan->keep_units)
        out->params += 2 * r->narrow + 4 * (r->all - r->narrow);
    else if (plan->units) /* a segment's first block is gathered while its other blocks are in
                           * memory */
        out->params += plan->policy.recompute > 1 ? r->unit_params * 3 / 2 : r->unit_params;
}

static void add_grads(const struct rf_plan *plan, const struct rf_search_rank *r,
                      struct rf_bytes *out)
{
    const uint64_t shards = (uint64_t)plan->shards;
    const uint64_t shard = shard_of(plan, r->trained);
    if (rf_plan_in_backward(plan)) { /* of two blocks; of three until a sum has arrived */
        out->grads = r->unit_grads + (plan->mesh.dp > 1 ? r->unit_grads / 2 : 0);
        out->grads += shards > 1 ? r->unit_grads / shards : 0;
        out->grads += rf_plan_narrows(plan) ? r->unit_grads / 2 : 0;
        return;
    }
    out->grads = 4 * slots(plan) * (plan->stage >= 2 ? shard : r->trained);
    if (rf_plan_lags(plan)) /* that are held */
        out->grads += 4 * r->trained;
    if (plan->stage >= 2 && plan->policy.offload & RF_OFFLOAD_GRADS)
        out->host += out->grads;
    if (plan->stage >= 2) {
        out->grads += r->unit_grads;
        if (plan->policy.order != RF_ORDER_TREE && rf_plan_rounds(plan) > 1)
            out->grads += r->unit_grads / shards;
    }
    if (rf_plan_narrows(plan)) {
        const uint64_t buckets = plan->policy.bucket_bytes, all = 2 * r->trained;
        out->grads += plan->stage >= 2 ? r->unit_grads / 2 : buckets < all ? buckets : all;
    }
    out->grads += 4 * shard_of(plan, r->tied); /* from another rank */
    if (rf_plan_evicts(plan)) {
        out->grads += 4 * shard;
        out->host += 4 * shard;
    }
}

static void add_optimizer(const struct rf_search_case *c, const struct rf_search_rank *r,
                          struct rf_bytes *out)
{
    const struct rf_plan *plan = &c->probe;
    const uint64_t elements = shard_of(plan, r->trained), coded = shard_of(plan, r->coded);
    const uint64_t state = 4 * (elements - coded) + coded * RF_STATE_BLOCK_BYTES / RF_STATE_BLOCK;
    /* A table of places has two words for one of decay, and little more. */
    const bool placed = plan->policy.optimizer.stochastic_rounding && r->narrow > 0 &&
                        (plan->mesh.pp > 1 || plan->mesh.tp > 1);
    const uint64_t decay = (placed ? 3 : 1) * 4 * elements / RF_FLAT_GRAIN;
    const uint64_t chunks = r->chunks / (uint64_t)plan->shards;
    for (int k = 0; k < RF_PLAN_STATES; k++)
        if (rf_plan_has_state(plan, k))
            out->optimizer += k == RF_STATE_BEFORE                  ? 4 * elements
                              : plan->policy.state_dtype == RF_BF16 ? 2 * elements
                                                                    : state;
    out->scratch = c->ranks->scratch + plan->policy.workspace_bytes + decay +
                   chunks * sizeof(struct rf_norm_chunk) + rf_plan_squares_bytes(chunks);
    if (plan->policy.offload & RF_OFFLOAD_OPTIMIZER)
        out->host += out->optimizer + decay;
}

static void add_activations(const struct rf_search_case *c, const struct rf_search_rank *r,
                            struct rf_bytes *out)
{
    const uint64_t steps = rf_plan_lags(&c->probe) ? 2 : 1;
    const uint64_t tokens =
        (uint64_t)c->probe.rows * (uint64_t)c->probe.local_micro_batches * steps;
    out->activations = r->kept + r->working;
    if (c->probe.policy.offload & RF_OFFLOAD_ACTIVATIONS) {
        /* Two visits are in memory, as if nothing else were kept. */
        const uint64_t device = r->visits + r->working;
        if (device < out->activations) {
            out->host += r->kept;
            out->activations = device + r->kept;
        }
    }
    const uint64_t inputs = (c->probe.policy.packed ? 20 : 12) * tokens;
    out->activations += inputs;
    out->host += inputs;
}

/* ---- bytes sent ------------------------------------------------------------------------------ */

/* (n - 1) / n of the bytes. */
static uint64_t of_others(uint64_t bytes, int ranks)
{
    return bytes / (uint64_t)ranks * (uint64_t)(ranks - 1);
}

/* Bytes of all parameters in the type in which they are gathered. */
static uint64_t gathered(const struct rf_plan *plan, const struct rf_search_rank *r)
{
    return plan->units ? 2 * r->narrow + 4 * (r->all - r->narrow) : 4 * r->trained;
}

uint64_t rf_search_gathers(const struct rf_plan *plan, const struct rf_search_rank *r)
{
    const uint64_t all = gathered(plan, r), segment = (uint64_t)plan->policy.recompute;
    const uint64_t backward = all - r->last_params, again = segment ? all - all / segment : 0;
    if (plan->stage == 0)
        return 0;
    if (!plan->units || plan->keep_units)
        return all;
    return (uint64_t)rf_plan_rounds(plan) * (all + backward + again);
}

uint64_t rf_search_sent(const struct rf_search_case *c, const struct rf_search_rank *r)
{
    const struct rf_plan *plan = &c->probe;
    const int dp = plan->mesh.dp, shards = plan->shards, copies = dp / shards;
    const uint64_t grads = (rf_plan_narrows(plan) ? 2 : 4) * r->trained;
    const uint64_t rounds = plan->stage >= 2 ? (uint64_t)rf_plan_rounds(plan) : 1;
    const uint64_t partials = RF_EXACT_WORDS * sizeof(int32_t);
    const uint64_t micro_batches = (uint64_t)plan->local_micro_batches;
    uint64_t sent = micro_batches * (r->from_before + r->to_next + r->exchanged);
    if (plan->stage == 0)
        sent += 2 * of_others(grads, dp);
    else
        sent += rounds * of_others(grads, shards) +
                2 * of_others(grads / (uint64_t)shards, copies) +
                of_others(rf_search_gathers(plan, r), shards) + 2 * of_others(partials, shards);
    if (plan->mesh.tp > 1)
        sent += 2 * of_others(partials + 4 * shard_of(plan, r->summed), plan->mesh.tp);
    if (plan->mesh.pp > 1)
        sent += 2 * of_others(partials, plan->mesh.pp) + 4 * shard_of(plan, r->tied);
    return sent;
}

void rf_search_bytes(const struct rf_search_case *c, struct rf_candidate *out)
{
    out->device_bytes = 0;
    uint64_t sent = 0;
    for (int rank = 0; rank < c->ranks->pipeline.ranks; rank++) {
        const struct rf_search_rank *r = &c->ranks->ranks[rank];
        struct rf_bytes bytes = {0};
        add_params(&c->probe, r, &bytes);
        add_grads(&c->probe, r, &bytes);
        add_optimizer(c, r, &bytes);
        add_activations(c, r, &bytes);
        bytes.sent = rf_search_sent(c, r);
        sent = bytes.sent > sent ? bytes.sent : sent;
        if (rf_device_bytes(&bytes) > out->device_bytes) {
            out->device_bytes = rf_device_bytes(&bytes);
            out->bytes = bytes;
        }
    }
    out->bytes.sent = sent;
}
