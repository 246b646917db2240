/* SPDX-License-Identifier: MIT
 *
 * Between the files of the search for a mesh: what a model is for one tensor rank
 * (search_model.c), what the ranks of a pipeline have of it (search_ranks.c), and
 * by which formulas a candidate is judged: bytes (search_bytes.c) and time (search_time.c).
 * search.c goes through all candidates.
 */
#ifndef RF_PARALLEL_SEARCH_H
#define RF_PARALLEL_SEARCH_H

#include <ringforge/search.h>

#include "pipeline.h"
#include "plan.h"

/* ---- search_model.c: one tensor rank of a model ---------------------------------------------- */

struct rf_search_param {
    int block, logical; /* logical: as in struct rf_plan_param */
    uint64_t count;     /* elements of a tensor rank, padded */
    bool narrow;        /* in 16 bits */
    bool trained;
    bool summed;     /* its gradients are added over the tensor ranks */
    uint64_t chunks; /* of the norm */
};

struct rf_search_view {
    const struct rf_search_model *model;
    int tp;
    struct rf_search_param *params;
    int param_count;
    enum rf_dtype copy_type;
};
/* By the plan of a rank that has the whole model, or its part of each block. RF_EINVAL: the model
 * cannot be cut into so many tensor ranks, and why. */
RF_MUST_CHECK int rf_search_view_open(const struct rf_search_model *model,
                                      const struct rf_policy *policy, int tp,
                                      struct rf_search_view *out);
void rf_search_view_close(struct rf_search_view *view);

/* Of one block and micro-batch, on one tensor rank; bytes are multiples of 256. */
struct rf_search_block {
    uint64_t in, out, saved, saved_for_weight, scratch;
    double forward_s, input_s, weight_s; /* with exchanges between tensor ranks */
    uint64_t exchange;                   /* the largest tensor that is exchanged */
    uint64_t sent_forward, sent_back;    /* in exchanges */
};

/* Blocks for one size of micro-batch. */
struct rf_search_rows {
    int64_t rows;
    int recompute; /* the policy's, as blocks of a segment */
    struct rf_search_block *blocks;
    int status;                      /* not 0: blocks refuse it */
    char reason[RF_REJECTION_BYTES]; /* why */
};
/* For `sequences` of them. RF_ENOMEM; what blocks say is in status. */
RF_MUST_CHECK int rf_search_rows_open(const struct rf_search_view *view,
                                      const struct rf_policy *policy,
                                      const struct rf_sim_rates *rates, int64_t sequences,
                                      struct rf_search_rows *out);
void rf_search_rows_close(struct rf_search_rows *rows);

/* ---- search_ranks.c: what each rank of a pipeline has ---------------------------------------- */

struct rf_search_rank {
    /* Elements: of all parameters, those in 16 bits, those that are trained, and those that other
     * ranks of the pipeline have, too. */
    uint64_t all, narrow, trained, tied;
    uint64_t summed; /* of those that are trained: added over the tensor ranks, too */
    uint64_t chunks; /* of the norm, in all its shards */
    uint64_t unit_params, unit_grads; /* the most that two blocks in a row have, bytes */
    /* Of a micro-batch: what is there while it is computed besides what stays, and two visits,
     * where others are spilled. */
    uint64_t working, visits;
    uint64_t kept; /* by all micro-batches that are under way, bytes */
    double forward_s, input_s, weight_s, again_s; /* of all its blocks; again: computed twice */
    uint64_t from_before, to_next;                /* messages forward; those back are as large */
    uint64_t exchanged;                           /* by tensor ranks */
    uint64_t last_params; /* bytes of the last block's parameters, as gathered */
};
/* Of a stage of a pipeline. */
struct rf_search_stage {
    int first, end; /* blocks */
    int home;       /* the rank that has it */
    /* Of a micro-batch: from forward to the end of backward; and from backward input to backward
     * weight, where that is put off. */
    uint64_t kept, put_off;
};
struct rf_search_ranks {
    struct rf_pipeline pipeline;
    struct rf_search_rank *ranks;
    struct rf_search_stage *stages;
    int heaviest; /* the rank with the most parameters */
    uint64_t scratch;
};
/* Parameters by stage. RF_EINVAL: the pipeline does not go with so many blocks. */
RF_MUST_CHECK int rf_search_ranks_open(const struct rf_search_view *view,
                                       const struct rf_pipeline *pipeline,
                                       struct rf_search_ranks *out);
void rf_search_ranks_close(struct rf_search_ranks *ranks);
/* Fills what depends on micro-batches, of which a rank has so many. recompute: blocks of a segment,
 * or 0. RF_ENOMEM. */
RF_MUST_CHECK int rf_search_load(const struct rf_search_view *view,
                                 const struct rf_search_block *blocks, int micro_batches,
                                 int recompute, struct rf_search_ranks *ranks);

/* ---- search_bytes.c, search_time.c: a candidate ---------------------------------------------- */

/* probe: as rf_pass_policy leaves it; local_micro_batches, copy_type and units are filled in. */
struct rf_search_case {
    const struct rf_search_view *view;
    const struct rf_search_ranks *ranks;
    const struct rf_sim_rates *rates;
    struct rf_plan probe;
};
/* bytes, device_bytes: of the rank that needs most; bytes.sent: of the one that sends most. */
void rf_search_bytes(const struct rf_search_case *c, struct rf_candidate *out);
/* Bytes that a rank gathers in a step, and sends. */
uint64_t rf_search_gathers(const struct rf_plan *plan, const struct rf_search_rank *rank);
uint64_t rf_search_sent(const struct rf_search_case *c, const struct rf_search_rank *rank);
double rf_search_step_s(const struct rf_search_case *c);

/* ---- search.c, search_walk.c, search_plan.c: all candidates ---------------------------------- */

struct rf_search {
    struct rf_candidate *found;
    struct rf_candidate **order; /* of what was found, the quickest first */
    int count, capacity;
    struct rf_rejection *rejections;
    int rejection_count, rejection_capacity;
    struct rf_candidate nearest; /* step_s 0: none */
    int64_t judged;
    int meshes, mesh_count; /* progress */
};
RF_MUST_CHECK int rf_search_add(struct rf_search *search, const struct rf_candidate *candidate);
RF_MUST_CHECK int rf_search_reject(struct rf_search *search, const struct rf_rejection *rejection);
bool rf_search_is_before(const struct rf_candidate *a, const struct rf_candidate *b);
void rf_search_sort(struct rf_candidate **order, int count);
/* "needs 31.2 GiB of 24.0 GiB: ..." */
void rf_search_say_too_large(const struct rf_candidate *candidate, uint64_t limit,
                             char reason[RF_REJECTION_BYTES]);
/* Judges all candidates of one of the models. */
RF_MUST_CHECK int rf_search_walk(struct rf_search *search, const struct rf_search_model *model,
                                 int number, const struct rf_search_opts *opts);
RF_MUST_CHECK int rf_search_plan_best(struct rf_search *search,
                                      const struct rf_search_model *models,
                                      const struct rf_search_opts *opts);

static inline uint64_t rf_device_bytes(const struct rf_bytes *b)
{
    return b->params + b->grads + b->optimizer + b->activations + b->comm + b->scratch - b->host;
}

#endif
