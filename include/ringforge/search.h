/* SPDX-License-Identifier: MIT
 *
 * The search for a mesh: of all ways to spread a model over a number of ranks those that fit into
 * the device's memory, the quickest first. Every mesh, stage of sharding, recomputation, offload,
 * order of a pipeline, number of micro-batches, and sequence parallelism on or off, is judged by
 * formulas; the best are then planned and simulated (parallel.h), and have the bytes and times of
 * their plans. Pure: nothing is allocated on a device, nobody is asked.
 */
#ifndef RINGFORGE_SEARCH_H
#define RINGFORGE_SEARCH_H

#include "parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One form of the model, such as one in bf16. Blocks are borrowed. */
struct rf_search_model {
    const struct rf_block *blocks;
    int block_count;
    int heads; /* tensor ranks must divide it; 0: only the shapes of parameters limit them */
    double block_flops_per_s; /* of products in its type; 0: that of the rates */
};

/* What is left open is searched; the rest is as struct rf_policy says. */
enum {
    RF_SEARCH_ZERO = 1,
    RF_SEARCH_RECOMPUTE = 2,
    RF_SEARCH_OFFLOAD = 4,
    RF_SEARCH_SCHEDULE = 8,
    RF_SEARCH_MICRO_BATCHES = 16,
    RF_SEARCH_SEQUENCE = 32, /* with tensor ranks: sequence parallelism */
    RF_SEARCH_ALL = 63
};

struct rf_search_opts {
    int ranks;
    struct rf_mesh mesh; /* axes that are given; 0: open. Tensor ranks are neighbours, then those of
                            one shard group, then data-parallel ones, then stages */
    struct rf_policy policy;   /* device_bytes: what is allowed; 0: anything fits */
    unsigned open;             /* RF_SEARCH_*, or 0 */
    struct rf_sim_rates rates; /* host_ranks > 0 divides `ranks` */
    int top; /* so many of the best are planned, if that is not too much work; 0: 20; negative: none
              */
    void (*progress)(void *user, int meshes, int of); /* NULL: none. Called before each mesh */
    void *user;
};

struct rf_candidate {
    int model; /* in the list of models */
    struct rf_mesh mesh;
    int zero, recompute, offload; /* as in struct rf_policy */
    bool sequence_parallel;       /* likewise; without tensor ranks false */
    enum rf_pipeline_kind pipeline;
    int chunks; /* 0: as many as the kind has */
    int64_t micro_batches;
    struct rf_bytes bytes; /* of the rank that needs most on the device; sent: the most that a rank
                              sends in a step */
    uint64_t device_bytes; /* of these, without what lies with the host */
    double step_s, bubble; /* predicted; rf_plan_bubble */
    bool planned;          /* bytes and times are those of plans; else of formulas */
};

enum { RF_REJECTION_BYTES = 768 }; /* that of struct rf_error */
struct rf_rejection {
    struct rf_candidate candidate; /* step_s, device_bytes 0: not known */
    char reason[RF_REJECTION_BYTES];
};

struct rf_search;

/* Errors: RF_EINVAL for options that contradict each other, RF_ENOMEM. That nothing fits is no
 * error. Memory grows with what fits: about 150 bytes a candidate. Any thread. */
RF_API int rf_plan_search(const struct rf_search_model *models, int model_count,
                          const struct rf_search_opts *opts, struct rf_search **out);
RF_EXPORT void rf_search_destroy(struct rf_search *search);

/* How many fit, and the one at a place: 0 is the quickest; NULL behind the last. Borrowed. */
RF_EXPORT int64_t rf_search_count(const struct rf_search *search);
RF_EXPORT const struct rf_candidate *rf_search_get(const struct rf_search *search, int64_t place);
/* How many were judged in all. */
RF_EXPORT int64_t rf_search_judged(const struct rf_search *search);
/* Meshes that are, or of which something is, rejected. First those that do not fit, each with the
 * policy that would be quickest, the quickest first; then those that cannot be. NULL behind the
 * last. */
RF_EXPORT const struct rf_rejection *rf_search_rejection(const struct rf_search *search,
                                                         int64_t place);
/* Of what does not fit the one that needs the least memory of the device; NULL: none. */
RF_EXPORT const struct rf_candidate *rf_search_nearest(const struct rf_search *search);

/* The policy of a candidate: the options' with what was chosen. */
RF_EXPORT struct rf_policy rf_search_policy(const struct rf_search_opts *opts,
                                            const struct rf_candidate *candidate);

#ifdef __cplusplus
}
#endif
#endif
