/* SPDX-License-Identifier: MIT
 *
 * What clients send to a coordinator. A message that is out of order, or not of the closed list,
 * ends its connection.
 */
#include <inttypes.h>
#include <ringforge/ringforge.h>

#include "base/base.h"
#include "secure_round.h"
#include "transport/transport.h"

static int out_of_order(const struct federated_message *message)
{
    return rf_fail(RF_ECORRUPT, "it sent \"%s\" out of order",
                   rf_federated_message_get_info(message->kind)->name);
}

/* ---- joining --------------------------------------------------------------------------------- */

/* What is wrong with a client that wants to join; false: nothing. */
static bool disagrees(const struct rf_coordinator *c, const struct federated_message *m, char *why,
                      size_t why_bytes)
{
    if (m->version != FEDERATED_VERSION) {
        snprintf(why, why_bytes,
                 "the client speaks version %u, the coordinator %d; give both the same version of "
                 "ringforge",
                 m->version, FEDERATED_VERSION);
        return true;
    }
    if (!rf_terms_agree(c->rule_text, m->rule, why, why_bytes) ||
        (c->terms && !rf_terms_agree(c->terms, m->terms, why, why_bytes)) ||
        (c->terms && !rf_terms_agree(m->terms, c->terms, why, why_bytes)))
        return true;
    if (c->count == 0 || m->count == c->count)
        return false;
    snprintf(why, why_bytes,
             "the client has %" PRId64 " parameters, and the model of this training %" PRId64
             "; start it with the same model",
             m->count, c->count);
    return true;
}

static void refuse(struct rf_coordinator *c, struct client *client, int status, const char *why)
{
    struct federated_message message = {.kind = RF_FEDERATED_REFUSE, .status = status};
    snprintf(message.text, sizeof message.text, "%s", why);
    federated_note(c, "client %s was refused: %s", client->name, message.text);
    federated_dismiss(c, client, &message);
}

/* Memory for what the client will send in rounds. */
static bool make_room_of(const struct rf_coordinator *c, struct client *client)
{
    const size_t count = (size_t)c->count;
    if (c->secure && !client->masked)
        client->masked = rf_alloc((count + 1) * sizeof *client->masked);
    else if (!c->secure && !client->update)
        client->update = rf_alloc(count * sizeof *client->update + 1);
    return c->secure ? client->masked != NULL : client->update != NULL;
}

