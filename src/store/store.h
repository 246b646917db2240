/* SPDX-License-Identifier: MIT
 *
 * Stores: what their files share.
 */
#ifndef RF_STORE_STORE_H
#define RF_STORE_STORE_H

#include <ringforge/store.h>

#include "base/base.h"

/* How a kind of store does what the calls of the header say. Arguments have been checked. */
struct rf_store_kind {
    bool has_servers;
    /* Collective; what it fills it leaves for close, also after an error. */
    int (*open)(struct rf_store *store, struct rf_comm *comm);
    void (*close)(struct rf_store *store);
    int (*push)(struct rf_store *store, const struct rf_store_keys *keys, const float *gradient,
                const struct rf_store_update *update);
    int (*pull)(struct rf_store *store, const struct rf_store_keys *keys, int64_t least,
                float *values);
    int (*finish)(struct rf_store *store, int note);
    int (*get_stats)(struct rf_store *store, struct rf_store_stats *out);
    void (*give_up)(struct rf_store *store, const char *why); /* NULL: nobody needs to know */
    const char *(*path)(const struct rf_store *store);
};

struct rf_store {
    struct rf_store_opts opts;
    struct rf_optimizer_opts optimizer; /* what opts.optimizer points to */
    struct rf_store_keys *terms;        /* what opts.terms points to */
    char *folder;
    const struct rf_store_kind *kind;
    int rank, ranks, workers;    /* the last ranks - workers ranks are servers */
    struct rf_store_stats stats; /* what this rank counts */
    struct rf_store_shared *shared;
    struct rf_store_across *across;
    /* With servers: a worker's connections to all servers, or a server's to all workers. In each
     * the server is rank 0. NULL: not connected any more. */
    struct rf_comm **links;
    int64_t *numbers; /* [servers] of this worker's last request */
    bool failed;      /* this worker has lost a server */
    uint64_t *pieces; /* room for what a request has in front of its values */
    uint64_t most_pieces;
    struct rf_store_shards *shard; /* a server's */
};

/* ---- rule.c ---------------------------------------------------------------------------------- */

int rf_store_check(const struct rf_store_opts *opts, int ranks);

/* ---- keys.c ---------------------------------------------------------------------------------- */

/* Ranges of equal numbers, to 1: the part-th of them. */
void rf_store_divide(int64_t all, int parts, int part, int64_t *first, int64_t *count);
/* RF_EINVAL: they are outside of the store, or do not ascend. The message names `call`. */
int rf_store_check_keys(const char *call, const struct rf_store_keys *keys, int64_t count);
/* RF_EINVAL: a value is not finite. */
int rf_store_check_finite(const char *call, const float *values, int64_t count);

/* The ranges of consecutive parameters that keys consist of: rows in a row are one. */
struct rf_store_walk {
    const struct rf_store_keys *keys;
    int64_t row;
};
struct rf_store_piece {
    int64_t first, count;
};
bool rf_store_next(struct rf_store_walk *walk, struct rf_store_piece *out);

/* The part of range `index` of opts->terms that lies in the range of a server; false: nothing of
 * it, or there is no such range. */
struct rf_store_term {
    int64_t first, count; /* of the server's parameters */
    int64_t from;         /* among the values of all these ranges */
};
bool rf_store_term_of(const struct rf_store_opts *opts, int server, int index,
                      struct rf_store_term *out);

/* ---- memory.c: memory that all ranks of a communicator map ----------------------------------- */

struct rf_store_memory {
    int fd;
    void *base;
    size_t bytes;
};
/* Zeros. Collective; blocking. The memory exists as long as a rank maps it. An error is that of one
 * rank, and all ranks get it. */
int rf_store_memory_open(struct rf_comm *comm, size_t bytes, struct rf_store_memory *out);
void rf_store_memory_close(struct rf_store_memory *memory); /* fd -1 and NULL are allowed */

/* ---- agree.c --------------------------------------------------------------------------------- */

/* All ranks, or none: those that succeeded get an error if another one did not. `what`: the end of
 * the sentence "a store: another rank ...". Collective; blocking. */
int rf_store_agree(struct rf_comm *comm, int status, const char *what);

/* ---- the kinds: shared.c, across.c, servers.c ------------------------------------------------ */

extern const struct rf_store_kind rf_store_in_memory;
extern const struct rf_store_kind rf_store_across_hosts;
extern const struct rf_store_kind rf_store_on_servers;

#endif
