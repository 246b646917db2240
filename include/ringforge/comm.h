/* SPDX-License-Identifier: MIT
 *
 * Communicators. A communicator joins `size` ranks. A rank is a process on any host, or a thread of
 * one process (loopback). A communicator needs no Vulkan device; calls whose names end in _tensor
 * take device tensors.
 *
 * Order of calls: all ranks call the same operations in the same order on one communicator.
 *
 * Failures: if two ranks disagree about a call, both get RF_EMISMATCH within a second, and the
 * message names both calls. If a rank dies, every survivor gets RF_EPEER within two seconds, and
 * the message names the dead rank. After either error the communicator has failed for good: every
 * later call returns RF_EABORT at once, and every point that it owes on a timeline is signalled.
 *
 * Thread safety: one thread at a time uses a communicator. One process may have several
 * communicators. If one thread makes all calls on a communicator and on those split off it, ranks
 * that call two of them in different orders get RF_EMISMATCH instead of a deadlock. To hand one of
 * them over to another thread, let that thread call it (rf_comm_wait is enough) before the first
 * thread blocks in another one.
 *
 * The operations are in collectives.h, predicted bytes and algorithms in predict.h, sums in tree
 * order over micro-batches in tree_order.h. This header includes all three.
 */
#ifndef RINGFORGE_COMM_H
#define RINGFORGE_COMM_H

#include "collectives.h"
#include "predict.h"
#include "tensor.h"
#include "tree_order.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_loopback;
struct rf_registration;

/* ---- opening and closing --------------------------------------------------------------------- */

/* Times are in seconds. An infinite timeout means no limit. A negative one, or NaN, is RF_EINVAL.
 */
struct rf_comm_opts {
    int rank, size;       /* -1, 0: from the environment (RANK, WORLD_SIZE) or the URL */
    const char *provider; /* NULL or "auto", "shm" (shared memory), "tcp", "shm+tcp", ... */
    const char *key; /* job key; NULL: RF_JOB_KEY. Without a key only loopback addresses work */
    double start_timeout_s; /* until all ranks have joined; 0 = 60 */
    double timeout_s;       /* of one operation, without progress of any byte; 0 = 600 */
    /* Every message carries a checksum of its data. A message that arrives damaged is RF_ECORRUPT
     * on all ranks, and the error names sender and receiver. All ranks must agree, else RF_EINVAL.
     * RF_CHECKSUM=1 in the environment does the same. */
    bool checksum;
};

/* Joins a job. Blocks until all ranks have joined, or until the start timeout. opts may be NULL.
 *   self:                one rank, no network
 *   env:                 RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun, ringforge run)
 *   tcp://host:port      rank 0 listens there; rank and size are in opts or the environment
 *   file:/path           rank 0 writes its address to this file, which all ranks can read
 * After rf_comm_close the same call opens the next job at the same address. A rank that calls it
 * before rank 0 has closed the previous job waits for rank 0. Signal handlers of the program stay
 * installed: handlers that network libraries install while they are loaded are removed before this
 * returns. Errors: RF_EINVAL (rank outside 0..size-1, unknown URL or provider), RF_EAUTH (wrong or
 * missing job key), RF_EBUSY (the port is in use), RF_ETIMEOUT (the message names the missing
 * ranks), RF_ENET. */
RF_API int rf_comm_open(const char *url, const struct rf_comm_opts *opts, struct rf_comm **out);

/* What the environment says about this process. */
struct rf_launcher_info {
    const char *name; /* of the launcher that made it a rank; NULL: none */
    int rank, size;   /* 0 of 1 without one */
    /* For a process that would run alone: variables that indicate several ranks, such as
     * "FLUX_TASK_RANK=1, FLUX_JOB_SIZE=4", and are not used, because env: does not support their
     * launcher, or because they contradict the launcher in use. Empty: none. */
    char others[400];
};
/* Reads the variables of launchers, as env: does. Errors: RF_EINVAL (RANK without WORLD_SIZE or the
 * reverse, not a number, or a rank outside 0..size-1). */
