/* SPDX-License-Identifier: MIT
 *
 * The content of values while the checker executes lists symbolically. Every write sets the content
 * of a value, and invalidates values in the same memory. Every read checks that the content is what
 * the verb needs. Shared by tokens.c and the files meaning*.c.
 */
#ifndef RF_PARALLEL_MEANING_H
#define RF_PARALLEL_MEANING_H

#include "../plan/verbs.h"
#include "check.h"

/* The content of a value. */
enum rf_token_state {
    RF_TOKEN_NOTHING = 0,
    RF_TOKEN_HELD,       /* the content that its kind names */
    RF_TOKEN_PARTLY,     /* of a call's results: some phases are still to come */
    RF_TOKEN_LOCAL,      /* of an exchange: this rank's, not yet exchanged */
    RF_TOKEN_CARRIED,    /* of the last output: its own gradient */
    RF_TOKEN_KNOWN,      /* of scalars: with the token count */
    RF_TOKEN_BEGUN,      /* of scalars: with norm and clipping */
    RF_TOKEN_SCALED,     /* of scalars: the loss scale as well */
    RF_TOKEN_OWN_CHUNKS, /* of partial norms: only of this rank's chunks */
    RF_TOKEN_SHARED,     /* of partial norms: with those of groups that have shared them */
    RF_TOKEN_UPDATED,    /* of parameters, copies and states: updated by the step */
    RF_TOKEN_CLEARED,    /* of gradients: of no micro-batch yet; parts that calls overwrite are
                          * undefined */
    RF_TOKEN_ZEROS,      /* of gradients: of no micro-batch; all of it is 0 */
    RF_TOKEN_SUM,        /* of gradients: of some micro-batches */
    RF_TOKEN_TOTAL       /* of gradients: of all micro-batches of all ranks */
};

struct rf_token {
    enum rf_token_state state;
    bool read;     /* the value was read after it was written */
    int low, high; /* RF_TOKEN_SUM: micro-batches, by global index */
    int ties;      /* RF_TOKEN_TOTAL: number of tied uses that were added */
    int homes;     /* number of ranks with other blocks whose uses were added; -1: sent to one, not
                    * yet back */
    bool normed;   /* it is included in the norm */
    bool summed;   /* RF_TOKEN_TOTAL: added over the tensor ranks, too */
    int shares;    /* of partial norms: number of groups that have shared them */
    /* For results of phases, and exchanges: the phase and the call that wrote it. */
    enum rf_verb call;
    int phase;
    int step;        /* of inputs and activations: the step that they belong to */
    bool gathered;   /* of a shard of parameters: it was gathered */
    uint8_t *counts; /* RF_TOKEN_SUM: how often each block, micro-batch and half is included */
};

struct rf_meaning {
    const struct rf_plan *const *plans;
    int ranks;
    struct rf_token **tokens; /* per rank, by value */
    bool *used;               /* by operand of the current instruction: the verb needs it */
    int used_capacity;
    uint8_t *sum;         /* the combined counts of a group's gradients, like those of a token */
    int unread;           /* a value that was overwritten before it was read; -1: none */
    enum rf_list_id list; /* the current list */
    int begun;            /* number of steps begun in earlier lists */
    int **updates;        /* per rank, by piece: number of updates of its parameters or of blocks */
};

struct rf_at { /* one instruction on one rank */
    struct rf_meaning *m;
    const struct rf_plan *plan;
    const struct rf_instruction *i;
    struct rf_token *tokens;
};

/* tokens.c */

/* Size of the counts of a sum in bytes. */
size_t rf_token_count_bytes(const struct rf_plan *plan);
bool rf_token_is_param(enum rf_value_kind kind);
/* Whether values of this kind are gradients, whole or in part: their tokens have counts. */
bool rf_token_is_sum(enum rf_value_kind kind);

/* Sets the content of a value. */
void rf_token_put(const struct rf_at *a, int value, enum rf_token_state state);

