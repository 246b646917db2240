/* SPDX-License-Identifier: MIT
 *
 * A client: opening, local steps, closing.
 */
#include "client.h"

#include <math.h>
#include <ringforge/ringforge.h>
#include <sodium.h>

#include "base/base.h"
#include "transport/control/socket.h"
#include "transport/transport.h"

enum { DEFAULT_S = 60 };

/* ---- opening --------------------------------------------------------------------------------- */

static int check(const struct rf_client_opts *opts, const struct rf_rounds_params *params)
{
    if (!opts->host || !opts->host[0] || opts->port < 1 || opts->port > 65535 || !opts->rule ||
        params->count < 1 || !params->read || !params->write)
        return rf_fail(RF_EINVAL, "a client needs the coordinator's host and port, a rule, and "
                                  "parameters that can be read and written");
    if (!opts->name || !rf_handshake_is_name(opts->name, strlen(opts->name)))
        return rf_fail(RF_EINVAL,
                       "\"%.80s\" cannot be the name of a client: it has 1 to %d letters, digits, "
                       "'.', '-' and '_'",
                       opts->name ? opts->name : "", RF_NAME_BYTES);
    if (opts->terms && strlen(opts->terms) >= FEDERATED_TERMS_BYTES)
        return rf_fail(RF_EINVAL, "the terms of a client have less than %d bytes",
                       FEDERATED_TERMS_BYTES);
    if (!(opts->clip >= 0 && opts->clip < INFINITY) ||
        !(opts->noise >= 0 && opts->noise < INFINITY) || (opts->noise > 0 && opts->clip == 0) ||
        (opts->clip > 0 && !opts->rule->difference))
        return rf_fail(RF_EINVAL,
                       "clip %g and noise %g: they are 0 or more, noise needs a norm to clip to, "
                       "and both need a rule whose clients send differences",
                       (double)opts->clip, (double)opts->noise);
    RETURN_IF_ERROR(rf_check_seconds("rf_client_open", opts->timeout_s));
    return federated_check_rule(opts->rule);
}

/* The parameters are those that have arrived. */
static int begin_round(struct rf_client *client)
{
    const int64_t count = client->params.count;
    client->in_round = 0;
    if (client->before)
        memcpy(client->before, client->start, (size_t)count * sizeof(float));
    return client->params.write(client->params.user, 0, count, client->start);
}

static int open_all(struct rf_client *client, const struct rf_client_opts *opts)
{
    const size_t bytes = (size_t)client->params.count * sizeof(float);
    RETURN_IF_ERROR(rf_job_key_init(&client->key, opts->key ? opts->key : rf_env("RF_CLIENT_KEY")));
    if (!client->key.present)
        return rf_fail(RF_EAUTH,
                       "client %s has no key: it must prove the one that the coordinator "
                       "has for it",
                       opts->name);
    if (!(client->secure = rf_alloc(sizeof *client->secure)))
        return rf_fail(RF_ENOMEM, "out of memory for a client");
    RETURN_IF_ERROR(federated_identify(client->secure, opts));
    federated_rule_text(opts->rule, client->rule_text);
    client->host = rf_strdup(opts->host);
    client->terms = rf_strdup(opts->terms ? opts->terms : "");
    client->start = rf_alloc(bytes);
    client->update = rf_alloc(bytes);
    if (!client->host || !client->terms || !client->start || !client->update)
        return rf_fail(RF_ENOMEM, "out of memory for a client of %lld parameters",
                       (long long)client->params.count);
    RETURN_IF_ERROR(
        client->params.read(client->params.user, 0, client->params.count, client->update));
    if (rf_option(opts->rule->proximal, 0) != 0 && !(client->before = rf_alloc(bytes)))
        return rf_fail(RF_ENOMEM, "out of memory for a client with a proximal term");
    RETURN_IF_ERROR(federated_exchange(client));
    return begin_round(client);
}

