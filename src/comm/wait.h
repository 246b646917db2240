/* SPDX-License-Identifier: MIT
 *
 * The wait of a running operation: its monitor, the search for deadlocks, and the queries before a
 * rank is blamed for a timeout.
 */
#ifndef RF_COMM_WAIT_H
#define RF_COMM_WAIT_H

#include <stdatomic.h>

#include "../base/base.h"
#include "../coll/coll.h"

struct rf_comm;
struct rf_wait_graph;

/* After this time without progress contracts are compared. */
#define RF_QUIET_NS 250000000ull

/* How long a rank waits for replies of others before it relies on its own knowledge. */
#define RF_QUERY_NS 600000000ull

/* A deadlock probe (deadlock.c): which rank waits for which, in what call, in the order of sending.
 * Deadlocks of more ranks are not found. */
enum { RF_PROBE_HOPS = 12 };

struct rf_probe_hop {
    uint64_t sequence, count;
    int32_t rank, to, root; /* ranks of the job */
    uint32_t number;        /* of the communicator in its family */
    uint8_t op, dtype, redop, order;
};

struct rf_probe {
    uint32_t number; /* of the first rank's probes */
    uint32_t count;  /* of hops */
    struct rf_probe_hop hops[RF_PROBE_HOPS];
};

/* The time without progress of one running operation, and the rank it waits for. */
struct rf_wait_monitor {
    struct rf_comm *comm;
    const struct rf_contract *mine;
    const struct rf_exec *exec; /* the executor whose messages it waits for; NULL: `peer`'s */
    int peer;                   /* -1: unknown */
    bool blocking;              /* the caller is blocked meanwhile */
    bool send_blocked;          /* a send waits for the transport's capacity */
    uint64_t timeout_ns;
    uint64_t activity, quiet_activity, quiet_since_ns;
    uint32_t idle; /* turns without activity */
    bool backed_off, announced;
};

/* A communicator's state about this rank's own wait. */
struct rf_wait_state {
    const struct rf_wait_monitor *monitor; /* while a blocking call of this communicator, or of
                                            * another one of the family, handles events; or NULL */
    uint32_t probes_sent;
    atomic_ullong last_query;    /* the latest wait query of the family that arrived here */
    uint64_t answered_queries;   /* wait queries of the family that this rank has answered */
    struct rf_wait_graph *graph; /* set while this rank sends queries (wait_query.c); else NULL */
};

/* ---- wait_monitor.c -------------------------------------------------------------------------- */

void rf_wait_monitor_begin(struct rf_comm *comm, struct rf_wait_monitor *monitor,
                           const struct rf_contract *mine, double timeout_s,
                           const struct rf_exec *exec);

/* Called after every turn in which the operation has not ended: yields, and handles events and the
 * clock. Negative: the communicator has failed. */
RF_MUST_CHECK int rf_wait_monitor_turn(struct rf_comm *comm, struct rf_wait_monitor *monitor,
                                       uint64_t activity);

/* The same for the worker, which waits in several operations: each checks the clock, and one
 * backoff per turn yields. */
RF_MUST_CHECK int rf_wait_monitor_check(struct rf_comm *comm, struct rf_wait_monitor *monitor,
                                        uint64_t activity);
void rf_wait_monitor_backoff(const struct rf_comm *comm, struct rf_wait_monitor *monitor,
                             uint64_t activity);

/* ---- failure_broadcast.c --------------------------------------------------------------------- */

/* After a timeout in which every rank has replied to wait queries: gives the ranks whose group has
 * failed time to report it. waits: the ranks that this one waits for. True: the communicator has
 * failed. */
bool rf_comm_failed_by_groups(struct rf_comm *comm, const int *waits, int count);

/* ---- wait_query.c: the search for the rank that stalls the others ---------------------------- */

enum { RF_QUERY_RANKS = 64, RF_REPLY_RANKS = 16 };

struct rf_stalled {
    int rank;          /* the rank that did not reply; -1: all replied */
    int via;           /* the rank that this one waits for and that waits, possibly indirectly, for
                        * `rank`; or `rank` itself */
    int elsewhere;     /* if all replied: a rank that waits in another communicator */
    int elsewhere_for; /* for this rank of the job; -1: none */
};

/* Asks the ranks that this one waits for which ranks they wait for, and then those ranks. A rank
 * that waits, in any communicator of its family, replies at once; one that does not reply within
 * RF_QUERY_NS is found. Blocks for that time, and at most three times as long per rank of such a
 * chain if this rank's core is busy. Negative: the communicator has failed meanwhile. */
RF_MUST_CHECK int rf_wait_query(struct rf_comm *comm, const int *waits, int count,
                                struct rf_stalled *out);

/* Replies to all queries since the last reply: this rank waits, in `comm`, for these ranks. Queries
 * may have arrived at any communicator of the family. Costs one load if there are none. */
void rf_wait_query_reply(struct rf_comm *comm, const int *waits, int count);
bool rf_wait_query_pending(const struct rf_comm *comm);

/* At most RF_REPLY_RANKS ranks: of this communicator in a query, of the job in a reply. */
void rf_comm_send_wait_query(struct rf_comm *comm, const int *ranks, int count);
void rf_comm_send_wait_reply(struct rf_comm *comm, const int *job_ranks, int count);

/* The control link's observer: counts queries for this rank, without a lock. */
void rf_wait_query_received(void *comm, const void *payload, size_t bytes);

/* ---- deadlock.c ------------------------------------------------------------------------------ */

/* Sends a probe to the rank that this one waits for. */
void rf_deadlock_probe(struct rf_comm *comm, const struct rf_wait_monitor *monitor);

/* Handles a probe of `rank`. found: it has returned to its first rank, and describes a deadlock.
 * Negative: the communicator in which this rank waits has failed. */
RF_MUST_CHECK int rf_deadlock_receive(struct rf_comm *comm, int rank,
                                      const struct rf_probe *received, bool found);

#endif
