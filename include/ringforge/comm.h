/* SPDX-License-Identifier: MIT
 *
 * Communicators and collectives. A communicator joins `size` ranks: processes anywhere, or threads
 * of one process (loopback). It starts without Vulkan; device tensors come in through the calls
 * whose name ends in _tensor.
 *
 * Every rank must call the same operations in the same order on one communicator. Where two ranks
 * disagree, both get RF_EMISMATCH, naming both sides, within a second; when a peer dies, every
 * survivor gets RF_EPEER naming it within two. After either error the communicator is failed for
 * good: every later call returns RF_EABORT at once, and what waits on its timelines is released.
 *
 * Thread safety: one communicator belongs to one thread at a time. Several communicators may live
 * in one process. As long as one thread makes all calls on a communicator and on those split off
 * it, ranks that call them in different orders, and so wait for each other, get RF_EMISMATCH, too.
 * A thread that takes one of them over calls it (rf_comm_wait will do) before the first thread
 * waits in another one.
 */
#ifndef RINGFORGE_COMM_H
#define RINGFORGE_COMM_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_comm;
struct rf_loopback;
struct rf_request;
struct rf_registration;

enum rf_coll_op {
    RF_COLL_NONE = 0,
    RF_COLL_ALL_REDUCE,
    RF_COLL_REDUCE_SCATTER,
    RF_COLL_ALL_GATHER,
    RF_COLL_BROADCAST,
    RF_COLL_REDUCE,
    RF_COLL_GATHER,
    RF_COLL_SCATTER,
    RF_COLL_ALL_TO_ALL,
    RF_COLL_BARRIER,
    RF_COLL_SEND,
    RF_COLL_RECV,
    RF_COLL_FOREST_ALL_REDUCE, /* the tree-ordered gradient reduction of data-parallel training */
    RF_COLL_FOREST_REDUCE_SCATTER,
    RF_COLL_PREFIX_REDUCE_SCATTER,
    RF_COLL_OP_COUNT
};
RF_EXPORT const char *rf_coll_op_name(enum rf_coll_op op); /* "all_reduce", ... */

/* ---- starting and stopping ------------------------------------------------------------------- */

struct rf_comm_opts {
    int rank, size;       /* -1, 0: from the environment (RANK, WORLD_SIZE) or the URL */
    const char *provider; /* NULL or "auto", "shm" (shared memory), "tcp", "shm+net", ... */
    const char *key;      /* job key; NULL: RF_JOB_KEY. None: loopback addresses only */
    /* As all timeouts: infinity is none; RF_EINVAL where one is negative or not a number. */
    double start_timeout_s; /* for everybody to appear; 0 = 60 */
    double timeout_s;       /* for one operation without byte progress; 0 = 600 */
    bool checksum;          /* every message carries a checksum of its data, and one that arrives
                             * damaged is RF_ECORRUPT, naming sender and receiver, on all ranks.
                             * The same on every rank, else RF_EINVAL. Also by RF_CHECKSUM=1 */
};

/* Joins a job; blocks until all ranks have joined or the start timeout. URLs:
 *   self:                one rank, no network
 *   env:                 RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun, ringforge run)
 *   tcp://host:port      rank 0 listens there; rank and size from opts or the environment
 *   file:/path           rank 0 writes its address to the file; for ranks that share a file system
 * opts may be NULL. The dispositions of signals stay the program's: what libraries that are loaded
 * for the network install is put back before this returns. Errors: RF_EINVAL (rank outside the
 * world, unknown URL or provider), RF_EAUTH (wrong or missing job key), RF_EBUSY (port in use),
 * RF_ETIMEOUT (says who is missing), RF_ENET.
 */
RF_API int rf_comm_open(const char *url, const struct rf_comm_opts *opts, struct rf_comm **out);

/* Ranks as threads of this process, with a throttle and faults, for tests and trials. What is split
 * off, or survives, has links of its own that are as slow, and no faults. Each of `size` threads
 * calls rf_comm_open_loopback with its own rank. */
struct rf_loopback_opts {
    double latency_s;   /* of every message; 0 = none */
    double bytes_per_s; /* of every directed link; 0 = unlimited */
    /* faults, at most one: */
    int kill_rank; /* with kill_after_messages > 0: this rank goes silent and its control link
                      closes */
    uint64_t kill_after_messages;
    uint64_t drop_message, delay_message,
        corrupt_message;     /* the Nth message sent in the world; 0 = none */
    uint64_t damage_message; /* as corrupt_message, but what goes beside the data stays whole: only
                              * a checksum can tell. An empty message is spared */
    double delay_s;
};
RF_API int rf_loopback_create(int size, const struct rf_loopback_opts *opts,
                              struct rf_loopback **out);
RF_EXPORT void rf_loopback_destroy(struct rf_loopback *loopback); /* after its communicators */
RF_API int rf_comm_open_loopback(struct rf_loopback *loopback, int rank,
                                 const struct rf_comm_opts *opts, struct rf_comm **out);

