/* SPDX-License-Identifier: MIT
 *
 * The messages of ranks about their own state over the control link, and their handling.
 */
#ifndef RF_COMM_PEER_H
#define RF_COMM_PEER_H

#include "call_record.h"
#include "failure.h"

struct rf_probe;
struct rf_event;
struct rf_exec;

/* The last known state of a peer. */
struct rf_peer_state {
    bool has_waiting;
    struct rf_call_record waiting; /* the collective in which it waits */

    bool has_p2p;
    struct rf_contract p2p; /* the send or receive in which it waits */
    uint64_t p2p_started;   /* number of collectives that it had started then */

    bool has_left;
    uint64_t left_after;        /* number of collectives that it had started when it left */
    struct rf_call_record last; /* its last call, a collective or a later send or receive, without
                                 * label; the hashes are those of the last collective */

    bool gave_up;         /* its wait in a group timed out, so it is not the missing rank */
    bool differs;         /* it made different calls before: both sides send their histories */
    bool history_differs; /* an entry of its history differs */
};

struct rf_peers {
    struct rf_peer_state *states; /* [size] */
    int announced; /* number of peers that wait in an operation which this rank has not started */
    bool leaving;  /* this rank is leaving: its calls are compared with those of leavers */
    int missed;    /* while leaving: a rank that has made more calls than this one; -1: none */
};

/* ---- control_message.c: messages to all other ranks ------------------------------------------ */

/* Announces that this rank waits in `mine`. reply_from: the rank that must reply with its call; -1:
 * none. */
void rf_comm_send_waiting(struct rf_comm *comm, const struct rf_contract *mine, int reply_from);

void rf_comm_send_failure(struct rf_comm *comm, const struct rf_failure *failure);

/* Announces that this rank's wait for another one, in a group of this communicator, has timed out.
 */
void rf_comm_send_gave_up(struct rf_comm *comm);

/* Announces the members of the survivors, for ranks that are not among them but may still run. */
void rf_comm_send_left_out(struct rf_comm *comm, const int *members, int count);

/* found: the probe has returned to its first rank, and describes a deadlock. */
void rf_comm_send_probe(struct rf_comm *comm, const struct rf_probe *probe, bool found);

/* ---- control_receive.c ----------------------------------------------------------------------- */

/* Handles all events of the control link. Negative: the communicator has failed. */
RF_MUST_CHECK int rf_comm_events(struct rf_comm *comm);
RF_MUST_CHECK int rf_comm_receive_event(struct rf_comm *comm, const struct rf_event *event);

/* ---- leave.c --------------------------------------------------------------------------------- */

/* Sends this rank's last call, and compares it with those of the ranks that have left. From now on
 * every rank that leaves is compared. */
RF_MUST_CHECK int rf_comm_begin_leaving(struct rf_comm *comm);

/* All ranks have left. If calls differ, waits a moment for a rank that knows more. */
RF_MUST_CHECK int rf_comm_end_leaving(struct rf_comm *comm);

/* ---- call_compare.c -------------------------------------------------------------------------- */

/* Fails the communicator because a rank that has left made different calls, with the known details.
 */
int rf_comm_fail_leaver(struct rf_comm *comm, int rank);

/* Compares the last call of a rank that has left with this rank's call of the same number. */
RF_MUST_CHECK int rf_comm_compare_leaver(struct rf_comm *comm, int rank);

/* In a collective without progress: whether a peer waits in a send or receive for this rank, so
 * that neither can continue. */
RF_MUST_CHECK int rf_comm_check_p2p(struct rf_comm *comm, const struct rf_contract *mine,
                                    const struct rf_exec *exec);

/* A collective begins: compares it with the calls in which peers have announced that they wait. */
RF_MUST_CHECK int rf_comm_compare_announced(struct rf_comm *comm,
                                            const struct rf_call_record *mine);

/* ---- call_check.c ---------------------------------------------------------------------------- */

/* True if no rank can end its part before every other rank has begun its own. */
bool rf_call_needs_everybody(const struct rf_contract *contract);

#endif
