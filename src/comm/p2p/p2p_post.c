/* SPDX-License-Identifier: MIT
 *
 * Point to point, outgoing messages: the lanes of sends and receives, posting on them, and
 * envelopes without data, which are posted as soon as the transport has capacity.
 */
#include "../p2p.h"

enum { KEPT_LANES = 4 };

static uint64_t data_tag(uint64_t id, uint64_t piece)
{
    return RF_TAG(RF_TAG_P2P, id, 1 + piece);
}

void rf_p2p_free_lanes(struct rf_p2p *p2p, int keep)
{
    struct rf_p2p_lane **link = &p2p->lanes;
    for (; *link && keep > 0; keep--)
        link = &(*link)->next;
    while (*link) {
        struct rf_p2p_lane *lane = *link;
        *link = lane->next;
        rf_free(lane->outgoing);
        rf_free(lane);
    }
}

int rf_p2p_take_lane(struct rf_p2p *p2p, int peer, struct rf_p2p_lane **out)
{
    struct rf_p2p_lane *lane = p2p->lanes;
    while (lane && lane->in_use)
        lane = lane->next;
    if (!lane) {
        lane = rf_alloc_aligned(sizeof(*lane), 64);
        uint8_t *outgoing = rf_alloc_aligned(RF_P2P_ENVELOPE_BYTES, 64);
        if (!lane || !outgoing) {
            rf_free(lane);
            rf_free(outgoing);
            return rf_fail(RF_ENOMEM, "no memory for a message to or from rank %d", peer);
        }
        memset(lane, 0, sizeof(*lane));
        lane->outgoing = outgoing;
        lane->next = p2p->lanes;
        p2p->lanes = lane;
    }
    lane->in_use = true;
    lane->announced = lane->in_pieces = false;
    lane->requested = lane->ended = 0;
    for (int i = 0; i < RF_P2P_PIECES; i++)
        lane->pieces[i] = (struct rf_p2p_piece){.state = RF_PIECE_IDLE};
    lane->peer = peer;
    *out = lane;
    return 0;
}

void rf_p2p_give_lane(struct rf_p2p_lane *lane)
{
    if (lane)
        lane->in_use = false;
}

void rf_p2p_trim(struct rf_p2p *p2p)
{
    for (const struct rf_p2p_lane *lane = p2p->lanes; lane; lane = lane->next)
        if (lane->in_use)
            return;
    rf_p2p_free_lanes(p2p, KEPT_LANES);
}

static struct rf_p2p_context *begin(struct rf_p2p *p2p, struct rf_p2p_lane *lane,
                                    struct rf_p2p_context *context)
{
    context->provider.owner = p2p;
    context->peer = lane->peer;
    context->status = 0;
    context->in_flight = true;
    return context;
}

int rf_p2p_send_envelope(struct rf_p2p *p2p, struct rf_p2p_lane *lane, size_t bytes)
{
    struct rf_transport *transport = p2p->comm->links.transport;
    struct rf_p2p_context *context = begin(p2p, lane, &lane->contexts[RF_USE_ENVELOPE]);
    struct rf_p2p_peer *peer = &p2p->peers[lane->peer];
    const struct rf_envelope *envelope = (const struct rf_envelope *)lane->outgoing;
    const uint64_t tag = rf_p2p_envelope_tag(peer->sent);
    uint32_t contract = rf_p2p_checksum(p2p, p2p->comm->rank, lane->peer, tag, envelope, bytes);
    int rc =
        transport->ops->post_send(transport, lane->peer, tag, contract, envelope, bytes, context);
    if (rc < 0) {
        context->in_flight = false;
        return rc;
    }
    peer->sent++;
    lane->announced = rf_envelope_announces(envelope);
    p2p->activity++;
    p2p->overhead_bytes += sizeof(*envelope);
    p2p->overhead_messages += envelope->kind != RF_ENVELOPE_EAGER;
    return 0;
}

int rf_p2p_send_data(struct rf_p2p *p2p, struct rf_p2p_lane *lane, uint64_t piece, const void *data,
                     size_t bytes)
{
    struct rf_transport *transport = p2p->comm->links.transport;
    struct rf_p2p_context *context = begin(p2p, lane, rf_p2p_data_context(lane, piece));
    const uint64_t tag = data_tag(lane->id, piece);
    uint32_t contract = rf_p2p_checksum(p2p, p2p->comm->rank, lane->peer, tag, data, bytes);
    int rc = transport->ops->post_send(transport, lane->peer, tag, contract, data, bytes, context);
    context->in_flight = rc == 0;
    return rc;
}

int rf_p2p_recv_data(struct rf_p2p *p2p, struct rf_p2p_lane *lane, uint64_t piece, void *data,
                     size_t bytes)
{
    struct rf_transport *transport = p2p->comm->links.transport;
    struct rf_p2p_context *context = begin(p2p, lane, rf_p2p_data_context(lane, piece));
    context->data = data;
    context->tag = data_tag(lane->id, piece);
    int rc = transport->ops->post_recv(transport, lane->peer, context->tag, data, bytes, context);
    context->in_flight = rc == 0;
    return rc;
}

int rf_p2p_send_control(struct rf_p2p *p2p, int peer, enum rf_envelope_kind kind, uint64_t id)
{
    struct rf_control_envelope *control = rf_alloc(sizeof(*control)),
                               **link = &p2p->control_envelopes;
    if (!control)
        return rf_fail(RF_ENOMEM, "no memory for a message to rank %d", peer);
    control->peer = peer;
    control->envelope = (struct rf_envelope){.kind = kind, .id = id};
    while (*link)
        link = &(*link)->next;
    *link = control;
    return 0;
}

/* 1: sent; 0: not yet. */
static int advance_control(struct rf_p2p *p2p, struct rf_control_envelope *control)
{
    if (!control->lane) {
        RETURN_IF_ERROR(rf_p2p_take_lane(p2p, control->peer, &control->lane));
        memcpy(control->lane->outgoing, &control->envelope, sizeof(control->envelope));
        int rc = rf_p2p_send_envelope(p2p, control->lane, sizeof(control->envelope));
        if (rc < 0) {
            rf_p2p_give_lane(control->lane);
            control->lane = NULL;
            return rc == RF_EAGAIN ? 0 : rc;
        }
    }
    const struct rf_p2p_context *context = &control->lane->contexts[RF_USE_ENVELOPE];
    if (context->in_flight)
        return 0;
    rf_p2p_give_lane(control->lane);
    return 1; /* even after an error: the control link reports a dead peer */
}

int rf_p2p_advance_control(struct rf_p2p *p2p)
{
    for (struct rf_control_envelope **link = &p2p->control_envelopes; *link;) {
        struct rf_control_envelope *control = *link;
        int rc = advance_control(p2p, control);
        if (rc < 0)
            return rc;
        if (rc == 0) {
            link = &control->next;
            continue;
        }
        *link = control->next;
        rf_free(control);
    }
    return 0;
}
