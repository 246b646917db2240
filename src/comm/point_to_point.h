/* SPDX-License-Identifier: MIT
 *
 * Point to point inside comm: the engine (point_to_point.c) and its two state machines
 * (send_recv.c).
 *
 * Every message begins with an envelope: tag, contract, and the data if they are short. The
 * envelopes from one peer are numbered, and the receive of the next one is always posted, so
 * whatever comes is taken in: short messages wait in a list until somebody asks for them, and long
 * ones are announced by their envelope and travel when the receiver has said where to. So tags
 * never wait for each other, and a long message never stands in the way of a collective. Short
 * messages that nobody receives stay in memory.
 */
#ifndef RF_COMM_P2P_H
#define RF_COMM_P2P_H

#include "communicator.h"

enum {
    RF_P2P_TAGS = 1024,
    RF_P2P_SHORT = 8192 /* bytes that travel with their envelope */
};

enum rf_envelope_kind {
    RF_ENVELOPE_DATA = 1, /* the data follow in the same message */
    RF_ENVELOPE_ANNOUNCE, /* the data wait until they are asked for */
    RF_ENVELOPE_ASK       /* send the data of announcement `id` now */
};

struct rf_envelope {
    uint32_t kind, tag;
    uint64_t id; /* number of the sender's data or announcement envelope */
    struct rf_contract contract;
};

/* A message that was taken in and not yet received. */
struct rf_taken {
    struct rf_taken *next;
    struct rf_envelope envelope;
    size_t bytes; /* of data behind this struct */
};

/* What a provider may use of a posted operation, and where its end is noted. */
struct rf_p2p_context {
    uint8_t provider[64];
    int32_t peer;
    bool in_flight, is_slot;
    int status;
    size_t bytes;
    const void *data; /* of a receive, for its checksum */
    uint64_t tag;
};

struct rf_p2p_peer {
    uint64_t sent, taken; /* envelopes */
    uint64_t asked;       /* id of the last of our announcements that it asked for, plus 1 */
    uint64_t answered;    /* id of the last of its announcements that we asked for, plus 1 */
    struct rf_taken *first, **end;
};

/* Contexts that are not slots: one of each is enough, as one call runs at a time. */
enum rf_p2p_use { RF_USE_ENVELOPE, RF_USE_DATA, RF_USE_ASK, RF_USE_RECV, RF_USE_COUNT };

struct rf_p2p {
    struct rf_comm *comm;
    int size, must_retry;
    struct rf_p2p_peer *peers;
    struct rf_p2p_context *contexts; /* size slots, then RF_USE_COUNT */
    uint8_t *slots;                  /* size envelopes with room for short data */
    uint8_t *outgoing;               /* one envelope with data */
    struct rf_envelope ask;
    uint64_t activity;
    int waiting_for;
    uint64_t overhead_bytes, overhead_messages;
};

struct rf_p2p_context *rf_p2p_context(struct rf_p2p *p2p, enum rf_p2p_use use);
/* The first message from `peer` with this tag is taken off the list; NULL = none yet. */
struct rf_taken *rf_p2p_take(struct rf_p2p *p2p, int peer, uint32_t tag);
/* Both return 0, RF_EAGAIN (nothing was posted) or another negative status. */
int rf_p2p_send_envelope(struct rf_p2p *p2p, int peer, const struct rf_envelope *envelope,
                         size_t bytes, enum rf_p2p_use use);
int rf_p2p_send_data(struct rf_p2p *p2p, int peer, uint64_t id, const void *data, size_t bytes);
int rf_p2p_recv_data(struct rf_p2p *p2p, int peer, uint64_t id, void *data, size_t bytes);
/* Takes in what the transport has. */
int rf_p2p_poll(struct rf_p2p *p2p);

#endif
