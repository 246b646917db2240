/* SPDX-License-Identifier: MIT
 *
 * The format of the messages that communicators send each other over the control link, for
 * control_message.c, which sends them, and control_receive.c, which handles them.
 */
#ifndef RF_COMM_CONTROL_MESSAGE_H
#define RF_COMM_CONTROL_MESSAGE_H

#include "../communicator.h"

enum rf_control_message_kind {
    RF_MESSAGE_WAITING = 0x7266634e,
    RF_MESSAGE_FAILURE,
    RF_MESSAGE_LEAVING,
    RF_MESSAGE_HISTORY,
    RF_MESSAGE_LEFT_OUT,
    RF_MESSAGE_PROBE,
    RF_MESSAGE_DEADLOCK,
    RF_MESSAGE_GAVE_UP,
    RF_MESSAGE_WAIT_QUERY,
    RF_MESSAGE_WAIT_REPLY
};

enum { RF_MESSAGE_RECORDS = 6, RF_MESSAGE_RANKS = 96 };

struct rf_control_message {
    uint32_t kind;
    int32_t reply_from; /* WAITING: the rank that must reply with its call; -1: none */
    uint64_t started;   /* number of collectives that the sender has started */
    union {
        struct {
            uint32_t chain_hash, hash;
            uint64_t count;
            int32_t root;
            uint8_t op, dtype, redop, order, algorithm;
        } last;                       /* LEAVING: rf_peer_state.last */
        struct rf_probe probe;        /* PROBE, DEADLOCK */
        struct rf_call_record record; /* WAITING */
        struct rf_failure failure;    /* FAILURE */
        struct {
            uint32_t count;
            uint32_t last;                                    /* no older records follow */
            struct rf_call_record record[RF_MESSAGE_RECORDS]; /* oldest first */
        } history;                                            /* HISTORY */
        struct {
            uint32_t count;
            int32_t rank[RF_MESSAGE_RANKS];
        } left_out; /* LEFT_OUT */
        struct {
            uint32_t count;
            int32_t rank[RF_REPLY_RANKS];
        } ranks; /* WAIT_QUERY: ranks of the communicator that must reply. WAIT_REPLY: ranks of the
                  * job that the sender waits for */
    };
};

_Static_assert(sizeof(struct rf_control_message) <= sizeof(((struct rf_event *)0)->payload),
               "one control message");

/* WAITING is short, because every rank sends it to all others even without a failure. */
static inline size_t rf_control_message_bytes(const struct rf_control_message *message)
{
    return message->kind == RF_MESSAGE_LEAVING
               ? offsetof(struct rf_control_message, last) + sizeof(message->last)
               : sizeof(*message);
}

/* Announces that this rank leaves, with its last call. */
void rf_comm_send_leaving(struct rf_comm *comm);

/* Sends all recorded calls, the latest first, so that a recent difference is found at once. Sent at
 * most once. */
void rf_comm_send_history(struct rf_comm *comm);

/* ---- call_compare.c -------------------------------------------------------------------------- */

/* Fails the communicator if the peer waits in a send or receive for this rank, while this rank is
 * in the collective `mine` that needs the peer: neither can continue. */
RF_MUST_CHECK int rf_compare_p2p(struct rf_comm *comm, int rank, const struct rf_contract *mine,
                                 const struct rf_exec *exec);

/* Compares two ranks' calls with the same number. */
RF_MUST_CHECK int rf_compare_calls(struct rf_comm *comm, const struct rf_call_record *own, int rank,
                                   const struct rf_call_record *theirs);

/* Compares the last calls of two ranks that are both leaving. */
RF_MUST_CHECK int rf_compare_last(struct rf_comm *comm, int rank);

#endif
