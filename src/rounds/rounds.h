/* SPDX-License-Identifier: MIT
 *
 * Rounds: what their files share.
 */
#ifndef RF_ROUNDS_ROUNDS_H
#define RF_ROUNDS_ROUNDS_H

#include <pthread.h>
#include <ringforge/rounds.h>

#include "base/base.h"

/* A part of the parameters: the range that one exchange is about. */
struct part {
    int64_t first, count;
    int64_t due;    /* exchanged in steps whose number is this, modulo `every` */
    int64_t number; /* of its exchange that is in progress, over all parts; -1: none */
    int64_t begun;  /* the step in which that began */
    double share;
    int32_t said[RF_ROUNDS_WORDS],
        heard[RF_ROUNDS_WORDS];     /* with its exchange, by this rank and the largest of all */
    struct rf_step_scalars scalars; /* of the outer optimizer */
};

struct rf_rounds {
    struct rf_comm *comm;
    struct rf_rounds_params params;
    struct rf_rounds_rule rule; /* with pointers into the next three */
    struct rf_optimizer_opts outer;
    double *weights;
    /* By communicators before this one, and on this one before the rounds had it. */
    uint64_t sent_before, sent_at_start;

    /* Arrays of params.count values. */
    float *local;    /* at the end of the round; then what becomes of it */
    float *anchor;   /* at the start of the round; NULL: the rule does not need it */
    float *value;    /* what is exchanged */
    float *mean;     /* what the exchange brings */
    float *feedback; /* NULL: nothing is lost */
    float *owned;    /* feedback of the sums that this rank sends; NULL: it sends none */
    float *warm;     /* factors of the exchange before; NULL: the form has none */
    float *state[RF_STATE_COUNT];
    int32_t *decay; /* of a part: 1 for each 64 values, as the outer optimizer decays them all */
    float *scratch;
    float *memory;                 /* all of them */
    struct rf_round_shape *shapes; /* if the form has factors */
    int shape_count;
    double *shares; /* of all ranks, in the exchange */
    uint64_t message_bytes;
    unsigned char *messages;

    struct part *parts;
    int64_t step, begun, applied; /* local steps, and exchanges */
    double share;                 /* of the last step */
    bool unfinished;              /* it has failed: what is due in it is done by rf_rounds_move */
    /* Exchanges of which this rank has all data, and of which it knows that all ranks do. */
    int64_t complete, committed;
    int32_t said[RF_ROUNDS_WORDS],
        heard[RF_ROUNDS_WORDS]; /* for the next exchange, and with the last that took effect */
    struct rf_rounds_stats stats;
    int32_t newest[RF_ROUNDS_WORDS]; /* with the last exchange that was committed */

    /* With a delay, exchanges are made by a thread, in order. */
    bool has_thread, ends;
    pthread_t thread;
    pthread_mutex_t lock; /* of the numbers of parts, complete, committed and the rest */
    pthread_cond_t changed;
    int64_t asked;         /* the thread may make the exchanges below */
    struct rf_error error; /* of the thread, or of an exchange without one */
};

/* ---- exchange.c ------------------------------------------------------------------------------ */

/* Reads the parameters of a part, and makes what is sent. */
int rf_rounds_begin(struct rf_rounds *rounds, struct part *part);
/* Runs the list of a part. May be called by the thread of the rounds. */
int rf_rounds_exchange(struct rf_rounds *rounds, struct part *part);
/* Writes what the exchange of a part has brought. */
int rf_rounds_apply(struct rf_rounds *rounds, struct part *part);

/* ---- thread.c -------------------------------------------------------------------------------- */

/* Starts the thread that makes the exchanges of a rule with a delay; does nothing without one. */
int rf_rounds_thread_start(struct rf_rounds *rounds);
void rf_rounds_thread_end(struct rf_rounds *rounds);
/* Lets the thread make the exchanges below this number. */
void rf_rounds_ask(struct rf_rounds *rounds, int64_t number);
/* Blocks until the exchange of this number has ended; returns its error. */
int rf_rounds_wait(struct rf_rounds *rounds, int64_t number);

/* ---- progress.c ------------------------------------------------------------------------------ */

void rf_rounds_set_progress(struct rf_rounds *rounds, int64_t complete, int64_t committed);
void rf_rounds_number(struct rf_rounds *rounds, struct part *part, int64_t number);

/* ---- rounds.c -------------------------------------------------------------------------------- */

/* Messages and shares, for the ranks of the communicator. */
int rf_rounds_make_room(struct rf_rounds *rounds);
int rf_rounds_compare_rules(const struct rf_rounds *rounds);

/* ---- usage.c --------------------------------------------------------------------------------- */

/* How many of `count` values a part has; all but the last ones have as many as part 0. */
int64_t rf_rounds_part_count(const struct rf_rounds_rule *rule, int64_t count, int part);

#endif
