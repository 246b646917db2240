/* SPDX-License-Identifier: MIT
 *
 * The connection of a client: it sends and receives at once, and sleeps in poll() only, but between
 * attempts to connect. What the coordinator sends may be anything until it is parsed.
 */
#include <inttypes.h>
#include <poll.h>
#include <ringforge/ringforge.h>

#include "base/base.h"
#include "client.h"
#include "transport/bootstrap/join.h"
#include "transport/control/socket.h"

#define RETRY_NS 50000000ull
#define MOST_RETRY_NS 400000000ull
#define ANSWER_NS 3000000000ull   /* for the handshake */
#define GOODBYE_NS 1000000000ull  /* to send the last message */
#define SILENCE_NS 30000000000ull /* as the coordinator's */

/* ---- connecting ------------------------------------------------------------------------------ */

static int send(struct rf_client *client, const struct federated_message *message)
{
    uint8_t bytes[FEDERATED_MESSAGE_BYTES];
    const size_t count = federated_write(message, bytes);
    if (client->opts.audit)
        client->opts.audit(client->opts.user, true, message->kind, count);
    return rf_channel_queue(&client->channel, message->kind, bytes, count);
}

static void disconnect(struct rf_client *client)
{
    client->sent_bytes += client->channel.sent_bytes;
    client->received_bytes += client->channel.received_bytes;
    rf_channel_close(&client->channel);
    client->here = false;
    client->arriving = 0;
    client->out_done = -1;
    client->masked = client->secure_here = false;
    if (client->secure)
        federated_secure_forget(client->secure);
}

void federated_disconnect(struct rf_client *client)
{
    const struct federated_message leave = {.kind = RF_FEDERATED_LEAVE};
    if (client->here && client->out_done < 0 && send(client, &leave) == 0 &&
        rf_link_flush_by(&client->channel.link, rf_now_ns() + GOODBYE_NS) < 0)
        rf_log("federated", 1, "the coordinator could not be told: %s", rf_last_error()->message);
    disconnect(client);
}

/* One attempt. RF_EAGAIN: another one may succeed. */
static int try_connect(struct rf_client *client, uint64_t deadline)
{
    struct rf_handshake h = {.version = RF_FRAME_VERSION, .rank = 1, .size = FEDERATED_WORLD_SIZE};
    const uint64_t answer = rf_now_ns() + ANSWER_NS;
    struct rf_link link;
    int fd = -1;
    snprintf(h.name, sizeof h.name, "%s", client->name);
    RETURN_IF_ERROR(rf_socket_connect(client->host, client->opts.port, deadline, &fd));
    rf_socket_limit_silence(fd, SILENCE_NS);
    rf_link_init(&link, fd, RF_FRAME_MAX_SEALED);
    int rc = rf_join_prove(&client->key, &h, &link, answer < deadline ? answer : deadline);
    if (rc < 0) {
        rf_link_close(&link);
        return rc == RF_EPEER || rc == RF_ETIMEOUT || rc == RF_ECORRUPT ? RF_EAGAIN : rc;
    }
    const struct federated_message join = {.kind = RF_FEDERATED_JOIN,
                                           .version = FEDERATED_VERSION,
                                           .count = client->params.count,
                                           .rule = client->rule_text,
                                           .terms = client->terms};
    rc = rf_channel_open(&client->channel, &link, &client->key, &h, false);
    if (rc < 0) {
        rf_link_close(&link);
        return rc;
    }
    rc = send(client, &join);
    client->here = rc == 0;
    client->since_ns = client->heard_ns = rf_now_ns();
    if (rc < 0)
        disconnect(client);
    return rc;
}

/* Of one that cannot be reached. */
static int fail_connect(const struct rf_client *client)
{
    const struct rf_error last = *rf_last_error();
    return rf_fail(RF_ETIMEOUT,
                   "client %s: no coordinator answers at %s port %d for %.3g s: %.400s",
                   client->name, client->host, client->opts.port, (double)client->timeout_ns * 1e-9,
                   last.message);
}

static int connect_by(struct rf_client *client, uint64_t deadline)
{
    for (uint64_t pause = RETRY_NS;;
         pause = 2 * pause < MOST_RETRY_NS ? 2 * pause : MOST_RETRY_NS) {
        const int rc = try_connect(client, deadline);
        if (rc != RF_EAGAIN)
            return rc;
        const uint64_t now = rf_now_ns();
        if (now >= deadline)
            return fail_connect(client);
        rf_sleep_ns(pause < deadline - now ? pause : deadline - now);
    }
}

/* ---- receiving ------------------------------------------------------------------------------- */

static int receive_start(struct rf_client *client, const struct federated_message *m)
{
    if (client->arriving)
        return rf_fail(RF_ECORRUPT, "the coordinator began a round within another one");
    client->arriving = m->kind;
    client->arriving_run = m->run;
    client->arriving_round = m->round;
    client->in_done = 0;
    return 0;
}

