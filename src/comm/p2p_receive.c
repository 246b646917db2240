/* SPDX-License-Identifier: MIT
 *
 * Point to point, what comes in: slots for the peers' next envelopes, and the lists of what was
 * taken in. It decides nothing about messages (p2p_op.c does).
 */
#include "p2p.h"

static int post_slot(struct rf_p2p *p2p, int peer)
{
    struct rf_transport *transport = p2p->comm->links.transport;
    struct rf_p2p_context *slot = &p2p->slots[peer];
    uint8_t *room = p2p->rooms + (size_t)peer * RF_P2P_SLOT;
    slot->data = room;
    slot->tag = rf_p2p_envelope_tag(p2p->peers[peer].taken);
    slot->provider.owner = p2p;
    int rc = transport->ops->post_recv(transport, peer, slot->tag, room, RF_P2P_SLOT, slot);
    slot->in_flight = rc == 0;
    if (rc == RF_EAGAIN) {
        p2p->must_retry++;
        return 0;
    }
    return rc;
}

bool rf_p2p_must_retry(const struct rf_p2p *p2p)
{
    return p2p->must_retry > 0 || p2p->says || p2p->ask_count > 0;
}

int rf_p2p_retry(struct rf_p2p *p2p)
{
    if (p2p->ask_count > 0)
        RETURN_IF_ERROR(rf_flow_control_answer(p2p->comm));
    if (p2p->says)
        RETURN_IF_ERROR(rf_p2p_advance_says(p2p));
    if (p2p->must_retry == 0)
        return 0;
    p2p->must_retry = 0;
    for (int peer = 0; peer < p2p->size; peer++) {
        struct rf_p2p_context *slot = &p2p->slots[peer];
        if (peer != p2p->comm->rank && !slot->in_flight && slot->status == 0)
            RETURN_IF_ERROR(post_slot(p2p, peer));
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
    p2p->slots = rf_alloc_aligned(size * sizeof(*p2p->slots), 64);
    p2p->rooms = rf_alloc_aligned(size * RF_P2P_SLOT, 64);
    if (!p2p->peers || !p2p->slots || !p2p->rooms)
        goto fail;
    for (int i = 0; i < p2p->size; i++) {
        p2p->slots[i].is_slot = true;
        p2p->slots[i].peer = i;
    }
    for (int peer = 0; peer < p2p->size; peer++)
        p2p->peers[peer].end = &p2p->peers[peer].first;
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
        while (p2p->peers[peer].first) {
            struct rf_taken *taken = p2p->peers[peer].first;
            p2p->peers[peer].first = taken->next;
            rf_free(taken);
        }
    for (int peer = 0; p2p->peers && peer < p2p->size; peer++)
        rf_free(p2p->peers[peer].kept);
    while (p2p->says) {
        struct rf_say *say = p2p->says;
        p2p->says = say->next;
        rf_free(say);
    }
    rf_free(p2p->asks);
    rf_p2p_free_lanes(p2p, 0);
    rf_free(p2p->peers);
    rf_free(p2p->slots);
    rf_free(p2p->rooms);
    rf_free(p2p);
}

/* The peer wants the data of an announcement, or their next piece. */
static void asked(struct rf_p2p *p2p, int rank, const struct rf_envelope *envelope)
{
    for (struct rf_p2p_lane *lane = p2p->lanes; lane; lane = lane->next)
        if (lane->taken && lane->announced && lane->peer == rank && lane->id == envelope->id) {
            lane->cut = envelope->kind == RF_ENVELOPE_ASK_CUT;
            lane->asked++;
        }
}

/* ---- what comes in --------------------------------------------------------------------------- */

static int keep(struct rf_p2p *p2p, int rank, const struct rf_envelope *envelope, const void *data,
                size_t bytes)
{
    struct rf_p2p_peer *peer = &p2p->peers[rank];
    struct rf_taken *taken = rf_alloc(sizeof(*taken) + bytes);
    if (!peer->kept)
        peer->kept = rf_alloc(RF_P2P_TAGS * sizeof(*peer->kept));
    if (!taken || !peer->kept) {
        rf_free(taken);
        return rf_fail(RF_ENOMEM, "no memory to take in a message of %zu bytes", bytes);
    }
    if (envelope->tag >= RF_P2P_TAGS) {
        rf_free(taken);
        return rf_fail_rank(RF_ECORRUPT, rank, "an envelope from rank %d has tag %u", rank,
                            envelope->tag);
    }
    taken->envelope = *envelope;
    taken->bytes = bytes;
    if (bytes > 0)
        memcpy(taken + 1, data, bytes);
    *peer->end = taken;
    peer->end = &taken->next;
    peer->kept[envelope->tag]++;
    return 0;
}

int rf_p2p_keep(struct rf_p2p *p2p, const struct rf_envelope *envelope, const void *data,
                size_t bytes)
{
    p2p->activity++;
    return keep(p2p, p2p->comm->rank, envelope, data, bytes);
}

static int take_in(struct rf_p2p *p2p, int rank, size_t bytes)
{
    struct rf_p2p_peer *peer = &p2p->peers[rank];
    const uint8_t *slot = p2p->rooms + (size_t)rank * RF_P2P_SLOT;
    struct rf_envelope envelope;
    if (bytes < sizeof(envelope))
        return rf_fail_rank(RF_ECORRUPT, rank, "an envelope from rank %d has %zu bytes", rank,
                            bytes);
    memcpy(&envelope, slot, sizeof(envelope));
    peer->taken++;
    switch (envelope.kind) {
    case RF_ENVELOPE_ASK:
    case RF_ENVELOPE_ASK_CUT:
        asked(p2p, rank, &envelope);
        return 0;
    case RF_ENVELOPE_ASK_READY:
    case RF_ENVELOPE_ASK_BEGUN:
        return rf_flow_control_asked(p2p->comm, rank, envelope.id,
                                     envelope.kind == RF_ENVELOPE_ASK_BEGUN);
    case RF_ENVELOPE_READY:
        rf_flow_control_answered(p2p->comm, rank, envelope.id);
        return 0;
    default:
        return keep(p2p, rank, &envelope, slot + sizeof(envelope), bytes - sizeof(envelope));
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
        completion->contract != rf_p2p_seal(p2p, context->peer, p2p->comm->rank, context->tag,
                                            context->data, completion->bytes))
        return context->status = rf_fail_rank(
                   RF_ECORRUPT, context->peer,
                   "a message from rank %d to rank %d was damaged on the way: its %s",
                   context->peer, p2p->comm->rank,
                   p2p->comm->settings.checksum ? "checksum is wrong" : "header makes no sense");
    if (!context->is_slot)
        return 1;
    if (completion->status < 0) {
        /* The peer is gone. Whether that matters is for who waits for it, or the control link. */
        rf_log("comm", 2, "no more messages from rank %d: %s", context->peer,
               rf_last_error()->message);
        return 1;
    }
    RETURN_IF_ERROR(take_in(p2p, context->peer, completion->bytes));
    RETURN_IF_ERROR(post_slot(p2p, context->peer));
    return 1;
}

struct rf_taken *rf_p2p_take(struct rf_p2p *p2p, int rank, uint32_t tag)
{
    struct rf_p2p_peer *peer = &p2p->peers[rank];
    if (!peer->kept || peer->kept[tag] == 0)
        return NULL;
    for (struct rf_taken **link = &peer->first; *link; link = &(*link)->next) {
        struct rf_taken *taken = *link;
        if (taken->envelope.tag != tag)
            continue;
        *link = taken->next;
        if (!taken->next)
            peer->end = link;
        peer->kept[tag]--;
        return taken;
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

bool rf_p2p_owes(const struct rf_p2p *p2p, int rank, const struct rf_contract *point)
{
    const struct rf_p2p_peer *peer = &p2p->peers[rank];
    if (point->op == RF_COLL_RECV)
        return peer->sent <= point->sequence;
    /* What is still on its way may meet a receive that waits here. */
    for (const struct rf_taken *taken = peer->first; taken; taken = taken->next)
        if (taken->envelope.id == point->sequence && rf_envelope_announces(&taken->envelope))
            return true;
    return false;
}

bool rf_p2p_has_served(const struct rf_p2p *p2p, int rank, const struct rf_contract *point)
{
    const struct rf_p2p_peer *peer = &p2p->peers[rank];
    if (peer->held > 0)
        return true; /* or will be without another call */
    /* Its receive names the number of the envelope that it expects next; its send the announcement.
     */
    if (point->op == RF_COLL_RECV)
        return peer->sent > point->sequence;
    for (const struct rf_taken *taken = peer->first; taken; taken = taken->next)
        if (taken->envelope.id == point->sequence)
            return false; /* nobody has asked for it yet */
    return point->sequence < peer->taken;
}

void rf_p2p_overhead(const struct rf_p2p *p2p, uint64_t *bytes, uint64_t *messages)
{
    *bytes = p2p->overhead_bytes;
    *messages = p2p->overhead_messages;
}
