/* SPDX-License-Identifier: MIT
 *
 * Point to point inside comm: what goes out (p2p_post.c), what comes in (p2p_receive.c), a
 * send's and a receive's state machine (p2p_op.c), and the data of long messages (p2p_op_pieces.c).
 *
 * Every message begins with an envelope: tag, contract, and the data if they are short. The
 * envelopes from one peer are numbered, and the receive of the next one is always posted, so
 * whatever comes is taken in: short messages wait in a list until somebody asks for them, and long
 * ones are announced by their envelope and travel when the receiver has said where to. So tags
 * never wait for each other, and a long message never stands in the way of a collective. Short
 * messages that nobody receives stay in memory. Of a long message whose memory the host cannot
 * reach on one of the two sides, each piece travels when the receiver has asked for it.
 */
#ifndef RF_COMM_P2P_H
#define RF_COMM_P2P_H

#include "communicator.h"
#include "staging.h"
#include "task.h"

enum {
    RF_P2P_TAGS = 1024,
    RF_P2P_SHORT = 8192, /* bytes that travel with their envelope */
    RF_P2P_PIECE = RF_SLOT_BYTES,
    RF_P2P_PIECES = 2 /* of a message under way at once */
};

enum rf_envelope_kind {
    RF_ENVELOPE_DATA = 1,     /* the data follow in the same message */
    RF_ENVELOPE_ANNOUNCE,     /* the data wait until they are asked for */
    RF_ENVELOPE_ASK,          /* send the data of announcement `id` now */
    RF_ENVELOPE_ASK_READY,    /* say when all messages of collective `id` can come */
    RF_ENVELOPE_ASK_BEGUN,    /* say when collective `id` runs, and so takes in what comes */
    RF_ENVELOPE_READY,        /* the answer to either */
    RF_ENVELOPE_ANNOUNCE_CUT, /* as announce: the sender needs pieces of RF_P2P_PIECE bytes */
    RF_ENVELOPE_ASK_CUT       /* as ask: send the next of such pieces now */
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
    _Alignas(64) struct rf_transport_context provider; /* its owner is the rf_p2p */
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
    uint32_t *kept; /* [RF_P2P_TAGS] messages in the list; NULL: there has never been one */
    size_t held;    /* sends and receives with it that the worker has not begun yet */
};

/* What one send or receive needs while it runs. FIRST: its envelope, or the question for the data;
 * SECOND and on: pieces of the data of a long message. */
enum rf_p2p_use { RF_USE_FIRST, RF_USE_SECOND, RF_USE_COUNT = RF_USE_SECOND + RF_P2P_PIECES };

struct rf_p2p_piece {
    enum {
        RF_PIECE_IDLE,
        RF_PIECE_COPIED,
        RF_PIECE_READY,
        RF_PIECE_POSTED,
        RF_PIECE_ASKED,
        RF_PIECE_ENDED
    } state;
    struct rf_slot *slot; /* NULL: it is sent or received in place */
};

struct rf_p2p_lane {
    struct rf_p2p_context contexts[RF_USE_COUNT];
    struct rf_p2p_lane *next;
    int peer;
    bool taken, announced; /* announced: the envelope of a long send is out */
    bool cut;              /* both sides use pieces of RF_P2P_PIECE bytes */
    uint64_t asked;        /* pieces that the receiver has asked for */
    uint64_t ended;        /* pieces before this one have ended */
    struct rf_p2p_piece pieces[RF_P2P_PIECES];
    uint64_t id;
    uint8_t *outgoing; /* one envelope with room for short data */
};

/* An envelope without data, until it is gone. */
struct rf_say {
    struct rf_say *next;
    struct rf_p2p_lane *lane; /* NULL: not posted yet */
    struct rf_envelope envelope;
    int peer;
};

/* A peer that waits for this rank's answer about a collective. */
struct rf_ask {
    int peer;
    bool begun; /* or that all receives are posted */
    uint64_t sequence;
};

struct rf_p2p {
    struct rf_comm *comm;
    int size, must_retry;
    struct rf_p2p_peer *peers;
    struct rf_p2p_context *slots; /* [size] */
    uint8_t *rooms;               /* size envelopes with room for short data */
    struct rf_p2p_lane *lanes;    /* all there are */
    struct rf_say *says;
    struct rf_ask *asks;
    size_t ask_count, ask_room;
    uint64_t activity;
    uint64_t overhead_bytes, overhead_messages;
};

