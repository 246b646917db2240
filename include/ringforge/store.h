/* SPDX-License-Identifier: MIT
 *
 * A store: f32 parameters that workers share, for training without a step that all of them wait
 * for. A worker pulls the parameters that it needs, and pushes gradients of them; the store
 * updates. The parameters lie on servers, or the workers change them themselves (Hogwild, Recht et
 * al. 2011): in memory that the ranks of a host share, or across hosts in parts of each rank's
 * memory, by one-sided operations of the network.
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
    /* On servers. A push is an update of the whole store by a worker; what it has no keys of gets a
     * gradient of zero from it.
     *   SYNC: once every worker has pushed, the gradients are added in tree order, pairwise by
     * rank, as RF_ORDER_TREE does, and applied together. A pull gets the parameters behind the last
     * push of its worker. Bits are those of data-parallel training in tree order. ASYNC: a gradient
     * is applied when it comes, to the parameters that it has keys of. STALE: as ASYNC, and a pull
     * waits until the slowest worker has pushed at most `stale` times less often than this one
     * (stale synchronous parallel, Ho et al. 2013). */
    RF_STORE_SYNC = 0,
    RF_STORE_ASYNC,
    RF_STORE_STALE,
    /* Without servers: every rank adds -lr times the gradient itself, as plain SGD.
     *   HOGWILD: by atomic operations, or across hosts by writes that no other rank overwrites. No
     * addition is lost.
     *   RACY: by loads and stores. An addition may be lost to another one that happens at the same
     * time. Losses are counted. */
    RF_STORE_HOGWILD,
    RF_STORE_RACY,
    RF_STORE_RULE_COUNT
};

/* "sync", ...; NULL: there is no such rule. */
RF_EXPORT const char *rf_store_rule_name(enum rf_store_rule rule);

/* Whether parameters lie on servers. */
RF_EXPORT bool rf_store_has_servers(enum rf_store_rule rule);

/* What servers have beside the parameters, in memory of a worker: with these a checkpoint of the
 * caller's own continues with any number of workers and servers. */
struct rf_store_state {
    int64_t version, updates;      /* of all, and those of them that the optimizer has made */
    float *states[RF_STATE_COUNT]; /* of the optimizer, `count` values each; NULL: not wanted, or
                                      not given: zeros */
};

/* Zero is the default of every field. */
struct rf_store_opts {
    enum rf_store_rule rule;
    int64_t count;        /* of parameters; at most 2^40 - 1 on servers */
    const float *initial; /* (count) on rank 0; NULL there: zeros. Other ranks' is not read */
    /* On servers only: */
    int servers;   /* 0 = 1. The last ranks, each with a range of count / servers parameters */
    int64_t stale; /* RF_STORE_STALE */
    /* The optimizer of the servers; NULL: SGD. It decays all parameters but those of `undecayed`,
     * ascending ranges without rows. */
    const struct rf_optimizer_opts *optimizer;
    const struct rf_store_keys *undecayed;
    int undecayed_count;
    /* RF_STORE_SYNC: ranges, without rows, whose gradients are sums of several, such as those of
     * the uses of a tied parameter. Each is added over the workers before it is added to the
     * others: first those of `gradient` of a push, and then those of `terms` in this order. */
    const struct rf_store_keys *terms;
    int term_count;
    const struct rf_store_state *state; /* on rank 0: servers continue from it, with `initial` */
    const char *folder; /* of a server's state, for rf_store_save and `restore`; NULL: none */
    bool restore;       /* servers continue from what they saved last; `initial` is not read */
    /* The longest silence of a worker or a server, after which it counts as lost; 0 = the
     * shortest that the ranks have for the communicator. */
    double timeout_s;
};

/* The range of a server, from 0: all have equal numbers of parameters, to 1. Pure. */
RF_EXPORT void rf_store_shard(const struct rf_store_opts *opts, int server, int64_t *first,
                              int64_t *count);

