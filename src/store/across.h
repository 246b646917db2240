/* SPDX-License-Identifier: MIT
 *
 * Stores without servers across hosts: each rank has an equal range of the parameters in a window
 * (transport/window.h), on which all ranks work by one-sided operations. across.c divides pushes
 * and pulls; a form says what they do to the memory of a rank.
 */
#ifndef RF_STORE_ACROSS_H
#define RF_STORE_ACROSS_H

#include "store.h"
#include "transport/window.h"

/* Consecutive parameters of one rank: `count` from the first-th of its range on, whose values are
 * the at-th and later ones of the keys. */
struct rf_store_part {
    int rank;
    int64_t first, count, at;
};

/* Of one call of a form. */
enum { RF_STORE_PARTS = 512, RF_STORE_PART_VALUES = 1 << 16 };

/* Of a call on the store. */
struct rf_store_job {
    const float *from; /* initial values, or a gradient */
    float *to;         /* pulled values */
    float lr, factor;
    uint64_t kept;          /* additions that are in the parameters */
    uint64_t written, read; /* bytes in the memory of other ranks */
};

/* A function of a form does one thing to all parts, and waits until it is done. */
typedef int rf_store_do(struct rf_store *store, const struct rf_store_part *parts, int count,
                        struct rf_store_job *job);

struct rf_store_form {
    const char *path; /* for people */
    enum rf_window_op needs[2];
    /* Bytes of a rank's memory for a range of `count` parameters; of room for one call. */
    uint64_t (*memory)(int ranks, int64_t count);
    uint64_t (*room)(int ranks);
    rf_store_do *fill, *push, *pull;
    int (*open)(struct rf_store *store); /* before fill; NULL: nothing to do */
    int (*seal)(struct rf_store *store); /* after fill; NULL: nothing to do */
    rf_store_do *count;                  /* adds to job.kept; NULL: nothing is ever lost */
    /* Adds to job.written and job.read what a push and a pull of the parts cost. Pure: of the store
     * it reads rank and ranks. */
    rf_store_do *plan;
};

extern const struct rf_store_form rf_store_atomic, rf_store_racing, rf_store_versioned;

struct rf_store_across {
    struct rf_window *window;
    const struct rf_store_form *form;
    uint64_t head; /* bytes before the parameters */
    void *room;
    char path[160];
    /* versioned.c: what this rank has written, as it is in the memory of others. */
    struct rf_store_block *mine;
    int64_t *first_block; /* [ranks] of each rank's range in it */
};

/* -lr times the gradient, with the roundings that all stores without servers have. */
static inline float rf_store_change(const struct rf_store_job *job, float gradient)
{
    return -(job->lr * (gradient * job->factor));
}

#endif
