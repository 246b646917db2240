/* SPDX-License-Identifier: MIT
 *
 * Point to point, incoming messages: the posted receives of the peers' next envelopes, and the
 * lists of unexpected messages. p2p_op.c decides what happens to a message.
 */
#include "../p2p.h"

static int post_envelope_receive(struct rf_p2p *p2p, int peer)
{
    struct rf_transport *transport = p2p->comm->links.transport;
    struct rf_p2p_context *receive = &p2p->envelope_receives[peer];
    uint8_t *buffer = p2p->envelope_buffers + (size_t)peer * RF_P2P_ENVELOPE_BYTES;
    receive->data = buffer;
    receive->tag = rf_p2p_envelope_tag(p2p->peers[peer].received);
    receive->provider.owner = p2p;
    int rc = transport->ops->post_recv(transport, peer, receive->tag, buffer, RF_P2P_ENVELOPE_BYTES,
                                       receive);
    receive->in_flight = rc == 0;
    if (rc == RF_EAGAIN) {
        p2p->must_retry++;
        return 0;
    }
    return rc;
}

bool rf_p2p_must_retry(const struct rf_p2p *p2p)
{
    return p2p->must_retry > 0 || p2p->control_envelopes || p2p->ready_request_count > 0;
}

int rf_p2p_retry(struct rf_p2p *p2p)
{
    if (p2p->ready_request_count > 0)
        RETURN_IF_ERROR(rf_flow_control_reply(p2p->comm));
    if (p2p->control_envelopes)
        RETURN_IF_ERROR(rf_p2p_advance_control(p2p));
    if (p2p->must_retry == 0)
        return 0;
    p2p->must_retry = 0;
    for (int peer = 0; peer < p2p->size; peer++) {
        struct rf_p2p_context *receive = &p2p->envelope_receives[peer];
        if (peer != p2p->comm->rank && !receive->in_flight && receive->status == 0)
            RETURN_IF_ERROR(post_envelope_receive(p2p, peer));
    }
    return 0;
}

int rf_p2p_create(struct rf_comm *comm, struct rf_p2p **out)
{
    size_t size = (size_t)comm->size;
    struct rf_p2p *p2p = rf_alloc(sizeof(*p2p));
    int rc = 0;
    if (!p2p)
        goto fail;
    p2p->comm = comm;
    p2p->size = comm->size;
    p2p->peers = rf_alloc(size * sizeof(*p2p->peers));
    p2p->envelope_receives = rf_alloc_aligned(size * sizeof(*p2p->envelope_receives), 64);
    p2p->envelope_buffers = rf_alloc_aligned(size * RF_P2P_ENVELOPE_BYTES, 64);
    if (!p2p->peers || !p2p->envelope_receives || !p2p->envelope_buffers)
        goto fail;
    for (int i = 0; i < p2p->size; i++) {
        p2p->envelope_receives[i].is_envelope = true;
        p2p->envelope_receives[i].peer = i;
    }
    for (int peer = 0; peer < p2p->size; peer++)
        p2p->peers[peer].unexpected_end = &p2p->peers[peer].unexpected;
    p2p->must_retry = p2p->size; /* none is posted yet */
    rc = rf_p2p_retry(p2p);
    if (rc < 0)
        goto fail;
    *out = p2p;
    return 0;
fail:
    if (p2p)
        comm->links.transport->ops->cancel_all(comm->links.transport);
    rf_p2p_destroy(p2p);
    return rc < 0 ? rc : rf_fail(RF_ENOMEM, "no memory for messages between %d ranks", comm->size);
}

