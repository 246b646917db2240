/* SPDX-License-Identifier: MIT
 *
 * Pass: pipelines. Determines the blocks of each rank, and the order in which it calls them.
 */
#include "stages.h"

#include "../../base/base.h"
#include "passes.h"

static struct rf_pipeline pipeline_of(const struct rf_plan *plan, int micro_batches)
{
    return (struct rf_pipeline){.kind = plan->policy.pipeline,
                                .ranks = plan->mesh.pp,
                                .micro_batches = micro_batches > 0 ? micro_batches : 1,
                                .chunks = plan->policy.chunks};
}

int rf_plan_check_stages(const struct rf_plan *plan)
{
    struct rf_pipeline p = pipeline_of(plan, 1);
    if (plan->mesh.pp == 1)
        return 0;
    RETURN_IF_ERROR(rf_pipeline_check(&p));
    return rf_pipeline_check_stages(&p, plan->block_count);
}

static int check_split(const struct rf_plan *plan)
{
    const struct rf_policy *policy = &plan->policy;
    if (policy->stages != RF_STAGES_EVEN && policy->stages != RF_STAGES_COST)
        return rf_fail(RF_EINVAL, "stages %d: use one of enum rf_stage_split", (int)policy->stages);
    if (policy->stage_blocks && policy->stages != RF_STAGES_EVEN)
        return rf_fail(RF_EINVAL,
                       "stages by cost and a list of %d counts of blocks: use one of the "
                       "two",
                       policy->stage_count);
    if (!policy->stage_blocks && policy->stage_count)
        return rf_fail(RF_EINVAL,
                       "%d stages without a list of their blocks: set stage_blocks, or "
                       "leave stage_count 0",
                       policy->stage_count);
    if (plan->mesh.pp == 1 && (policy->stage_blocks || policy->stages != RF_STAGES_EVEN))
        return rf_fail(RF_EINVAL,
                       "stages %s with pp=1: blocks are divided among the ranks of a "
                       "pipeline; use pp=2 or more, or leave them out",
                       policy->stage_blocks ? "by a list" : "by cost");
    return 0;
}

static int split(struct rf_plan *plan, const struct rf_pipeline *p, int *first)
{
    const struct rf_policy *policy = &plan->policy;
    RETURN_IF_ERROR(check_split(plan));
    if (policy->stage_blocks)
        return rf_pipeline_split_by_hand(p, policy->stage_blocks, policy->stage_count,
                                         plan->block_count, first);
    return rf_pipeline_split(p, plan->stage_costs, plan->block_count, first);
}

/* A division chosen by a rule becomes the policy's list, so that plans of other ranks use it. */
static void take_split(struct rf_plan *plan, const struct rf_pipeline *p, const int *first)
{
    for (int stage = 0; stage < plan->stage_count; stage++) {
        plan->stage_blocks[stage] = first[stage + 1] - first[stage];
        for (int b = first[stage]; b < first[stage + 1]; b++) {
            plan->stage_of[b] = stage;
            plan->home_of[b] = rf_pipeline_rank_of(p, stage);
        }
    }
    if (plan->mesh.pp == 1)
        return;
    plan->policy.stages = RF_STAGES_EVEN;
    plan->policy.stage_blocks = plan->stage_blocks;
    plan->policy.stage_count = plan->stage_count;
}

