/* SPDX-License-Identifier: MIT
 *
 * Writing lists: values are found or created by their key, instructions are appended. A pass reads
 * one list and writes another. The first error is kept and returned at the end, so writers need no
 * checks in between.
 */
#ifndef RF_PARALLEL_LIST_H
#define RF_PARALLEL_LIST_H

#include "plan.h"

/* The value with this key, created on first use; members that do not apply are -1. A call may
 * reallocate plan->values. Negative if out of memory. */
int rf_value_of(struct rf_plan *plan, enum rf_value_kind kind, int block, int micro_batch, int slot,
                int piece);

/* The same value as `value` for another micro-batch; -1: none. */
int rf_value_find(const struct rf_plan *plan, const struct rf_value *value, int micro_batch);

struct rf_writer {
    struct rf_plan *plan;
    struct rf_list *list;
    int status;
    int behind; /* rf_instruction.behind of written instructions */
    bool older; /* blocks see the parameters from before the last update */
    bool fills; /* so do all blocks of the list */
};

/* Appends an instruction. Its operands follow: first all that are read, then all that are written.
 * Those with the same role are written one after the other. */
void rf_write(struct rf_writer *w, enum rf_verb verb, enum rf_lane lane, int block,
              int micro_batch);
/* Sets the phase of the instruction within its call; rf_write sets 0. */
void rf_write_phase(struct rf_writer *w, int phase);
/* Sets the call of an exchange. */
void rf_write_call(struct rf_writer *w, enum rf_verb call);
void rf_write_in(struct rf_writer *w, enum rf_role role, int value);
void rf_write_out(struct rf_writer *w, enum rf_role role, int value);
/* Repeats what another instruction of this plan reads, or what it writes. */
void rf_write_ins_of(struct rf_writer *w, const struct rf_instruction *instruction);
void rf_write_outs_of(struct rf_writer *w, const struct rf_instruction *instruction);
void rf_write_transfer(struct rf_writer *w, struct rf_transfer transfer);

/* Appends a copy of an instruction of this plan. */
void rf_write_copy(struct rf_writer *w, const struct rf_instruction *instruction);

/* Gathers a whole piece from the ranks' shards: its f32 parameters, or their 16-bit copies. */
void rf_write_gather(struct rf_writer *w, int piece, enum rf_dtype dtype);

/* Casts gradients to the type in which they are sent, and back. */
void rf_write_narrow(struct rf_writer *w, int grads, int sent);
void rf_write_widen(struct rf_writer *w, int received, int grads);

/* Blocks' backward passes between the start of a transfer and the use of its result, so that
 * compute does not wait for it. */
enum { RF_SETTLE = 2 };

/* If there are copies of the shards, each has the sum over its own ranks. Adds these sums, in the
 * type in which they were sent. */
void rf_write_replicas(struct rf_writer *w, int piece);

/* Replaces *list, which is freed, if there was no error; otherwise frees w->list. */
RF_MUST_CHECK int rf_write_end(struct rf_writer *w, struct rf_list *list);

/* Grows an array of `size`-byte elements to hold one more; false: out of memory. */
bool rf_array_reserve(void **array, int count, int *capacity, size_t size);

#endif