/* What a step of all workers costs, in which each pushes and pulls all parameters. Bytes of shared
 * memory are not sent. */
struct rf_store_usage {
    uint64_t value_bytes;                /* pushed, and pulled, by a worker */
    uint64_t sent_bytes, received_bytes; /* by a worker, with heads and keys */
    /* By the first server, which has the largest range; and its memory. Without servers, that which
     * the ranks share. */
    uint64_t server_sent_bytes, server_received_bytes, memory_bytes;
    int messages; /* one after the other that a worker waits for */
};

/* opts->initial and opts->state are not read. Pure. Errors: RF_EINVAL. */
RF_API int rf_store_usage(const struct rf_store_opts *opts, int workers,
                          struct rf_store_usage *out);

/* The same of a rank of a store without servers across hosts: bytes that it writes to the memory of
 * other ranks, and reads there; its memory. atomic: the provider adds and reads f32 atomically;
 * otherwise it only reads and writes, and blocks that are read again cost more. Pure. */
RF_API int rf_store_usage_across(const struct rf_store_opts *opts, int ranks, int rank, bool atomic,
                                 struct rf_store_usage *out);

/* Reads a rule as `train --sync` has it: "server", "server:async", "server:stale=3", "hogwild" or
 * "hogwild:racy"; with servers also ",servers=2". Sets what it says in *out and nothing else.
 * RF_EINVAL: what is not understood is named. */
RF_API int rf_store_text_read(const char *text, struct rf_store_opts *out);

/* ---- a store --------------------------------------------------------------------------------- */

struct rf_store;

/* Opens a store. All ranks pass equal options; those that differ are named. Uses comm in this call
 * only: the store has connections of its own. Without servers, and with ranks on several hosts,
 * comm's provider is one of libfabric that has one-sided operations; with atomic operations on f32
 * HOGWILD adds by them, otherwise each rank writes sums of its own, which pulls add up. Collective;
 * blocking. Errors, on all ranks: RF_EINVAL, RF_ENOMEM, RF_ENOTSUP (the provider lacks an
 * operation), RF_EIO and RF_ECORRUPT (nothing to restore), those of a communicator. */
RF_API int rf_store_open(struct rf_comm *comm, const struct rf_store_opts *opts,
                         struct rf_store **out);

/* Leaves the store, and frees what this rank has of it. Does not wait for other workers, which may
 * continue; but across hosts without servers a rank has a part of the store, and waits until all
 * others close it, at most for the communicator's timeout. NULL is allowed. */
RF_EXPORT void rf_store_close(struct rf_store *store);

/* This rank gives up, and closes the store next, without waiting. Those that need it get RF_EABORT,
 * or on servers count it as lost. */
RF_EXPORT void rf_store_abort(struct rf_store *store, const char *why);

/* How parameters are reached, for people: "memory that the ranks share". */
RF_EXPORT const char *rf_store_path(const struct rf_store *store);

/* Which server this rank is, from 0; -1: a worker. */
RF_EXPORT int rf_store_server(const struct rf_store *store);

/* ---- workers --------------------------------------------------------------------------------- */

/* One thread at a time uses a store. If a server dies, is silent for timeout_s or gives up, the
 * call that needs it fails (RF_EPEER, RF_ETIMEOUT, RF_EABORT) with a message that names it, and
 * each later one is RF_EABORT. Then open a store again, with `restore`. If another worker is lost,
 * the servers continue without it, and this one does not notice. Across hosts without servers every
 * rank has a part of the parameters, and the loss of any ends the store in the same way. */

struct rf_store_update {
    float lr;     /* rate of the update; 0 = 1. With SYNC all workers have the same */
    double share; /* samples, tokens: the gradient, or the sum of gradients, is divided by it, or by
                   * the sum of all shares; 0 = 1 */
    /* The values of the ranges of rf_store_opts.terms, one after the other, whatever the keys
     * are. NULL: zeros, or there are no such ranges. */
    const float *terms;
};