int rf_pass_stages(struct rf_plan *plan)
{
    const size_t blocks = (size_t)plan->block_count;
    struct rf_pipeline p = pipeline_of(plan, 1);
    if (plan->mesh.pp == 1)
        p = (struct rf_pipeline){.kind = RF_PIPELINE_1F1B, .ranks = 1, .micro_batches = 1};
    RETURN_IF_ERROR(rf_pipeline_check(&p));
    plan->stage_count = rf_pipeline_stages(&p);
    const size_t stages = (size_t)plan->stage_count;
    int *first = rf_alloc((stages + 1) * sizeof(*first));
    plan->stage_blocks = rf_alloc(stages * sizeof(*plan->stage_blocks));
    plan->stage_of = rf_alloc((blocks + 1) * sizeof(*plan->stage_of));
    plan->home_of = rf_alloc((blocks + 1) * sizeof(*plan->home_of));
    int rc = first && plan->stage_blocks && plan->stage_of && plan->home_of
                 ? split(plan, &p, first)
                 : rf_fail(RF_ENOMEM, "plan: out of memory for %d blocks", plan->block_count);
    if (rc == 0)
        take_split(plan, &p, first);
    rf_free(first);
    return rc;
}

int rf_plan_stage(const struct rf_plan *plan, int chunk)
{
    struct rf_pipeline p = pipeline_of(plan, 1);
    return plan->mesh.pp == 1 || rf_pipeline_check(&p) < 0
               ? 0
               : rf_pipeline_stage(&p, plan->pp_rank, chunk);
}

bool rf_plan_goes_back(const struct rf_plan *plan, int block)
{
    return plan->policy.pipeline == RF_PIPELINE_ZBV && plan->stage_of[block] >= plan->mesh.pp;
}

/* One rank: each micro-batch runs forward and backward before the next, which keeps the least
 * memory. */
static struct rf_pipeline order_of(const struct rf_plan *plan, int micro_batches, bool training)
{
    struct rf_pipeline p = pipeline_of(plan, micro_batches);
    if (plan->mesh.pp == 1)
        p = (struct rf_pipeline){RF_PIPELINE_NAIVE, 1, p.micro_batches, 0};
    else if (!training && p.kind != RF_PIPELINE_INTERLEAVED && p.kind != RF_PIPELINE_ZBV)
        p.kind = RF_PIPELINE_GPIPE;
    return p;
}

int rf_plan_calls(const struct rf_plan *plan, int micro_batches, bool training,
                  struct rf_pipeline_call **out, int *count)
{
    struct rf_pipeline p = order_of(plan, micro_batches, training);
    *count = 0;
    *out = NULL;
    if (micro_batches == 0)
        return 0;
    RETURN_IF_ERROR(rf_pipeline_check(&p));
    const int all = rf_pipeline_call_count(&p);
    struct rf_pipeline_call *calls = rf_alloc((size_t)all * sizeof(*calls));
    if (!calls)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d micro-batches", micro_batches);
    rf_pipeline_order(&p, plan->pp_rank, calls);
    for (int k = 0; k < all; k++)
        if (training || calls[k].verb == RF_VERB_FORWARD)
            calls[(*count)++] = calls[k];
    *out = calls;
    return 0;
}

/* The index at which the forward passes of a step begin; `micro_batch` is its first one. */
static int begin_of(const struct rf_pipeline_call *calls, int micro_batch)
{
    int at = 0;
    while (calls[at].verb != RF_VERB_FORWARD || calls[at].micro_batch != micro_batch)
        at++;
    return at;
}

int rf_plan_lag_calls(const struct rf_plan *plan, enum rf_list_id id, struct rf_pipeline_call **out,
                      int *count)
{
    const int m = plan->local_micro_batches;
    struct rf_pipeline p = order_of(plan, m, true);
    p.steps = 3; /* the second one is like all later ones */
    RETURN_IF_ERROR(rf_pipeline_check(&p));
    const int all = rf_pipeline_call_count(&p);
    struct rf_pipeline_call *calls = rf_alloc((size_t)all * sizeof(*calls));
    if (!calls)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d micro-batches", m);
    rf_pipeline_order(&p, plan->pp_rank, calls);
    const int first = id == RF_LIST_FILL ? 0 : begin_of(calls, m);
    const int end = id == RF_LIST_FILL   ? begin_of(calls, m)
                    : id == RF_LIST_STEP ? begin_of(calls, 2 * m)
                                         : all;
    *count = 0;
    for (int k = first; k < end; k++) {
        struct rf_pipeline_call call = calls[k];
        call.behind = id != RF_LIST_FILL && call.micro_batch < m;
        call.micro_batch %= m;
        if (id != RF_LIST_DRAIN || call.behind)
            calls[(*count)++] = call;
    }
    *out = calls;
    return 0;
}