RF_API int rf_launcher_find(struct rf_launcher_info *out);

/* The alternative to rf_comm_open: tells the other ranks that this one declines, and why, in a
 * sentence. All ranks that are waiting, or arrive within 5 s, get RF_EABORT with it from
 * rf_comm_open; otherwise they would wait for this rank until their start timeout. Blocks until
 * rank 0 has been told, or, on rank 0, until all others have arrived; at most for
 * opts->start_timeout_s. No communicator is made. Errors: RF_EABORT (rank 0 has given up for
 * another reason, given in the message), RF_ETIMEOUT (no rank 0), those of rf_comm_open. */
RF_API int rf_comm_decline(const char *url, const struct rf_comm_opts *opts, const char *why);

/* Leaves the job and frees the communicator, whatever the result. NULL is allowed. After a run
 * without errors it waits for the other ranks to leave, at most 5 s, and compares the last calls of
 * all ranks. Close it before the devices whose tensors it has moved, because it holds timelines and
 * staging memory of them. Returns RF_OK even if a rank that has not left yet may have made a
 * different call: that rank gets the error. RF_EMISMATCH: ranks called different operations, or one
 * called fewer, and no call has reported it; rf_last_error() names both calls on all ranks that are
 * still connected. RF_EPEER: a rank died before it left. On a communicator that had failed: the
 * reason. */
RF_EXPORT int rf_comm_close(struct rf_comm *comm);

/* Fails the communicator on all ranks. Pending operations return RF_EABORT. */
RF_EXPORT void rf_comm_abort(struct rf_comm *comm, const char *reason);

/* Compares settings that must be equal on all ranks: lines "name=value" of the caller, less than 16
 * KiB. Text after a TAB in a value, such as the hash of a file, is compared but not shown. Every
 * rank passes the same names. Uses the control link only; blocking; collective. RF_EINVAL, on all
 * ranks: values differ; the message, equal on all ranks, has the name and both values, and
 * rf_last_error()->rank is the first rank that differs from rank 0. The communicator stays usable.
 * Other errors: those of a communicator, RF_ENOMEM. */
RF_API int rf_comm_check_terms(struct rf_comm *comm, const char *terms);

struct rf_device;

/* From now on, sums, averages and products of this communicator, and of communicators made from it,
 * treat subnormal numbers as the ranks' devices do: if kernels of one rank's device treat them as 0
 * (rf_device_flushes_subnormals), all ranks do so in arithmetic on the host, for operands and
 * results. Then a sum has the same bits on the device of one rank and on the hosts of several.
 * Minimum, maximum, integers and the caller's own reductions are not affected. Further calls add
 * devices; rf_run_open calls it. Uses the control link only; blocking; collective. RF_ENOTSUP: a
 * rank's processor does not support it (x86-64 and aarch64 do). Other errors, on all ranks: those
 * of a communicator, of rf_device_flushes_subnormals, RF_ENOMEM. */
RF_API int rf_comm_follow_device(struct rf_comm *comm, struct rf_device *device);
RF_EXPORT bool rf_comm_flushes_subnormals(const struct rf_comm *comm);

/* ---- ranks as threads, for tests ------------------------------------------------------------- */

/* Limits of the links, and faults to inject. Communicators that are split off, or survive a
 * failure, have their own links with the same latency and bandwidth, and without faults. */
struct rf_loopback_opts {
    double latency_s;   /* of every message; 0 = none */
    double bytes_per_s; /* of every link, in each direction; 0 = unlimited */
    /* Faults, at most one. N counts the messages of all ranks, from 1; 0 = no fault. */
    int kill_rank; /* with kill_after_messages > 0: this rank sends no more, and its control
                    * connection closes */
    uint64_t kill_after_messages;
    uint64_t drop_message;    /* message N is lost */
    uint64_t delay_message;   /* message N arrives delay_s later */
    uint64_t corrupt_message; /* message N is damaged */
    /* The data of message N are damaged, but its tag and contract are not: only a checksum detects
     * that. An empty message is not damaged. */
    uint64_t damage_message;
    double delay_s;
};

