/* SPDX-License-Identifier: MIT
 *
 * Computes when the instructions of some ranks of a job begin and end. Lanes run in list order. An
 * instruction begins when its waits have ended; a transfer begins when all ranks of its group have
 * reached it. It does not use policies, and only the costs of verbs (simulate_cost.c). Called by
 * users.
 */
#include "simulate.h"

#include "../../base/base.h"
#include "../passes/passes.h"

void rf_sim_destroy(struct rf_sim *sim)
{
    if (!sim)
        return;
    for (int k = 0; sim->ranks && k < sim->count; k++) {
        struct rf_sim_rank *r = &sim->ranks[k];
        rf_free(r->times);
        rf_free(r->costs);
        rf_free(r->causes);
        rf_free(r->of_lane);
        rf_free(r->joined.instructions);
        rf_free(r->own_waits);
        rf_plan_destroy(r->own);
    }
    rf_free(sim->ranks);
    rf_free(sim->flops);
    rf_free(sim);
}

/* ---- setup ----------------------------------------------------------------------------------- */

static int check_instruction(const struct rf_sim_rank *r, const struct rf_instruction *i)
{
    const struct rf_plan *plan = r->plan;
    char text[96];
    bool good = (unsigned)i->verb < RF_VERB_COUNT && (unsigned)i->lane < RF_LANE_COUNT;
    for (int k = 0; good && k < i->waits; k++) {
        const struct rf_wait wait = r->waits[i->first_wait + k];
        good = (unsigned)wait.lane < RF_LANE_COUNT && wait.position >= 0;
    }
    return good ? 0
                : rf_fail(RF_EINVAL, "simulate: rank %d: %s has an unknown verb, lane or wait",
                          plan->rank, rf_instruction_text(plan, i, text, sizeof(text)));
}

static int open_rank(struct rf_sim *sim, int number, const struct rf_sim_opts *opts)
{
    struct rf_sim_rank *r = &sim->ranks[number];
    r->list = &r->plan->lists[RF_LIST_STEP];
    r->waits = r->plan->waits;
    RETURN_IF_ERROR(rf_sim_join(r));
    const struct rf_list *list = r->list;
    const size_t count = (size_t)list->count + 1;
    int lanes[RF_LANE_COUNT] = {0};
    r->times = rf_alloc(count * sizeof(*r->times));
    r->costs = rf_alloc(count * sizeof(*r->costs));
    r->causes = rf_alloc(count * sizeof(*r->causes));
    r->of_lane = rf_alloc(count * sizeof(*r->of_lane));
    if (!r->times || !r->costs || !r->causes || !r->of_lane)
        return rf_fail(RF_ENOMEM, "simulate: out of memory for %d instructions", list->count);
    for (int k = 0; k < list->count; k++) {
        const struct rf_instruction *i = &list->instructions[k];
        struct rf_work work;
        RETURN_IF_ERROR(check_instruction(r, i));
        RETURN_IF_ERROR(rf_sim_count_cost(r->plan, i, opts, &r->costs[k]));
        if (k >= r->first_of_step && rf_instruction_work(r->plan, opts->costs, i, &work))
            sim->flops[number] += (double)(work.flops - work.repeated);
        lanes[i->lane]++;
    }
    for (int lane = 1; lane < RF_LANE_COUNT; lane++)
        r->first[lane] = r->first[lane - 1] + lanes[lane - 1];
    memset(lanes, 0, sizeof(lanes));
    for (int k = 0; k < list->count; k++) {
        const int lane = (int)list->instructions[k].lane;
        r->of_lane[r->first[lane] + lanes[lane]++] = k;
    }
    return 0;
}

/* Groups of a lane are identified by their first ranks. */
static void find_leaders(struct rf_sim *sim, int number)
{
    struct rf_sim_rank *r = &sim->ranks[number];
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        while (sim->ranks[r->leader[lane]].plan->groups[lane].first != r->plan->groups[lane].first)
            r->leader[lane]++;
}

/* ---- one instruction ------------------------------------------------------------------------- */

/* List index of the next instruction of a lane; -1: none. */
static int next_of(const struct rf_sim_rank *r, int lane)
{
    const int at = r->first[lane] + r->passed[lane];
    return at < rf_sim_lane_end(r, lane) ? r->of_lane[at] : -1;
}

static void after(struct rf_sim *sim, int number, int at, int other)
{
    struct rf_sim_rank *r = &sim->ranks[number];
    if (r->causes[at].plan >= 0 && r->times[other].end_s <= r->times[at].ready_s)
        return;
    r->times[at].ready_s = r->times[other].end_s;
    r->causes[at] = (struct rf_sim_place){number, other};
}

