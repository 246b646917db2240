/* SPDX-License-Identifier: MIT
 *
 * The connections of a coordinator. It reads what clients send, who may be anybody until they have
 * proved their keys (transport/bootstrap/listener.h), and may send anything after that.
 */
#include <errno.h>
#include <poll.h>
#include <ringforge/ringforge.h>
#include <unistd.h>

#include "base/base.h"
#include "coordinator.h"
#include "transport/control/socket.h"

#define JOIN_NS 10000000000ull     /* for the first message of a connection */
#define HEARTBEAT_NS 5000000000ull /* while nothing else is sent */
#define SILENCE_NS 30000000000ull  /* after which a host that acknowledges nothing is lost */

/* ---- sending --------------------------------------------------------------------------------- */

/* The next pieces of the parameters, while the socket accepts them. */
static int send_values(struct rf_coordinator *c, struct client *client)
{
    RETURN_IF_ERROR(rf_link_flush(&client->channel.link));
    while (client->out_done >= 0 && !rf_link_has_output(&client->channel.link)) {
        const int64_t n = federated_piece(c->count, client->out_done);
        RETURN_IF_ERROR(rf_channel_queue(&client->channel, RF_FEDERATED_VALUES,
                                         c->params + client->out_done, (size_t)n * sizeof(float)));
        client->out_done = client->out_done + n < c->count ? client->out_done + n : -1;
        RETURN_IF_ERROR(rf_link_flush(&client->channel.link));
    }
    return RF_OK;
}

/* ---- the end of a connection ----------------------------------------------------------------- */

/* Whether the other end has closed, or has had its time. What it still sends is ignored. */
static bool has_left(struct leaving *leaving)
{
    struct rf_link *link = &leaving->channel.link;
    int rc = rf_link_flush(link);
    if (rc >= 0 && !rf_link_has_output(link))
        rf_socket_end_sending(link->fd);
    for (int reads = 0; rc >= 0 && reads < 64; reads++) {
        rc = rf_link_fill(link);
        link->in_start = link->in_end = 0;
        if (rc == 0)
            return rf_now_ns() >= leaving->until_ns;
    }
    return rc < 0 || rf_now_ns() >= leaving->until_ns;
}

static void serve_leaving(struct rf_coordinator *c)
{
    for (int i = c->leaving_count - 1; i >= 0; i--)
        if (has_left(c->leaving + i)) {
            rf_channel_close(&c->leaving[i].channel);
            c->leaving[i] = c->leaving[--c->leaving_count];
        }
}

/* ---- serving --------------------------------------------------------------------------------- */

/* The client may have lost a connection that still looks alive from here: the new one counts. */
int federated_admit(void *owner, int number, struct rf_link *link)
{
    struct rf_coordinator *c = owner;
    const struct rf_pending_connection *from = c->listener.admitting;
    struct client *client = c->clients + number;
    struct federated_message message = {.kind = RF_FEDERATED_REFUSE, .status = RF_EBUSY};
    snprintf(message.text, sizeof message.text,
             "another process has joined as client %s, with its key", client->name);
    if (client->here)
        federated_dismiss(c, client, &message);
    rf_socket_limit_silence(link->fd, SILENCE_NS);
    RETURN_IF_ERROR(rf_channel_open(&client->channel, link, &from->key, &from->handshake, true));
    client->here = true;
    client->since_ns = rf_now_ns();
    client->out_done = -1;
    return RF_OK;
}

static int serve(struct rf_coordinator *c, struct client *client, bool heartbeat)
{
    const struct federated_message beat = {.kind = RF_FEDERATED_HEARTBEAT};
    if (heartbeat && client->joined && client->out_done < 0 &&
        !rf_link_has_output(&client->channel.link))
        RETURN_IF_ERROR(federated_send(client, &beat));
    RETURN_IF_ERROR(federated_receive(c, client));
    if (client->here && !client->joined && rf_now_ns() - client->since_ns > JOIN_NS)
        return rf_fail(RF_ETIMEOUT, "it has said nothing since it connected");
    return client->here ? send_values(c, client) : RF_OK;
}

void federated_serve(struct rf_coordinator *c)
{
    const uint64_t now = rf_now_ns();
    const bool heartbeat = now >= c->heartbeat_ns;
    uint64_t ignored;
    if (read(c->wake_fd, &ignored, sizeof ignored) == sizeof ignored)
        c->stopped = true;
    if (heartbeat)
        c->heartbeat_ns = now + HEARTBEAT_NS;
    rf_listener_serve(&c->listener);
    for (int k = 0; k < c->opts.client_count; k++)
        if (c->clients[k].here && serve(c, c->clients + k, heartbeat) < 0)
            federated_drop(c, c->clients + k, rf_last_error()->message);
    serve_leaving(c);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void federated_sleep(struct rf_coordinator *c, uint64_t until_ns)
{
    struct pollfd *polls = c->polls;
    int count = 0;
    polls[count++] = (struct pollfd){.fd = c->wake_fd, .events = POLLIN};
    count += rf_listener_polls(&c->listener, polls + count);
    until_ns = earlier(until_ns, rf_listener_deadline(&c->listener));
    for (int k = 0; k < c->opts.client_count; k++) {
        const struct client *client = c->clients + k;
        if (!client->here)
            continue;
        const bool output = rf_link_has_output(&client->channel.link) || client->out_done >= 0;
        polls[count++] = (struct pollfd){.fd = client->channel.link.fd,
                                         .events = POLLIN | (output ? POLLOUT : 0)};
        until_ns = earlier(until_ns, client->joined ? c->heartbeat_ns : client->since_ns + JOIN_NS);
    }
    for (int i = 0; i < c->leaving_count; i++) {
        polls[count++] = (struct pollfd){
            .fd = c->leaving[i].channel.link.fd,
            .events = POLLIN | (rf_link_has_output(&c->leaving[i].channel.link) ? POLLOUT : 0)};
        until_ns = earlier(until_ns, c->leaving[i].until_ns);
    }
    poll(polls, (nfds_t)count, rf_poll_ms(until_ns, rf_now_ns()));
}
