/* SPDX-License-Identifier: MIT
 *
 * The search for a mesh: lists all ways to distribute a model over a number of ranks that fit in
 * device memory, fastest first. The search covers meshes, stages of sharding, recomputation,
 * offload, pipeline schedules, numbers of micro-batches and sequence parallelism. Formulas estimate
 * each candidate. The best candidates are then planned and simulated (parallel.h), and have the
 * bytes and times of their plans. Pure: nothing is allocated on a device, and nothing is sent.
 */
#ifndef RINGFORGE_SEARCH_H
#define RINGFORGE_SEARCH_H

#include "parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A form of the model, such as one in bf16. The caller keeps the blocks alive. */
struct rf_search_model {
    const struct rf_block *blocks;
    int block_count;
    int heads;                /* the number of tensor ranks must divide it; 0: no such limit */
    double block_flops_per_s; /* of products in its type; 0: that of the rates */
};

/* The parameters that the search varies. The others are as in struct rf_policy. */
enum {
    RF_SEARCH_ZERO = 1,
    RF_SEARCH_RECOMPUTE = 2,
    RF_SEARCH_OFFLOAD = 4,
    RF_SEARCH_SCHEDULE = 8,
    RF_SEARCH_MICRO_BATCHES = 16,
    RF_SEARCH_SEQUENCE = 32, /* sequence parallelism, with tensor ranks */
    RF_SEARCH_ALL = 63
};

struct rf_search_opts {
    int ranks;
    struct rf_mesh mesh;       /* fixed axes; 0: searched. Order of ranks: struct rf_mesh */
    struct rf_policy policy;   /* device_bytes: the limit; 0: everything fits */
    unsigned open;             /* RF_SEARCH_* to be searched, or 0 */
    struct rf_sim_rates rates; /* host_ranks > 0 must divide `ranks` */
    /* The number of best candidates that are planned and simulated, if that is not too much work.
     * 0: 20. Negative: none. */
    int top;
    void (*progress)(void *user, int meshes, int of); /* called before each mesh; or NULL */
    void *user;
};

struct rf_candidate {
    int model; /* index of the model */
    struct rf_mesh mesh;
    int zero, recompute, offload; /* as in struct rf_policy */
    bool sequence_parallel;       /* as in struct rf_policy; false without tensor ranks */
    enum rf_pipeline_kind pipeline;
    int chunks; /* per rank; 0: the schedule's number */
    int64_t micro_batches;
    struct rf_bytes bytes; /* of the rank that needs the most device memory; sent: the maximum over
                            * ranks, per step */
    uint64_t device_bytes; /* of these, without host memory */
    double step_s, bubble; /* predicted time of a step; rf_plan_bubble */
    bool planned;          /* true: bytes and times of plans; false: estimates */
};

enum { RF_REJECTION_BYTES = 768 }; /* as the message of struct rf_error */

struct rf_rejection {
    struct rf_candidate candidate; /* step_s and device_bytes 0: unknown */
    char reason[RF_REJECTION_BYTES];
};

struct rf_search;

/* Searches. The caller destroys *out. Needs about 150 bytes of memory for each candidate that fits.
 * It is no error if nothing fits. Errors: RF_EINVAL (options that contradict each other),
 * RF_ENOMEM. Thread-safe. */
RF_API int rf_plan_search(const struct rf_search_model *models, int model_count,
                          const struct rf_search_opts *opts, struct rf_search **out);

/* NULL is allowed. */
RF_EXPORT void rf_search_destroy(struct rf_search *search);

/* The number of candidates that fit. */
RF_EXPORT int64_t rf_search_count(const struct rf_search *search);

/* Candidate `place`, from 0, the fastest. Owned by the search. NULL: the end. */
RF_EXPORT const struct rf_candidate *rf_search_get(const struct rf_search *search, int64_t place);

/* The number of candidates that were examined. */
RF_EXPORT int64_t rf_search_judged(const struct rf_search *search);

/* Rejection `place`, from 0: meshes that were rejected, wholly or with some policies. First those
 * that do not fit, fastest first, each with the policy that would be fastest; then those that are
 * not possible. NULL: the end. */
RF_EXPORT const struct rf_rejection *rf_search_rejection(const struct rf_search *search,
                                                         int64_t place);

/* The candidate with the least device memory among those that do not fit; NULL: none. */
RF_EXPORT const struct rf_candidate *rf_search_nearest(const struct rf_search *search);

/* The policy of a candidate: opts->policy with the search's choices. */
RF_EXPORT struct rf_policy rf_search_policy(const struct rf_search_opts *opts,
                                            const struct rf_candidate *candidate);

#ifdef __cplusplus
}
#endif
#endif
