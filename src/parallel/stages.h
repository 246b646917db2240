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

#endif