/* Creates the links of `size` ranks. Each of `size` threads then calls rf_comm_open_loopback with a
 * rank of its own, once: links serve one job. opts may be NULL. */
RF_API int rf_loopback_create(int size, const struct rf_loopback_opts *opts,
                              struct rf_loopback **out);

/* Close all of its communicators first. */
RF_EXPORT void rf_loopback_destroy(struct rf_loopback *loopback);

/* Joins as `rank`. Blocks until all ranks have joined. Errors: as rf_comm_open. */
RF_API int rf_comm_open_loopback(struct rf_loopback *loopback, int rank,
                                 const struct rf_comm_opts *opts, struct rf_comm **out);

/* ---- groups ---------------------------------------------------------------------------------- */

/* Makes one communicator for each color >= 0, of the ranks that pass that color, ordered by key,
 * then by rank. A rank that passes a negative color gets NULL. Collective over comm; blocking. The
 * new communicator has comm's provider, job key and timeout, and its own connections. It may be
 * closed before or after comm. Errors: those of rf_comm_open and of the collectives. */
RF_API int rf_comm_split(struct rf_comm *comm, int color, int key, struct rf_comm **out);

/* Reorders the ranks so that as many groups of `together` consecutive ranks as possible lie within
 * one host. `together` must divide the number of ranks. Hosts come in the order of their first
 * ranks. Each host first gives the ranks that fill whole groups, in their old order; the remaining
 * ranks of all hosts follow. Rank 0 keeps its number. *out is a communicator as from rf_comm_split,
 * or NULL if comm already has this order. Collective over comm; blocking. Errors: RF_EINVAL, those
 * of rf_comm_split. */
RF_API int rf_comm_by_host(struct rf_comm *comm, int together, struct rf_comm **out);

/* Makes a communicator of the surviving ranks of comm: those that are alive and call this, in their
 * old order, with the provider, job key and settings of comm. It is meant for use after a failure
 * (RF_EPEER, RF_ETIMEOUT, ...), when every other call on comm is refused. On a healthy communicator
 * it makes one of the same ranks. comm still has to be closed. The semantics are those of MPI's
 * user-level failure mitigation (Bland et al. 2013).
 *   Blocks until all processes that still run have called it. A rank that calls it more than
 * timeout_s (0 = 60) after the others is left out, and gets RF_EPEER.
 *   All ranks that get a communicator agree on its members. If a rank dies during the call, the
 * others start over. If one dies at the very end, some ranks may get a communicator whose first
 * operation fails with RF_EPEER; they call rf_comm_shrink on that one, and meet the others there.
 *   Only a majority continues: more than half of the ranks that may still be running, or exactly
 * half if the lowest of them is included. A rank that has closed its communicator, or whose process
 * is known to have ended, is not counted. A rank on a host that does not answer is counted. A
 * minority gets RF_EPEER, and may try again.
 *   old_ranks: receives the old rank of each new rank; of the size of comm; or NULL. Errors:
 * RF_EINVAL, RF_EPEER, RF_ETIMEOUT, RF_ENOMEM, RF_ENET. */
RF_API int rf_comm_shrink(struct rf_comm *comm, double timeout_s, int *old_ranks,
                          struct rf_comm **out);

/* ---- joining a running job ------------------------------------------------------------------- */

/* The place where processes wait to join a running job. Rank 0 owns it, with a port and a thread of
 * its own. A process is admitted if it proves the job key and its terms match the job's. Any other
 * connection is dropped, including one that sends malformed data or falls silent, without
 * disturbing the job. At most 64 processes wait. Thread-safe. */