void rf_p2p_destroy(struct rf_p2p *p2p)
{
    if (!p2p)
        return;
    for (int peer = 0; p2p->peers && peer < p2p->size; peer++)
        while (p2p->peers[peer].unexpected) {
            struct rf_unexpected *message = p2p->peers[peer].unexpected;
            p2p->peers[peer].unexpected = message->next;
            rf_free(message);
        }
    for (int peer = 0; p2p->peers && peer < p2p->size; peer++)
        rf_free(p2p->peers[peer].unexpected_by_tag);
    while (p2p->control_envelopes) {
        struct rf_control_envelope *control = p2p->control_envelopes;
        p2p->control_envelopes = control->next;
        rf_free(control);
    }
    rf_free(p2p->ready_requests);
    rf_p2p_free_lanes(p2p, 0);
    rf_free(p2p->peers);
    rf_free(p2p->envelope_receives);
    rf_free(p2p->envelope_buffers);
    rf_free(p2p);
}

/* The peer has posted the receive of a long message, or of its next piece. */
static void clear_to_send(struct rf_p2p *p2p, int rank, const struct rf_envelope *envelope)
{
    for (struct rf_p2p_lane *lane = p2p->lanes; lane; lane = lane->next)
        if (lane->in_use && lane->announced && lane->peer == rank && lane->id == envelope->id) {
            lane->in_pieces = envelope->kind == RF_ENVELOPE_CLEAR_TO_SEND_PIECE;
            lane->requested++;
        }
}

/* ---- messages that arrive -------------------------------------------------------------------- */

static int add_unexpected(struct rf_p2p *p2p, int rank, const struct rf_envelope *envelope,
                          const void *data, size_t bytes)
{
    struct rf_p2p_peer *peer = &p2p->peers[rank];
    struct rf_unexpected *message = rf_alloc(sizeof(*message) + bytes);
    if (!peer->unexpected_by_tag)
        peer->unexpected_by_tag = rf_alloc(RF_P2P_TAGS * sizeof(*peer->unexpected_by_tag));
    if (!message || !peer->unexpected_by_tag) {
        rf_free(message);
        return rf_fail(RF_ENOMEM, "no memory for an unexpected message of %zu bytes", bytes);
    }
    if (envelope->tag >= RF_P2P_TAGS) {
        rf_free(message);
        return rf_fail_rank(RF_ECORRUPT, rank, "an envelope from rank %d has tag %u", rank,
                            envelope->tag);
    }
    message->envelope = *envelope;
    message->bytes = bytes;
    if (bytes > 0)
        memcpy(message + 1, data, bytes);
    *peer->unexpected_end = message;
    peer->unexpected_end = &message->next;
    peer->unexpected_by_tag[envelope->tag]++;
    return 0;
}

int rf_p2p_add_unexpected(struct rf_p2p *p2p, const struct rf_envelope *envelope, const void *data,
                          size_t bytes)
{
    p2p->activity++;
    return add_unexpected(p2p, p2p->comm->rank, envelope, data, bytes);
}

static int handle_envelope(struct rf_p2p *p2p, int rank, size_t bytes)
{
    struct rf_p2p_peer *peer = &p2p->peers[rank];
    const uint8_t *buffer = p2p->envelope_buffers + (size_t)rank * RF_P2P_ENVELOPE_BYTES;
    struct rf_envelope envelope;
    if (bytes < sizeof(envelope))
        return rf_fail_rank(RF_ECORRUPT, rank, "an envelope from rank %d has %zu bytes", rank,
                            bytes);
    memcpy(&envelope, buffer, sizeof(envelope));
    peer->received++;
    switch (envelope.kind) {
    case RF_ENVELOPE_CLEAR_TO_SEND:
    case RF_ENVELOPE_CLEAR_TO_SEND_PIECE:
        clear_to_send(p2p, rank, &envelope);
        return 0;
    case RF_ENVELOPE_AWAIT_POSTED:
    case RF_ENVELOPE_AWAIT_BEGUN:
        return rf_flow_control_request_received(p2p->comm, rank, envelope.id,
                                                envelope.kind == RF_ENVELOPE_AWAIT_BEGUN);
    case RF_ENVELOPE_GO_AHEAD:
        rf_flow_control_reply_received(p2p->comm, rank, envelope.id);
        return 0;
    default:
        return add_unexpected(p2p, rank, &envelope, buffer + sizeof(envelope),
                              bytes - sizeof(envelope));
    }
}

