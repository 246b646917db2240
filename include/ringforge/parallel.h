/* SPDX-License-Identifier: MIT
 *
 * Plans: what a training step is going to do on one rank, as a list of instructions, with the bytes
 * of every memory category and of every message. Pure: nothing is allocated on a device, nobody is
 * asked; a plan for 4,096 ranks is made on a laptop.
 */
#ifndef RINGFORGE_PARALLEL_H
#define RINGFORGE_PARALLEL_H

#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rf_verb {
    RF_VERB_ZERO_GRADS = 0, /* a = accumulator slot */
    RF_VERB_FORWARD,        /* block, micro_batch */
    RF_VERB_BACKWARD_INPUT, /* block, micro_batch; a = slot */
    RF_VERB_BACKWARD_WEIGHT,
    RF_VERB_MERGE,  /* slot a += slot b: two sibling subtrees of micro-batches */
    RF_VERB_TIE,    /* gradient of parameter a += that of its tied use, parameter b */
    RF_VERB_REDUCE, /* bucket a over the data-parallel ranks, asynchronous */
    RF_VERB_LOSS,   /* share losses and token counts */
    RF_VERB_NORM,   /* wait for all buckets; global norm */
    RF_VERB_STEP,   /* optimizer */
    RF_VERB_SPREAD, /* update_on_rank_0: what rank 0 made of the weights and scalars, to all */
    RF_VERB_COUNT
};
struct rf_instruction {
    enum rf_verb verb;
    int block, micro_batch; /* micro_batch: local order 0.. ; -1 = none */
    int a, b;
    int bucket; /* MERGE: only this part of the slots; -1 = all */
};

/* Builds the plan of `rank`. blocks are borrowed and must outlive the plan. Errors: RF_EINVAL for a
 * mesh that does not fit, a batch that cannot be divided, a policy this version does not
 * have: the message says what to change. */
RF_API int rf_plan_build(const struct rf_block *blocks, int block_count, const struct rf_mesh *mesh,
                         const struct rf_policy *policy, int rank, struct rf_plan **out);
RF_EXPORT void rf_plan_destroy(struct rf_plan *plan);
RF_EXPORT const struct rf_instruction *rf_plan_instructions(const struct rf_plan *plan, int *count);
/* Memory, and what one step sends. */
RF_EXPORT void rf_plan_bytes(const struct rf_plan *plan, struct rf_bytes *out);
/* Idle share of the step by the schedule: 0 without pipeline stages. */
RF_EXPORT double rf_plan_bubble(const struct rf_plan *plan);
RF_EXPORT int64_t rf_plan_param_count(const struct rf_plan *plan); /* logical elements, tied once */
/* One instruction as text, "forward block 3 micro-batch 1"; returns text. */
RF_EXPORT const char *rf_instruction_text(const struct rf_instruction *instruction, char *text,
                                          size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
