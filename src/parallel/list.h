/* SPDX-License-Identifier: MIT
 *
 * Writing lists: values are found or made by what they are of, instructions are appended. A pass
 * goes through one list and writes another. The first error sticks, so that only the end is asked.
 */
#ifndef RF_PARALLEL_LIST_H
#define RF_PARALLEL_LIST_H

#include "plan.h"

/* The value of this kind, made on first use; what does not apply is -1. Only what makes one may
 * move plan->values. Out of memory: negative. */
int rf_value_of(struct rf_plan *plan, enum rf_value_kind kind, int block, int micro_batch, int slot,
                int piece);

/* The same as `value` for another micro-batch; -1: there is none. */
int rf_value_find(const struct rf_plan *plan, const struct rf_value *value, int micro_batch);

struct rf_writer {
    struct rf_plan *plan;
    struct rf_list *list;
    int status;
    int behind; /* rf_instruction.behind of what is written */
    bool older; /* its blocks see the parameters of before the last update */
    bool fills; /* so do all of the list */
};

/* Appends an instruction; its operands follow: first all that are read, then all that are
 * written. */
void rf_write(struct rf_writer *w, enum rf_verb verb, enum rf_lane lane, int block,
              int micro_batch);
/* Of which phase of its call the instruction is; rf_write writes 0. */
void rf_write_phase(struct rf_writer *w, int phase);
/* An exchange: of which call. */
void rf_write_call(struct rf_writer *w, enum rf_verb call);
void rf_write_in(struct rf_writer *w, int value);
void rf_write_out(struct rf_writer *w, int value);
void rf_write_transfer(struct rf_writer *w, struct rf_transfer transfer);

/* Appends a copy of an instruction of this plan. */
void rf_write_copy(struct rf_writer *w, const struct rf_instruction *instruction);

/* From the ranks' shards of a piece all of it: its f32 parameters, or their copies in 16 bits. */
void rf_write_gather(struct rf_writer *w, int piece, enum rf_dtype dtype);

/* Gradients of a piece (of slot 0), in another type. */
void rf_write_cast(struct rf_writer *w, enum rf_value_kind from, enum rf_value_kind to, int piece);

/* Blocks' backward passes between the start of a transfer and the use of its result, so that
 * computing does not wait for it. */
enum { RF_SETTLE = 2 };

/* Where there are copies of the shards, each has the sum over its own ranks: adds these up, as they
 * have travelled. */
void rf_write_replicas(struct rf_writer *w, int piece);

/* Takes the place of *list, which is freed, if all went well; frees w->list otherwise. */
RF_MUST_CHECK int rf_write_end(struct rf_writer *w, struct rf_list *list);

/* Grows an array of `size`-byte elements to hold one more; false: out of memory. */
bool rf_array_reserve(void **array, int count, int *capacity, size_t size);

#endif
