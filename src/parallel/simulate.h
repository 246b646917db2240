/* SPDX-License-Identifier: MIT
 *
 * Between the files of the simulator: what instructions cost (simulate_cost.c), when they run
 * (simulate.c), and what follows from that (simulate_result.c).
 */
#ifndef RF_PARALLEL_SIMULATE_H
#define RF_PARALLEL_SIMULATE_H

#include "plan.h"

/* Seconds of an instruction, by what they go to. */
struct rf_sim_cost {
    double part_s[RF_BOUND_COUNT];
};

/* An instruction of one of the plans; plan < 0: none. */
struct rf_sim_place {
    int plan, at;
};

struct rf_sim_rank {
    const struct rf_plan *plan;
    const struct rf_list *list;
    struct rf_sim_time *times;   /* of each instruction */
    struct rf_sim_cost *costs;   /* likewise */
    struct rf_sim_place *causes; /* likewise: whose end let it begin */
    int *of_lane;                /* list indices, lane after lane */
    int first[RF_LANE_COUNT], passed[RF_LANE_COUNT];
    int leader[RF_LANE_COUNT];   /* the first of the plans that are of its group there */
    struct rf_plan *own;         /* the plan, where the simulation has made it */
    const struct rf_wait *waits; /* of the instructions */
    /* simulate_steps.c: lists one after the other, and where that of the step begins; else 0. */
    struct rf_list joined;
    struct rf_wait *own_waits;
    int wait_count, first_of_step;
};

struct rf_sim {
    struct rf_sim_rank *ranks;
    int count;
    double *flops; /* of the model, of each plan */
    bool counted;  /* what blocks compute is in it */
    double block_flops_per_s;
    double step_s;
    struct rf_sim_place last; /* what ends last */
    double path_s[RF_BOUND_COUNT];
};

/* Whether all numbers are such as the header says; RF_EINVAL names the one that is not. */
RF_MUST_CHECK int rf_sim_check_opts(const struct rf_sim_opts *opts);
RF_MUST_CHECK int rf_sim_count_cost(const struct rf_plan *plan, const struct rf_instruction *i,
                                    const struct rf_sim_opts *opts, struct rf_sim_cost *out);

/* Of what launches do; out: zeros. */
void rf_sim_work_cost(const struct rf_work *work, double flops_per_s,
                      const struct rf_sim_rates *rates, struct rf_sim_cost *out);

/* simulate_steps.c: where steps overlap, the rank's list becomes that of several steps; and after
 * the run what is in it is that of the last one. Also what the step waits for. */
RF_MUST_CHECK int rf_sim_join(struct rf_sim_rank *r);
void rf_sim_finish(struct rf_sim *sim);

/* Where the places of a lane in of_lane end. */
static inline int rf_sim_lane_end(const struct rf_sim_rank *r, int lane)
{
    return lane + 1 < RF_LANE_COUNT ? r->first[lane + 1] : r->list->count;
}

static inline double rf_sim_cost_s(const struct rf_sim_cost *cost)
{
    double sum = 0;
    for (int k = 0; k < RF_BOUND_COUNT; k++)
        sum += cost->part_s[k];
    return sum;
}

#endif
