/* SPDX-License-Identifier: MIT
 *
 * Queries of a plan about the orders of pipelines. Used by expand.c and pieces.c.
 */
#ifndef RF_PARALLEL_STAGES_H
#define RF_PARALLEL_STAGES_H

#include "../pipeline/pipeline.h"
#include "../plan/plan.h"

/* RF_EINVAL: the pipeline's ranks and chunks are impossible, or there are too few blocks. */
RF_MUST_CHECK int rf_plan_check_stages(const struct rf_plan *plan);

/* The stage of a chunk of this rank. */
int rf_plan_stage(const struct rf_plan *plan, int chunk);

/* Whether the output of this block goes to the previous rank: in the second half of a V. */
bool rf_plan_goes_back(const struct rf_plan *plan, int block);

/* The calls of this rank for this many local micro-batches, in order; without training only the
 * forward passes. Freed with rf_free. */
RF_MUST_CHECK int rf_plan_calls(const struct rf_plan *plan, int micro_batches, bool training,
                                struct rf_pipeline_call **out, int *count);

/* The calls of this rank in one of the training lists of a pipeline without a flush: of
 * micro-batches of the newest step and (behind) of the previous step, all by their local index. The
 * list before ends where a step begins on the rank. Freed with rf_free. */
RF_MUST_CHECK int rf_plan_lag_calls(const struct rf_plan *plan, enum rf_list_id id,
                                    struct rf_pipeline_call **out, int *count);

/* A message to this rank: the output of this block, or its gradient. */
struct rf_message {
    enum rf_value_kind kind;
    int block, micro_batch;
};

/* In a training step, the messages that show this rank that its own have arrived, if ranks have
 * several stages and messages travel in a cycle; otherwise *out is NULL. It refers to the plan.
 * Freed with rf_plan_arrivals_close. */
struct rf_arrivals;
RF_MUST_CHECK int rf_plan_arrivals_open(const struct rf_plan *plan, struct rf_arrivals **out);
void rf_plan_arrivals_close(struct rf_arrivals *arrivals);

/* This rank sends a value: finds the first message from the same peer that the peer can only send
 * after it has used the value. Returns 1: found; 0: none; or an error. The calls of a peer are
 * listed on first use. */
RF_MUST_CHECK int rf_plan_message_seen(struct rf_arrivals *arrivals, const struct rf_value *sent,
                                       struct rf_message *out);

#endif