/* The slot of a peer's next envelope. */
#define RF_P2P_SLOT (sizeof(struct rf_envelope) + RF_P2P_SHORT)

static inline uint64_t rf_p2p_envelope_tag(uint64_t number)
{
    return RF_TAG(RF_TAG_P2P, number, 0);
}
/* What goes with a message besides its data. */
static inline uint32_t rf_p2p_seal(const struct rf_p2p *p2p, int from, int to, uint64_t tag,
                                   const void *data, size_t bytes)
{
    if (!p2p->comm->settings.checksum)
        return 0;
    uint32_t link = ((uint32_t)from << 16 ^ (uint32_t)to) * 0xc2b2ae3du;
    return rf_checksum(data, bytes, (uint32_t)(tag ^ tag >> 24) ^ link);
}

/* A lane for one send or receive with `peer`, kept until it is given back. After a failure it is
 * not given back: it goes with the engine. */
RF_MUST_CHECK int rf_p2p_take_lane(struct rf_p2p *p2p, int peer, struct rf_p2p_lane **out);
void rf_p2p_give_lane(struct rf_p2p_lane *lane);
/* Frees all but a few lanes, when none is taken. */
void rf_p2p_trim(struct rf_p2p *p2p);
/* All but the first `keep`. */
void rf_p2p_free_lanes(struct rf_p2p *p2p, int keep);
/* The first message from `peer` with this tag is taken off the list; NULL = none yet. */
struct rf_taken *rf_p2p_take(struct rf_p2p *p2p, int peer, uint32_t tag);
/* These return 0, RF_EAGAIN (nothing was posted) or another negative status. The envelope is in
 * lane->outgoing. */
int rf_p2p_send_envelope(struct rf_p2p *p2p, struct rf_p2p_lane *lane, size_t bytes);
/* Piece number `piece` of a long message. */
int rf_p2p_send_data(struct rf_p2p *p2p, struct rf_p2p_lane *lane, uint64_t piece, const void *data,
                     size_t bytes);
int rf_p2p_recv_data(struct rf_p2p *p2p, struct rf_p2p_lane *lane, uint64_t piece, void *data,
                     size_t bytes);
static inline struct rf_p2p_context *rf_p2p_data_context(struct rf_p2p_lane *lane, uint64_t piece)
{
    return &lane->contexts[RF_USE_SECOND + piece % RF_P2P_PIECES];
}
static inline bool rf_envelope_announces(const struct rf_envelope *envelope)
{
    return envelope->kind == RF_ENVELOPE_ANNOUNCE || envelope->kind == RF_ENVELOPE_ANNOUNCE_CUT;
}
/* Sends an envelope of this kind as soon as there is room. */
RF_MUST_CHECK int rf_p2p_say(struct rf_p2p *p2p, int peer, enum rf_envelope_kind kind, uint64_t id);
RF_MUST_CHECK int rf_p2p_advance_says(struct rf_p2p *p2p);
/* Keeps a message of this rank to itself, until it is taken. */
RF_MUST_CHECK int rf_p2p_keep(struct rf_p2p *p2p, const struct rf_envelope *envelope,
                              const void *data, size_t bytes);
/* Takes in what the transport has; no collective is running. */
int rf_p2p_poll(struct rf_p2p *p2p);

/* ---- p2p_op.c -------------------------------------------------------------------------------- */

/* A send, or a receive, from its call to its end. */
struct rf_p2p_op {
    enum { RF_P2P_OP_START, RF_P2P_OP_WAIT, RF_P2P_OP_STORE, RF_P2P_OP_LAST, RF_P2P_OP_DONE } state;
    bool is_send, paired; /* paired: of a message to itself in a group, its send has been found */
    int peer;
    uint32_t tag;
    void *buffer; /* NULL where the host cannot reach the data, or there are none */
    size_t bytes;
    struct rf_buffer *remote; /* where the data are, from byte `remote_at` on, if out of reach */
    uint64_t remote_at;
    void *kept;               /* memory of its own: data on their way to or from `remote` */
    size_t moved;             /* bytes of them */
    struct rf_slot *slot;     /* through which they go; NULL: none now */
    struct rf_p2p_lane *lane; /* NULL: it needs none now */
    struct rf_contract contract;
};
/* A send of this rank to itself: the message is kept until it is received. */
RF_MUST_CHECK int rf_p2p_keep_own(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op);
/* One turn of all that have not ended. *open: the first of them; NULL = there is none. On failure
 * the one that failed. *full: a send has found no room, so those behind it must not begin. */