/* Whether only its peers hold the instruction back, and since when. */
static bool is_ready(struct rf_sim *sim, int number, int at)
{
    struct rf_sim_rank *r = &sim->ranks[number];
    const struct rf_instruction *i = &r->list->instructions[at];
    const int place = r->first[i->lane] + r->passed[i->lane];
    r->times[at] = (struct rf_sim_time){0};
    r->causes[at] = (struct rf_sim_place){-1, -1};
    for (int k = 0; k < i->waits; k++) {
        const struct rf_wait wait = r->waits[i->first_wait + k];
        if (wait.position >= r->passed[wait.lane])
            return false;
        after(sim, number, at, r->of_lane[r->first[wait.lane] + wait.position]);
    }
    if (r->passed[i->lane] > 0)
        after(sim, number, at, r->of_lane[place - 1]);
    return true;
}

static void pass(struct rf_sim *sim, int number, int at, double begin_s, double seconds)
{
    struct rf_sim_rank *r = &sim->ranks[number];
    r->times[at].begin_s = begin_s;
    r->times[at].end_s = begin_s + seconds;
    r->passed[r->list->instructions[at].lane]++;
    if (sim->last.plan < 0 || r->times[at].end_s > sim->step_s) {
        sim->step_s = r->times[at].end_s;
        sim->last = (struct rf_sim_place){number, at};
    }
}

/* ---- all ranks ------------------------------------------------------------------------------- */

/* The plan of the rank that receives a message, or of one of the same kind, which has the same
 * blocks. */
static int find_peer(const struct rf_sim *sim, int number, int peer)
{
    const struct rf_plan *plan = sim->ranks[number].plan;
    int like = -1;
    for (int k = 0; k < sim->count; k++) {
        const struct rf_plan *other = sim->ranks[k].plan;
        if (other->rank == peer)
            return k;
        if (other->pp_rank == rf_plan_pp_rank_of(plan, peer) && like < 0 &&
            other->tp_rank == plan->tp_rank &&
            other->local_micro_batches == plan->local_micro_batches)
            like = k;
    }
    return like;
}

/* A message begins when both ranks have reached it. Only one rank of each kind is simulated, so the
 * first one that sends is the sender. */
static bool try_message(struct rf_sim *sim, int number, int lane, int other_lane)
{
    struct rf_sim_rank *r = &sim->ranks[number];
    const int at = next_of(r, lane);
    if (at < 0 || !is_ready(sim, number, at))
        return false;
    const struct rf_transfer *t = rf_plan_transfer(r->plan, &r->list->instructions[at]);
    const int peer = find_peer(sim, number, t->peer);
    if (peer < 0 || peer == number)
        return false;
    struct rf_sim_rank *other = &sim->ranks[peer];
    const int there = next_of(other, other_lane);
    if (there < 0 || !is_ready(sim, peer, there))
        return false;
    const bool late = other->times[there].ready_s > r->times[at].ready_s;
    const double begin_s = late ? other->times[there].ready_s : r->times[at].ready_s;
    const struct rf_sim_place cause = late ? other->causes[there] : r->causes[at];
    r->causes[at] = other->causes[there] = cause;
    pass(sim, number, at, begin_s, rf_sim_cost_s(&r->costs[at]));
    pass(sim, peer, there, begin_s, rf_sim_cost_s(&r->costs[at]));
    return true;
}

static bool is_member(const struct rf_sim *sim, int number, int lane, int leader)
{
    return sim->ranks[number].leader[lane] == leader;
}

/* A collective begins when the last rank of its group is ready, and takes as long as the slowest of
 * them. */
static bool try_transfer(struct rf_sim *sim, int lane, int leader)
{
    struct rf_sim_place late = {-1, -1};
    struct rf_sim_cost most = {{0}};
    for (int k = leader; k < sim->count; k++) {
        const struct rf_sim_rank *r = &sim->ranks[k];
        const int at = next_of(r, lane);
        if (!is_member(sim, k, lane, leader))
            continue;
        if (at < 0 || r->list->instructions[at].transfer < 0 || !is_ready(sim, k, at))
            return false;
        if (late.plan < 0 || r->times[at].ready_s > sim->ranks[late.plan].times[late.at].ready_s)
            late = (struct rf_sim_place){k, at};
        if (rf_sim_cost_s(&r->costs[at]) > rf_sim_cost_s(&most))
            most = r->costs[at];
    }
    const double begin_s = sim->ranks[late.plan].times[late.at].ready_s;
    const struct rf_sim_place cause = sim->ranks[late.plan].causes[late.at];
    for (int k = leader; k < sim->count; k++) {
        struct rf_sim_rank *r = &sim->ranks[k];
        const int at = next_of(r, lane);
        if (!is_member(sim, k, lane, leader))
            continue;
        r->causes[at] = cause;
        r->costs[at] = most;
        pass(sim, k, at, begin_s, rf_sim_cost_s(&most));
    }
    return true;
}