/* Groups: one communicator for each color >= 0, of the ranks that give that color, ordered by key,
 * then by rank; a rank with a negative color gets NULL. Collective over comm, blocking. The new
 * communicator has the same provider, job key and timeout, its own connections, and lives on its
 * own: close it as any other, before or after comm. Errors as rf_comm_open and the collectives. */
RF_API int rf_comm_split(struct rf_comm *comm, int color, int key, struct rf_comm **out);

/* The same ranks in an order in which as many groups of `together` neighbours as possible lie
 * within a host: of each host the ranks that fill such groups, in their order, then those that are
 * left over of all hosts; hosts in the order of their first ranks. Rank 0 stays rank 0. *out is a
 * communicator as of rf_comm_split; NULL: the order is that of comm already. together divides the
 * ranks. Collective over comm, blocking. Errors: RF_EINVAL, those of rf_comm_split. */
RF_API int rf_comm_by_host(struct rf_comm *comm, int together, struct rf_comm **out);

/* The survivors: a communicator of the ranks of comm that are alive and call this too, in their
 * order in comm, with its provider, job key and settings. For after a failure (RF_EPEER,
 * RF_ETIMEOUT,
 * ...), when every call on comm is refused; on a healthy communicator it copies it. All ranks that
 * get a communicator agree about who is in it. Blocks until every process that still runs has come;
 * one that does not come within timeout_s (0 = 60) of the others is left out, and told so
 * (RF_EPEER) when it comes. Should a rank die meanwhile, the rest begin anew; should one die at the
 * very end, some may be given a communicator whose first operation fails with RF_EPEER: they call
 * rf_comm_shrink on that one, and meet the others. old_ranks (room for all ranks of comm; or NULL)
 * receives whom each new rank was in comm. comm is to be closed as ever. As in MPI's
 * user-level failure mitigation (Bland et al. 2013). Only a majority goes on: more than half of
 * the ranks that may still run, or half of them with the lowest. Who has left, or whose process is
 * known to have ended, does not count; a host that does not answer does. Others get RF_EPEER, and
 * may try again. Errors: RF_EINVAL, RF_EPEER, RF_ETIMEOUT, RF_ENOMEM, RF_ENET. */
RF_API int rf_comm_shrink(struct rf_comm *comm, double timeout_s, int *old_ranks,
                          struct rf_comm **out);

/* ---- joining a running job ------------------------------------------------------------------- */

/* A newcomer is a process that asks to join a running job. The join listener is where newcomers
 * wait: a port of its own on rank 0 of the job, served by a thread of its own. A newcomer must
 * prove the job key, and its terms must be those of the job. A connection that does not, sends
 * anything unexpected, or falls silent is closed; the job does not notice. At most 64 newcomers
 * wait at a time. Any thread may call these functions. */
struct rf_join_listener;

/* comm: the communicator of rank 0, which is only read. port: 0 is any free one. key: NULL is
 * RF_JOB_KEY. terms: what has to be the same on all ranks, as lines "name=value", at most 16 KiB;
 * the library adds its version and what else messages depend on. A newcomer is refused, with a
 * sentence, if one of its lines differs from the line of that name here, or if there is none. Free
 * with rf_join_listener_close. Errors: RF_EAUTH (there is no key), RF_EBUSY (the port is in use),
 * RF_EINVAL, RF_ENOMEM, RF_ENET. */
RF_API int rf_join_listener_open(const struct rf_comm *comm, int port, const char *key,
                                 const char *terms, struct rf_join_listener **out);

/* Refuses the newcomers that wait; reason: a sentence for them. Blocks for at most 2 s. NULL is
 * allowed. */
RF_EXPORT void rf_join_listener_close(struct rf_join_listener *join_listener, const char *reason);

RF_EXPORT int rf_join_listener_port(const struct rf_join_listener *join_listener);

/* How many newcomers wait and answer now. Blocks for at most 0.5 s, where one does not answer. */
RF_EXPORT int rf_join_listener_waiting(struct rf_join_listener *join_listener);

/* Sends a sentence on what they wait for to all newcomers, also to those that come later. */
RF_EXPORT void rf_join_listener_set_status(struct rf_join_listener *join_listener,
                                           const char *text);

/* A larger communicator: the ranks of comm, with their numbers, and after them `count` newcomers
 * that wait at the join listener. Collective over comm; join_listener and count are read on rank 0
 * only. opts: as for rf_comm_open, the same on all ranks, or NULL; rank and size are not read;
 * start_timeout_s (0 = 30) is how long the newcomers may take. comm stays as it is, and the new
 * communicator lives on its own: close both. RF_EAGAIN, on all ranks: newcomers went away or were
 * late, which the message of rank 0 says; those wait no longer, and comm goes on. A newcomer that
 * dies later is a rank that dies. Other errors are those of comm, which has failed then. */
