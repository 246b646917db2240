/* SPDX-License-Identifier: MIT
 *
 * Point to point, what goes out: the lanes of sends and receives, posting on them, and envelopes
 * without data, which go as soon as there is room.
 */
#include "p2p.h"

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
    while (lane && lane->taken)
        lane = lane->next;
    if (!lane) {
        lane = rf_alloc_aligned(sizeof(*lane), 64);
        uint8_t *outgoing = rf_alloc_aligned(RF_P2P_SLOT, 64);
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
    lane->taken = true;
    lane->announced = lane->cut = false;
    lane->asked = lane->ended = 0;
    for (int i = 0; i < RF_P2P_PIECES; i++)
        lane->pieces[i] = (struct rf_p2p_piece){.state = RF_PIECE_IDLE};
    lane->peer = peer;
    *out = lane;
    return 0;
}

void rf_p2p_give_lane(struct rf_p2p_lane *lane)
{
    if (lane)
        lane->taken = false;
}

void rf_p2p_trim(struct rf_p2p *p2p)
{
    for (const struct rf_p2p_lane *lane = p2p->lanes; lane; lane = lane->next)
        if (lane->taken)
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
    struct rf_p2p_context *context = begin(p2p, lane, &lane->contexts[RF_USE_FIRST]);
    struct rf_p2p_peer *peer = &p2p->peers[lane->peer];
    const struct rf_envelope *envelope = (const struct rf_envelope *)lane->outgoing;
    const uint64_t tag = rf_p2p_envelope_tag(peer->sent);
    uint32_t contract = rf_p2p_seal(p2p, p2p->comm->rank, lane->peer, tag, envelope, bytes);
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
    p2p->overhead_messages += envelope->kind != RF_ENVELOPE_DATA;
    return 0;
}

int rf_p2p_send_data(struct rf_p2p *p2p, struct rf_p2p_lane *lane, uint64_t piece, const void *data,
                     size_t bytes)
{
    struct rf_transport *transport = p2p->comm->links.transport;
    struct rf_p2p_context *context = begin(p2p, lane, rf_p2p_data_context(lane, piece));
    const uint64_t tag = data_tag(lane->id, piece);
    uint32_t contract = rf_p2p_seal(p2p, p2p->comm->rank, lane->peer, tag, data, bytes);
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

int rf_p2p_say(struct rf_p2p *p2p, int peer, enum rf_envelope_kind kind, uint64_t id)
{
    struct rf_say *say = rf_alloc(sizeof(*say)), **link = &p2p->says;
    if (!say)
        return rf_fail(RF_ENOMEM, "no memory for a message to rank %d", peer);
    say->peer = peer;
    say->envelope = (struct rf_envelope){.kind = kind, .id = id};
    while (*link)
        link = &(*link)->next;
    *link = say;
    return 0;
}

/* 1: it has gone; 0: not yet. */
static int advance_say(struct rf_p2p *p2p, struct rf_say *say)
{
    if (!say->lane) {
        RETURN_IF_ERROR(rf_p2p_take_lane(p2p, say->peer, &say->lane));
        memcpy(say->lane->outgoing, &say->envelope, sizeof(say->envelope));
        int rc = rf_p2p_send_envelope(p2p, say->lane, sizeof(say->envelope));
        if (rc < 0) {
            rf_p2p_give_lane(say->lane);
            say->lane = NULL;
            return rc == RF_EAGAIN ? 0 : rc;
        }
    }
    const struct rf_p2p_context *context = &say->lane->contexts[RF_USE_FIRST];
    if (context->in_flight)
        return 0;
    rf_p2p_give_lane(say->lane);
    return 1; /* if it failed, the peer's death is the control link's to tell */
}

int rf_p2p_advance_says(struct rf_p2p *p2p)
{
    for (struct rf_say **link = &p2p->says; *link;) {
        struct rf_say *say = *link;
        int rc = advance_say(p2p, say);
        if (rc < 0)
            return rc;
        if (rc == 0) {
            link = &say->next;
            continue;
        }
        *link = say->next;
        rf_free(say);
    }
    return 0;
}
