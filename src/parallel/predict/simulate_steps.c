/* SPDX-License-Identifier: MIT
 *
 * Joins the lists of several steps of a pipeline without a flush, to simulate a step in the middle
 * of others. A rank begins a list when all its lanes have ended the previous one, regardless of
 * other ranks. Called by simulate.c, before and after the run.
 */
#include <math.h>

#include "../../base/base.h"
#include "../plan/list.h"
#include "simulate.h"

/* In the first steps ranks wait for each other. After this many steps the waits have become
 * periodic. */
enum { STEPS = 6 };

static int add_wait(struct rf_sim_rank *r, int *capacity, struct rf_instruction *i,
                    struct rf_wait wait)
{
    if (!rf_array_reserve((void **)&r->own_waits, r->wait_count, capacity, sizeof(*r->own_waits)))
        return rf_fail(RF_ENOMEM, "simulate: out of memory for the waits");
    r->own_waits[r->wait_count++] = wait;
    i->waits++;
    return 0;
}

/* Appends a list. The first instruction of each lane in it waits for all lanes of the previous
 * list. */
static int append(struct rf_sim_rank *r, int *capacity, const struct rf_list *list)
{
    struct rf_list *all = &r->joined;
    int base[RF_LANE_COUNT];
    memcpy(base, all->positions, sizeof(base));
    for (int k = 0; k < list->count; k++) {
        struct rf_instruction *i = &all->instructions[all->count++];
        *i = list->instructions[k];
        i->first_wait = r->wait_count;
        i->waits = 0;
        for (int lane = 0; all->positions[i->lane] == base[i->lane] && lane < RF_LANE_COUNT; lane++)
            if (base[lane] > 0)
                RETURN_IF_ERROR(add_wait(r, capacity, i, (struct rf_wait){lane, base[lane] - 1}));
        for (int w = 0; w < list->instructions[k].waits; w++) {
            struct rf_wait wait = r->plan->waits[list->instructions[k].first_wait + w];
            wait.position += base[wait.lane];
            RETURN_IF_ERROR(add_wait(r, capacity, i, wait));
        }
        all->positions[i->lane]++;
    }
    return 0;
}

int rf_sim_join(struct rf_sim_rank *r)
{
    const struct rf_list *lists = r->plan->lists;
    const int each = lists[RF_LIST_STEP].count;
    int capacity = 0;
    if (!rf_plan_lags(r->plan))
        return 0;
    r->first_of_step = lists[RF_LIST_FILL].count + (STEPS - 1) * each;
    r->joined.instructions =
        rf_alloc((size_t)(r->first_of_step + each + 1) * sizeof(*r->joined.instructions));
    if (!r->joined.instructions)
        return rf_fail(RF_ENOMEM, "simulate: out of memory for %d steps", STEPS);
    RETURN_IF_ERROR(append(r, &capacity, &lists[RF_LIST_FILL]));
    for (int k = 0; k < STEPS; k++)
        RETURN_IF_ERROR(append(r, &capacity, &lists[RF_LIST_STEP]));
    r->list = &r->joined;
    r->waits = r->own_waits;
    return 0;
}

/* The time at which the last rank has ended the list before the step. */
static double begin_of(const struct rf_sim *sim)
{
    double begin_s = 0;
    for (int k = 0; k < sim->count; k++)
        for (int at = 0; at < sim->ranks[k].first_of_step; at++)
            begin_s = fmax(begin_s, sim->ranks[k].times[at].end_s);
    return begin_s;
}

/* The critical path of the last rank's end, back to the begin of the step. */
static void follow_path(struct rf_sim *sim, double begin_s)
{
    for (struct rf_sim_place at = sim->last; at.plan >= 0;) {
        const struct rf_sim_rank *r = &sim->ranks[at.plan];
        const struct rf_sim_time *t = &r->times[at.at];
        const double all_s = t->end_s - t->begin_s;
        const double within_s = t->end_s - fmax(t->begin_s, begin_s);
        if (t->end_s <= begin_s)
            break;
        for (int k = 0; k < RF_BOUND_COUNT; k++)
            sim->path_s[k] += r->costs[at.at].part_s[k] * (all_s > 0 ? within_s / all_s : 1);
        at = r->causes[at.at];
    }
}

/* Reduces times, costs and lanes to the last list, relative to the begin of its first rank. */
static void cut(struct rf_sim_rank *r, double origin_s)
{
    const int first = r->first_of_step, count = r->list->count - first;
    int next[RF_LANE_COUNT] = {0};
    r->list = &r->plan->lists[RF_LIST_STEP];
    r->waits = r->plan->waits;
    for (int k = 0; k < count; k++) {
        struct rf_sim_time *t = &r->times[k];
        *t = r->times[first + k];
        t->ready_s -= origin_s;
        t->begin_s -= origin_s;
        t->end_s -= origin_s;
        r->costs[k] = r->costs[first + k];
    }
    for (int lane = 0; lane < RF_LANE_COUNT; lane++) {
        r->passed[lane] = r->list->positions[lane];
        r->first[lane] = lane == 0 ? 0 : r->first[lane - 1] + r->list->positions[lane - 1];
    }
    for (int k = 0; k < count; k++) {
        const int lane = (int)r->list->instructions[k].lane;
        r->of_lane[r->first[lane] + next[lane]++] = k;
    }
}

void rf_sim_finish(struct rf_sim *sim)
{
    const double begin_s = begin_of(sim);
    double origin_s = begin_s;
    follow_path(sim, begin_s);
    if (!rf_plan_lags(sim->ranks[0].plan))
        return;
    sim->step_s -= begin_s;
    for (int k = 0; k < sim->count; k++)
        for (int at = sim->ranks[k].first_of_step; at < sim->ranks[k].list->count; at++)
            origin_s = fmin(origin_s, sim->ranks[k].times[at].ready_s);
    for (int k = 0; k < sim->count; k++)
        cut(&sim->ranks[k], origin_s);
}
