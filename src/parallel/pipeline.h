/* SPDX-License-Identifier: MIT
 *
 * The orders of pipeline schedules: what each rank calls, in which order; which stage each part of
 * a rank is; how blocks are divided into stages; and a proof that the orders end. Pure functions,
 * safe from any thread. They know neither plans nor devices.
 *
 * A model is cut into stages, which follow each other. A rank has one or more of them, its chunks.
 * For each micro-batch each stage makes three calls: RF_VERB_FORWARD, RF_VERB_BACKWARD_INPUT, whose
 * result the stage before needs, and RF_VERB_BACKWARD_WEIGHT, for which nobody waits. Schedules
 * that do not divide the backward pass make the third directly after the second.
 */
#ifndef RF_PARALLEL_PIPELINE_H
#define RF_PARALLEL_PIPELINE_H

#include <ringforge/parallel.h>

/* Set by the caller, then checked and completed by rf_pipeline_check. */
struct rf_pipeline {
    enum rf_pipeline_kind kind;
    int ranks;
    int micro_batches; /* of a step: any number from 1 on */
    int chunks;        /* of a rank. 0: as many as the kind has; interleaved: 2 */
    int steps;         /* that follow each other in the order. 0: 1. Only 2BW may have more */
};

struct rf_pipeline_call {
    enum rf_verb verb;
    int chunk;
    int micro_batch; /* step t has those from t * micro_batches on */
    int version;     /* of the weights that it sees: how many updates of this order they have had */
    int behind;      /* rf_plan_lag_calls: 1: of the step before; else 0 */
};

/* ---- pipeline.c: kinds, places of stages, orders --------------------------------------------- */

/* Fills in what is 0. RF_EINVAL: the message says which number does not fit, and what would. All
 * other functions take only what has passed this one. */
RF_MUST_CHECK int rf_pipeline_check(struct rf_pipeline *p);

/* ranks * chunks. */
int rf_pipeline_stages(const struct rf_pipeline *p);
/* Which stage a chunk of a rank is, and back. Chunk c of rank r is stage c * ranks + r; in zbv the
 * second chunk of rank r is stage 2 * ranks - 1 - r, so that rank 0 has both ends of the model. */
int rf_pipeline_stage(const struct rf_pipeline *p, int rank, int chunk);
int rf_pipeline_rank_of(const struct rf_pipeline *p, int stage);
int rf_pipeline_chunk_of(const struct rf_pipeline *p, int stage);

/* Calls of one rank: 3 * chunks * micro_batches * steps. */
int rf_pipeline_call_count(const struct rf_pipeline *p);
/* Writes the calls of a rank in their order; calls has room for rf_pipeline_call_count.
 *
 * 2BW: the update of step t comes directly after the last RF_VERB_BACKWARD_WEIGHT of its
 * micro-batches, between calls of the next steps, and makes version t + 1. Micro-batches of step t
 * see version t - 1 (those of step 0 version 0): one behind what a flush would show them. So a rank
 * keeps two versions, the newest and the one before. The calls between two updates are the same in
 * all steps but the first and the last. */
void rf_pipeline_order(const struct rf_pipeline *p, int rank, struct rf_pipeline_call *calls);

/* The most pairs of micro-batch and chunk at once whose activations a rank keeps: from
 * RF_VERB_FORWARD to the end of RF_VERB_BACKWARD_WEIGHT. With P ranks and M micro-batches on rank
 * r: naive 1; gpipe M; 1f1b min(M, P - r); interleaved, M a multiple of P: min(V M, 2 (P - r - 1) +
 * (V - 1) P + 1), V > 1 being the chunks; zbh1 min(M, P); zbv, M >= 2 P: 2 P halves of what a rank
 * has; 2bw min(2 M, P - r), with more than one step. */
int rf_pipeline_in_flight(const struct rf_pipeline *p, const struct rf_pipeline_call *calls);

/* ---- pipeline_split.c: blocks to stages ------------------------------------------------------ */

/* Divides blocks into stages: stage s has those from first[s] to first[s + 1]; first has room for
 * rf_pipeline_stages + 1. Every stage has at least one block. The largest sum of costs of a stage
 * is the smallest that is possible; among such divisions that with the smallest sum of squares is
 * taken, and of those with equal ones that which gives the last stages more, since the first ones
 * keep activations of more micro-batches. costs: of each block, in any unit; NULL: all are equal.
 * RF_EINVAL: more stages than blocks, or a cost that is negative or no number. RF_ENOMEM. */
RF_MUST_CHECK int rf_pipeline_split(const struct rf_pipeline *p, const double *costs, int blocks,
                                    int *first);
/* The same from the caller's own count of blocks for each stage. RF_EINVAL: there is not one count
 * for each stage, one is below 1, or they do not add up to all blocks. */
RF_MUST_CHECK int rf_pipeline_split_by_hand(const struct rf_pipeline *p, const int *counts,
                                            int count, int blocks, int *first);

/* ---- pipeline_run.c: the proof --------------------------------------------------------------- */

/* What has a lane of its own. A lane does one transfer at a time, in list order: a receive has the
 * place of the call that reads it, a send that of the call that made it. */
enum rf_pipeline_lanes {
    RF_PIPELINE_BY_PEER_AND_KIND = 0, /* each direction, peer and kind: outputs, gradients */
    RF_PIPELINE_BY_PEER,              /* each direction and peer */
    RF_PIPELINE_BY_KIND,              /* each direction and kind */
    RF_PIPELINE_BY_DIRECTION,         /* sends; receives */
    RF_PIPELINE_BLOCKING              /* nothing: a rank receives, calls and sends one by one */
};

struct rf_pipeline_run_opts {
    double forward_s, backward_input_s, backward_weight_s; /* of a chunk for a micro-batch */
    double transfer_s; /* between two ranks; stages of one rank hand over at once */
    enum rf_pipeline_lanes lanes;
    /* How many calls before the one that reads it a receive is posted. 0: when computing has come
     * to that call. INT_MAX: at once. Blocking ranks need 0. */
    int receive_ahead;
};

struct rf_pipeline_span {
    double begin_s, end_s; /* of the first call and of the last */
    double busy_s;
};

/* Runs the orders of all ranks, calls[rank], with nothing buffered. A transfer begins when both
 * ranks have come to it on their lanes, what is sent has been computed and the receive is posted.
 * It ends for both at once, and only then their lanes go on. A call begins when the one before it
 * on its rank has ended and what it reads has arrived. Whether the orders end does not depend on
 * durations. Reuse of memory is not modelled: each message has its own.
 *
 * makespan_s: until the last call has ended. spans: of each rank, or NULL. RF_EINVAL: a rank does
 * not make each call of each of its chunks exactly once, in the order forward, backward_input,
 * backward_weight; or a rank waits for ever, and the message says at which call. RF_ENOMEM. */
RF_MUST_CHECK int rf_pipeline_run(const struct rf_pipeline *p,
                                  const struct rf_pipeline_call *const *calls,
                                  const struct rf_pipeline_run_opts *opts,
                                  struct rf_pipeline_span *spans, double *makespan_s);

#endif
