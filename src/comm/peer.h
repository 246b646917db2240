/* SPDX-License-Identifier: MIT
 *
 * What ranks say about themselves over the control link, and what is made of it.
 */
#ifndef RF_COMM_PEER_H
#define RF_COMM_PEER_H

#include "call_record.h"
#include "failure.h"

struct rf_probe;
struct rf_event;

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

/* ---- control_message.c, control_receive.c, call_compare.c, leave.c --------------------- */

void rf_comm_send_waiting(struct rf_comm *comm, const struct rf_contract *mine, int asked);
void rf_comm_send_failure(struct rf_comm *comm, const struct rf_failure *failure);
/* This rank has waited in vain for another one, in a group of these ranks. */
void rf_comm_send_gave_up(struct rf_comm *comm);
/* Says what this rank has called, and compares with what those said who have left before. From now
 * on whoever leaves is compared. */
RF_MUST_CHECK int rf_comm_begin_leaving(struct rf_comm *comm);
/* All that will be heard has been: waits a moment for the word of those who know more about a
 * difference. */
RF_MUST_CHECK int rf_comm_end_leaving(struct rf_comm *comm);
/* It does not, and the leaver is gone: what is known of it. */
int rf_comm_fail_leaver(struct rf_comm *comm, int rank);
/* Whether what a leaver has said fits this rank's own calls, as far as both have come. */
RF_MUST_CHECK int rf_comm_compare_leaver(struct rf_comm *comm, int rank);
/* Handles everything that the control link has to say. Negative: the communicator has failed. */
RF_MUST_CHECK int rf_comm_events(struct rf_comm *comm);
/* One event of it. */
RF_MUST_CHECK int rf_comm_receive_event(struct rf_comm *comm, const struct rf_event *event);
/* Tells the ranks that are none of these survivors, if they should come back to life. */
void rf_comm_send_left_out(struct rf_comm *comm, const int *members, int count);
/* A collective is stuck: does a peer wait in point to point for this very rank, and so for ever? */
RF_MUST_CHECK int rf_comm_check_p2p(struct rf_comm *comm, const struct rf_contract *mine,
                                    const struct rf_exec *exec);
/* A collective begins: compares it with what waiting peers have said. */
RF_MUST_CHECK int rf_comm_compare_announced(struct rf_comm *comm,
                                            const struct rf_call_record *mine);

/* True where no rank can end its part before every other has begun its own. */
bool rf_call_needs_everybody(const struct rf_contract *contract);
/* found: it has come back, and is what its circle looks like. */
void rf_comm_send_probe(struct rf_comm *comm, const struct rf_probe *probe, bool found);

#endif