RF_API int rf_comm_grow(struct rf_comm *comm, struct rf_join_listener *join_listener, int count,
                        const struct rf_comm_opts *opts, struct rf_comm **out);

struct rf_join_opts {
    struct rf_comm_opts comm; /* as rf_comm_open; rank and size are not read. start_timeout_s is for
                               * the job to let this process in, and again for the larger job */
    const char *terms; /* as rf_join_listener_open; a line that is missing is taken as the job's */
    void (*note)(void *user, const char *text); /* what this process waits for; or NULL */
    void *user;
};

/* Joins a running job as a newcomer. url: "tcp://host:port" of the job's join listener. Blocks
 * until the job takes this process in, as long as that takes. If rank 0 of the job is gone, or the
 * job went on without this process, it asks again. Errors: RF_EAUTH (wrong or missing job key),
 * RF_EINVAL (the terms differ: the message says what), RF_EBUSY (too many wait), RF_EPEER (the job
 * has ended), RF_ETIMEOUT (the job did not answer), and those of rf_comm_open. */
RF_API int rf_comm_join(const char *url, const struct rf_join_opts *opts, struct rf_comm **out);

/* Leaves. After a clean run it waits until all ranks leave, at most 5 s, so that nobody takes a
 * leaver for dead; and compares what each of them called last. NULL is allowed. Never hangs. The
 * communicator is freed whatever is returned. Close it before the devices whose tensors it has
 * moved: it holds timelines and staging memory of them.
 * Returns RF_OK, also where a rank that has not left yet may have called something else: then that
 * rank hears of it. RF_EMISMATCH: ranks called different things, or one called fewer, and no call
 * has said so yet; rf_last_error() names both sides, on all ranks that are still there. RF_EPEER: a
 * rank died before it left. On a communicator that has failed before: why it did. */
RF_EXPORT int rf_comm_close(struct rf_comm *comm);
/* Fails the communicator on every rank: pending operations return RF_EABORT everywhere. */
RF_EXPORT void rf_comm_abort(struct rf_comm *comm, const char *reason);
RF_EXPORT int rf_comm_rank(const struct rf_comm *comm);
RF_EXPORT int rf_comm_size(const struct rf_comm *comm);
RF_EXPORT const char *rf_comm_provider(const struct rf_comm *comm); /* "shm", "shm+net", ... */
RF_EXPORT const char *rf_comm_why(const struct rf_comm *comm); /* why that provider: one sentence */
/* Payload bytes this rank has posted to peers since it joined. */
RF_EXPORT uint64_t rf_comm_sent_bytes(const struct rf_comm *comm);
RF_EXPORT uint64_t rf_comm_sent_messages(const struct rf_comm *comm);
/* Bytes that were copied between this rank's tensors and staging memory since it joined: none where
 * the host can reach them. */
RF_EXPORT uint64_t rf_comm_staged_bytes(const struct rf_comm *comm);
/* The track of the trace on which the events of its operations appear, "comm" if it is not said:
 * one for each of several communicators. A constant string. While nothing of it is under way. A run
 * calls its own by the names of lanes (parallel.h), rf_run_open's comm "data". */
RF_EXPORT void rf_comm_set_track(struct rf_comm *comm, const char *track);

/* Makes memory known to the network, which providers with FI_MR_LOCAL (InfiniBand) otherwise do
 * again with every message; elsewhere it costs and changes nothing. Collectives on any part of it
 * profit. Waits for asynchronous work. The memory must stay until it has been deregistered, which
 * has to be before the communicator is closed. Not collective. Errors: RF_EINVAL, RF_ENOMEM,
 * RF_ENET (the provider refuses it), those of a failed communicator. */
RF_API int rf_comm_register(struct rf_comm *comm, void *memory, size_t bytes,
                            struct rf_registration **out);
/* NULL is allowed. Waits for asynchronous work. */
RF_EXPORT void rf_comm_deregister(struct rf_registration *registration);

/* Why the network does not read device memory by itself (dma-buf): a sentence. */
RF_EXPORT const char *rf_provider_dmabuf_reason(void);

/* Memory for buffers of this communicator's collectives, zeroed, at the start of a page. Where
 * ranks share memory (providers shm and shm+net) it is part of it: collectives then read and
 * write the buffers of the peers on this host, instead of copying through others. Not collective;
 * any rank may use it or not, as suits it. Whole and parts of it may be used; collectives of other
 * communicators (split) take it as any memory. Free it before the communicator is closed. After the
 * communicator has failed, a rank that was slow may still write into buffers it had been given. Any
 * thread. Errors: RF_ENOMEM. */
RF_API int rf_comm_alloc(struct rf_comm *comm, size_t bytes, void **out);
RF_EXPORT void rf_comm_free(struct rf_comm *comm, void *memory); /* NULL is allowed */

