/* SPDX-License-Identifier: MIT
 *
 * Point to point inside comm: the engine (point_to_point.c) and its two state machines
 * (halves.c).
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
    _Alignas(64) uint8_t provider[64];
    int32_t peer;
    bool in_flight, is_slot;
    int status;
    size_t bytes;
    const void *data; /* of a receive, for its checksum */
    uint64_t tag;
};

struct rf_p2p_peer {
    uint64_t sent, taken; /* envelopes */
    struct rf_taken *first, **end;
};

/* What one send or receive needs while it runs. FIRST: its envelope, or the question for the data;
 * SECOND: the data of a long message. */
enum rf_p2p_use { RF_USE_FIRST, RF_USE_SECOND, RF_USE_COUNT };
struct rf_p2p_lane {
    struct rf_p2p_context contexts[RF_USE_COUNT];
    struct rf_p2p_lane *next;
    int peer;
    bool taken, announced, asked; /* of a long send: its envelope is out; its data are wanted */
    uint64_t id;
    uint8_t *outgoing; /* one envelope with room for short data */
};

struct rf_p2p {
    struct rf_comm *comm;
    int size, must_retry;
    struct rf_p2p_peer *peers;
    struct rf_p2p_context *slots; /* [size] */
    uint8_t *rooms;               /* size envelopes with room for short data */
    struct rf_p2p_lane *lanes;    /* all there are */
    uint64_t activity;
    int waiting_for;
    uint64_t overhead_bytes, overhead_messages;
};

/* A lane for one send or receive with `peer`, kept until it is given back. After a failure it is
 * not given back: it goes with the engine. */
RF_MUST_CHECK int rf_p2p_take_lane(struct rf_p2p *p2p, int peer, struct rf_p2p_lane **out);
void rf_p2p_give_lane(struct rf_p2p_lane *lane);
/* Frees all but a few lanes, when none is taken. */
void rf_p2p_trim(struct rf_p2p *p2p);
/* The first message from `peer` with this tag is taken off the list; NULL = none yet. */
struct rf_taken *rf_p2p_take(struct rf_p2p *p2p, int peer, uint32_t tag);
/* These return 0, RF_EAGAIN (nothing was posted) or another negative status. The envelope is in
 * lane->outgoing. */
int rf_p2p_send_envelope(struct rf_p2p *p2p, struct rf_p2p_lane *lane, size_t bytes);
int rf_p2p_send_data(struct rf_p2p *p2p, struct rf_p2p_lane *lane, const void *data, size_t bytes);
int rf_p2p_recv_data(struct rf_p2p *p2p, struct rf_p2p_lane *lane, void *data, size_t bytes);
/* Takes in what the transport has. */
int rf_p2p_poll(struct rf_p2p *p2p);

/* ---- halves.c -------------------------------------------------------------------------------- */

/* A send, or a receive, from its call to its end. */
struct rf_half {
    enum { RF_HALF_START, RF_HALF_WAIT, RF_HALF_LAST, RF_HALF_DONE } state;
    bool is_send, posted; /* posted: the receive of a long message */
    int peer;
    uint32_t tag;
    void *buffer;
    size_t bytes;
    struct rf_p2p_lane *lane;
    struct rf_contract contract;
};
/* Runs them to their ends, all at once. Halves with equal peer and tag keep their order. */
RF_MUST_CHECK int rf_p2p_exchange(struct rf_comm *comm, struct rf_half *halves, size_t count,
                                  double timeout_s);

#endif
