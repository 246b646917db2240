/* SPDX-License-Identifier: MIT
 *
 * The checker: it executes the lists of all ranks of a job symbolically. check.c handles lanes,
 * waits, bytes and groups; meaning.c handles the effects of verbs.
 */
#ifndef RF_PARALLEL_CHECK_H
#define RF_PARALLEL_CHECK_H

#include "../plan/plan.h"

/* The content of every value on every rank. */
struct rf_meaning;
RF_MUST_CHECK int rf_meaning_open(const struct rf_plan *const *plans, int ranks,
                                  struct rf_meaning **out);
void rf_meaning_close(struct rf_meaning *m); /* NULL is allowed */

/* The ranks of a transfer in order, and the instruction that each has reached. */
struct rf_job_group {
    int count, *members;
    const struct rf_instruction **of_ranks;
};

/* Executes an instruction of one rank, or a collective of all ranks of a group. */
RF_MUST_CHECK int rf_meaning_run(struct rf_meaning *m, int rank, const struct rf_instruction *i);
RF_MUST_CHECK int rf_meaning_transfer(struct rf_meaning *m, const struct rf_job_group *group);
/* Executes a message. The sender is the group's first rank. */
RF_MUST_CHECK int rf_meaning_message(struct rf_meaning *m, const struct rf_job_group *group);

/* begin: another list runs next; the first one is that of a step. end: checks that the list has
 * done all work of the step that it ends. next: the values that the list has left are available
 * when the next one begins. */
void rf_meaning_begin(struct rf_meaning *m, enum rf_list_id list);
RF_MUST_CHECK int rf_meaning_end(struct rf_meaning *m);
void rf_meaning_next(struct rf_meaning *m);

/* Fails with RF_EINVAL. The message begins with the rank, the instruction, and its parameters. */
int rf_check_fail(const struct rf_plan *plan, const struct rf_instruction *i, const char *format,
                  ...) __attribute__((format(printf, 3, 4)));

/* roles.c. Checks that each operand of an instruction has the role that follows from what it is,
 * and that roles are in the form that the executor reads. */
RF_MUST_CHECK int rf_check_roles(const struct rf_plan *plan, const struct rf_instruction *i);

/* A value or a piece as text, with its parameters unless rf_check_fail has already named them (i:
 * the instruction of that message; NULL: none). Returns text. */
#define RF_CHECK_TEXT 224
const char *rf_check_value(const struct rf_plan *plan, const struct rf_instruction *i, int value,
                           char text[RF_CHECK_TEXT]);
const char *rf_check_piece(const struct rf_plan *plan, const struct rf_instruction *i, int piece,
                           char text[RF_CHECK_TEXT]);

#endif