int rf_p2p_completion(struct rf_p2p *p2p, const struct rf_completion *completion)
{
    const struct rf_transport_context *provider = completion->context;
    if (provider->owner != p2p)
        return 0;
    struct rf_p2p_context *context = completion->context;
    context->in_flight = false;
    context->status = completion->status;
    context->bytes = completion->bytes;
    p2p->activity++;
    if (completion->is_recv && completion->status == 0 &&
        completion->contract != rf_p2p_checksum(p2p, context->peer, p2p->comm->rank, context->tag,
                                                context->data, completion->bytes))
        return context->status = rf_fail_rank(
                   RF_ECORRUPT, context->peer,
                   "a message from rank %d to rank %d was damaged on the way: its %s",
                   context->peer, p2p->comm->rank,
                   p2p->comm->settings.checksum ? "checksum is wrong" : "header makes no sense");
    if (!context->is_envelope)
        return 1;
    if (completion->status < 0) {
        /* The peer is lost. An operation that waits for it, or the control link, reports it. */
        rf_log("comm", 2, "no more messages from rank %d: %s", context->peer,
               rf_last_error()->message);
        return 1;
    }
    RETURN_IF_ERROR(handle_envelope(p2p, context->peer, completion->bytes));
    RETURN_IF_ERROR(post_envelope_receive(p2p, context->peer));
    return 1;
}

struct rf_unexpected *rf_p2p_match_unexpected(struct rf_p2p *p2p, int rank, uint32_t tag)
{
    struct rf_p2p_peer *peer = &p2p->peers[rank];
    if (!peer->unexpected_by_tag || peer->unexpected_by_tag[tag] == 0)
        return NULL;
    for (struct rf_unexpected **link = &peer->unexpected; *link; link = &(*link)->next) {
        struct rf_unexpected *message = *link;
        if (message->envelope.tag != tag)
            continue;
        *link = message->next;
        if (!message->next)
            peer->unexpected_end = link;
        peer->unexpected_by_tag[tag]--;
        return message;
    }
    return NULL;
}

int rf_p2p_poll(struct rf_p2p *p2p)
{
    struct rf_transport *transport = p2p->comm->links.transport;
    struct rf_completion completions[16];
    if (rf_p2p_must_retry(p2p))
        RETURN_IF_ERROR(rf_p2p_retry(p2p));
    int count = transport->ops->poll(transport, completions, 16);
    for (int i = 0; i < count; i++)
        RETURN_IF_ERROR(rf_p2p_completion(p2p, &completions[i]));
    return count < 0 ? count : 0;
}

bool rf_p2p_needs_call(const struct rf_p2p *p2p, int rank, const struct rf_contract *theirs)
{
    const struct rf_p2p_peer *peer = &p2p->peers[rank];
    if (theirs->op == RF_COLL_RECV)
        return peer->sent <= theirs->sequence;
    /* A message that has not arrived yet may match a receive that waits here. */
    for (const struct rf_unexpected *message = peer->unexpected; message; message = message->next)
        if (message->envelope.id == theirs->sequence && rf_envelope_announces(&message->envelope))
            return true;
    return false;
}

bool rf_p2p_has_served(const struct rf_p2p *p2p, int rank, const struct rf_contract *theirs)
{
    const struct rf_p2p_peer *peer = &p2p->peers[rank];
    if (peer->held_tasks > 0)
        return true; /* the worker's tasks may serve the peer without another call */
    /* The sequence of a receive is the number of the envelope that it expects next; that of a send
     * is the number of its own envelope. */
    if (theirs->op == RF_COLL_RECV)
        return peer->sent > theirs->sequence;
    for (const struct rf_unexpected *message = peer->unexpected; message; message = message->next)
        if (message->envelope.id == theirs->sequence)
            return false; /* no receive has matched it */
    return theirs->sequence < peer->received;
}

void rf_p2p_overhead(const struct rf_p2p *p2p, uint64_t *bytes, uint64_t *messages)
{
    *bytes = p2p->overhead_bytes;
    *messages = p2p->overhead_messages;
}
