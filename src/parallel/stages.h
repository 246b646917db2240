/* SPDX-License-Identifier: MIT
 *
 * What a plan asks of the orders of pipelines. Used by expand.c and pieces.c.
 */
#ifndef RF_PARALLEL_STAGES_H
#define RF_PARALLEL_STAGES_H

#include "pipeline.h"
#include "plan.h"

/* The stage that is a chunk of this rank. */
int rf_plan_stage(const struct rf_plan *plan, int chunk);

/* Whether what this block gives goes to the rank before: in the second half of a V. */
bool rf_plan_goes_back(const struct rf_plan *plan, int block);

/* The calls of this rank for so many local micro-batches, in order; without training the forward
 * passes alone. Freed with rf_free. */
RF_MUST_CHECK int rf_plan_calls(const struct rf_plan *plan, int micro_batches, bool training,
                                struct rf_pipeline_call **out, int *count);

/* Of a pipeline without a flush: the calls of this rank in one of the lists of training, of
 * micro-batches of the newest step and (behind) of the step before, all by their local index. Where
 * a step begins on a rank, the list before it ends. Freed with rf_free. */
RF_MUST_CHECK int rf_plan_lag_calls(const struct rf_plan *plan, enum rf_list_id id,
                                    struct rf_pipeline_call **out, int *count);

/* The calls of a training step of all ranks of the pipeline, where ranks have several stages and
 * messages go around; else *out is NULL. Both (*out)[0] and *out are freed with rf_free. */
RF_MUST_CHECK int rf_plan_all_calls(const struct rf_plan *plan, struct rf_pipeline_call ***out);

/* What a message brings to this rank: that of this block's output, or its gradient. */
struct rf_message {
    enum rf_value_kind kind;
    int block, micro_batch;
};

/* This rank sends a value; the first message from the same peer that comes only after the peer has
 * used it. False: none does. */
bool rf_plan_message_seen(const struct rf_plan *plan, struct rf_pipeline_call *const *calls,
                          const struct rf_value *sent, struct rf_message *out);

#endif
