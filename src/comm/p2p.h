/* SPDX-License-Identifier: MIT
 *
 * Point to point inside comm: outgoing (p2p_post.c) and incoming messages (p2p_receive.c), the
 * state machine of a send or receive (p2p_op.c), and the data of long messages (p2p_op_pieces.c).
 *
 * Every message begins with an envelope: tag, contract, and short data. Envelopes from one peer are
 * numbered, and the receive of the next one is always posted. An unexpected short message waits in
 * a list (eager protocol). The envelope of a long message only announces it; its data are sent once
 * the receiver has posted their receive (rendezvous protocol). So tags never wait for each other,
 * and a long message never delays a collective.
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
    RF_P2P_PIECES = 2 /* pieces of one message in transfer at once */
};

enum rf_envelope_kind {
    RF_ENVELOPE_EAGER = 1,            /* the data follow in the same message */
    RF_ENVELOPE_READY_TO_SEND,        /* announces a long message */
    RF_ENVELOPE_CLEAR_TO_SEND,        /* the receive of long message `id` is posted */
    RF_ENVELOPE_AWAIT_POSTED,         /* reply once all receives of collective `id` are posted */
    RF_ENVELOPE_AWAIT_BEGUN,          /* reply once collective `id` has begun */
    RF_ENVELOPE_GO_AHEAD,             /* the reply to either */
    RF_ENVELOPE_READY_TO_SEND_PIECES, /* as READY_TO_SEND; the sender needs pieces */
    RF_ENVELOPE_CLEAR_TO_SEND_PIECE   /* as CLEAR_TO_SEND, for the next piece */
};

struct rf_envelope {
    uint32_t kind, tag;
    uint64_t id; /* number of the sender's EAGER or READY_TO_SEND envelope */
    struct rf_contract contract;
};

/* A message that arrived before its receive was called. */
struct rf_unexpected {
    struct rf_unexpected *next;
    struct rf_envelope envelope;
    size_t bytes; /* of the data after this struct */
};

/* The context of a posted operation. */
struct rf_p2p_context {
    _Alignas(64) struct rf_transport_context provider; /* its owner is the rf_p2p */
    int32_t peer;
    bool in_flight;
    bool is_envelope; /* in rf_p2p.envelope_receives */
    int status;
    size_t bytes;
    const void *data; /* for a receive, for its checksum */
    uint64_t tag;
};

struct rf_p2p_peer {
    uint64_t sent, received;          /* envelopes */
    struct rf_unexpected *unexpected; /* a list in the order of arrival */
    struct rf_unexpected **unexpected_end;
    uint32_t *unexpected_by_tag; /* [RF_P2P_TAGS] number of them; NULL: none so far */
    size_t held_tasks;           /* sends and receives that the worker has not begun */
};

/* The contexts of a lane. ENVELOPE: its envelope, or CLEAR_TO_SEND; from DATA on: pieces. */
enum rf_p2p_use { RF_USE_ENVELOPE, RF_USE_DATA, RF_USE_COUNT = RF_USE_DATA + RF_P2P_PIECES };

struct rf_p2p_piece {
    enum {
        RF_PIECE_IDLE,
        RF_PIECE_COPIED,
        RF_PIECE_READY,
        RF_PIECE_POSTED,
        RF_PIECE_REQUESTED,
        RF_PIECE_ENDED
    } state;
    struct rf_slot *slot; /* NULL: sent or received in place */
};

/* The resources of one send or receive while it runs. */
struct rf_p2p_lane {
    struct rf_p2p_context contexts[RF_USE_COUNT];
    struct rf_p2p_lane *next;
    int peer;
    bool in_use;
    bool announced;     /* the envelope of a long send has been posted */
    bool in_pieces;     /* both sides use pieces of RF_P2P_PIECE bytes */
    uint64_t requested; /* pieces that the receiver has requested */
    uint64_t ended;     /* all pieces before this one have ended */
    struct rf_p2p_piece pieces[RF_P2P_PIECES];
    uint64_t id;
    uint8_t *outgoing; /* RF_P2P_ENVELOPE_BYTES: one envelope and short data */
};

/* An envelope without data, until it has been sent. */
struct rf_control_envelope {
    struct rf_control_envelope *next;
    struct rf_p2p_lane *lane; /* NULL: not posted yet */
    struct rf_envelope envelope;
    int peer;
};

/* A peer waits for a GO_AHEAD of this rank (flow_control.c). */
struct rf_ready_request {
    int peer;
    bool begun; /* wait until the collective has begun; else until all its receives are posted */
    uint64_t sequence;
};