/* What a machine offers, without joining anything: one line per usable provider, best first. */
struct rf_provider_info {
    char name[64]; /* as opts.provider takes it */
    char address[128];
    char note[128]; /* what it is good for, or why it is not taken */
    bool chosen;
    bool threads;       /* ranks are threads of one process: rf_comm_open_loopback */
    bool shares_memory; /* every rank reaches what every other has from rf_comm_alloc */
};
/* wanted: as opts.provider; the line it names is chosen, of auto that of ranks on one host. Errors:
 * RF_EINVAL (the machine has no such provider; the text lists those that it has), RF_ENET. */
RF_API int rf_provider_list(const char *wanted, struct rf_provider_info *infos, uint32_t capacity,
                            uint32_t *count);
/* The one line of `wanted`, without address; libfabric is asked only for names that the library
 * does not know itself. out may be NULL, so that the name is checked only. Errors: as
 * rf_provider_list. */
RF_API int rf_provider_find(const char *wanted, struct rf_provider_info *out);

/* ---- collectives on host memory -------------------------------------------------------------- */

/* A reduction of one's own, for RF_CUSTOM on host memory: out[i] = left[i] op right[i] for `count`
 * elements of the call's type; out may be left or right, and may have any alignment. It is called
 * on this rank's thread (with a request: on the communicator's) with parts of any length, and must
 * not fail or call the library. It must be associative, but for rounding; where it does not
 * commute, the operands keep the order of the ranks (RF_ORDER_TREE; RF_ORDER_RING is RF_EINVAL). It
 * must be the same on all ranks: `name`, a part of the contract, says so. */
struct rf_reduction {
    void (*combine)(void *out, const void *left, const void *right, size_t count, void *user);
    void *user;
    bool commutes;
    const char *name; /* NULL = "" */
};

struct rf_coll_opts {
    enum rf_order order;   /* of a sum; ANY is the default */
    const char *label;     /* call site, part of the contract; NULL matches any */
    const char *algorithm; /* by name ("ring", "flat", ...: docs/collectives.md), the same on all
                            * ranks; NULL: chosen by size. RF_EINVAL if it cannot serve the call */
    double timeout_s;      /* 0 = the communicator's */
    /* For all_reduce, reduce and reduce_scatter on host memory: */
    const struct rf_reduction *reduction; /* with RF_CUSTOM, and only then */
    const double *scale; /* sum and avg: this rank's input is multiplied by it first (in f32 for
                          * 16-bit types, rounded once; of integers a whole number, products wrap).
                          * Ranks may differ, or give none */
    enum rf_dtype wire;  /* RF_F16 or RF_BF16: f32 data travel as these, and are added in f32. Every
                          * input and the result is rounded once: with S = sum |x_r| the error is at
                          * most (u (2 + u) + N 2^-24) S, u = 2^-11 (f16) or 2^-8 (bf16), while f16
                          * neither overflows (65504) nor is subnormal (2^-14). RF_F32 = 0: as it is.
                          * To the contract it is a call on that type */
    /* for _tensor calls only: */
    struct rf_point after; /* starts when this is reached */
    struct rf_point *done; /* not NULL: the call returns at once and *done says when it has finished
                            * (also after an error: then the next call on comm reports it) */
    /* Not NULL: the call returns at once, and *request says how it went. Until it has ended, in and
     * out must stay; counts and texts are copied. (all_to_all_v blocks for the exchange of its
     * counts.) Collectives, sends and receives. */
    struct rf_request **request;
};

/* All block until this rank's part is complete: out is valid and in may be reused. opts may be
 * NULL. in == out is allowed (in place) for all_reduce; for all_gather in may be its own place in
 * out, for reduce_scatter out may be its own place in in. count 0 is allowed and still synchronises
 * nothing more than its contract. Errors: RF_EINVAL, RF_EMISMATCH, RF_EPEER, RF_ETIMEOUT,
 * RF_EABORT, RF_ENET. */
RF_API int rf_all_reduce(struct rf_comm *comm, const void *in, void *out, size_t count,
                         enum rf_dtype dtype, enum rf_redop redop, const struct rf_coll_opts *opts);
/* in: count * size elements; out: the rank-th count elements of the reduction. */
RF_API int rf_reduce_scatter(struct rf_comm *comm, const void *in, void *out, size_t count,
                             enum rf_dtype dtype, enum rf_redop redop,
                             const struct rf_coll_opts *opts);
/* in: count elements; out: count * size elements in rank order. */
RF_API int rf_all_gather(struct rf_comm *comm, const void *in, void *out, size_t count,
                         enum rf_dtype dtype, const struct rf_coll_opts *opts);
RF_API int rf_broadcast(struct rf_comm *comm, void *buffer, size_t count, enum rf_dtype dtype,
                        int root, const struct rf_coll_opts *opts);
/* out: count elements, on the root; elsewhere it is not used and may be NULL. in == out on the root
 * is allowed. */
RF_API int rf_reduce(struct rf_comm *comm, const void *in, void *out, size_t count,
                     enum rf_dtype dtype, enum rf_redop redop, int root,
                     const struct rf_coll_opts *opts);