struct rf_join_listener;

/* Opens a join listener. Close it with rf_join_listener_close.
 *   comm: the communicator of this rank 0; only read.
 *   port: 0 = any free one. key: NULL = RF_JOB_KEY; RF_EAUTH without one.
 *   terms: lines "name=value", at most 16 KiB, of settings that must be equal on all ranks. The
 * library adds its version and everything else that the message formats depend on. A process is
 * rejected with a message if one of its lines differs from the line of that name, or has no
 * counterpart. Errors: RF_EAUTH, RF_EBUSY (the port is in use), RF_EINVAL, RF_ENOMEM, RF_ENET. */
RF_API int rf_join_listener_open(const struct rf_comm *comm, int port, const char *key,
                                 const char *terms, struct rf_join_listener **out);

/* Rejects all waiting processes with this reason, a sentence. Blocks for at most 2 s. NULL is
 * allowed. */
RF_EXPORT void rf_join_listener_close(struct rf_join_listener *join_listener, const char *reason);

/* The port of the join listener. */
RF_EXPORT int rf_join_listener_port(const struct rf_join_listener *join_listener);

/* The number of waiting processes that answer now. Blocks for at most 0.5 s. */
RF_EXPORT int rf_join_listener_waiting(struct rf_join_listener *join_listener);

/* Sets the message, a sentence, for processes that wait, now and later. */
RF_EXPORT void rf_join_listener_set_status(struct rf_join_listener *join_listener,
                                           const char *text);

/* Makes a larger communicator: the ranks of comm with their numbers, then `count` processes from
 * the join listener. Collective over comm; blocking. join_listener and count are read on rank 0
 * only. comm stays usable. Close both communicators.
 *   opts: as for rf_comm_open, equal on all ranks; may be NULL. rank and size are not read.
 * start_timeout_s (0 = 30) is the time that the new processes have to connect.
 * Errors: RF_EAGAIN on all ranks: some of the new processes left or were late. The message of rank
 * 0 says which; they wait no longer, and comm stays usable. Any other error is one of comm, which
 * has failed then. */
RF_API int rf_comm_grow(struct rf_comm *comm, struct rf_join_listener *join_listener, int count,
                        const struct rf_comm_opts *opts, struct rf_comm **out);

struct rf_join_opts {
    /* As for rf_comm_open; rank and size are not read. start_timeout_s applies to the connection to
     * the join listener, and again to the larger job. */
    struct rf_comm_opts comm;
    const char *terms; /* as for rf_join_listener_open; a missing line takes the value of the job */
    void (*note)(void *user, const char *text); /* shows what this process waits for; or NULL */
    void *user;
};

/* Joins a running job. url is "tcp://host:port" of its join listener. Blocks until the job admits
 * this process, without a limit. If rank 0 of the job ends, or the job continues without this
 * process, it connects again. Errors: RF_EAUTH (wrong or missing job key), RF_EINVAL (the terms
 * differ: the message says which), RF_EBUSY (too many processes wait), RF_EPEER (the job has
 * ended), RF_ETIMEOUT (no join listener answered); those of rf_comm_open. */
RF_API int rf_comm_join(const char *url, const struct rf_join_opts *opts, struct rf_comm **out);

/* ---- facts about a communicator -------------------------------------------------------------- */

RF_EXPORT int rf_comm_rank(const struct rf_comm *comm);

RF_EXPORT int rf_comm_size(const struct rf_comm *comm);

/* "shm", "shm+tcp", ... */
RF_EXPORT const char *rf_comm_provider(const struct rf_comm *comm);

/* The reason why that provider was chosen: one sentence. */
RF_EXPORT const char *rf_comm_why(const struct rf_comm *comm);

