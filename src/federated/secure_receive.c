/* SPDX-License-Identifier: MIT
 *
 * What clients send to a coordinator in a secure aggregation.
 */
#include <inttypes.h>
#include <ringforge/ringforge.h>
#include <sodium.h>

#include "base/base.h"
#include "secure_round.h"

static int out_of_order(const struct federated_message *m)
{
    return rf_fail(RF_ECORRUPT, "it sent \"%s\" out of order",
                   rf_federated_message_get_info(m->kind)->name);
}

/* A key that agrees with nobody's would end the work of all. */
static bool sound_key(const uint8_t *key)
{
    static const uint8_t any[crypto_scalarmult_BYTES] = {8};
    uint8_t agreed[crypto_scalarmult_BYTES];
    return crypto_scalarmult(agreed, any, key) == 0;
}

static int receive_ready(struct rf_coordinator *c, struct client *client,
                         const struct federated_message *m)
{
    const bool open = c->open && client->round == c->round;
    if (!client->joined || client->arriving || !client->busy || client->out_done >= 0 ||
        m->run != c->run || m->round != client->round)
        return out_of_order(m);
    if (!sound_key(m->body) || !sound_key(m->body + FEDERATED_KEY_BYTES))
        return rf_fail(RF_ECORRUPT, "it sent a key that is none");
    client->busy = false;
    c->progress_ns = rf_now_ns();
    if (open && c->secure->phase == SECURE_COLLECTS) {
        memcpy(client->ready, m->body, FEDERATED_READY_BYTES);
        client->answered = true;
    } else {
        client->late = open;
        federated_note(c, "client %s was ready with round %" PRId64 " too late: not counted",
                       client->name, client->round);
    }
    return RF_OK;
}

/* Whether the client is a member, and this phase waits for it. */
static bool is_due(const struct rf_coordinator *c, const struct client *client,
                   const struct federated_message *m, enum secure_phase phase, const uint8_t *from,
                   const uint8_t *done)
{
    return client->member >= 0 && c->secure->phase == phase && m->run == c->run &&
           m->round == c->round && (!from || federated_has(from, client->member)) &&
           !federated_has(done, client->member);
}

static int receive_shares(struct rf_coordinator *c, struct client *client,
                          const struct federated_message *m)
{
    struct secure_round *s = c->secure;
    const uint8_t *box = m->body + FEDERATED_SET_BYTES;
    if (!is_due(c, client, m, SECURE_SHARES, NULL, s->shared))
        return out_of_order(m);
    for (int to = 0; to < 8 * FEDERATED_SET_BYTES; to++) {
        if (federated_has(m->body, to) != (to < s->count && to != client->member))
            return rf_fail(RF_ECORRUPT, "it has shared with others than the members");
        if (!federated_has(m->body, to))
            continue;
        memcpy(s->boxes[client->member * c->opts.client_count + to], box, FEDERATED_BOX_BYTES);
        box += FEDERATED_BOX_BYTES;
    }
    federated_add(s->shared, client->member);
    return RF_OK;
}

static int receive_masked(struct rf_coordinator *c, struct client *client,
                          const struct federated_message *m)
{
    struct secure_round *s = c->secure;
    if (client->arriving || !is_due(c, client, m, SECURE_UPLOADS, s->shared, s->uploaded))
        return out_of_order(m);
    client->arriving = RF_FEDERATED_MASKED;
    client->in_done = 0;
    return RF_OK;
}

void federated_secure_uploaded(struct rf_coordinator *c, struct client *client)
{
    c->progress_ns = rf_now_ns();
    federated_add(c->secure->uploaded, client->member);
}

static int receive_confirm(struct rf_coordinator *c, struct client *client,
                           const struct federated_message *m)
{
    struct secure_round *s = c->secure;
    if (!is_due(c, client, m, SECURE_CONFIRMS, s->uploaded, s->confirmed))
        return out_of_order(m);
    memcpy(s->signatures[client->member], m->body, FEDERATED_SIGNATURE_BYTES);
    federated_add(s->confirmed, client->member);
    return RF_OK;
}

/* One that comes when others have sufficed is ignored. */
static int receive_reveal(struct rf_coordinator *c, struct client *client,
                          const struct federated_message *m)
{
    struct secure_round *s = c->secure;
    if (!client->reveals)
        return out_of_order(m);
    client->reveals = false;
    if (!is_due(c, client, m, SECURE_REVEALS, s->confirmed, s->revealed))
        return m->run == c->run && m->round < c->round ? RF_OK : out_of_order(m);
    if (m->body_bytes != (size_t)federated_members(s->shared) * FEDERATED_KEY_BYTES)
        return rf_fail(RF_ECORRUPT, "it sent shares of others than it was asked for");
    memcpy(s->reveals[client->member * c->opts.client_count], m->body, m->body_bytes);
    federated_add(s->revealed, client->member);
    return RF_OK;
}

int federated_secure_receive(struct rf_coordinator *c, struct client *client,
                             const struct federated_message *m)
{
    if (!c->secure)
        return out_of_order(m);
    switch (m->kind) {
    case RF_FEDERATED_READY:
        return receive_ready(c, client, m);
    case RF_FEDERATED_SHARES:
        return receive_shares(c, client, m);
    case RF_FEDERATED_MASKED:
        return receive_masked(c, client, m);
    case RF_FEDERATED_CONFIRM:
        return receive_confirm(c, client, m);
    default:
        return receive_reveal(c, client, m);
    }
}