/* in: count elements; out: count * size elements in rank order, on the root (elsewhere not used).
 * In place: the root's in may be its own place in out. */
RF_API int rf_gather(struct rf_comm *comm, const void *in, void *out, size_t count,
                     enum rf_dtype dtype, int root, const struct rf_coll_opts *opts);
/* in: count * size elements in rank order, on the root (elsewhere not used); out: count elements.
 * In place: the root's out may be its own place in in. */
RF_API int rf_scatter(struct rf_comm *comm, const void *in, void *out, size_t count,
                      enum rf_dtype dtype, int root, const struct rf_coll_opts *opts);
/* in, out: count * size elements; piece r of in goes to rank r, whose piece in out is this rank's.
 * Not in place. */
RF_API int rf_all_to_all(struct rf_comm *comm, const void *in, void *out, size_t count,
                         enum rf_dtype dtype, const struct rf_coll_opts *opts);
RF_API int rf_barrier(struct rf_comm *comm, const struct rf_coll_opts *opts);

/* With a count for each rank: counts[size] elements, the same array on every rank; pieces lie
 * densely in rank order. Each may be 0. Otherwise as the forms above. */
RF_API int rf_all_gather_v(struct rf_comm *comm, const void *in, void *out, const size_t *counts,
                           enum rf_dtype dtype, const struct rf_coll_opts *opts);
RF_API int rf_reduce_scatter_v(struct rf_comm *comm, const void *in, void *out,
                               const size_t *counts, enum rf_dtype dtype, enum rf_redop redop,
                               const struct rf_coll_opts *opts);
RF_API int rf_gather_v(struct rf_comm *comm, const void *in, void *out, const size_t *counts,
                       enum rf_dtype dtype, int root, const struct rf_coll_opts *opts);
RF_API int rf_scatter_v(struct rf_comm *comm, const void *in, void *out, const size_t *counts,
                        enum rf_dtype dtype, int root, const struct rf_coll_opts *opts);
/* send_counts[r] elements go to rank r, recv_counts[r] come from it; what one rank sends must be
 * what the other expects, else RF_EMISMATCH on all. The counts are exchanged first, which costs a
 * round of short messages. */
RF_API int rf_all_to_all_v(struct rf_comm *comm, const void *in, const size_t *send_counts,
                           void *out, const size_t *recv_counts, enum rf_dtype dtype,
                           const struct rf_coll_opts *opts);
/* Point to point; messages between two ranks with equal tags arrive in order. tag 0..1023. Sends
 * and receives are counted apart from collectives, so they need not be called in the same order by
 * all ranks. A receive whose count or dtype differs from the send's is RF_EMISMATCH on both sides.
 * peer may be the rank itself in rf_sendrecv, in a group, and with opts->request. */
RF_API int rf_send(struct rf_comm *comm, const void *buffer, size_t count, enum rf_dtype dtype,
                   int peer, int tag, const struct rf_coll_opts *opts);
RF_API int rf_recv(struct rf_comm *comm, void *buffer, size_t count, enum rf_dtype dtype, int peer,
                   int tag, const struct rf_coll_opts *opts);
/* Both at once, so that two ranks may exchange without a deadlock. */
RF_API int rf_sendrecv(struct rf_comm *comm, const void *send, size_t send_count, int dst,
                       void *recv, size_t recv_count, int src, enum rf_dtype dtype, int tag,
                       const struct rf_coll_opts *opts);

/* ---- several operations as one --------------------------------------------------------------- */

/* Between the two, sends, receives and collectives on host memory are checked and noted, return 0,
 * and do nothing; the outermost rf_group_end runs them and blocks until all have ended. First all
 * sends and receives, at once, so that neighbours may exchange in any order; a rank may send to
 * itself what it receives in the same group. Then the collectives, in the order of the calls.
 * Buffers must stay until then. To other ranks the calls are as without a group. A call that is
 * refused is not in it; the first error while running is returned, and fails the communicator as
 * ever. What has a request begins with the others, but the end does not wait for it; the request is
 * there from the call on. (A message of the rank to itself must have a request on both sides or on
 * none.) Not in a group (RF_EINVAL): calls on tensors, all_to_all_v, split, shrink. Every start
 * needs its end. */
RF_API int rf_group_start(struct rf_comm *comm);
RF_API int rf_group_end(struct rf_comm *comm);

/* ---- collectives on device tensors ----------------------------------------------------------- */

/* As above, on tensors; the element count and type are the tensors'. Mapped device memory travels
 * in place; other memory goes through a few slots of staging memory, with the copies of some under
 * way while others are on the wire. Ranks may differ in this. Asynchronous when opts->done is
 * given: then points of collectives are reached in the order of the calls; or with opts->request
 * (below). Either way a thread works them off, which exists only while work is outstanding. */
