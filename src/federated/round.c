/* SPDX-License-Identifier: MIT
 *
 * Rounds of a coordinator: when one begins, whom it waits for, and when it ends.
 */
#include <inttypes.h>
#include <ringforge/ringforge.h>

#include "base/base.h"
#include "secure_round.h"

static bool idle(const struct client *client)
{
    return client->joined && !client->busy && !client->arriving;
}

/* Asked in the open round, and still able to answer. */
static bool owes(const struct rf_coordinator *c, const struct client *client)
{
    return client->joined && client->busy && client->round == c->round;
}

static int count(const struct rf_coordinator *c,
                 bool (*is)(const struct rf_coordinator *, const struct client *))
{
    int found = 0;
    for (int k = 0; k < c->opts.client_count; k++)
        found += is(c, c->clients + k);
    return found;
}

static bool is_idle(const struct rf_coordinator *c, const struct client *client)
{
    (void)c;
    return idle(client);
}

static bool has_answered(const struct rf_coordinator *c, const struct client *client)
{
    (void)c;
    return client->answered;
}

/* The round is sent to all that wait and have not answered in it. */
static void send_to_idle(struct rf_coordinator *c)
{
    for (int k = 0; k < c->opts.client_count; k++)
        if (idle(c->clients + k) && !c->clients[k].answered)
            federated_send_round(c, c->clients + k);
}

static void begin(struct rf_coordinator *c)
{
    for (int k = 0; k < c->opts.client_count; k++) {
        struct client *client = c->clients + k;
        client->asked = client->answered = client->late = client->failed = false;
        client->weight = 0;
    }
    c->open = true;
    c->began_ns = c->progress_ns = rf_now_ns();
    send_to_idle(c);
}

static enum rf_federated_part part_of(const struct rf_coordinator *c, const struct client *client)
{
    return client->answered                  ? RF_FEDERATED_COUNTED
           : client->failed                  ? RF_FEDERATED_FAILED
           : client->late || owes(c, client) ? RF_FEDERATED_LATE
           : client->asked                   ? RF_FEDERATED_LOST
                                             : RF_FEDERATED_ABSENT;
}

static int report(struct rf_coordinator *c, int counted, double weight)
{
    struct rf_federated_round r = {.round = c->round,
                                   .count = c->count,
                                   .values = c->params,
                                   .parts = c->parts,
                                   .weights = c->weights,
                                   .weight = weight,
                                   .counted = counted,
                                   .sent_bytes = c->sent_bytes,
                                   .received_bytes = c->received_bytes,
                                   .ns = rf_now_ns() - c->began_ns};
    for (int k = 0; k < c->opts.client_count; k++) {
        const struct client *client = c->clients + k;
        c->parts[k] = part_of(c, client);
        c->weights[k] = client->answered ? client->weight : 0;
        r.sent_bytes += client->here ? client->channel.sent_bytes : 0;
        r.received_bytes += client->here ? client->channel.received_bytes : 0;
    }
    return c->opts.ended ? c->opts.ended(c->opts.user, &r) : 0;
}

/* Whoever has not even got all parameters of the round cannot get the rest: they change now. */
static void drop_slow_readers(struct rf_coordinator *c)
{
    for (int k = 0; k < c->opts.client_count; k++)
        if (c->clients[k].here && c->clients[k].out_done >= 0)
            federated_drop(c, c->clients + k, "it did not take the parameters before the deadline");
}

static int end(struct rf_coordinator *c)
{
    double weight = 0;
    drop_slow_readers(c);
    RETURN_IF_ERROR(federated_mean(c, &weight));
    const int stop = report(c, count(c, has_answered), weight);
    c->open = false;
    c->round++;
    c->progress_ns = rf_now_ns();
    if (c->folder && (c->round - c->saved >= c->opts.save_every || c->round == c->opts.rounds))
        RETURN_IF_ERROR(federated_save(c));
    return stop == 0 ? RF_OK : rf_fail(RF_EABORT, "stopped after round %" PRId64, c->round - 1);
}

/* Names of the clients that are not here, as many as fit. */
static int fail_waiting(const struct rf_coordinator *c, int have, int least)
{
    char names[400] = "";
    size_t used = 0;
    for (int k = 0; k < c->opts.client_count && used < sizeof names - RF_NAME_BYTES - 3; k++)
        if (!c->clients[k].answered && !c->clients[k].joined)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     c->clients[k].name);
    return rf_fail(RF_ETIMEOUT,
                   "round %" PRId64 " has %d of at least %d clients, and none has come for %.3g s; "
                   "missing: %s",
                   c->round, have, least, c->opts.wait_s, used ? names : "none, but all are late");
}

static uint64_t later(uint64_t from_ns, double seconds)
{
    return rf_add_ns(from_ns, rf_seconds_to_ns(seconds));
}

/* The first parameters are those of a client. */
static void ask(struct rf_coordinator *c)
{
    if (c->asked >= 0 && rf_now_ns() >= later(c->asked_ns, c->opts.round_s))
        federated_drop(c, c->clients + c->asked, "it did not send the first parameters in time");
    for (int k = 0; k < c->opts.client_count && c->asked < 0; k++) {
        const struct federated_message message = {.kind = RF_FEDERATED_ASK};
        if (!c->clients[k].joined)
            continue;
        if (federated_send(c->clients + k, &message) < 0)
            federated_drop(c, c->clients + k, rf_last_error()->message);
        else
            c->asked = k, c->asked_ns = rf_now_ns();
    }
}

/* Enough updates are here, or those that will be. */
static int collected(struct rf_coordinator *c, uint64_t *next_ns)
{
    if (!c->secure)
        return end(c);
    federated_secure_start(c);
    *next_ns = rf_now_ns();
    return RF_OK;
}

int federated_advance(struct rf_coordinator *c, uint64_t *next_ns)
{
    const int least = c->opts.min_clients;
    const uint64_t now = rf_now_ns();
    if (!c->has_params)
        ask(c);
    else if (!c->open && count(c, is_idle) >= least)
        begin(c);
    if (!c->open) {
        const uint64_t waits = later(c->progress_ns, c->opts.wait_s);
        const uint64_t asks = c->asked < 0 ? waits : later(c->asked_ns, c->opts.round_s);
        *next_ns = waits < asks || c->has_params ? waits : asks;
        return now < waits ? RF_OK : fail_waiting(c, federated_here(c), least);
    }
    if (!federated_collects(c))
        return federated_secure_advance(c, next_ns) ? end(c) : RF_OK;
    const uint64_t deadline = later(c->began_ns, c->opts.round_s);
    /* Those that are late are not counted on. */
    if (count(c, has_answered) + (now < deadline ? count(c, owes) : 0) < least)
        send_to_idle(c);
    const int answered = count(c, has_answered), owing = count(c, owes);
    if (answered >= least && (owing == 0 || now >= deadline))
        return collected(c, next_ns);
    *next_ns = deadline;
    if (answered >= least || (owing > 0 && now < deadline))
        return RF_OK;
    /* Too few: those that are late may come, and others. */
    const uint64_t from = owing > 0 && deadline > c->progress_ns ? deadline : c->progress_ns;
    *next_ns = later(from, c->opts.wait_s);
    return now < *next_ns ? RF_OK : fail_waiting(c, answered, least);
}