/* The first client's terms and number of parameters are those of the training. */
static int receive_join(struct rf_coordinator *c, struct client *client,
                        const struct federated_message *m)
{
    char why[400];
    const struct federated_message secure = {.kind = RF_FEDERATED_SECURE,
                                             .threshold = c->opts.secure};
    if (client->joined)
        return out_of_order(m);
    if (disagrees(c, m, why, sizeof why)) {
        refuse(c, client, RF_EINVAL, why);
        return RF_OK;
    }
    if ((c->count == 0 && federated_make_room(c, m->count) < 0) ||
        (!c->terms && !(c->terms = rf_strdup(m->terms))) || !make_room_of(c, client)) {
        refuse(c, client, RF_ENOMEM, "the coordinator is out of memory for this client");
        return RF_OK;
    }
    if (c->secure)
        RETURN_IF_ERROR(federated_send(client, &secure));
    client->joined = true;
    c->progress_ns = rf_now_ns();
    federated_note(c, "client %s has joined: %d here", client->name, federated_here(c));
    if (c->ended)
        federated_send_end(c, client);
    /* One that was lost in this round comes back to it. */
    else if (c->open && client->asked && !client->answered && federated_collects(c))
        federated_send_round(c, client);
    return RF_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* What is arriving: 4 bytes each, of a masked value 8. */
static int64_t arriving_count(const struct rf_coordinator *c, const struct client *client)
{
    return client->arriving == RF_FEDERATED_MASKED ? 2 * (c->count + 1) : c->count;
}

static void *room_of(struct rf_coordinator *c, struct client *client)
{
    return client->arriving == RF_FEDERATED_STATE    ? (void *)c->params
           : client->arriving == RF_FEDERATED_MASKED ? (void *)client->masked
                                                     : client->update;
}

static int receive_state(struct rf_coordinator *c, struct client *client,
                         const struct federated_message *m)
{
    if (!client->joined || client->arriving || c->has_params || c->asked != client - c->clients)
        return out_of_order(m);
    client->arriving = RF_FEDERATED_STATE;
    client->in_done = 0;
    return RF_OK;
}

static int receive_update(struct client *client, const struct rf_coordinator *c,
                          const struct federated_message *m)
{
    if (c->secure)
        return rf_fail(RF_ECORRUPT, "it sent an update that is not masked");
    if (!client->joined || client->arriving || !client->busy || client->out_done >= 0 ||
        m->run != c->run || m->round != client->round)
        return out_of_order(m);
    if (!c->rule.weighted && m->weight != 0)
        return rf_fail(RF_ECORRUPT, "it sent a weight, which the rule does not have");
    client->arriving = RF_FEDERATED_UPDATE;
    client->in_done = 0;
    client->in_weight = c->rule.weighted ? m->weight : 1;
    return RF_OK;
}

/* All values of an update or of a state have arrived. */
static int complete(struct rf_coordinator *c, struct client *client)
{
    const enum rf_federated_message kind = client->arriving;
    const bool counts = c->open && client->round == c->round;
    const float *values = room_of(c, client);
    client->arriving = 0;
    if (kind == RF_FEDERATED_MASKED) {
        federated_secure_uploaded(c, client);
        return RF_OK;
    }
    if (!federated_finite(values, c->count)) {
        refuse(c, client, RF_EINVAL, "the client sent a value that is not finite");
        return RF_OK;
    }
    c->progress_ns = rf_now_ns();
    if (kind == RF_FEDERATED_STATE) {
        c->has_params = true;
        return RF_OK;
    }
    client->busy = false;
    client->answered = client->answered || counts;
    if (counts)
        client->weight = client->in_weight;
    else
        federated_note(c, "client %s answered round %" PRId64 " after its end: not counted",
                       client->name, client->round);
    return RF_OK;
}

static int receive_values(struct rf_coordinator *c, struct client *client,
                          const struct federated_message *m)
{
    const int64_t count = arriving_count(c, client);
    if (!client->arriving || m->value_count != federated_piece(count, client->in_done))
        return out_of_order(m);
    uint8_t *to = room_of(c, client);
    memcpy(to + 4 * client->in_done, m->values, 4 * (size_t)m->value_count);
    client->in_done += m->value_count;
    return client->in_done == count ? complete(c, client) : RF_OK;
}

/* ---- all messages ---------------------------------------------------------------------------- */

static int receive(struct rf_coordinator *c, struct client *client,
                   const struct federated_message *m)
{
    switch (m->kind) {
    case RF_FEDERATED_JOIN:
        return receive_join(c, client, m);
    case RF_FEDERATED_STATE:
        return receive_state(c, client, m);
    case RF_FEDERATED_UPDATE:
        return receive_update(client, c, m);
    case RF_FEDERATED_VALUES:
        return receive_values(c, client, m);
    case RF_FEDERATED_LEAVE:
        federated_note(c, "client %s leaves", client->name);
        federated_drop(c, client, NULL);
        return RF_OK;
    case RF_FEDERATED_READY:
    case RF_FEDERATED_SHARES:
    case RF_FEDERATED_MASKED:
    case RF_FEDERATED_CONFIRM:
    case RF_FEDERATED_REVEAL:
        return federated_secure_receive(c, client, m);
    default:
        return out_of_order(m);
    }
}

/* At most so many pieces a turn, that no client holds up the others. */
enum { MOST_READS = 64 };

int federated_receive(struct rf_coordinator *c, struct client *client)
{
    int rc = 1;
    for (int reads = 0; reads < MOST_READS && rc > 0 && client->here; reads++) {
        struct rf_channel_message bytes;
        struct federated_message message;
        const int filled = rf_link_fill(&client->channel.link);
        while (client->here && (rc = rf_channel_next(&client->channel, &bytes)) > 0) {
            RETURN_IF_ERROR(federated_parse(&bytes, true, &message));
            RETURN_IF_ERROR(receive(c, client, &message));
        }
        RETURN_IF_ERROR(rc);
        RETURN_IF_ERROR(client->here ? filled : RF_OK);
        rc = filled;
    }
    return RF_OK;
}