RF_API int rf_all_reduce_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                enum rf_redop redop, const struct rf_coll_opts *opts);
RF_API int rf_reduce_scatter_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                    enum rf_redop redop, const struct rf_coll_opts *opts);
RF_API int rf_all_gather_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                const struct rf_coll_opts *opts);
RF_API int rf_broadcast_tensor(struct rf_comm *comm, struct rf_tensor tensor, int root,
                               const struct rf_coll_opts *opts);
/* Rooted: of a rank that is not the root, the tensor that only the root needs may have a NULL
 * buffer. in has size times the elements of out in scatter, out those of in in gather. */
RF_API int rf_reduce_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                            enum rf_redop redop, int root, const struct rf_coll_opts *opts);
RF_API int rf_gather_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                            int root, const struct rf_coll_opts *opts);
RF_API int rf_scatter_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                             int root, const struct rf_coll_opts *opts);
/* in and out: equal pieces for every rank; not in place. */
RF_API int rf_all_to_all_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                const struct rf_coll_opts *opts);
/* With a count for each rank, as the forms on host memory. A tensor may have more elements than the
 * call takes; one of which it takes none may have a NULL buffer, but its type counts where both
 * have. Ranks may mix these with calls on host memory. (all_to_all_v blocks for the exchange of its
 * counts.) */
RF_API int rf_all_gather_v_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                  const size_t *counts, const struct rf_coll_opts *opts);
RF_API int rf_reduce_scatter_v_tensor(struct rf_comm *comm, struct rf_tensor in,
                                      struct rf_tensor out, const size_t *counts,
                                      enum rf_redop redop, const struct rf_coll_opts *opts);
RF_API int rf_gather_v_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                              const size_t *counts, int root, const struct rf_coll_opts *opts);
RF_API int rf_scatter_v_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                               const size_t *counts, int root, const struct rf_coll_opts *opts);
RF_API int rf_all_to_all_v_tensor(struct rf_comm *comm, struct rf_tensor in,
                                  const size_t *send_counts, struct rf_tensor out,
                                  const size_t *recv_counts, const struct rf_coll_opts *opts);
/* Point to point, as rf_send and rf_recv: matched by peer, tag and order, on tensors or host memory
 * on either side; any shape, also of 0 elements (then the tensor may have a NULL buffer). The bytes
 * of a tensor must not change, of a received one not be used, until the call has finished. Begins
 * when opts->after is reached. It blocks, or with opts->done or opts->request returns at once: then
 * it waits for no other call, and no other call waits for it, but for those in the same direction
 * with the same peer and tag, which are matched in the order of the calls. So neighbours may all
 * send first, and each `done` says when its own call has finished, in whatever order that is. peer
 * may be the rank itself with opts->done or opts->request; a message to itself is kept in the
 * host's memory until it is received. Memory that the host cannot map goes through at most 8 MiB of
 * staging memory (RF_CATEGORY_COMM) for sends and 8 MiB for receives on each device, whatever is
 * under way, a MiB at a time. Errors: RF_EINVAL, RF_ENOMEM and those of rf_send; the next call on
 * comm reports one of a call with `done`. */
RF_API int rf_send_tensor(struct rf_comm *comm, struct rf_tensor tensor, int peer, int tag,
                          const struct rf_coll_opts *opts);
RF_API int rf_recv_tensor(struct rf_comm *comm, struct rf_tensor tensor, int peer, int tag,
                          const struct rf_coll_opts *opts);
/* Waits for all asynchronous work of this rank; returns its first error. */
RF_API int rf_comm_wait(struct rf_comm *comm);
/* Does not block: RF_OK, or why the communicator has failed, also while asynchronous work is
 * outstanding. Reads what peers have said, so a death is noticed without any call running. */
RF_API int rf_comm_async_error(struct rf_comm *comm);

/* ---- requests: operations that go on while the caller computes --------------------------------
 */

/* Several may be under way on one communicator. Collectives begin in the order of the calls, behind
 * or before tensors' calls with `done`, and each gives the bits that it would give alone: one that
 * reads or writes what an older one writes (or writes what it reads) waits for that. A short one
 * does not wait for a long one that was called before it; long ones run one after the other. Sends
 * and receives run all at once, and wait for no collective; messages between two ranks with equal
 * tags keep the order of the calls. A rank may send to itself, before or after it receives.
 *
 * A blocking collective returns when all before it have ended, a blocking send or receive when it
 * has itself. When the communicator fails, all that has not ended fails with the same error.
 *
 * A request may be used by any one thread at a time, also after its communicator has been closed,
 * which ends it. Ended: *ended, and the operation's status and error as if it had blocked. */
RF_API int rf_request_test(struct rf_request *request, bool *ended);
/* Blocks until it has ended, and returns as the operation would have; timeout_s 0 = as long as it
 * takes, else RF_ETIMEOUT, after which it can be waited for again. */
