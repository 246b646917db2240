/* SPDX-License-Identifier: MIT
 *
 * One connection of a coordinator to a client: what is sent first, and its end.
 */
#include <ringforge/ringforge.h>

#include "base/base.h"
#include "secure_round.h"

#define LINGER_NS 2000000000ull /* for the other end to read the last message */

int federated_send(struct client *client, const struct federated_message *message)
{
    uint8_t bytes[FEDERATED_MESSAGE_BYTES];
    const size_t count = federated_write(message, bytes);
    return rf_channel_queue(&client->channel, message->kind, bytes, count);
}

/* The parameters follow, as the connection accepts them. */
static void send_params(struct rf_coordinator *c, struct client *client,
                        enum rf_federated_message kind)
{
    const struct federated_message message = {.kind = kind, .run = c->run, .round = c->round};
    client->out_done = 0;
    if (federated_send(client, &message) < 0)
        federated_drop(c, client, rf_last_error()->message);
}

void federated_send_round(struct rf_coordinator *c, struct client *client)
{
    client->busy = client->asked = true;
    client->round = c->round;
    send_params(c, client, RF_FEDERATED_ROUND);
}

void federated_send_end(struct rf_coordinator *c, struct client *client)
{
    send_params(c, client, RF_FEDERATED_END);
}

int federated_here(const struct rf_coordinator *c)
{
    int found = 0;
    for (int k = 0; k < c->opts.client_count; k++)
        found += c->clients[k].joined;
    return found;
}

/* ---- the end of a connection ----------------------------------------------------------------- */

/* Takes the connection away from a client. */
static struct rf_channel take(struct rf_coordinator *c, struct client *client)
{
    const struct rf_channel channel = client->channel;
    c->sent_bytes += channel.sent_bytes;
    c->received_bytes += channel.received_bytes;
    client->channel = (struct rf_channel){.link = {.fd = -1}};
    client->here = client->joined = client->busy = client->reveals = false;
    client->member = -1;
    if (c->secure && c->secure->phase == SECURE_COLLECTS)
        client->answered = false; /* its secrets have ended with the connection */
    client->arriving = 0;
    client->out_done = -1;
    if (c->asked == client - c->clients && !c->has_params)
        c->asked = -1;
    return channel;
}

void federated_drop(struct rf_coordinator *c, struct client *client, const char *why)
{
    if (!client->here)
        return;
    const bool joined = client->joined;
    char text[300];
    snprintf(text, sizeof text, "%s", why ? why : ""); /* why may be the last error */
    struct rf_channel channel = take(c, client);
    rf_channel_close(&channel);
    if (why)
        federated_note(c, "client %s %s: %s", client->name, joined ? "is lost" : "has not joined",
                       text);
}

void federated_dismiss(struct rf_coordinator *c, struct client *client,
                       const struct federated_message *message)
{
    if (federated_send(client, message) < 0 || rf_link_flush(&client->channel.link) < 0) {
        federated_drop(c, client, rf_last_error()->message);
        return;
    }
    if (c->leaving_count == FEDERATED_LEAVING) { /* the oldest has had the most time */
        rf_channel_close(&c->leaving[0].channel);
        memmove(c->leaving, c->leaving + 1, --c->leaving_count * sizeof *c->leaving);
    }
    c->leaving[c->leaving_count++] =
        (struct leaving){.channel = take(c, client), .until_ns = rf_now_ns() + LINGER_NS};
}
