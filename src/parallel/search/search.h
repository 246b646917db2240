/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the files of the search for a mesh: a model on one tensor rank
 * (search_model.c), its parts on the ranks of a pipeline (search_ranks.c), and the formulas that
 * judge a candidate: bytes (search_bytes.c) and time (search_time.c). search.c goes through all
 * candidates.
 */
#ifndef RF_PARALLEL_SEARCH_H
#define RF_PARALLEL_SEARCH_H

#include <ringforge/search.h>

#include "../pipeline/pipeline.h"
#include "../plan/plan.h"

/* ---- search_model.c: one tensor rank of a model ---------------------------------------------- */

struct rf_search_param {
    int block, logical;  /* logical: as in struct rf_plan_param */
    uint64_t count;      /* elements on a tensor rank, padded */
    bool narrow;         /* in 16 bits */
    bool trained, coded; /* coded: its states are in 8 bits */
    bool bare, single;   /* those of rf_plan_param */
    bool summed;         /* its gradients are added over the tensor ranks */
    uint64_t chunks;     /* of the norm */
};

struct rf_search_view {
    const struct rf_search_model *model;
    int tp;
    struct rf_search_param *params;
    int param_count;
    enum rf_dtype copy_type;
};
/* From the plan of a rank that has the whole model, or its part of each block. RF_EINVAL: the model
 * cannot be divided over that many tensor ranks; the message gives the reason. */
RF_MUST_CHECK int rf_search_view_open(const struct rf_search_model *model,
                                      const struct rf_policy *policy, int tp,
                                      struct rf_search_view *out);
void rf_search_view_close(struct rf_search_view *view);

/* For one block and micro-batch, on one tensor rank. Bytes are multiples of 256. */
struct rf_search_block {
    uint64_t in, out, saved, saved_for_weight, scratch;
    double forward_s, input_s, weight_s; /* including exchanges between tensor ranks */
    uint64_t exchange;                   /* the largest tensor that is exchanged */
    uint64_t sent_forward, sent_back;    /* by exchanges */
};

/* Blocks for one size of micro-batch. */
struct rf_search_rows {
    int64_t rows;
    int recompute; /* the policy's, as the number of blocks of a segment */
    struct rf_search_block *blocks;
    int status;                      /* not 0: blocks refuse it */
    char reason[RF_REJECTION_BYTES]; /* the message */
};
/* For micro-batches of `sequences` sequences. Returns RF_ENOMEM; errors of blocks are in status. */
RF_MUST_CHECK int rf_search_rows_open(const struct rf_search_view *view,
                                      const struct rf_policy *policy,
                                      const struct rf_sim_rates *rates, int64_t sequences,
                                      struct rf_search_rows *out);
void rf_search_rows_close(struct rf_search_rows *rows);

/* ---- search_ranks.c: the part of each rank of a pipeline ------------------------------------- */

struct rf_search_rank {
    /* Elements of all parameters, of 16-bit ones, of those without a master, of trained ones, and
     * of those that other ranks of the pipeline also have. */
    uint64_t all, narrow, bare, single, trained, tied;
    uint64_t summed;                  /* of the trained ones: also added over the tensor ranks */
    uint64_t coded;                   /* of the trained ones: with states in 8 bits */
    uint64_t chunks;                  /* of the norm, in all its shards */
    uint64_t unit_params, unit_grads; /* maximum of two consecutive blocks, bytes */
    /* Per micro-batch: temporary memory during its computation, and that of two visits if other
     * activations are spilled. */
    uint64_t working, visits;
    uint64_t kept;                                /* for all micro-batches in flight, bytes */
    double forward_s, input_s, weight_s, again_s; /* of all its blocks; again: recomputed */
    uint64_t from_before, to_next; /* messages forward; those backward have the same size */
    uint64_t exchanged;            /* by tensor ranks */
    uint64_t last_params;          /* bytes of the last block's parameters, as gathered */
};
/* A stage of a pipeline. */
struct rf_search_stage {
    int first, end; /* blocks */
    int home;       /* the rank that has it */
    /* Per micro-batch: kept from forward to the end of backward; and from backward input to
     * backward weight, if that is delayed. */
    uint64_t kept, delayed;
};
struct rf_search_ranks {
    struct rf_pipeline pipeline;
    struct rf_search_rank *ranks;
    struct rf_search_stage *stages;
    int heaviest; /* the rank with the most parameters */
    uint64_t scratch;
};
/* The parameters of each stage. RF_EINVAL: the pipeline is impossible with that many blocks. */
RF_MUST_CHECK int rf_search_ranks_open(const struct rf_search_view *view,
                                       const struct rf_pipeline *pipeline,
                                       struct rf_search_ranks *out);
void rf_search_ranks_close(struct rf_search_ranks *ranks);
/* Fills the members that depend on micro-batches; a rank has `micro_batches` of them. recompute:
 * blocks of a segment, or 0. Returns RF_ENOMEM. */
RF_MUST_CHECK int rf_search_load(const struct rf_search_view *view,
                                 const struct rf_search_block *blocks, int micro_batches,
                                 int recompute, struct rf_search_ranks *ranks);

/* ---- search_bytes.c, search_time.c: a candidate ---------------------------------------------- */

/* probe: the plan after rf_pass_policy, with local_micro_batches, copy_type and units set. */
struct rf_search_case {
    const struct rf_search_view *view;
    const struct rf_search_ranks *ranks;
    const struct rf_sim_rates *rates;
    struct rf_plan probe;
};
/* bytes, device_bytes: of the rank that needs the most. bytes.sent: of the rank that sends the
 * most. */
void rf_search_bytes(const struct rf_search_case *c, struct rf_candidate *out);
/* The bytes that a rank gathers in a step, and that it sends. */
uint64_t rf_search_gathers(const struct rf_plan *plan, const struct rf_search_rank *rank);
uint64_t rf_search_sent(const struct rf_search_case *c, const struct rf_search_rank *rank);
double rf_search_step_s(const struct rf_search_case *c);

/* ---- search.c, search_walk.c, search_plan.c: all candidates ---------------------------------- */

struct rf_search {
    struct rf_candidate *found;
    struct rf_candidate **order; /* of the candidates, fastest first */
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
/* Writes "needs 31.2 GiB of 24.0 GiB: ...". */
void rf_search_say_too_large(const struct rf_candidate *candidate, uint64_t limit,
                             char reason[RF_REJECTION_BYTES]);
/* Judges all candidates of one model. */
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