RF_API int rf_request_wait(struct rf_request *request, double timeout_s);
/* Of several; those that are NULL do not count. All: blocks until every one has ended, also after
 * an error, and returns the first error by their order. Any: *index is that of one that has ended,
 * whose status is returned; `count` where all are NULL (then test_any says ended). Set it to NULL,
 * and free it, to go on with the others. */
RF_API int rf_request_wait_all(struct rf_request *const *requests, size_t count, double timeout_s);
RF_API int rf_request_wait_any(struct rf_request *const *requests, size_t count, double timeout_s,
                               size_t *index);
RF_API int rf_request_test_any(struct rf_request *const *requests, size_t count, size_t *index,
                               bool *ended);
/* The operation goes on if it has not ended. NULL is allowed. */
RF_EXPORT void rf_request_free(struct rf_request *request);

/* ---- prediction ------------------------------------------------------------------------------ */

/* Bytes that `rank` sends for one operation: those of the schedule that would run, for most
 * algorithms by a formula, which takes no longer for many ranks. count as in the call. Pure: no
 * communicator needed. Sums over micro-batches: rf_forest_sent_bytes, ... */
RF_API int rf_coll_sent_bytes(enum rf_coll_op op, int rank, int ranks, size_t count,
                              enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out);

/* Bytes of staging memory (RF_CATEGORY_COMM) that such a call takes on tensors which the host
 * cannot reach: a few windows, however long the call. A communicator keeps the most that any call
 * has needed. Pure. Sums over micro-batches: rf_forest_staging_bytes, ... */
RF_API int rf_coll_staging_bytes(enum rf_coll_op op, int rank, int ranks, size_t count,
                                 enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out);

/* As rf_coll_staging_bytes, by this algorithm. RF_EINVAL where it cannot serve the call. */
RF_API int rf_coll_staging_bytes_as(enum rf_coll_op op, const char *algorithm, int rank, int ranks,
                                    size_t count, enum rf_dtype dtype, enum rf_order order,
                                    int root, uint64_t *out);

/* The same of the forms with a count for each rank: all_gather, reduce_scatter, gather, scatter.
 * counts: as many entries as ranks. (A rank sends in all_to_all_v what its send_counts say.) */
RF_API int rf_coll_sent_bytes_v(enum rf_coll_op op, int rank, int ranks, const size_t *counts,
                                enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out);
RF_API int rf_coll_staging_bytes_v(enum rf_coll_op op, int rank, int ranks, const size_t *counts,
                                   enum rf_dtype dtype, enum rf_order order, int root,
                                   uint64_t *out);

/* The algorithm that such a call takes: "ring", "flat", ... (docs/collectives.md). Pure. */
RF_API int rf_coll_algorithm(enum rf_coll_op op, int ranks, size_t count, enum rf_dtype dtype,
                             enum rf_order order, const char **name);

/* As rf_coll_sent_bytes, by this algorithm. RF_EINVAL where it cannot serve the call. */
RF_API int rf_coll_sent_bytes_as(enum rf_coll_op op, const char *algorithm, int rank, int ranks,
                                 size_t count, enum rf_dtype dtype, enum rf_order order, int root,
                                 uint64_t *out);

/* What was measured of a communicator's links when its ranks joined (where they are on several
 * hosts, or RF_MEASURE=1), of the slowest rank: the same on all. By these figures it chooses
 * algorithms. */
struct rf_link_figures {
    bool measured;         /* false: all else is 0, and algorithms are those of rf_coll_algorithm */
    double message_s;      /* a short message to a neighbour, until it has arrived */
    double bytes_per_s;    /* of long ones */
    double more_message_s; /* each message more, to another rank at the same time */
    double more_bytes_per_s; /* when a rank sends to all others at the same time */
    double fold_bytes_per_s; /* of a sum */
    /* Where some of several hosts have several ranks, else 0: short messages to all ranks of one's
     * host at the same time, and what a rank sends them of long ones; the same to all others. */
    double host_round_s, host_bytes_per_s, between_round_s, between_bytes_per_s;
};
/* Does not block; any thread. RF_EINVAL. */
RF_API int rf_comm_links(const struct rf_comm *comm, struct rf_link_figures *out);
/* As rf_coll_algorithm, on this communicator. shared: on buffers of rf_comm_alloc on every rank,
 * for which ranks of one host have algorithms of their own ("fused"); else as ranks that share no
 * memory, by which bytes are counted. *seconds: what it is predicted to take; negative where
 * nothing was measured, or there is no choice. Does not block; any thread. */
RF_API int rf_comm_algorithm(const struct rf_comm *comm, enum rf_coll_op op, size_t count,
                             enum rf_dtype dtype, enum rf_order order, bool shared,
                             const char **name, double *seconds);

/* ---- tree order over micro-batches ----------------------------------------------------------- */

/* `leaves` values (one per micro-batch) are added pairwise by index: node (level, i) covers leaves
 * [i << level, (i+1) << level). Rank r owns leaves [first[r], first[r+1]) and brings the maximal
 * aligned subtrees of its range, in index order, each already added up. */