static int send_body(struct rf_client *client, enum rf_federated_message kind, const uint8_t *body,
                     size_t bytes)
{
    const struct federated_message message = {.kind = kind,
                                              .run = client->run,
                                              .round = client->round,
                                              .body = body,
                                              .body_bytes = bytes};
    return send(client, &message);
}

static int send_ready(struct rf_client *client)
{
    uint8_t body[FEDERATED_READY_BYTES];
    RETURN_IF_ERROR(federated_secure_ready(client->secure, client->run, client->round, body));
    return send_body(client, RF_FEDERATED_READY, body, sizeof body);
}

static int send_update(struct rf_client *client)
{
    if (client->secure->threshold)
        return send_ready(client);
    const struct federated_message update = {.kind = RF_FEDERATED_UPDATE,
                                             .run = client->run,
                                             .round = client->round,
                                             .weight = client->weight};
    client->out_done = 0;
    return send(client, &update);
}

/* 1: these are the parameters to continue with; 0: of the round that this client has an update of,
 * which the coordinator asks for once more. */
static int complete(struct rf_client *client)
{
    const bool same = client->has_round && client->arriving == RF_FEDERATED_ROUND &&
                      client->run == client->arriving_run &&
                      client->round == client->arriving_round;
    if (!federated_finite(client->start, client->params.count))
        return rf_fail(RF_ECORRUPT, "the coordinator sent a parameter that is not finite");
    client->ended = client->arriving == RF_FEDERATED_END;
    client->arriving = 0;
    if (same && client->has_update)
        return send_update(client);
    client->has_round = true;
    client->run = client->arriving_run;
    client->round = client->arriving_round;
    client->has_update = client->masked = false;
    client->out_done = -1;
    federated_secure_forget(client->secure);
    return 1;
}

static int receive_values(struct rf_client *client, const struct federated_message *m)
{
    const int64_t count = client->params.count;
    if (!client->arriving || m->value_count != federated_piece(count, client->in_done))
        return rf_fail(RF_ECORRUPT, "the coordinator sent parameters out of order");
    memcpy(client->start + client->in_done, m->values, (size_t)m->value_count * sizeof(float));
    client->in_done += m->value_count;
    return client->in_done == count ? complete(client) : 0;
}

/* ---- secure aggregation ---------------------------------------------------------------------- */

static int receive_secure(struct rf_client *client, const struct federated_message *m)
{
    RETURN_IF_ERROR(federated_secure_begin(client->secure, m->threshold));
    client->secure_here = true;
    if (!client->piece)
        client->piece = rf_alloc(SECURE_PIECE * sizeof *client->piece);
    if (!client->stream)
        client->stream = rf_alloc(SECURE_PIECE * sizeof *client->stream);
    return client->piece && client->stream
               ? 0
               : rf_fail(RF_ENOMEM, "out of memory for the masks of a client");
}

/* What answers a message of an aggregation. */
static int continue_secure(struct rf_client *client, const struct federated_message *m)
{
    uint8_t body[FEDERATED_MESSAGE_BYTES];
    size_t bytes = 0;
    if (client->out_done >= 0)
        return rf_fail(RF_ECORRUPT, "the coordinator continued before the update was sent");
    switch (m->kind) {
    case RF_FEDERATED_PEERS:
        RETURN_IF_ERROR(federated_secure_peers(client->secure, m, body, &bytes));
        return send_body(client, RF_FEDERATED_SHARES, body, bytes);
    case RF_FEDERATED_SHARES:
        RETURN_IF_ERROR(federated_secure_shares(client->secure, m));
        client->out_done = 0;
        client->masked = true;
        return send_body(client, RF_FEDERATED_MASKED, NULL, 0);
    case RF_FEDERATED_UNMASK:
        RETURN_IF_ERROR(federated_secure_unmask(client->secure, m, body, &bytes));
        return send_body(client, RF_FEDERATED_CONFIRM, body, bytes);
    default:
        RETURN_IF_ERROR(federated_secure_agreed(client->secure, m, body, &bytes));
        return send_body(client, RF_FEDERATED_REVEAL, body, bytes);
    }
}

/* Nothing of a round is begun with a coordinator that does not say what this client wants. */
static int check_secure(const struct rf_client *client)
{
    if (client->secure_here || (!client->secure->least && !client->secure->threshold))
        return 0;
    return rf_fail(RF_EAUTH,
                   "client %s wants secure aggregation, and the coordinator does not do it: start "
                   "it with a threshold",
                   client->name);
}