struct rf_p2p {
    struct rf_comm *comm;
    int size, must_retry;
    struct rf_p2p_peer *peers;
    struct rf_p2p_context *envelope_receives; /* [size] */
    uint8_t *envelope_buffers;                /* [size * RF_P2P_ENVELOPE_BYTES] */
    struct rf_p2p_lane *lanes;                /* all there are */
    struct rf_control_envelope *control_envelopes;
    struct rf_ready_request *ready_requests;
    size_t ready_request_count, ready_request_capacity;
    uint64_t activity;
    uint64_t overhead_bytes, overhead_messages;
};

#define RF_P2P_ENVELOPE_BYTES (sizeof(struct rf_envelope) + RF_P2P_SHORT)

static inline uint64_t rf_p2p_envelope_tag(uint64_t number)
{
    return RF_TAG(RF_TAG_P2P, number, 0);
}

/* The contract field of a message: a checksum, or 0 if checksums are off. */
static inline uint32_t rf_p2p_checksum(const struct rf_p2p *p2p, int from, int to, uint64_t tag,
                                       const void *data, size_t bytes)
{
    if (!p2p->comm->settings.checksum)
        return 0;
    uint32_t link = ((uint32_t)from << 16 ^ (uint32_t)to) * 0xc2b2ae3du;
    return rf_checksum(data, bytes, (uint32_t)(tag ^ tag >> 24) ^ link);
}

static inline struct rf_p2p_context *rf_p2p_data_context(struct rf_p2p_lane *lane, uint64_t piece)
{
    return &lane->contexts[RF_USE_DATA + piece % RF_P2P_PIECES];
}

static inline bool rf_envelope_announces(const struct rf_envelope *envelope)
{
    return envelope->kind == RF_ENVELOPE_READY_TO_SEND ||
           envelope->kind == RF_ENVELOPE_READY_TO_SEND_PIECES;
}

/* ---- p2p_post.c ------------------------------------------------------------------------------ */

/* Takes a lane for one send or receive with `peer`. The caller gives it back; after a failure it is
 * freed with the rf_p2p. */
RF_MUST_CHECK int rf_p2p_take_lane(struct rf_p2p *p2p, int peer, struct rf_p2p_lane **out);
void rf_p2p_give_lane(struct rf_p2p_lane *lane);

/* Frees all lanes except a few if none is in use. */
void rf_p2p_trim(struct rf_p2p *p2p);

/* Frees all lanes except the first `keep`. */
void rf_p2p_free_lanes(struct rf_p2p *p2p, int keep);

/* These three return 0, RF_EAGAIN (nothing was posted) or another negative status. The envelope is
 * in lane->outgoing. */
int rf_p2p_send_envelope(struct rf_p2p *p2p, struct rf_p2p_lane *lane, size_t bytes);
int rf_p2p_send_data(struct rf_p2p *p2p, struct rf_p2p_lane *lane, uint64_t piece, const void *data,
                     size_t bytes);
int rf_p2p_recv_data(struct rf_p2p *p2p, struct rf_p2p_lane *lane, uint64_t piece, void *data,
                     size_t bytes);

/* Queues an envelope without data. rf_p2p_advance_control posts what is queued. */
RF_MUST_CHECK int rf_p2p_send_control(struct rf_p2p *p2p, int peer, enum rf_envelope_kind kind,
                                      uint64_t id);
RF_MUST_CHECK int rf_p2p_advance_control(struct rf_p2p *p2p);

/* ---- p2p_op.c -------------------------------------------------------------------------------- */

/* A send or a receive. */
struct rf_p2p_op {
    enum { RF_P2P_OP_START, RF_P2P_OP_WAIT, RF_P2P_OP_STORE, RF_P2P_OP_LAST, RF_P2P_OP_DONE } state;
    bool is_send;
    bool matched; /* in a group, from this rank to itself: its counterpart has been found */
    int peer;
    uint32_t tag;
    void *buffer; /* NULL: the host cannot reach the data, or there are none */
    size_t bytes;
    struct rf_buffer *remote; /* device memory that the host cannot reach; NULL: `buffer` */
    uint64_t remote_offset;
    void *copy;               /* host memory for data between the message and `remote` */
    size_t copied;            /* bytes between `copy` and `remote` so far */
    struct rf_slot *slot;     /* for that copy; NULL: none at present */
    struct rf_p2p_lane *lane; /* NULL: none now */
    struct rf_contract contract;
};

