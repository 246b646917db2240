/* SPDX-License-Identifier: MIT
 *
 * What a server has: its range of the parameters, the states of its optimizer, and what it knows of
 * each worker. All calls lock it; they are made by the threads of the workers.
 */
#ifndef RF_STORE_SHARD_H
#define RF_STORE_SHARD_H

#include "message.h"
#include "store.h"

#include <ringforge/host_step.h>

/* A worker, as the server sees it. */
struct rf_store_seat {
    bool live;      /* others wait for its pushes */
    int64_t clock;  /* its pushes */
    int64_t pulled; /* the version of its last pull */
    /* RF_STORE_SYNC: its gradient of the version that is to come. */
    bool staged, dirty; /* dirty: the stage is not all zeros */
    float *stage;       /* (width) */
    float lr;
    double share;
};

struct rf_store_shards {
    enum rf_store_rule rule;
    struct rf_optimizer_opts optimizer;
    int64_t stale, total; /* total: parameters of the store */
    const char *folder;
    int server, servers, workers;
    int64_t first, count; /* its range */
    /* Terms of gradients, behind the `count` values of a gradient; `from` is the place there. */
    struct rf_store_term *terms;
    int term_count;
    int64_t width; /* count, and the values of all terms */
    uint64_t timeout_ns;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t changed_ns; /* when it last did */
    float *memory, *param, *state[RF_STATE_COUNT];
    int32_t *decay[2];                /* 0, and 1, for each 64 parameters */
    struct rf_store_piece *undecayed; /* ranges of the shard, ascending */
    int undecayed_count;
    struct rf_step_scalars scalars;
    struct rf_store_seat *seats;
    struct rf_store_server_stats stats; /* has the version */
    int note;                           /* the highest of all workers */
    int slot;                           /* file.c: of the last file; -1: none */
    pthread_mutex_t saving;
};

/* A request, whose parts have been checked. */
struct rf_store_request {
    int worker;
    const uint64_t *pieces;
    uint64_t number; /* of pieces */
    float **values;  /* a push may exchange the array for another one of `width` values */
    float lr;
    double share;
    int64_t least;
    uint64_t start_ns; /* of a pull: when it came */
};

RF_MUST_CHECK int rf_store_shard_create(const struct rf_store *store, struct rf_store_shards **out);
void rf_store_shard_destroy(struct rf_store_shards *shard); /* NULL is allowed */

/* Before the first request: the parameters and states are those of this version. */
void rf_store_shard_continue(struct rf_store_shards *shard, int64_t version, uint32_t updates);
/* Blocks with RF_STORE_SYNC until the worker's push before has been applied. RF_EMISMATCH: another
 * rate than other workers'. */
RF_MUST_CHECK int rf_store_shard_push(struct rf_store_shards *shard,
                                      const struct rf_store_request *request);
/* Fills version and status of the answer. RF_EAGAIN: the values are not there by `until_ns`.
 * RF_EINVAL: they never will be. RF_ETIMEOUT: nothing has changed for the store's timeout. */
RF_MUST_CHECK int rf_store_shard_pull(struct rf_store_shards *shard,
                                      const struct rf_store_request *request, uint64_t until_ns,
                                      struct rf_store_head *answer);
/* Copies a state of the optimizer behind this worker's last push. Fills version and status of the
 * answer. RF_EINVAL: the optimizer has no such state. */
RF_MUST_CHECK int rf_store_shard_read_state(struct rf_store_shards *shard, int worker, int state,
                                            float *values, struct rf_store_head *answer);
/* Under the lock: blocks until this worker's last push has been applied, with RF_STORE_SYNC.
 * RF_ETIMEOUT: nothing has changed for the store's timeout. */
RF_MUST_CHECK int rf_store_shard_settle(struct rf_store_shards *shard, int worker);
/* The worker pushes no more. */
void rf_store_shard_rest(struct rf_store_shards *shard, int worker, int note);
/* The worker has left, or is lost. */
void rf_store_shard_leave(struct rf_store_shards *shard, int worker, bool lost);
/* Adds what a connection has carried. */
void rf_store_shard_count(struct rf_store_shards *shard, uint64_t pushed, uint64_t pulled,
                          uint64_t other);
void rf_store_shard_report(struct rf_store_shards *shard, struct rf_store_server_stats *out);

/* ---- apply.c: under the lock ----------------------------------------------------------------- */

/* One update by values of some pieces. */
RF_MUST_CHECK int rf_store_apply(struct rf_store_shards *shard,
                                 const struct rf_store_request *request);
/* RF_STORE_SYNC: if every worker that is connected has a gradient here, they become one update. */
RF_MUST_CHECK int rf_store_fold(struct rf_store_shards *shard);

/* ---- file.c ---------------------------------------------------------------------------------- */

/* Writes the state behind the last push of this worker. Errors as rf_store_save. */
RF_MUST_CHECK int rf_store_shard_save(struct rf_store_shards *shard, int worker);
/* The versions in the two files of this server; -1: no sound file. */
void rf_store_shard_find(struct rf_store_shards *shard, int64_t versions[2]);
/* Takes the state from the file of this version. */
RF_MUST_CHECK int rf_store_shard_restore(struct rf_store_shards *shard, int64_t version);
/* Makes the folder. RF_EINVAL: it has a state already, which saves would replace. */
RF_MUST_CHECK int rf_store_shard_prepare(struct rf_store_shards *shard);

#endif
