/* SPDX-License-Identifier: MIT
 *
 * Messages that communicators send each other over the control link: their form, for the files that
 * write them (control_message.c) and read them (control_receive.c).
 */
#ifndef RF_COMM_CONTROL_MESSAGE_H
#define RF_COMM_CONTROL_MESSAGE_H

#include "communicator.h"

enum rf_control_message_kind {
    RF_MESSAGE_WAITING = 0x7266634e,
    RF_MESSAGE_FAILURE,
    RF_MESSAGE_LEAVING,
    RF_MESSAGE_HISTORY,
    RF_MESSAGE_LEFT_OUT,
    RF_MESSAGE_PROBE,
    RF_MESSAGE_CIRCLE,
    RF_MESSAGE_GAVE_UP,
    RF_MESSAGE_QUESTION,
    RF_MESSAGE_ANSWER
};

enum { RF_MESSAGE_RECORDS = 6, RF_MESSAGE_RANKS = 96 };

struct rf_control_message {
    uint32_t kind;
    int32_t asked;    /* RF_MESSAGE_WAITING: this rank is to say what it called; -1 = nobody */
    uint64_t started; /* collectives that the sender has started */
    union {
        struct {
            uint32_t chain_hash, hash;
            uint64_t count;
            int32_t root;
            uint8_t op, dtype, redop, order, algorithm;
        } last;                       /* RF_MESSAGE_LEAVING: as rf_peer_state has it */
        struct rf_probe probe;        /* RF_MESSAGE_PROBE, RF_MESSAGE_CIRCLE */
        struct rf_call_record record; /* RF_MESSAGE_WAITING */
        struct rf_failure failure;    /* RF_MESSAGE_FAILURE */
        struct {
            uint32_t count, last;
            struct rf_call_record
                record[RF_MESSAGE_RECORDS]; /* oldest first; last: there is nothing older */
        } history;                          /* RF_MESSAGE_HISTORY */
        struct {
            uint32_t count;
            int32_t rank[RF_MESSAGE_RANKS];
        } left_out; /* RF_MESSAGE_LEFT_OUT */
        struct {
            uint32_t count;
            int32_t rank[RF_TELL_RANKS]; /* of the communicator; RF_MESSAGE_ANSWER: of the job */
        } ranks; /* RF_MESSAGE_QUESTION, RF_MESSAGE_ANSWER: who is to say for whom it waits,
                  * for whom the sender does */
    };
};

_Static_assert(sizeof(struct rf_control_message) <= sizeof(((struct rf_event *)0)->payload),
               "one control message");

/* Messages of which every rank sends one when all is well, to all others, are short. */
static inline size_t rf_control_message_bytes(const struct rf_control_message *message)
{
    return message->kind == RF_MESSAGE_LEAVING
               ? offsetof(struct rf_control_message, last) + sizeof(message->last)
               : sizeof(*message);
}

/* What this rank has called last, and that it leaves. */
void rf_comm_send_leaving(struct rf_comm *comm);
/* All calls that this rank remembers, the latest first: so a recent difference is found at once.
 * Once. */
void rf_comm_send_history(struct rf_comm *comm);

/* ---- call_compare.c ------------------------------------------------------------------------- */

/* The peer waits in a send or receive for this rank, which is in the collective `mine` that the
 * peer has not begun and must take part in: neither can ever go on. */
RF_MUST_CHECK int rf_compare_p2p(struct rf_comm *comm, int rank, const struct rf_contract *mine,
                                 const struct rf_exec *exec);
/* Both ranks have come to this operation. */
RF_MUST_CHECK int rf_compare_calls(struct rf_comm *comm, const struct rf_call_record *own, int rank,
                                   const struct rf_call_record *theirs);
/* Both leave, so nothing will follow in which they could differ. */
RF_MUST_CHECK int rf_compare_last(struct rf_comm *comm, int rank);

#endif