/* The calls of all ranks, one after the other. NULL: out of memory. */
static struct rf_pipeline_call **all_calls(const struct rf_pipeline *p)
{
    const size_t count = (size_t)rf_pipeline_call_count(p), ranks = (size_t)p->ranks;
    struct rf_pipeline_call *calls = rf_alloc(ranks * count * sizeof(*calls));
    struct rf_pipeline_call **of_ranks = rf_alloc(ranks * sizeof(struct rf_pipeline_call *));
    for (size_t r = 0; calls && of_ranks && r < ranks; r++) {
        of_ranks[r] = calls + r * count;
        rf_pipeline_order(p, (int)r, of_ranks[r]);
    }
    if (calls && of_ranks)
        return of_ranks;
    rf_free(calls);
    rf_free(of_ranks);
    return NULL;
}

/* The time of this many steps; negative: they cannot be run. */
static double makespan(const struct rf_plan *plan, int steps, double *busy_s)
{
    struct rf_pipeline p = order_of(plan, plan->local_micro_batches, true);
    const struct rf_pipeline_run_opts opts = {
        .forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1};
    double makespan_s = 0;
    p.steps = steps;
    if (rf_pipeline_check(&p) < 0)
        return -1;
    struct rf_pipeline_call **calls = all_calls(&p);
    if (!calls)
        return -1;
    int rc = rf_pipeline_run(&p, (const struct rf_pipeline_call *const *)calls, &opts, NULL,
                             &makespan_s);
    *busy_s = rf_pipeline_call_count(&p) / steps;
    rf_free(calls[0]);
    rf_free(calls);
    return rc < 0 ? -1 : makespan_s;
}

double rf_plan_bubble(const struct rf_plan *plan)
{
    double busy_s = 0;
    if (plan->mesh.pp == 1 || plan->policy.forward_only)
        return 0;
    const bool lags = rf_plan_lags(plan); /* then a step in the middle of others */
    const double before_s = lags ? makespan(plan, 3, &busy_s) : 0;
    const double all_s = makespan(plan, lags ? 4 : 1, &busy_s);
    return before_s < 0 || all_s < 0 ? 0 : 1 - busy_s / (all_s - before_s);
}

/* ---- arrivals -------------------------------------------------------------------------------- */

/* The calls of a rank of the pipeline. */
struct peer {
    struct rf_pipeline_call *calls; /* NULL: not listed yet */
    /* For each call: the first one from there on that sends this rank a message; -1: none. */
    int *sends;
    int *at; /* of each chunk, direction and micro-batch: its call, forward or backward input */
};

struct rf_arrivals {
    const struct rf_plan *plan;
    struct rf_pipeline p;
    int *last_block; /* of each stage */
    struct peer *peers;
};

int rf_plan_arrivals_open(const struct rf_plan *plan, struct rf_arrivals **out)
{
    const int rounds = plan->round_robin ? rf_plan_rounds(plan) : plan->local_micro_batches;
    struct rf_pipeline p = order_of(plan, rounds, true);
    *out = NULL;
    if (!rf_plan_has_message_cycles(plan) || plan->policy.forward_only || rounds == 0)
        return 0;
    RETURN_IF_ERROR(rf_pipeline_check(&p));
    struct rf_arrivals *a = rf_alloc(sizeof(*a));
    int *last_block = rf_alloc((size_t)plan->stage_count * sizeof(*last_block));
    struct peer *peers = rf_alloc((size_t)p.ranks * sizeof(*peers));
    if (!a || !last_block || !peers) {
        rf_free(a);
        rf_free(last_block);
        rf_free(peers);
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d stages", plan->stage_count);
    }
    for (int stage = 0, block = -1; stage < plan->stage_count; stage++)
        last_block[stage] = block += plan->stage_blocks[stage];
    *a = (struct rf_arrivals){.plan = plan, .p = p, .last_block = last_block, .peers = peers};
    *out = a;
    return 0;
}

