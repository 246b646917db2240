/* SPDX-License-Identifier: MIT
 *
 * What values hold while the checker runs lists on symbols. Every write says what a value holds
 * from then on, and makes invalid what shares its memory; every read demands what it has to find.
 * Shared by tokens.c and the files meaning*.c.
 */
#ifndef RF_PARALLEL_MEANING_H
#define RF_PARALLEL_MEANING_H

#include "check.h"

/* What a value holds. */
enum rf_token_state {
    RF_TOKEN_NOTHING = 0,
    RF_TOKEN_HELD,    /* what its kind says */
    RF_TOKEN_PARTLY,  /* of what a call makes: phases are still to come */
    RF_TOKEN_BROUGHT, /* of an exchange: this rank's, not yet exchanged */
    RF_TOKEN_CARRIED, /* of the last output: its own gradient */
    RF_TOKEN_KNOWN,   /* of scalars: with the token count */
    RF_TOKEN_BEGUN,   /* of scalars: with norm and clipping */
    RF_TOKEN_MOVED,   /* of scalars: the loss scale as well */
    RF_TOKEN_OURS,    /* of partial norms: those of this rank's chunks alone */
    RF_TOKEN_SHARED,  /* and those of the groups that have shared them so far */
    RF_TOKEN_UPDATED, /* of parameters, copies and states: after the step */
    RF_TOKEN_CLEARED, /* of gradients: no micro-batch yet */
    RF_TOKEN_SUM,     /* of gradients: of some micro-batches */
    RF_TOKEN_TOTAL    /* of gradients: of all micro-batches of all ranks */
};

struct rf_token {
    enum rf_token_state state;
    bool read;     /* since it was written */
    int low, high; /* RF_TOKEN_SUM: micro-batches, by global index */
    int ties;      /* RF_TOKEN_TOTAL: tied uses that were added */
    int homes;     /* and ranks with other blocks whose uses were; -1: sent to one, not yet back */
    bool normed;   /* it is in the norm */
    bool summed;   /* RF_TOKEN_TOTAL: over the tensor ranks, too */
    int shares;    /* of partial norms: groups that have shared them */
    /* Of values that are made in phases, and of exchanges: which phase of which call wrote it. */
    enum rf_verb call;
    int phase;
    int step;        /* of inputs and activations: which they are of */
    bool gathered;   /* of a shard of parameters: the others have it, too */
    uint8_t *counts; /* RF_TOKEN_SUM: per block, micro-batch and half: how often it is in */
};

struct rf_meaning {
    const struct rf_plan *const *plans;
    int ranks;
    struct rf_token **tokens; /* per rank, by value */
    bool *used;               /* of the operands of one instruction: it had to be there */
    int used_capacity;
    uint8_t *sum;         /* what a group's gradients have together, as the counts of a token */
    int unread;           /* a value that was overwritten before anyone had read it; -1: none */
    enum rf_list_id list; /* that runs */
    int begun;            /* steps that began in lists before it */
    int **updates;        /* per rank, by piece: how many its parameters have had */
};

struct rf_at { /* one instruction on one rank */
    struct rf_meaning *m;
    const struct rf_plan *plan;
    const struct rf_instruction *i;
    struct rf_token *tokens;
};

/* tokens.c */

/* Bytes of the counts of a sum. */
size_t rf_token_count_bytes(const struct rf_plan *plan);
bool rf_token_is_param(enum rf_value_kind kind);
/* Gradients, whole or in part: their tokens count. */
bool rf_token_is_sum(enum rf_value_kind kind);

/* What a value holds from now on. */
void rf_token_put(const struct rf_at *a, int value, enum rf_token_state state);

/* An instruction has the operands that it needs, each once, and no others: between begin and end
 * all of them are asked for. */
RF_MUST_CHECK int rf_token_begin_operands(const struct rf_at *a);
RF_MUST_CHECK int rf_token_end_operands(const struct rf_at *a);
void rf_token_use_all(const struct rf_at *a);

