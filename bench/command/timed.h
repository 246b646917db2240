/* SPDX-License-Identifier: MIT
 *
 * Steps of blocks that take a given time and compute nothing, for `ringforge bench overlap` and
 * `bench pipeline`: the definition of a step, its simulation and its run.
 */
#ifndef RF_BENCH_TIMED_H
#define RF_BENCH_TIMED_H

#include "tools/tool.h"

enum { TIMED_CALLS = 512 };

/* The device time of one call of each function of a block. */
struct timed_seconds {
    double forward, backward_input, backward_weight;
};

/* A completed call; times count from the beginning of the step. All are f64, so that they can be
 * gathered. */
struct timed_mark {
    double begin_s, end_s;
    double verb; /* enum rf_verb */
    double micro_batch;
};

/* ---- a step ---------------------------------------------------------------------------------- */

enum { TIMED_MOST_RANKS = 8, TIMED_MOST_BLOCKS = 16, TIMED_CHUNKS = 2 };

/* A setting of a benchmark. A rank has all blocks, or with pp ranks TIMED_CHUNKS of them. */
struct timed_setting {
    const char *name;
    const char *exposed; /* the formula's exposed time */
    int ranks, blocks, shard;
    int micro_batches;            /* of all ranks */
    bool pp, overlaps;            /* overlaps: a step begins while the one before is in progress */
    int64_t elements;             /* of each block's parameter */
    int64_t channels;             /* f32 of an output, for each token */
    int64_t tokens;               /* of a micro-batch */
    enum rf_dtype dtype;          /* in which blocks see parameters */
    struct timed_seconds seconds; /* of one block */
    /* A block's reduce-scatter or gather on two ranks; its all-reduce takes two. 0: no time. */
    double transfer_s, latency_s;
    double transfers; /* exposed ones, those of 16 bits by half */
    uint64_t bucket_bytes;
    struct rf_policy policy; /* stage, order, schedule, and disabled features */
};
struct timed_result {
    double step_s, exposed_s; /* the best step and its report; overlapping steps: the mean */
    double planned_s;         /* by the plan's simulator */
    uint64_t sent_bytes, planned_bytes;
    struct rf_sim *sim;   /* the caller destroys it, and then the plan, of which it is */
    struct rf_plan *plan; /* its blocks are gone */
};
/* The calls of the best step on a rank, in the order in which they ended; the end is marked by verb
 * < 0. */
struct timed_marks {
    struct timed_mark all[TIMED_CALLS];
};

double timed_bytes_per_s(const struct timed_setting *s); /* of the link; INFINITY: takes no time */
/* On all ranks: plans the step, simulates it (only blocks and transfers take time) and takes
 * `samples` steps. With marks all ranks begin a step at the same time. A status of the tools. */
int timed_measure(const struct tool_command *command, struct rf_comm *comm,
                  struct rf_device *device, const struct timed_setting *s, int64_t samples,
                  struct timed_marks *marks, struct timed_result *out);

/* ---- pipeline_plot.c --------------------------------------------------------------------------
 */

/* On all ranks: rank 0 gathers the marks and draws the predicted step above the measured one, with
 * their idle shares. An exit status, or a negative error of the library. */
int timed_draw(const struct tool_command *command, struct rf_comm *comm, const char *path,
               const struct timed_setting *s, const struct timed_result *result,
               const double idle[2], const struct timed_marks *marks);

#endif
