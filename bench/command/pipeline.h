/* SPDX-License-Identifier: MIT
 *
 * Between pipeline.c, which measures, and pipeline_plot.c, which draws.
 */
#ifndef RF_BENCH_PIPELINE_H
#define RF_BENCH_PIPELINE_H

#include "timed.h"

/* The calls of a step on a rank, in the order in which they ended; after the last verb < 0. */
struct pipeline_marks {
    struct timed_mark all[TIMED_CALLS];
};
/* After each step, on all ranks: where rank 0 says that it was the best, each keeps its calls. */
int pipeline_keep_best(struct rf_comm *comm, const struct timed_device *timed, bool best,
                       struct pipeline_marks *marks);

struct pipeline_picture {
    const char *path, *schedule;
    int ranks, micro_batches;
    const struct rf_sim *sim;
    double planned_s, planned_bubble, measured_s, measured_bubble;
};
/* On all ranks: rank 0 gathers what they have kept, and draws. *status: an exit status. */
int pipeline_draw(const struct tool_command *command, struct rf_comm *comm,
                  const struct pipeline_picture *what, const struct pipeline_marks *marks,
                  int *status);

#endif