/* Pushes a gradient: the values of the keys, f32. Values that are not finite: RF_EINVAL, and
 * nothing is pushed. update may be NULL. Servers are not waited for; without servers the gradient
 * is in the store when the call returns. */
RF_API int rf_store_push(struct rf_store *store, const struct rf_store_keys *keys,
                         const float *gradient, const struct rf_store_update *update);

/* Copies the parameters of the keys to `values`. On servers: waits as the rule says, and until the
 * ranges that the keys are in have had `least` updates (their versions; 0: any). RF_EINVAL: no
 * other worker is left that could bring that. Parameters of one server are of one version. Without
 * servers `least` must be 0, and others may write meanwhile: each value is one that the parameter
 * had, but two may be of different times. */
RF_API int rf_store_pull(struct rf_store *store, const struct rf_store_keys *keys, int64_t least,
                         float *values);

/* This worker pushes no more: others do not wait for it, as if it had left, but it may still pull,
 * save and ask. note: 0 or more; the largest of all workers is in the statistics of each one that
 * pulls behind it, for what they agree on (a request to end, for example). */
RF_API int rf_store_finish(struct rf_store *store, int note);

/* Copies what servers have to *out. With SYNC it is behind this worker's last push; it is of one
 * version if no worker pushes meanwhile. The numbers are the largest of all servers. */
RF_API int rf_store_read_state(struct rf_store *store, struct rf_store_state *out);

/* All servers write their state to `folder`, durably, and keep the one before. With SYNC these are
 * the states of one version, that behind the last push of this worker, if the worker has not pushed
 * again. Blocks until all are written. */
RF_API int rf_store_save(struct rf_store *store);

struct rf_store_stats {
    int64_t pushes, pulls; /* of this rank */
    int note;              /* of rf_store_finish, as of the last pull */
    /* With servers, of this rank: bytes of values pushed and pulled, of all else in messages, the
     * lowest version of the last pull, and the time that calls took. Across hosts without servers:
     * bytes written to and read from the memory of other ranks, and the time. */
    uint64_t pushed_bytes, pulled_bytes, other_bytes;
    int64_t version;
    uint64_t wait_ns;
    /* Without servers, of all ranks, as they are now: additions to single parameters, and those of
     * them that a later one has overwritten. Exact while nobody pushes, and up to 2^32 additions to
     * one parameter. */
    uint64_t additions, lost;
};

RF_API int rf_store_get_stats(struct rf_store *store, struct rf_store_stats *out);

/* ---- servers --------------------------------------------------------------------------------- */

enum { RF_STORE_BUCKETS = 32 }; /* the last one counts all that is larger, too */

struct rf_store_server_stats {
    int64_t version;                /* updates, those before the last restore included */
    int64_t updates;                /* those of them that the optimizer has made */
    int64_t pushes, pulls, skipped; /* skipped: sums that are not finite, which change nothing */
    uint64_t pushed_bytes, pulled_bytes, other_bytes;
    int32_t workers, lost; /* connected; lost so far */
    /* Pushes by their staleness: updates since the pull before. Pulls by their lag: pushes of this
     * worker less those of the slowest one that is connected. With STALE at most `stale`. */
    int64_t staleness[RF_STORE_BUCKETS], lag[RF_STORE_BUCKETS];
    int64_t most_stale, most_lag;
};

/* A server works until all workers have closed the store or are lost. Each worker has a thread
 * here. RF_EIO and the like: the server has given up, and the workers get the message. stats may be
 * NULL.
 */
RF_API int rf_store_serve(struct rf_store *store, struct rf_store_server_stats *stats);

/* A worker asks a server. */
RF_API int rf_store_ask(struct rf_store *store, int server, struct rf_store_server_stats *out);

#ifdef __cplusplus
}
#endif
#endif