int rf_client_open(const struct rf_client_opts *opts, const struct rf_rounds_params *params,
                   struct rf_client **out)
{
    if (!opts || !params || !out)
        return rf_fail(RF_EINVAL, "a client needs options, parameters and room");
    RETURN_IF_ERROR(check(opts, params));
    struct rf_client *client = rf_alloc(sizeof *client);
    if (!client)
        return rf_fail(RF_ENOMEM, "out of memory for a client");
    client->opts = *opts;
    client->opts.host = client->opts.name = client->opts.key = client->opts.terms = NULL;
    client->opts.rule = NULL;
    client->opts.secret = NULL;
    client->opts.peers = NULL;
    snprintf(client->name, sizeof client->name, "%s", opts->name);
    client->params = *params;
    client->rule = *opts->rule;
    client->rule.every = opts->rule->every ? opts->rule->every : 1;
    client->timeout_ns = rf_seconds_to_ns(opts->timeout_s != 0 ? opts->timeout_s : DEFAULT_S);
    client->channel.link.fd = -1;
    client->out_done = -1;
    const int rc = open_all(client, opts);
    if (rc < 0) {
        const struct rf_error error = *rf_last_error();
        rf_client_close(client);
        return rf_fail_error(&error);
    }
    *out = client;
    return RF_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* What is sent of a round. */
static int make_update(struct rf_client *client, double share)
{
    const int64_t count = client->params.count;
    float *update = client->update;
    RETURN_IF_ERROR(client->params.read(client->params.user, 0, count, update));
    for (int64_t i = 0; client->rule.difference && i < count; i++)
        update[i] = client->start[i] - update[i];
    if (!federated_finite(update, count))
        return rf_fail(RF_EINVAL,
                       "a parameter is not finite after the local steps of round %lld: "
                       "nothing is sent",
                       (long long)client->round);
    if (client->opts.clip > 0)
        federated_privatise(update, count, (double)client->opts.clip, (double)client->opts.noise);
    client->weight = client->rule.weighted || !client->secure->threshold ? share : 1;
    if (client->secure->threshold)
        RETURN_IF_ERROR(
            federated_fixed_check(update, count, client->weight, client->rule.weighted));
    client->has_update = true;
    return RF_OK;
}

static int exchange(struct rf_client *client, double share, struct rf_client_stats *stats)
{
    const uint64_t from = rf_now_ns();
    RETURN_IF_ERROR(make_update(client, share));
    RETURN_IF_ERROR(federated_exchange(client));
    stats->wait_ns = rf_now_ns() - from;
    stats->exchanged = true;
    return begin_round(client);
}

int rf_client_pull(struct rf_client *client, float rate)
{
    if (!client || !client->before || !(rate >= 0) || rate - rate != 0)
        return rf_fail(RF_EINVAL,
                       "clients of a rule with a proximal term are pulled, with the rate "
                       "of their local step");
    if (client->pulled)
        return rf_fail(RF_EINVAL, "a client is pulled once in a local step");
    const int64_t count = client->params.count;
    const float factor = rate * client->rule.proximal;
    float *now = client->update, *before = client->before;
    RETURN_IF_ERROR(client->params.read(client->params.user, 0, count, now));
    for (int64_t i = 0; i < count; i++)
        before[i] = now[i] - factor * (before[i] - client->start[i]);
    client->pulled = true;
    return client->params.write(client->params.user, 0, count, before);
}

int rf_client_step(struct rf_client *client, double share, struct rf_client_stats *stats)
{
    struct rf_client_stats now = {0};
    if (!client || !(share >= 0) || share - share != 0 || (share != 0 && !client->rule.weighted))
        return rf_fail(RF_EINVAL, "a step needs a client, and a share of 0 or more, which belongs "
                                  "to a weighted rule only");
    if (client->ended)
        return rf_fail(RF_EABORT, "the training has ended: the client has its parameters");
    if (client->before && !client->pulled)
        return rf_fail(RF_EINVAL,
                       "the rule has a proximal term: call rf_client_pull after the local "
                       "step, before rf_client_step");
    client->pulled = false;
    client->step++;
    if (++client->in_round >= client->rule.every)
        RETURN_IF_ERROR(exchange(client, share, &now));
    now.step = client->step;
    now.round = client->round;
    now.ended = client->ended;
    now.sent_bytes = client->sent_bytes + client->channel.sent_bytes;
    now.received_bytes = client->received_bytes + client->channel.received_bytes;
    if (stats)
        *stats = now;
    return RF_OK;
}

int64_t rf_client_round(const struct rf_client *client)
{
    return client->round;
}

void rf_client_close(struct rf_client *client)
{
    if (!client)
        return;
    federated_disconnect(client);
    sodium_memzero(&client->key, sizeof client->key);
    if (client->secure) {
        rf_free(client->secure->peers);
        sodium_memzero(client->secure, sizeof *client->secure);
    }
    rf_free(client->secure);
    rf_free(client->piece);
    rf_free(client->stream);
    rf_free(client->host);
    rf_free(client->terms);
    rf_free(client->start);
    rf_free(client->update);
    rf_free(client->before);
    rf_free(client);
}
