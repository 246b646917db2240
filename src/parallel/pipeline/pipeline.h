/* SPDX-License-Identifier: MIT
 *
 * Orders of pipeline schedules: the calls of each rank in order; the stage of each chunk of a rank;
 * the division of blocks into stages; and a simulation that proves that the orders end. Pure
 * functions, safe in any thread. They do not use plans or devices.
 *
 * A model is divided into consecutive stages. A rank has one or more of them, its chunks. For each
 * micro-batch each stage makes three calls: RF_VERB_FORWARD, RF_VERB_BACKWARD_INPUT, whose result
 * the previous stage needs, and RF_VERB_BACKWARD_WEIGHT, for which no rank waits. Schedules that do
 * not divide the backward pass make the third call directly after the second.
 */
#ifndef RF_PARALLEL_PIPELINE_H
#define RF_PARALLEL_PIPELINE_H

#include <ringforge/parallel.h>

/* Set by the caller, then checked and completed by rf_pipeline_check. */
struct rf_pipeline {
    enum rf_pipeline_kind kind;
    int ranks;
    int micro_batches; /* per step; at least 1 */
    int chunks;        /* per rank. 0: the default of the kind; interleaved: 2 */
    int steps;         /* consecutive steps in the order. 0: 1. Only 2BW may have more */
};

struct rf_pipeline_call {
    enum rf_verb verb;
    int chunk;
    int micro_batch; /* those of step t begin at t * micro_batches */
    int version;     /* of the weights that it uses: the number of their updates in this order */
    int behind;      /* rf_plan_lag_calls: 1: of the previous step; otherwise 0 */
};

/* ---- pipeline.c: kinds, stages, orders ------------------------------------------------------- */

/* Sets members that are 0 to their defaults. RF_EINVAL: the message names the wrong number, and a
 * correct one. All other functions need a pipeline that has passed this check. */
RF_MUST_CHECK int rf_pipeline_check(struct rf_pipeline *p);

/* ranks * chunks. */
int rf_pipeline_stages(const struct rf_pipeline *p);
/* The stage of a rank's chunk, and its inverse. Chunk c of rank r is stage c * ranks + r. In zbv
 * the second chunk of rank r is stage 2 * ranks - 1 - r, so rank 0 has both ends of the model. */
int rf_pipeline_stage(const struct rf_pipeline *p, int rank, int chunk);
int rf_pipeline_rank_of(const struct rf_pipeline *p, int stage);
int rf_pipeline_chunk_of(const struct rf_pipeline *p, int stage);

/* The number of calls of one rank: 3 * chunks * micro_batches * steps. */
int rf_pipeline_call_count(const struct rf_pipeline *p);
/* Writes the calls of a rank in order; calls has space for rf_pipeline_call_count.
 *
 * 2BW: the update of step t follows the last RF_VERB_BACKWARD_WEIGHT of its micro-batches, between
 * calls of the next steps, and makes version t + 1. Micro-batches of step t see version t - 1
 * (those of step 0 version 0): one behind the version that a flush would give them. So a rank keeps
 * two versions, the newest and the one before. The calls between two updates are the same in all
 * steps except the first and the last. */
void rf_pipeline_order(const struct rf_pipeline *p, int rank, struct rf_pipeline_call *calls);

/* The maximum number of pairs of micro-batch and chunk whose activations a rank keeps at once: from
 * RF_VERB_FORWARD to the end of RF_VERB_BACKWARD_WEIGHT. With P ranks and M micro-batches on rank
 * r: naive 1; gpipe M; 1f1b min(M, P - r); interleaved, M a multiple of P: min(V M, 2 (P - r - 1) +
 * (V - 1) P + 1) with V > 1 chunks; zbh1 min(M, P); zbv, M >= 2 P: 2 P, each half of a rank's
 * blocks; 2bw min(2 M, P - r), with more than one step. */
int rf_pipeline_in_flight(const struct rf_pipeline *p, const struct rf_pipeline_call *calls);

/* ---- pipeline_split.c: blocks to stages ------------------------------------------------------ */

/* RF_EINVAL: more stages than blocks. */
RF_MUST_CHECK int rf_pipeline_check_stages(const struct rf_pipeline *p, int blocks);

/* Divides blocks into stages: stage s has blocks first[s] to first[s + 1]; first has space for
 * rf_pipeline_stages + 1. Every stage has at least one block. The largest sum of costs of a stage
 * is as small as possible. Among such divisions the one with the smallest sum of squares is chosen.
 * If several are equal, the last stages get more blocks, because the first ones keep activations of
 * more micro-batches. costs: of each block, in any unit; NULL: all are equal. RF_EINVAL: more
 * stages than blocks, or a cost that is negative or not a number. RF_ENOMEM. */
RF_MUST_CHECK int rf_pipeline_split(const struct rf_pipeline *p, const double *costs, int blocks,
                                    int *first);
/* The same from the caller's number of blocks for each stage. RF_EINVAL: the number of counts is
 * not the number of stages, a count is below 1, or they do not add up to all blocks. */
RF_MUST_CHECK int rf_pipeline_split_by_hand(const struct rf_pipeline *p, const int *counts,
                                            int count, int blocks, int *first);

/* ---- pipeline_run.c: the simulation ---------------------------------------------------------- */

/* The transfers that share a lane. A lane does one transfer at a time, in list order. A receive has
 * the position of the call that reads it, a send that of the call that made the value. */
enum rf_pipeline_lanes {
    /* A lane for each direction, peer and kind: outputs, gradients. */
    RF_PIPELINE_BY_PEER_AND_KIND = 0,
    /* A lane for each direction and peer. */
    RF_PIPELINE_BY_PEER,
    /* A lane for each direction and kind. */
    RF_PIPELINE_BY_KIND,
    /* A lane for sends, and one for receives. */
    RF_PIPELINE_BY_DIRECTION,
    /* No lanes: a rank receives, calls and sends one after the other. */
    RF_PIPELINE_BLOCKING
};

struct rf_pipeline_run_opts {
    double forward_s, backward_input_s, backward_weight_s; /* of a chunk for a micro-batch */
    double transfer_s; /* between two ranks; transfers between stages of one rank take no time */
    enum rf_pipeline_lanes lanes;
    /* The number of calls before its reader at which a receive is posted. 0: when the rank reaches
     * that call. INT_MAX: at once. Blocking ranks need 0. */
    int receive_ahead;
};

struct rf_pipeline_span {
    double begin_s, end_s; /* begin of the first call, end of the last one */
    double busy_s;
};

/* Simulates the orders of all ranks, calls[rank], without buffering. A transfer begins when both
 * ranks have reached it on their lanes, the value has been computed and the receive is posted. It
 * ends for both at once, and only then do their lanes continue. A call begins when the previous
 * call on its rank has ended and its input has arrived. Whether the orders end does not depend on
 * durations. Reuse of memory is not modelled: each message has its own memory.
 *
 * makespan_s: the end of the last call. spans: of each rank, or NULL. RF_EINVAL: a rank does not
 * make each call of each of its chunks exactly once, in the order forward, backward_input,
 * backward_weight; or a rank waits forever, and the message names the call. RF_ENOMEM. */
RF_MUST_CHECK int rf_pipeline_run(const struct rf_pipeline *p,
                                  const struct rf_pipeline_call *const *calls,
                                  const struct rf_pipeline_run_opts *opts,
                                  struct rf_pipeline_span *spans, double *makespan_s);

#endif
