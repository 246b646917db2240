/* SPDX-License-Identifier: MIT
 *
 * What ranks send each other about themselves over the control link, and how it is handled.
 */
#ifndef RF_COMM_PEER_H
#define RF_COMM_PEER_H

#include "call_record.h"
#include "failure.h"

struct rf_probe;
struct rf_event;
struct rf_exec;

/* The last things that a peer has said about itself. */
struct rf_peer_state {
    bool has_waiting;
    struct rf_call_record waiting; /* the collective that it waits in */

    bool has_p2p;
    struct rf_contract p2p; /* the send or receive that it waits in */
    uint64_t p2p_started;   /* collectives that it had started then */

    bool has_left;
    uint64_t left_after;        /* collectives that it had started when it left */
    struct rf_call_record last; /* its last call, a collective or a later send or receive, without
                                 * label; the hashes are those of the last collective */

    bool gave_up;         /* it waited in vain in a group, so it is not the rank that others miss */
    bool differs;         /* it called other things before: both sides send their histories */
    bool history_differs; /* an entry of the history that it sent */
};

struct rf_peers {
    struct rf_peer_state *states; /* [size] */
    int announced; /* peers that wait in an operation which this rank has not started */
    bool leaving;  /* this rank leaves: what it called is compared with what leavers called */
    int missed;    /* while leaving: a rank that has called more than this one; -1: none */
};

/* ---- control_message.c: messages to all other ranks ------------------------------------------ */

/* This rank waits in `mine`. reply_from: this rank is to reply with what it called; -1: none. */
void rf_comm_send_waiting(struct rf_comm *comm, const struct rf_contract *mine, int reply_from);

void rf_comm_send_failure(struct rf_comm *comm, const struct rf_failure *failure);

/* This rank has waited in vain for another one, in a group of this communicator. */
void rf_comm_send_gave_up(struct rf_comm *comm);

/* The survivors are these members: for the ranks that are none of them, should they still run. */
void rf_comm_send_left_out(struct rf_comm *comm, const int *members, int count);

/* found: the probe has come back to its first rank, and describes a deadlock. */
void rf_comm_send_probe(struct rf_comm *comm, const struct rf_probe *probe, bool found);

/* ---- control_receive.c ----------------------------------------------------------------------- */

/* Handles all events of the control link. Negative: the communicator has failed. */
RF_MUST_CHECK int rf_comm_events(struct rf_comm *comm);
RF_MUST_CHECK int rf_comm_receive_event(struct rf_comm *comm, const struct rf_event *event);

/* ---- leave.c --------------------------------------------------------------------------------- */

/* Sends this rank's last call, and compares it with those of the ranks that have left. From now on
 * every rank that leaves is compared. */
RF_MUST_CHECK int rf_comm_begin_leaving(struct rf_comm *comm);

/* All ranks have left. Where calls differ, waits a moment for a rank that knows more. */
RF_MUST_CHECK int rf_comm_end_leaving(struct rf_comm *comm);

/* ---- call_compare.c -------------------------------------------------------------------------- */

/* Fails the communicator because a rank that has left called other things: with what is known. */
int rf_comm_fail_leaver(struct rf_comm *comm, int rank);

/* Compares the last call of a rank that has left with this rank's call of that number. */
RF_MUST_CHECK int rf_comm_compare_leaver(struct rf_comm *comm, int rank);

/* In a collective without progress: whether a peer waits in a send or receive for this very rank,
 * so that neither can go on. */
RF_MUST_CHECK int rf_comm_check_p2p(struct rf_comm *comm, const struct rf_contract *mine,
                                    const struct rf_exec *exec);

/* A collective begins: compares it with the calls in which peers have said that they wait. */
RF_MUST_CHECK int rf_comm_compare_announced(struct rf_comm *comm,
                                            const struct rf_call_record *mine);

/* ---- call_check.c ---------------------------------------------------------------------------- */

/* True where no rank can end its part before every other rank has begun its own. */
bool rf_call_needs_everybody(const struct rf_contract *contract);

#endif