RF_MUST_CHECK int rf_p2p_advance(struct rf_p2p *p2p, struct rf_p2p_op *p2p_ops, size_t count,
                                 bool *full, struct rf_p2p_op **open);
/* Brings the data of a send that leave with its envelope into the host's reach: 1 = they are there;
 * 0 = a copy is under way. */
RF_MUST_CHECK int rf_p2p_fetch(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op);
bool rf_p2p_must_fetch(const struct rf_p2p *p2p, const struct rf_p2p_op *p2p_op);
/* Runs them to their ends, all at once. Halves with equal peer and tag keep their order. */
RF_MUST_CHECK int rf_p2p_exchange(struct rf_comm *comm, struct rf_p2p_op *p2p_ops, size_t count,
                                  double timeout_s);

/* ---- p2p_op_pieces.c: data that travel when they are asked for ----------------------------------
 */

/* One turn of the pieces; p2p_op->state is RF_P2P_OP_DONE when all have ended. */
RF_MUST_CHECK int rf_p2p_send_pieces(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op);
RF_MUST_CHECK int rf_p2p_recv_pieces(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op);
/* Whether this side cannot take the message in one piece. */
static inline bool rf_p2p_op_must_cut(const struct rf_p2p_op *p2p_op)
{
    return p2p_op->remote && p2p_op->bytes > RF_P2P_PIECE;
}

/* ---- send_recv.c ------------------------------------------------------------------------------
 */

/* Checks the arguments of a send or receive. `data`: what must not be NULL where there are
 * elements. */
RF_MUST_CHECK int rf_p2p_op_check(const struct rf_comm *comm, const char *name, const void *data,
                                  size_t count, enum rf_dtype dtype, int peer, int tag,
                                  const struct rf_coll_opts *opts);
struct rf_p2p_op rf_p2p_op_of(enum rf_coll_op op, const void *buffer, size_t count,
                              enum rf_dtype dtype, int peer, int tag,
                              const struct rf_coll_opts *opts);
/* Runs, queues or notes the job, which has p2p_ops, by the options. */
RF_MUST_CHECK int rf_p2p_ops_start(struct rf_comm *comm, struct rf_task *job,
                                   const struct rf_coll_opts *opts);

/* ---- p2p_receive.c: the engine; send_recv.c: the calls ------------------------------------ */

int rf_p2p_create(struct rf_comm *comm, struct rf_p2p **out);
void rf_p2p_destroy(struct rf_p2p *p2p); /* after the transport */
/* Handles one completion if it belongs to point to point: 1; 0 = not ours; negative = failed. */
int rf_p2p_completion(struct rf_p2p *p2p, const struct rf_completion *completion);
/* Posts again what found no room before. */
int rf_p2p_retry(struct rf_p2p *p2p);
bool rf_p2p_must_retry(const struct rf_p2p *p2p);
/* The peer said that it waits for this rank in `point`: has this rank done its part? */
bool rf_p2p_has_served(const struct rf_p2p *p2p, int peer, const struct rf_contract *point);
/* Certainly not, and it takes another call of this rank to do so. */
bool rf_p2p_owes(const struct rf_p2p *p2p, int peer, const struct rf_contract *point);
/* Envelopes are no payload: to be taken off the transport's counters. */
void rf_p2p_overhead(const struct rf_p2p *p2p, uint64_t *bytes, uint64_t *messages);

/* demux.c: a transport that hands point-to-point completions to p2p and all others to its caller.
 */
int rf_demux_create(struct rf_transport *transport, struct rf_p2p **p2p, struct rf_transport **out);
void rf_demux_destroy(struct rf_transport *demux); /* leaves the transport alone */

#endif