void rf_plan_arrivals_close(struct rf_arrivals *a)
{
    for (int r = 0; a && r < a->p.ranks; r++) {
        rf_free(a->peers[r].calls);
        rf_free(a->peers[r].sends);
        rf_free(a->peers[r].at);
    }
    if (a) {
        rf_free(a->peers);
        rf_free(a->last_block);
    }
    rf_free(a);
}

static int *call_at(const struct rf_arrivals *a, const struct peer *peer, int chunk, bool forward,
                    int micro_batch)
{
    return &peer->at[(2 * chunk + forward) * a->p.micro_batches + micro_batch];
}

/* The stage that uses a call's result, if it is on this rank and this rank has the micro-batch;
 * otherwise -1. */
static int goes_to(const struct rf_arrivals *a, int rank, const struct rf_pipeline_call *call)
{
    const int stage = rf_pipeline_stage(&a->p, rank, call->chunk);
    const int next = call->verb == RF_VERB_FORWARD          ? stage + 1
                     : call->verb == RF_VERB_BACKWARD_INPUT ? stage - 1
                                                            : -1;
    const bool here = next >= 0 && next < a->plan->stage_count &&
                      rf_pipeline_rank_of(&a->p, next) == a->plan->pp_rank &&
                      call->micro_batch < a->plan->local_micro_batches;
    return here ? next : -1;
}

static int list_calls(struct rf_arrivals *a, int rank)
{
    struct peer *peer = &a->peers[rank];
    const int count = rf_pipeline_call_count(&a->p);
    peer->calls = rf_alloc((size_t)count * sizeof(*peer->calls));
    peer->sends = rf_alloc((size_t)count * sizeof(*peer->sends));
    peer->at = rf_alloc((size_t)count * sizeof(*peer->at));
    if (!peer->calls || !peer->sends || !peer->at)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d calls", count);
    rf_pipeline_order(&a->p, rank, peer->calls);
    for (int k = count - 1, next = -1; k >= 0; k--) {
        const struct rf_pipeline_call *call = &peer->calls[k];
        next = goes_to(a, rank, call) >= 0 ? k : next;
        peer->sends[k] = next;
        if (call->verb != RF_VERB_BACKWARD_WEIGHT)
            *call_at(a, peer, call->chunk, call->verb == RF_VERB_FORWARD, call->micro_batch) = k;
    }
    return 0;
}

int rf_plan_message_seen(struct rf_arrivals *a, const struct rf_value *sent, struct rf_message *out)
{
    const bool forward = sent->kind == RF_VALUE_OUT;
    const int reader = a->plan->stage_of[sent->block] + forward;
    const int rank = rf_pipeline_rank_of(&a->p, reader);
    const struct peer *peer = &a->peers[rank];
    if (!peer->calls)
        RETURN_IF_ERROR(list_calls(a, rank));
    const int k = peer->sends[*call_at(a, peer, rf_pipeline_chunk_of(&a->p, reader), forward,
                                       rf_plan_local(a->plan, sent->micro_batch))];
    if (k < 0)
        return 0;
    const struct rf_pipeline_call *call = &peer->calls[k];
    const bool ahead = call->verb == RF_VERB_FORWARD;
    const int next = goes_to(a, rank, call);
    *out = (struct rf_message){.kind = ahead ? RF_VALUE_OUT : RF_VALUE_DOUT,
                               .block = a->last_block[ahead ? next - 1 : next],
                               .micro_batch = rf_plan_micro_batch(a->plan, call->micro_batch)};
    return 1;
}
