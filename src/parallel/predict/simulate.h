/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the files of the simulator: the costs of instructions (simulate_cost.c),
 * when they run (simulate.c), and the results (simulate_result.c); the duration of
 * transfers (links.c), and the plans of other ranks (ranks.c).
 */
#ifndef RF_PARALLEL_SIMULATE_H
#define RF_PARALLEL_SIMULATE_H

#include "../plan/plan.h"

/* Seconds of an instruction, by cause. */
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
    struct rf_sim_cost *costs;   /* of each instruction */
    struct rf_sim_place *causes; /* for each instruction: the one whose end allowed it to begin */
    int *of_lane;                /* list indices, lane after lane */
    int first[RF_LANE_COUNT], passed[RF_LANE_COUNT];
    int leader[RF_LANE_COUNT];   /* the first of the plans with the same group on that lane */
    struct rf_plan *own;         /* the plan, if the simulation created it */
    const struct rf_wait *waits; /* of the instructions */
    /* simulate_steps.c: several lists one after the other, and the index at which the step begins;
     * otherwise 0. */
    struct rf_list joined;
    struct rf_wait *own_waits;
    int wait_count, first_of_step;
};

struct rf_sim {
    struct rf_sim_rank *ranks;
    int count;
    double *flops; /* of the model, of each plan */
    bool counted;  /* includes the compute of blocks */
    double block_flops_per_s;
    double step_s;
    struct rf_sim_place last; /* the instruction that ends last */
    double path_s[RF_BOUND_COUNT];
};

/* Checks all values. RF_EINVAL: the message names the invalid one. */
RF_MUST_CHECK int rf_sim_check_opts(const struct rf_sim_opts *opts);
RF_MUST_CHECK int rf_sim_count_cost(const struct rf_plan *plan, const struct rf_instruction *i,
                                    const struct rf_sim_opts *opts, struct rf_sim_cost *out);

/* The costs of launches; out: zeros. */
void rf_sim_work_cost(const struct rf_work *work, double flops_per_s,
                      const struct rf_sim_rates *rates, struct rf_sim_cost *out);

/* simulate_steps.c. Before the run: if steps overlap, the rank's list becomes that of several
 * steps. After the run: its content becomes that of the last one. Also the path that the step waits
 * for. */
RF_MUST_CHECK int rf_sim_join(struct rf_sim_rank *r);
void rf_sim_finish(struct rf_sim *sim);

/* ranks.c. Plans of other ranks of the same job: one for each kind that differs from this plan's
 * rank. host_ranks: this many consecutive ranks are on one host, and tensor ranks are of the same
 * kind only if their groups are spread over hosts in the same way; 0: all are on one host. The
 * caller owns the plans and the array. */
RF_MUST_CHECK int rf_plan_other_kinds(const struct rf_plan *plan, int host_ranks,
                                      struct rf_plan ***others, int *count);

/* links.c. Whether all ranks of a group are on one host; and the seconds of a transfer between
 * them: `rounds` dependent messages, and `bytes` through the rank that transfers most. */
bool rf_link_is_intra_host(const struct rf_sim_rates *rates, const struct rf_plan_group *group);
/* Whether hosts split some of the job's tensor groups unevenly. All ranks wait for the slowest of
 * these. */
bool rf_link_cuts_tensor(const struct rf_sim_rates *rates, const struct rf_plan *plan);
double rf_link_s(const struct rf_sim_rates *rates, const struct rf_plan_group *group,
                 enum rf_coll_op op, uint64_t rounds, uint64_t bytes);

/* The end of a lane's entries in of_lane. */
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