/* How messages in memory outside rf_comm_alloc travel within a host: "slots, cached (...)", "slots,
 * streamed (...)" or "peer reads (...)", with the rates measured when the ranks joined; ";
 * exchanges by peer reads" before the parenthesis if exchanges use another way
 * (docs/collectives.md). NULL: ranks share no memory. Owned by the communicator. Any thread. */
RF_EXPORT const char *rf_comm_own_memory(const struct rf_comm *comm);

/* Payload bytes that this rank has sent since it joined. */
RF_EXPORT uint64_t rf_comm_sent_bytes(const struct rf_comm *comm);

RF_EXPORT uint64_t rf_comm_sent_messages(const struct rf_comm *comm);

/* Bytes that this rank has copied between its tensors and staging memory since it joined. 0 if the
 * host can map the memory of all tensors. */
RF_EXPORT uint64_t rf_comm_staged_bytes(const struct rf_comm *comm);

/* Names the track of the trace for the operations of this communicator; the default is "comm". The
 * string must be constant. No operation may be in progress. A run names its communicators by lane
 * (parallel.h), and that of rf_run_open "data". */
RF_EXPORT void rf_comm_set_track(struct rf_comm *comm, const char *track);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Allocates `bytes` of zeroed, page-aligned memory for collectives of this communicator. With the
 * providers shm and shm+tcp it is shared with the ranks of this host, which then read and write it
 * directly instead of through copies. Not collective: each rank decides separately. Any part of the
 * memory may be passed to a call. For other communicators it is ordinary memory. Free it before the
 * communicator is closed. After a failure a slow rank may still write to buffers that were passed
 * to a call. Thread-safe. Errors: RF_ENOMEM. */
RF_API int rf_comm_alloc(struct rf_comm *comm, size_t bytes, void **out);

/* NULL is allowed. Thread-safe. */
RF_EXPORT void rf_comm_free(struct rf_comm *comm, void *memory);

/* Registers memory with the network. Without it, providers with FI_MR_LOCAL (InfiniBand) register
 * the memory of every message; with other providers it has no effect. Speeds up collectives on any
 * part of the memory. Waits for asynchronous operations. Not collective. The memory must stay valid
 * until rf_comm_deregister, which must be called before rf_comm_close. Errors: RF_EINVAL,
 * RF_ENOMEM, RF_ENET (the provider refuses), those of a failed communicator. */
RF_API int rf_comm_register(struct rf_comm *comm, void *memory, size_t bytes,
                            struct rf_registration **out);

/* NULL is allowed. Waits for asynchronous operations. */
RF_EXPORT void rf_comm_deregister(struct rf_registration *registration);

/* ---- providers ------------------------------------------------------------------------------- */

/* A network provider that this machine can use. */
struct rf_provider_info {
    char name[64]; /* the name for rf_comm_opts.provider */
    char address[128];
    char note[128]; /* its use, or the reason why it is not chosen */
    bool chosen;
    bool threads;       /* ranks are threads of one process: rf_comm_open_loopback */
    bool shares_memory; /* ranks can map each other's memory of rf_comm_alloc */
};

/* Lists the usable providers, best first, without joining a job. Fills at most `capacity` records;
 * *count is the total number. wanted: as rf_comm_opts.provider; marks that provider as chosen, or
 * for "auto" the one that ranks of one host would use. Errors: RF_EINVAL (unknown provider: the
 * message lists the available ones), RF_ENET. */
RF_API int rf_provider_list(const char *wanted, struct rf_provider_info *infos, uint32_t capacity,
                            uint32_t *count);

/* The record of one provider, without its address. libfabric is queried only for names that the
 * library does not know. out may be NULL, to check only the name. Errors: as rf_provider_list. */
RF_API int rf_provider_find(const char *wanted, struct rf_provider_info *out);

/* The reason why the network does not read device memory directly (dma-buf): a sentence. */
RF_EXPORT const char *rf_provider_dmabuf_reason(void);

#ifdef __cplusplus
}
#endif
#endif
