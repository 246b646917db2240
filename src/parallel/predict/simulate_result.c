/* SPDX-License-Identifier: MIT
 *
 * Results of a simulation: busy and idle lanes, exposed communication, and the critical path of the
 * step. Called by users.
 */
#include "simulate.h"

#include <math.h>
#include <string.h>

const struct rf_plan *rf_sim_plan(const struct rf_sim *sim, int number)
{
    return number >= 0 && number < sim->count ? sim->ranks[number].plan : NULL;
}

const struct rf_sim_time *rf_sim_times(const struct rf_sim *sim, int number, int *count)
{
    *count = sim->ranks[number].list->count;
    return sim->ranks[number].times;
}

/* ---- exposed communication ------------------------------------------------------------------- */

/* A lane's next change. Its instructions do not overlap. */
struct cursor {
    int next, end; /* in the entries of the rank's lanes */
    bool transfers;
};

/* The next change of a lane after `now`; *busy: whether it runs until then, or waits for peers. */
static double change_after(const struct rf_sim_rank *r, struct cursor *c, double now, bool *busy)
{
    *busy = false;
    for (; c->next < c->end; c->next++) {
        const int at = r->of_lane[c->next];
        const struct rf_sim_time *t = &r->times[at];
        if (t->end_s <= now)
            continue;
        c->transfers = r->list->instructions[at].transfer >= 0;
        *busy = t->ready_s <= now;
        return *busy ? t->end_s : t->ready_s;
    }
    return HUGE_VAL;
}

/* The time in which only transfers are ready or running. */
static double exposed_s(const struct rf_sim_rank *r)
{
    struct cursor lanes[RF_LANE_COUNT];
    double sum = 0, now = 0;
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        lanes[lane] = (struct cursor){r->first[lane], rf_sim_lane_end(r, lane), false};
    for (;;) {
        double next = HUGE_VAL;
        bool transfers = false, others = false;
        for (int lane = 0; lane < RF_LANE_COUNT; lane++) {
            bool busy;
            const double change = change_after(r, &lanes[lane], now, &busy);
            next = change < next ? change : next;
            transfers |= busy && lanes[lane].transfers;
            others |= busy && !lanes[lane].transfers;
        }
        if (next == HUGE_VAL)
            return sum;
        if (transfers && !others)
            sum += next - now;
        now = next;
    }
}

void rf_sim_get_result(const struct rf_sim *sim, int number, struct rf_sim_result *out)
{
    const struct rf_sim_rank *r = &sim->ranks[number];
    *out = (struct rf_sim_result){.step_s = sim->step_s, .exposed_s = exposed_s(r)};
    for (int k = 0; k < r->list->count; k++)
        out->busy_s[r->list->instructions[k].lane] += r->times[k].end_s - r->times[k].begin_s;
    memcpy(out->path_s, sim->path_s, sizeof(out->path_s));
    for (int k = 1; k < RF_BOUND_COUNT; k++)
        if (out->path_s[k] > out->path_s[out->bound])
            out->bound = (enum rf_bound)k;
    if (sim->step_s <= 0)
        return;
    const double idle = 1 - out->busy_s[RF_LANE_COMPUTE] / sim->step_s;
    out->idle = idle > 0 ? idle : 0; /* a sum of times may be rounded up */
    if (sim->counted)
        out->mfu = sim->flops[number] / sim->step_s / sim->block_flops_per_s;
}