static bool try_lane(struct rf_sim *sim, int number, int lane)
{
    struct rf_sim_rank *r = &sim->ranks[number];
    bool moved = false;
    for (;;) {
        const int at = next_of(r, lane);
        if (at < 0 || r->list->instructions[at].transfer >= 0 || !is_ready(sim, number, at))
            return moved;
        pass(sim, number, at, r->times[at].ready_s, rf_sim_cost_s(&r->costs[at]));
        moved = true;
    }
}

static int simulate(struct rf_sim *sim)
{
    char text[96];
    for (bool moved = true; moved;) {
        moved = false;
        for (int lane = 0; lane < RF_LANE_COUNT; lane++) {
            for (int k = 0; k < sim->count; k++)
                moved |= try_lane(sim, k, lane);
            for (int k = 0; rf_lane_collects(lane) && k < sim->count; k++)
                if (is_member(sim, k, lane, k))
                    moved |= try_transfer(sim, lane, k);
        }
        for (int lane = 0; lane < RF_LANE_COUNT; lane++)
            for (int k = 0; rf_lane_sends(lane) && k < sim->count; k++)
                moved |= try_message(sim, k, lane, lane + 1);
    }
    for (int k = 0; k < sim->count; k++)
        for (int lane = 0; lane < RF_LANE_COUNT; lane++) {
            const struct rf_sim_rank *r = &sim->ranks[k];
            const int at = next_of(r, lane);
            if (at >= 0)
                return rf_fail(
                    RF_EINVAL, "simulate: rank %d waits forever at \"%s\"", r->plan->rank,
                    rf_instruction_text(r->plan, &r->list->instructions[at], text, sizeof(text)));
        }
    return 0;
}

static int open_and_run(struct rf_sim *sim, const struct rf_sim_opts *opts)
{
    for (int k = 0; k < sim->count; k++) {
        RETURN_IF_ERROR(open_rank(sim, k, opts));
        find_leaders(sim, k);
    }
    return simulate(sim);
}

static int create(const struct rf_plan *const *plans, int count, const struct rf_sim_opts *opts,
                  struct rf_sim **out)
{
    struct rf_sim *sim = rf_alloc(sizeof(*sim));
    if (!sim)
        return rf_fail(RF_ENOMEM, "simulate: out of memory");
    *sim = (struct rf_sim){.count = count,
                           .counted = opts->costs != NULL,
                           .block_flops_per_s = opts->rates.block_flops_per_s,
                           .ranks = rf_alloc((size_t)count * sizeof(*sim->ranks)),
                           .flops = rf_alloc((size_t)count * sizeof(*sim->flops)),
                           .last = {-1, -1}};
    int rc = sim->ranks && sim->flops
                 ? 0
                 : rf_fail(RF_ENOMEM, "simulate: out of memory for %d ranks", count);
    for (int k = 0; rc == 0 && k < count; k++)
        sim->ranks[k].plan = plans[k];
    if (rc == 0)
        rc = open_and_run(sim, opts);
    if (rc < 0) {
        rf_sim_destroy(sim);
        return rc;
    }
    rf_sim_finish(sim);
    *out = sim;
    return 0;
}

int rf_plan_simulate(const struct rf_plan *const *plans, int count, const struct rf_sim_opts *opts,
                     struct rf_sim **out)
{
    if (!plans || count < 1 || !out)
        return rf_fail(RF_EINVAL, "simulate: plans and a pointer for the result are needed");
    for (int k = 0; k < count; k++)
        if (!plans[k] || rf_plan_ranks(plans[k]) != rf_plan_ranks(plans[0]))
            return rf_fail(RF_EINVAL, "simulate: plan %d does not belong to the job of plan 0", k);
    RETURN_IF_ERROR(rf_sim_check_opts(opts));
    return create(plans, count, opts, out);
}

int rf_plan_simulate_job(const struct rf_plan *plan, const struct rf_sim_opts *opts,
                         struct rf_sim **out)
{
    struct rf_plan **others = NULL;
    int count = 0;
    if (!plan || !out)
        return rf_fail(RF_EINVAL, "simulate: a plan and a pointer for the result are needed");
    RETURN_IF_ERROR(rf_sim_check_opts(opts));
    RETURN_IF_ERROR(rf_plan_other_kinds(plan, opts->rates.host_ranks, &others, &count));
    const struct rf_plan **plans = rf_alloc(((size_t)count + 1) * sizeof(*plans));
    for (int k = 0; plans && k <= count; k++)
        plans[k] = k == 0 ? plan : others[k - 1];
    int rc = plans ? create(plans, count + 1, opts, out)
                   : rf_fail(RF_ENOMEM, "simulate: out of memory for %d plans", count + 1);
    for (int k = 0; k < count; k++) {
        if (rc == 0)
            (*out)->ranks[k + 1].own = others[k];
        else
            rf_plan_destroy(others[k]);
    }
    rf_free(plans);
    rf_free(others);
    return rc;
}