/* 1: the parameters of another round are complete. */
static int receive(struct rf_client *client, const struct federated_message *m)
{
    switch (m->kind) {
    case RF_FEDERATED_ROUND:
        RETURN_IF_ERROR(check_secure(client));
        /* fall through */
    case RF_FEDERATED_END:
        return receive_start(client, m);
    case RF_FEDERATED_VALUES:
        return receive_values(client, m);
    case RF_FEDERATED_ASK: {
        const struct federated_message state = {.kind = RF_FEDERATED_STATE};
        RETURN_IF_ERROR(check_secure(client));
        if (client->has_round || client->out_done >= 0)
            return rf_fail(RF_ECORRUPT, "the coordinator asked for parameters out of order");
        client->out_done = 0;
        return send(client, &state);
    }
    case RF_FEDERATED_REFUSE:
        return rf_fail_rank(m->status, 0, "the coordinator says: %s", m->text);
    case RF_FEDERATED_SECURE:
        return receive_secure(client, m);
    case RF_FEDERATED_PEERS:
    case RF_FEDERATED_SHARES:
    case RF_FEDERATED_UNMASK:
    case RF_FEDERATED_AGREED:
        return continue_secure(client, m);
    default:
        return 0; /* a heartbeat */
    }
}

static int take_messages(struct rf_client *client)
{
    struct rf_channel_message bytes;
    struct federated_message message;
    int rc;
    while ((rc = rf_channel_next(&client->channel, &bytes)) > 0) {
        if (client->opts.audit)
            client->opts.audit(client->opts.user, false, (enum rf_federated_message)bytes.kind,
                               bytes.bytes);
        client->heard_ns = rf_now_ns();
        RETURN_IF_ERROR(federated_parse(&bytes, false, &message));
        rc = receive(client, &message);
        if (rc != 0)
            return rc;
    }
    return rc;
}

/* ---- one connection -------------------------------------------------------------------------- */

/* The next values of an update, with masks: two of 4 bytes make one. */
static const void *masked_piece(struct rf_client *client, int64_t n)
{
    const int64_t first = client->out_done / 2;
    federated_fixed(client->update, client->params.count, client->weight, client->rule.weighted,
                    first, n / 2, client->piece);
    federated_secure_mask(client->secure, first, n / 2, client->stream, client->piece);
    return client->piece;
}

static int send_values(struct rf_client *client)
{
    struct rf_link *link = &client->channel.link;
    const int64_t count = client->params.count, total = client->masked ? 2 * (count + 1) : count;
    RETURN_IF_ERROR(rf_link_flush(link));
    while (client->out_done >= 0 && !rf_link_has_output(link)) {
        const int64_t n = federated_piece(total, client->out_done);
        const size_t bytes = (size_t)n * sizeof(float);
        const void *values =
            client->masked ? masked_piece(client, n) : client->update + client->out_done;
        if (client->opts.audit)
            client->opts.audit(client->opts.user, true, RF_FEDERATED_VALUES, bytes);
        RETURN_IF_ERROR(rf_channel_queue(&client->channel, RF_FEDERATED_VALUES, values, bytes));
        client->out_done = client->out_done + n < total ? client->out_done + n : -1;
        RETURN_IF_ERROR(rf_link_flush(link));
    }
    return 0;
}

/* Until the parameters of another round are here: 1. */
static int converse(struct rf_client *client)
{
    struct rf_link *link = &client->channel.link;
    for (;;) {
        const int filled = rf_link_fill(link);
        const int rc = take_messages(client);
        if (rc != 0)
            return rc;
        RETURN_IF_ERROR(filled);
        RETURN_IF_ERROR(send_values(client));
        if (filled > 0)
            continue;
        const bool output = rf_link_has_output(link);
        const uint64_t silent = rf_add_ns(client->heard_ns, client->timeout_ns);
        if (!rf_socket_wait(link->fd, POLLIN | (output ? POLLOUT : 0), silent))
            return rf_fail(RF_ETIMEOUT, "the coordinator has been silent for %.3g s",
                           (double)client->timeout_ns * 1e-9);
    }
}

/* What a new connection may mend; a refusal is about rank 0, and is final unless it says so. */
static bool may_mend(int rc)
{
    const bool refused = rf_last_error()->rank == 0;
    return rc == RF_EAGAIN ||
           (!refused && (rc == RF_EPEER || rc == RF_ETIMEOUT || rc == RF_ECORRUPT));
}

/* Connections that end soon after they began, one after the other, are given up at `until`. */
static bool try_again(struct rf_client *client, int rc, uint64_t *until)
{
    const uint64_t now = rf_now_ns();
    if (now - client->since_ns > client->timeout_ns || *until == 0)
        *until = rf_add_ns(now, client->timeout_ns);
    else
        rf_sleep_ns(RETRY_NS);
    rf_log("federated", 1, "client %s: %s", client->name, rf_last_error()->message);
    return may_mend(rc) && now < *until;
}

int federated_exchange(struct rf_client *client)
{
    uint64_t until = 0;
    int rc = client->here && client->has_update ? send_update(client) : 0;
    client->heard_ns = rf_now_ns();
    for (;;) {
        if (!client->here)
            RETURN_IF_ERROR(connect_by(client, rf_add_ns(rf_now_ns(), client->timeout_ns)));
        if (rc == 0)
            rc = converse(client);
        if (rc == 1 && client->ended)
            federated_disconnect(client);
        if (rc == 1)
            return 0;
        const bool again = try_again(client, rc, &until);
        disconnect(client);
        if (!again)
            return rc;
        rc = 0;
    }
}
