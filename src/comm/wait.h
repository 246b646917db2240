/* SPDX-License-Identifier: MIT
 *
 * A running operation's wait: its monitor, the search for ranks that wait for each other, and the
 * questions that are asked before a rank is blamed.
 */
#ifndef RF_COMM_WAIT_H
#define RF_COMM_WAIT_H

#include <stdatomic.h>

#include "../base/base.h"
#include "../coll/coll.h"

struct rf_comm;
struct rf_wait_graph;

#define RF_QUIET_NS 250000000ull /* without byte progress: suspicious, contracts are compared */
/* How long to wait for the others' word on a failure before going by what is known here. */
#define RF_ASK_NS 600000000ull

/* How ranks that wait for each other find out (cycle.c): who waits in what for whom, from the one
 * who asked on. A circle of more ranks is not found. */
enum { RF_PROBE_HOPS = 12 };
struct rf_probe_hop {
    uint64_t sequence, count;
    int32_t rank, to, root; /* in the job */
    uint32_t number;        /* of the communicator */
    uint8_t op, dtype, redop, order;
};
struct rf_probe {
    uint32_t wait, count; /* wait: which one of the rank that asked */
    struct rf_probe_hop hops[RF_PROBE_HOPS];
};

/* Of one running operation: how long nothing has moved, and whom it waits for. */
struct rf_wait_monitor {
    struct rf_comm *comm;
    const struct rf_contract *mine;
    const struct rf_exec *exec; /* whose messages it waits for; NULL: those of `peer` */
    int peer;                   /* -1 = unknown */
    bool blocking;              /* the caller does nothing else meanwhile */
    bool may_send;              /* something is to be sent as soon as there is room */
    uint64_t timeout_ns;
    uint64_t activity, quiet_activity, quiet_since_ns;
    uint32_t idle;
    bool backed_off, announced;
};

/* What a communicator knows about this rank's own wait. */
struct rf_wait_state {
    const struct rf_wait_monitor *monitor; /* while a blocking call of this communicator, or of
                                            * another one of the family, handles events; or NULL */
    uint32_t probes_sent;
    atomic_ullong last_question; /* the latest question of the family that came here */
    uint64_t answered_questions; /* questions of the family that this rank's waits have answered */
    struct rf_wait_graph *graph; /* while this rank asks others (ask.c); else NULL */
};

/* ---- wait_monitor.c
 * --------------------------------------------------------------------------------- */

void rf_wait_monitor_begin(struct rf_comm *comm, struct rf_wait_monitor *monitor,
                           const struct rf_contract *mine, double timeout_s,
                           const struct rf_exec *exec);
/* After every turn without an end. Yields, watches the control link and the clock. Negative: the
 * communicator has failed. */
RF_MUST_CHECK int rf_wait_monitor_turn(struct rf_comm *comm, struct rf_wait_monitor *monitor,
                                       uint64_t activity);
/* For the worker, which waits for several: only the clock; and, once a turn, only the backoff. */
RF_MUST_CHECK int rf_wait_monitor_check(struct rf_comm *comm, struct rf_wait_monitor *monitor,
                                        uint64_t activity);
void rf_wait_monitor_backoff(const struct rf_comm *comm, struct rf_wait_monitor *monitor,
                             uint64_t activity);

/* ---- spread.c ---------------------------------------------------------------------------------
 */

/* A rank did not come in time, and all say for whom they wait: gives those some time to say so
 * whose group has failed. waits: for whom this rank waits. True: this communicator has failed with
 * it. */
bool rf_comm_failed_by_groups(struct rf_comm *comm, const int *waits, int count);

/* ---- ask.c: who stands still ----------------------------------------------------------------- */

enum { RF_ASK_RANKS = 64, RF_TELL_RANKS = 16 };
/* What asking has found. */
struct rf_silent {
    int rank;  /* did not say for whom it waits; -1: all of them did */
    int first; /* it, or the rank that this one waits for and that waits for it, maybe by others */
    int away;  /* where all did: a rank that waits for one of the job outside of this communicator,
                * `away_for`; -1: there is none */
    int away_for;
};
/* The ranks that this one waits for, which may be itself at fault or wait for others: asks them,
 * and those that they wait for. Who waits, in any communicator of its family, says so at once; who
 * is silent for RF_ASK_NS is found. Blocks as long, and for at most three times as long for each
 * rank of such a chain where this rank's core is busy. Negative: the communicator has failed
 * meanwhile. */
RF_MUST_CHECK int rf_ask(struct rf_comm *comm, const int *waits, int count, struct rf_silent *out);
/* This rank waits, in `comm` and for these ranks of it: tells those who have asked since the last
 * answer, whichever communicator of the family they asked in. Costs one load where nobody has. */
void rf_ask_answer(struct rf_comm *comm, const int *waits, int count);
bool rf_ask_is_asked(const struct rf_comm *comm);
/* In this communicator, at most RF_TELL_RANKS. */
void rf_comm_send_question(struct rf_comm *comm, const int *ranks, int count);
/* Its members hear that this rank waits for these of the job. */
void rf_comm_send_answer(struct rf_comm *comm, const int *in_job, int count);
/* For the control link: notes questions that are for this rank, without a lock. */
void rf_comm_overhear(void *comm, const void *payload, size_t bytes);

/* ---- cycle.c --------------------------------------------------------------------------------- */

/* This rank has been quiet for long: asks whether those it waits for wait for it. */
void rf_cycle_probe(struct rf_comm *comm, const struct rf_wait_monitor *monitor);
/* A probe of `rank` has come; found: with what it has found. Negative: the communicator in which
 * this rank waits has failed. */
RF_MUST_CHECK int rf_cycle_receive(struct rf_comm *comm, int rank, const struct rf_probe *received,
                                   bool found);

#endif
