/* SPDX-License-Identifier: MIT
 *
 * The table of verbs: names for print.c, checkers for meaning.c, arithmetic for work.c. The
 * executor has its own table (train/verbs.c).
 */
#ifndef RF_PARALLEL_VERBS_H
#define RF_PARALLEL_VERBS_H

#include "plan.h"

struct rf_at;

/* VERB(verb, name, checker, work)
 *   checker: checks the content that the instruction reads, and sets its results' (meaning.h).
 * NULL: other ranks take part, so meaning_transfer.c does it. work: its arithmetic and memory
 * traffic. NULL: a call of a block, which has costs; or transfers, host instructions and scalars,
 * which have none. */
#define RF_VERBS(VERB)                                                                             \
    VERB(LOAD, "load inputs", rf_meaning_load, NULL)                                               \
    VERB(ZERO, "zero gradients", rf_meaning_zero, rf_work_zero)                                    \
    VERB(FORWARD, "forward", rf_meaning_forward, NULL)                                             \
    VERB(RECOMPUTE, "recompute", rf_meaning_forward, NULL)                                         \
    VERB(INVERT, "invert", rf_meaning_invert, NULL)                                                \
    VERB(BACKWARD_INPUT, "backward input", rf_meaning_backward, NULL)                              \
    VERB(BACKWARD_WEIGHT, "backward weight", rf_meaning_backward, NULL)                            \
    VERB(MERGE, "merge gradients", rf_meaning_merge, rf_work_merge)                                \
    VERB(REDUCE, "reduce gradients", NULL, NULL)                                                   \
    VERB(LOSS, "share losses and token counts", NULL, NULL)                                        \
    VERB(TIE, "tie gradients", rf_meaning_tie, rf_work_tie)                                        \
    VERB(SQUARES, "squares of gradients", rf_meaning_squares, rf_work_squares)                     \
    VERB(NORM_PARTIAL, "partial norms", rf_meaning_norm_partial, rf_work_norm_partial)             \
    VERB(NORM_SHARE, "share partial norms", NULL, NULL)                                            \
    VERB(NORM, "global norm", rf_meaning_norm, NULL)                                               \
    VERB(BEGIN_STEP, "begin step", rf_meaning_begin_step, NULL)                                    \
    VERB(STEP, "optimizer step", rf_meaning_step, rf_work_step)                                    \
    VERB(END_STEP, "end step", rf_meaning_end_step, NULL)                                          \
    VERB(GATHER, "gather", NULL, NULL)                                                             \
    VERB(BROADCAST, "broadcast", NULL, NULL)                                                       \
    VERB(CAST, "cast", rf_meaning_cast, rf_work_cast)                                              \
    VERB(FETCH, "fetch", rf_meaning_fetch, NULL)                                                   \
    VERB(EVICT, "evict", rf_meaning_evict, NULL)                                                   \
    VERB(HOST_STEP, "optimizer step by the host", rf_meaning_host_step, NULL)                      \
    VERB(SEND, "send", NULL, NULL)                                                                 \
    VERB(RECV, "receive", NULL, NULL)                                                              \
    VERB(EXCHANGE, "exchange", NULL, NULL)                                                         \
    VERB(HOLD, "hold gradients", rf_meaning_hold, rf_work_hold)                                    \
    VERB(ZERO_WHOLE, "zero all gradients", rf_meaning_zero_whole, rf_work_zero_whole)              \
    VERB(READ, "read", rf_meaning_read, NULL)                                                      \
    VERB(WRITE, "write", rf_meaning_write, NULL)

#define RF_VERB_COUNT_ROW(verb, name, checker, work) +1
_Static_assert(0 RF_VERBS(RF_VERB_COUNT_ROW) == RF_VERB_COUNT, "a row for each verb");
#undef RF_VERB_COUNT_ROW

RF_MUST_CHECK int rf_meaning_load(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_zero(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_zero_whole(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_forward(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_invert(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_backward(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_merge(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_tie(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_squares(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_norm_partial(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_norm(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_begin_step(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_step(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_end_step(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_cast(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_fetch(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_evict(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_host_step(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_hold(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_read(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_write(const struct rf_at *a);

struct rf_work rf_work_zero(const struct rf_plan *plan, const struct rf_instruction *i);
struct rf_work rf_work_zero_whole(const struct rf_plan *plan, const struct rf_instruction *i);
struct rf_work rf_work_merge(const struct rf_plan *plan, const struct rf_instruction *i);
struct rf_work rf_work_tie(const struct rf_plan *plan, const struct rf_instruction *i);
struct rf_work rf_work_squares(const struct rf_plan *plan, const struct rf_instruction *i);
struct rf_work rf_work_norm_partial(const struct rf_plan *plan, const struct rf_instruction *i);
struct rf_work rf_work_step(const struct rf_plan *plan, const struct rf_instruction *i);
struct rf_work rf_work_cast(const struct rf_plan *plan, const struct rf_instruction *i);
struct rf_work rf_work_hold(const struct rf_plan *plan, const struct rf_instruction *i);

#endif