/* Checks that an instruction has exactly the operands that it needs, each once. Between begin and
 * end the verb requests each of them. */
RF_MUST_CHECK int rf_token_begin_operands(const struct rf_at *a);
RF_MUST_CHECK int rf_token_end_operands(const struct rf_at *a);
void rf_token_use_all(const struct rf_at *a);

/* The operand with this key (-1: any) that was not requested yet; -1: none. */
int rf_token_operand(const struct rf_at *a, bool out, enum rf_value_kind kind, int block,
                     int micro_batch, int piece);
RF_MUST_CHECK int rf_token_demand(const struct rf_at *a, int value, enum rf_token_state state);
RF_MUST_CHECK int rf_token_read(const struct rf_at *a, enum rf_value_kind kind, int block,
                                int micro_batch, enum rf_token_state state);
RF_MUST_CHECK int rf_token_write(const struct rf_at *a, enum rf_value_kind kind, int block,
                                 int micro_batch, enum rf_token_state state);

/* meaning_blocks.c: calls of blocks, and sums of their gradients. */
/* Checks that a piece's sum has both halves of all its micro-batches, for every block with a part
 * of the piece. */
RF_MUST_CHECK int rf_token_check_whole(const struct rf_at *a, int value);
/* Completes a sum over ranks or rounds. Nothing may be included twice; a sum that includes
 * everything becomes the total. */
RF_MUST_CHECK int rf_token_complete(const struct rf_at *a, int value);
/* Checks that all operands are gradients of this kind. */
RF_MUST_CHECK int rf_token_check_gradients(const struct rf_at *a, enum rf_value_kind kind);

/* meaning_phases.c */

/* A result of the call, for its block or another one and its micro-batch. It becomes `whole` after
 * the last phase. Before the first phase it must be `first`; RF_TOKEN_NOTHING: the phase does not
 * read the value. */
RF_MUST_CHECK int rf_phase_value(const struct rf_at *a, enum rf_value_kind kind, int block,
                                 enum rf_token_state first, enum rf_token_state whole);
/* Checks the exchange before a call's phase, and sets the one after it. */
RF_MUST_CHECK int rf_phase_exchanges(const struct rf_at *a);
/* One rank's part of an exchange. */
RF_MUST_CHECK int rf_meaning_exchange(const struct rf_at *a);

/* meaning_version.c */

/* The step that an instruction belongs to, counted from 0. */
int rf_lag_step(const struct rf_at *a);
/* Checks that an instruction reads values of its step, and marks the values that it writes. */
RF_MUST_CHECK int rf_lag_check_steps(const struct rf_at *a);
void rf_lag_mark_steps(const struct rf_at *a);
/* In a pipeline without a flush: checks that this value of parameters has the version that the call
 * must see. */
RF_MUST_CHECK int rf_lag_check_version(const struct rf_at *a, int value);

/* meaning_lag.c: inputs and gradients of two steps. */
RF_MUST_CHECK int rf_lag_load(const struct rf_at *a);

/* meaning_spill.c: whether an evict or a fetch copies activations. */
bool rf_meaning_is_spill(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_spill(const struct rf_at *a);

/* meaning_update.c */
/* Gradients of a parameter that ranks with other blocks use, too: sent, or received. */
RF_MUST_CHECK int rf_meaning_send_shared(const struct rf_at *a, int value);
RF_MUST_CHECK int rf_meaning_take_shared(const struct rf_at *a, int value, const struct rf_at *from,
                                         int sent);
/* The sum of the gradients of each rank's own rows over the tensor ranks. */
RF_MUST_CHECK int rf_meaning_tensor_sum(const struct rf_at *a);
/* The lanes over which partial norms are shared, in order. Returns their number. */
int rf_meaning_norm_lanes(const struct rf_plan *plan, enum rf_lane lanes[3]);

#endif