/* The operand of this kind and these places (-1: any) that was not asked for yet; -1: there is
 * none. */
int rf_token_operand(const struct rf_at *a, bool out, enum rf_value_kind kind, int block,
                     int micro_batch, int piece);
RF_MUST_CHECK int rf_token_demand(const struct rf_at *a, int value, enum rf_token_state state);
RF_MUST_CHECK int rf_token_read(const struct rf_at *a, enum rf_value_kind kind, int block,
                                int micro_batch, enum rf_token_state state);
RF_MUST_CHECK int rf_token_write(const struct rf_at *a, enum rf_value_kind kind, int block,
                                 int micro_batch, enum rf_token_state state);

/* meaning_blocks.c: calls of blocks, and sums of their gradients. */
RF_MUST_CHECK int rf_meaning_forward(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_backward(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_zero(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_merge(const struct rf_at *a);
/* Both halves of all of its micro-batches are in a piece's sum, for every block that has a part. */
RF_MUST_CHECK int rf_token_check_whole(const struct rf_at *a, int value);
/* A sum over ranks or rounds: nothing is in it twice; with everything in it, it is the total. */
RF_MUST_CHECK int rf_token_complete(const struct rf_at *a, int value);
/* All operands are of this kind of gradients. */
RF_MUST_CHECK int rf_token_check_gradients(const struct rf_at *a, enum rf_value_kind kind);

/* meaning_phases.c */

/* A value of the call's block or another, and its micro-batch, that the call makes: it is `whole`
 * after the last phase. The first one finds `first` in it; RF_TOKEN_NOTHING: does not read it. */
RF_MUST_CHECK int rf_phase_value(const struct rf_at *a, enum rf_value_kind kind, int block,
                                 enum rf_token_state first, enum rf_token_state whole);
/* Of a call's phase: what the exchange before it gave, and what it brings to the next one. */
RF_MUST_CHECK int rf_phase_exchanges(const struct rf_at *a);
/* One rank's part in an exchange. */
RF_MUST_CHECK int rf_meaning_exchange(const struct rf_at *a);

/* meaning_version.c */

/* Of which step an instruction is, counted from 0. */
int rf_lag_step(const struct rf_at *a);
/* What it reads is of its step; what it has written is from now on. */
RF_MUST_CHECK int rf_lag_check_steps(const struct rf_at *a);
void rf_lag_mark_steps(const struct rf_at *a);
/* Without a flush a call sees, in this value of parameters, the version of its step. */
RF_MUST_CHECK int rf_lag_check_version(const struct rf_at *a, int value);

/* meaning_lag.c: inputs and gradients of two steps. */
RF_MUST_CHECK int rf_lag_load(const struct rf_at *a);
RF_MUST_CHECK int rf_lag_hold(const struct rf_at *a);

/* meaning_spill.c: an evict or a fetch that copies activations. */
bool rf_meaning_is_spill(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_spill(const struct rf_at *a);

/* meaning_update.c */
RF_MUST_CHECK int rf_meaning_tie(const struct rf_at *a);
/* Gradients of a parameter that ranks with other blocks use, too: sent, and received. */
RF_MUST_CHECK int rf_meaning_send_shared(const struct rf_at *a, int value);
RF_MUST_CHECK int rf_meaning_take_shared(const struct rf_at *a, int value, const struct rf_at *from,
                                         int sent);
/* Gradients of own rows, over the tensor ranks. */
RF_MUST_CHECK int rf_meaning_tensor_sum(const struct rf_at *a);
/* The lanes over which partial norms are shared, in order; returns how many there are. */
int rf_meaning_norm_lanes(const struct rf_plan *plan, enum rf_lane lanes[3]);
RF_MUST_CHECK int rf_meaning_norm_partial(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_norm(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_begin_step(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_step(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_end_step(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_cast(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_fetch(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_evict(const struct rf_at *a);
RF_MUST_CHECK int rf_meaning_host_step(const struct rf_at *a);

#endif