struct rf_forest {
    int leaves, ranks;
    const int *first; /* ranks + 1 entries; first[0] = 0, first[ranks] = leaves */
};
struct rf_forest_node {
    int level, index;
};
/* The subtrees of one rank, in index order; returns how many (<= 62). nodes may be NULL. */
RF_EXPORT int rf_forest_nodes(const struct rf_forest *forest, int rank,
                              struct rf_forest_node *nodes);
/* f32 sum of all leaves, everywhere. parts: this rank's subtrees, in index order, part k at
 * element k * stride of `parts` (1-D f32); out: count elements; out may be part 0. */
RF_API int rf_forest_all_reduce_tensor(struct rf_comm *comm, const struct rf_forest *forest,
                                       struct rf_tensor parts, size_t stride, struct rf_tensor out,
                                       const struct rf_coll_opts *opts);
RF_API int rf_forest_sent_bytes(const struct rf_forest *forest, int rank, size_t count,
                                uint64_t *out);
/* Bytes of temporary memory the call needs on `rank`. */
RF_API int rf_forest_temp_bytes(const struct rf_forest *forest, int rank, size_t count,
                                uint64_t *out);
/* Bytes of staging memory, as rf_coll_staging_bytes. */
RF_API int rf_forest_staging_bytes(const struct rf_forest *forest, int rank, size_t count,
                                   uint64_t *out);

/* The same sum to the same bits, cut into a piece for each rank: rank r gets the counts[r] elements
 * behind those of the ranks before it, in `out`. counts: as many entries as ranks, the same on all
 * of them; any may be 0. stride >= the sum of counts. out may be this rank's own place in part 0.
 * A rank without leaves needs no `parts`, and one whose count is 0 no `out` (a NULL buffer). */
RF_API int rf_forest_reduce_scatter_tensor(struct rf_comm *comm, const struct rf_forest *forest,
                                           struct rf_tensor parts, size_t stride,
                                           struct rf_tensor out, const size_t *counts,
                                           const struct rf_coll_opts *opts);
/* As those of the forest all-reduce. Pure. */
RF_API int rf_forest_scatter_sent_bytes(const struct rf_forest *forest, int rank,
                                        const size_t *counts, uint64_t *out);
RF_API int rf_forest_scatter_temp_bytes(const struct rf_forest *forest, int rank,
                                        const size_t *counts, uint64_t *out);
RF_API int rf_forest_scatter_staging_bytes(const struct rf_forest *forest, int rank,
                                           const size_t *counts, uint64_t *out);

/* The same sum to the same bits, of leaves that are dealt out in turns: leaf k * ranks + r is rank
 * r's, in round k. Each round takes the ranks' next leaves, and adds them to partial sums that the
 * caller keeps, so that no rank holds more than one leaf: a pairwise sum as a binary counter. */
/* ceil(leaves / ranks); 0 where one of the two is less than 1. */
RF_EXPORT int rf_prefix_rounds(int leaves, int ranks);
/* Places for partial sums that a rank needs, each of counts[rank] elements: at most
 * floor(log2(leaves)) + 1. */
RF_EXPORT int rf_prefix_slots(int leaves, int ranks);
/* Which of them hold a partial sum after so many rounds: bit s for slot s. After 0 rounds none;
 * after the last one only the highest, which then is the sum. */
RF_EXPORT uint32_t rf_prefix_levels(int leaves, int ranks, int rounds);
/* A round: to be called by all ranks for round = 0, 1, ..., rf_prefix_rounds - 1. leaf: the rank's
 * gradient, whole (the sum of counts, 1-D f32); in the last round a rank may have none (a NULL
 * buffer). slots: rf_prefix_slots * counts[rank] elements (1-D f32), slot s from element s *
 * counts[rank] on; what the rounds before have left there is read, and the slots that
 * rf_prefix_levels has afterwards hold partial sums, the rest nothing. After the last round the sum
 * of this rank's piece is in the highest slot. counts: as above, the same in all rounds. leaf and
 * slots must be apart. A rank with a leaf sends all of it but its own piece, others nothing. */
RF_API int rf_prefix_reduce_scatter_tensor(struct rf_comm *comm, int leaves, int round,
                                           struct rf_tensor leaf, struct rf_tensor slots,
                                           const size_t *counts, const struct rf_coll_opts *opts);
/* Of one round, as those of the forest. Pure. */
RF_API int rf_prefix_sent_bytes(int leaves, int round, int rank, int ranks, const size_t *counts,
                                uint64_t *out);
RF_API int rf_prefix_temp_bytes(int leaves, int round, int rank, int ranks, const size_t *counts,
                                uint64_t *out);
RF_API int rf_prefix_staging_bytes(int leaves, int round, int rank, int ranks, const size_t *counts,
                                   uint64_t *out);

#ifdef __cplusplus
}
#endif
#endif