/* A send of this rank to itself: the message is stored until it is received. */
RF_MUST_CHECK int rf_p2p_send_to_self(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op);

/* One turn of all unfinished ones. *unfinished: the first of them, or NULL; on failure the one that
 * failed. *send_blocked: a send could not be posted, so later ones must not begin. */
RF_MUST_CHECK int rf_p2p_advance(struct rf_p2p *p2p, struct rf_p2p_op *p2p_ops, size_t count,
                                 bool *send_blocked, struct rf_p2p_op **unfinished);

/* Copies data that are sent with their envelope from device memory to the host. 1: finished; 0: the
 * copy is in progress. */
RF_MUST_CHECK int rf_p2p_fetch(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op);
bool rf_p2p_must_fetch(const struct rf_p2p *p2p, const struct rf_p2p_op *p2p_op);

/* Runs all of them to their ends, concurrently. Those with equal peer and tag keep their order. */
RF_MUST_CHECK int rf_p2p_exchange(struct rf_comm *comm, struct rf_p2p_op *p2p_ops, size_t count,
                                  double timeout_s);

/* ---- p2p_op_pieces.c: the data of long messages ---------------------------------------------- */

/* One turn of the pieces. p2p_op->state is RF_P2P_OP_DONE once all have ended. */
RF_MUST_CHECK int rf_p2p_send_pieces(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op);
RF_MUST_CHECK int rf_p2p_recv_pieces(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op);

/* Whether this side cannot handle the message in one piece. */
static inline bool rf_p2p_op_needs_pieces(const struct rf_p2p_op *p2p_op)
{
    return p2p_op->remote && p2p_op->bytes > RF_P2P_PIECE;
}

/* ---- send_recv.c ----------------------------------------------------------------------------- */

/* Checks the arguments of a send or receive. `data` must not be NULL if there are elements. */
RF_MUST_CHECK int rf_p2p_op_check(const struct rf_comm *comm, const char *name, const void *data,
                                  size_t count, enum rf_dtype dtype, int peer, int tag,
                                  const struct rf_coll_opts *opts);
struct rf_p2p_op rf_p2p_op_of(enum rf_coll_op op, const void *buffer, size_t count,
                              enum rf_dtype dtype, int peer, int tag,
                              const struct rf_coll_opts *opts);

/* Runs the sends and receives of a task, queues them, or adds them to the group. */
RF_MUST_CHECK int rf_p2p_ops_start(struct rf_comm *comm, struct rf_task *job,
                                   const struct rf_coll_opts *opts);

/* ---- p2p_receive.c --------------------------------------------------------------------------- */

int rf_p2p_create(struct rf_comm *comm, struct rf_p2p **out);
void rf_p2p_destroy(struct rf_p2p *p2p); /* after the transport */

/* Handles a completion. 1: done; 0: it is not a point-to-point completion. */
int rf_p2p_completion(struct rf_p2p *p2p, const struct rf_completion *completion);

/* Retries posting what the transport had no capacity for. */
int rf_p2p_retry(struct rf_p2p *p2p);
bool rf_p2p_must_retry(const struct rf_p2p *p2p);

/* Handles the transport's completions while no collective runs. */
int rf_p2p_poll(struct rf_p2p *p2p);

/* Removes the first unexpected message from `peer` with this tag, and returns it; NULL: none. */
struct rf_unexpected *rf_p2p_match_unexpected(struct rf_p2p *p2p, int peer, uint32_t tag);

/* Stores a message of this rank to itself. */
RF_MUST_CHECK int rf_p2p_add_unexpected(struct rf_p2p *p2p, const struct rf_envelope *envelope,
                                        const void *data, size_t bytes);

/* The peer waits for this rank in the send or receive `theirs`. has_served: this rank has done its
 * part, or will without another call. needs_call: it has not, and certainly needs another call. */
bool rf_p2p_has_served(const struct rf_p2p *p2p, int peer, const struct rf_contract *theirs);
bool rf_p2p_needs_call(const struct rf_p2p *p2p, int peer, const struct rf_contract *theirs);

/* The part of the transport's counters due to envelopes, which is not payload. */
void rf_p2p_overhead(const struct rf_p2p *p2p, uint64_t *bytes, uint64_t *messages);

/* ---- demux.c: the transport of the executors ------------------------------------------------- */

/* Passes point-to-point completions to *p2p, and all others to its caller. */
int rf_demux_create(struct rf_transport *transport, struct rf_p2p **p2p, struct rf_transport **out);
void rf_demux_destroy(struct rf_transport *demux); /* does not destroy the transport */

#endif
