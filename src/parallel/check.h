/* SPDX-License-Identifier: MIT
 *
 * The checker: runs the lists of all ranks of a job on symbols. check.c knows lanes, waits, bytes
 * and groups; meaning.c knows what verbs do.
 */
#ifndef RF_PARALLEL_CHECK_H
#define RF_PARALLEL_CHECK_H

#include "plan.h"

/* What the memory of every value holds, on every rank. */
struct rf_meaning;
RF_MUST_CHECK int rf_meaning_open(const struct rf_plan *const *plans, int ranks,
                                  struct rf_meaning **out);
void rf_meaning_close(struct rf_meaning *m); /* NULL is allowed */

/* Ranks that exchange something, in their order, and by rank the instruction that each has come to.
 */
struct rf_job_group {
    int count, *members;
    const struct rf_instruction **of_ranks;
};

/* An instruction of one rank; or, with a transfer, of all ranks of a group. */
RF_MUST_CHECK int rf_meaning_run(struct rf_meaning *m, int rank, const struct rf_instruction *i);
RF_MUST_CHECK int rf_meaning_transfer(struct rf_meaning *m, const struct rf_job_group *group);
/* Of a message, whose sender is the group's first. */
RF_MUST_CHECK int rf_meaning_message(struct rf_meaning *m, const struct rf_job_group *group);

/* Another list is going to run; the first one is that of a step. Whether everything that a list has
 * to do for the step that it ends has been done. What it has left is there when the next one
 * begins. */
void rf_meaning_begin(struct rf_meaning *m, enum rf_list_id list);
RF_MUST_CHECK int rf_meaning_end(struct rf_meaning *m);
void rf_meaning_next(struct rf_meaning *m);

/* Fails with a sentence that begins with the rank, the instruction, and the parameters that it is
 * of. Returns RF_EINVAL. */
int rf_check_fail(const struct rf_plan *plan, const struct rf_instruction *i, const char *format,
                  ...) __attribute__((format(printf, 3, 4)));

/* A value and a piece as text, with the parameters that it is of where the sentence of
 * rf_check_fail does not have them yet (i: its instruction; NULL: there is none). Returns text. */
#define RF_CHECK_TEXT 224
const char *rf_check_value(const struct rf_plan *plan, const struct rf_instruction *i, int value,
                           char text[RF_CHECK_TEXT]);
const char *rf_check_piece(const struct rf_plan *plan, const struct rf_instruction *i, int piece,
                           char text[RF_CHECK_TEXT]);

#endif
