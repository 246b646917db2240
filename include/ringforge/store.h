/* SPDX-License-Identifier: MIT
 *
 * A store: f32 parameters that workers share, for training without a step that all of them wait
 * for. A worker pulls the parameters that it needs, and pushes gradients of them; the store
 * updates. The parameters lie in memory that the ranks of a host share (Hogwild, Recht et al.
 * 2011).
 *
 * A store is not a replacement for collectives: each rank calls push and pull when it likes.
 */
#ifndef RINGFORGE_STORE_H
#define RINGFORGE_STORE_H

#include "comm.h"
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- keys ------------------------------------------------------------------------------------ */

/* Which parameters a push or a pull is about: `count` rows of `width` parameters of a table that
 * begins at parameter `first`. Row k is rows[k]; the rows ascend, each once. rows NULL: the rows 0
 * to count - 1. Values travel in the order of the keys. */
struct rf_store_keys {
    int64_t first, width, count; /* width: 0 = 1 */
    const int64_t *rows;
};

/* The parameters first to first + count - 1. */
RF_EXPORT struct rf_store_keys rf_store_range(int64_t first, int64_t count);

/* The number of values of the keys; -1: they overflow. */
RF_EXPORT int64_t rf_store_values(const struct rf_store_keys *keys);

/* ---- rules ----------------------------------------------------------------------------------- */

enum rf_store_rule {
    RF_STORE_HOGWILD = 0, /* every rank adds to the parameters by atomic operations: no addition is
                           * lost */
    RF_STORE_RACY,        /* the same by plain loads and stores: an addition may be lost to another
                           * one that happens at the same time. Losses are counted */
    RF_STORE_RULE_COUNT
};

/* "hogwild", ...; NULL: there is no such rule. */
RF_EXPORT const char *rf_store_rule_name(enum rf_store_rule rule);

/* Zero is the default of every field. */
struct rf_store_opts {
    enum rf_store_rule rule;
    int64_t count;        /* of parameters */
    const float *initial; /* (count) on rank 0; NULL there: zeros. Other ranks' is not read */
};

/* Reads a rule as `train --sync` has it, "hogwild", "hogwild:racy": sets what it says in *out and
 * nothing else. RF_EINVAL: what is not understood is named. */
RF_API int rf_store_text_read(const char *text, struct rf_store_opts *out);

/* ---- a store --------------------------------------------------------------------------------- */

struct rf_store;

/* Opens a store. All ranks pass equal options; those that differ are named. Uses comm in this call
 * only. Collective; blocking. Errors: RF_EINVAL, RF_ENOMEM, RF_ENOTSUP (shared memory, and ranks on
 * several hosts), those of a communicator. */
RF_API int rf_store_open(struct rf_comm *comm, const struct rf_store_opts *opts,
                         struct rf_store **out);

/* Leaves the store, and frees what this rank has of it. Does not wait for other ranks, which may
 * continue. NULL is allowed. */
RF_EXPORT void rf_store_close(struct rf_store *store);

struct rf_store_update {
    float lr;     /* rate of the update; 0 = 1 */
    double share; /* the gradient is divided by it: samples, tokens; 0 = 1 */
};

/* Pushes a gradient: the values of the keys, f32. The parameters become p - lr (g / share). Values
 * that are not finite: RF_EINVAL, and nothing is pushed. update may be NULL. One thread at a time
 * uses a store. */
RF_API int rf_store_push(struct rf_store *store, const struct rf_store_keys *keys,
                         const float *gradient, const struct rf_store_update *update);

/* Copies the parameters of the keys to `values`. Others may write them meanwhile: each value is one
 * that the parameter had, but two of them may be of different times. */
RF_API int rf_store_pull(struct rf_store *store, const struct rf_store_keys *keys, float *values);

struct rf_store_stats {
    int64_t pushes, pulls; /* of this rank */
    /* Of all ranks, as they are now: additions to single parameters, and those of them that a later
     * one has overwritten. Exact while nobody pushes, and up to 2^32 additions to one parameter. */
    uint64_t additions, lost;
};

RF_API int rf_store_get_stats(struct rf_store *store, struct rf_store_stats *out);

#ifdef __cplusplus
}
#endif
#endif
