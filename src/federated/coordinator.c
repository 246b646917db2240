/* SPDX-License-Identifier: MIT
 *
 * A coordinator: opening, running, closing.
 */
#include <math.h>
#include <poll.h>
#include <ringforge/ringforge.h>
#include <sodium.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "secure_round.h"
#include "transport/control/socket.h"

#define LINGER_NS 10000000000ull /* for clients to take the last parameters */

enum { MOST_CLIENTS = 10000, DEFAULT_S = 600, MOST_STRANGERS = 20 };

/* ---- clients --------------------------------------------------------------------------------- */

static int find(const struct rf_coordinator *c, const char *name)
{
    for (int k = 0; k < c->opts.client_count; k++)
        if (strcmp(c->clients[k].name, name) == 0)
            return k;
    return -1;
}

static int key_of(void *owner, const char *name, struct rf_job_key *key)
{
    const struct rf_coordinator *c = owner;
    const int number = find(c, name);
    if (number >= 0)
        *key = c->clients[number].key;
    return number;
}

/* Each client once, and some strangers: others cannot fill the log. */
static void refused(void *owner, const char *name)
{
    struct rf_coordinator *c = owner;
    const int number = find(c, name);
    bool *noted = number >= 0 ? &c->clients[number].noted : NULL;
    if (noted ? *noted : c->strangers >= MOST_STRANGERS)
        return;
    if (noted)
        *noted = true;
    else
        c->strangers++;
    federated_note(c,
                   number >= 0 ? "refused: the key of client %s is not that of the list"
                               : "refused: %s, who is not in the list of clients",
                   name);
}

static int add_client(struct rf_coordinator *c, const struct rf_federated_client_key *given)
{
    const int at = c->opts.client_count;
    struct client *client = c->clients + at;
    if (!given->name || !rf_handshake_is_name(given->name, strlen(given->name)))
        return rf_fail(RF_EINVAL,
                       "\"%.80s\" cannot be the name of a client: it has 1 to %d letters, digits, "
                       "'.', '-' and '_'",
                       given->name ? given->name : "", RF_NAME_BYTES);
    if (find(c, given->name) >= 0)
        return rf_fail(RF_EINVAL, "client %s is twice in the list", given->name);
    snprintf(client->name, sizeof client->name, "%s", given->name);
    RETURN_IF_ERROR(rf_job_key_init(&client->key, given->key));
    if (!client->key.present)
        return rf_fail(RF_EAUTH, "client %s has no key: each must prove a key of its own",
                       given->name);
    for (int k = 0; k < at; k++)
        if (sodium_memcmp(c->clients[k].key.key, client->key.key, 32) == 0)
            return rf_fail(RF_EINVAL, "clients %s and %s have one key: give each its own",
                           c->clients[k].name, given->name);
    client->out_done = client->member = -1;
    client->channel.link.fd = -1;
    c->opts.client_count++;
    return RF_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int make_lists(struct rf_coordinator *c, int clients)
{
    const size_t polls = 1 + RF_LISTENER_POLLS + (size_t)clients + FEDERATED_LEAVING;
    c->clients = rf_alloc((size_t)clients * sizeof *c->clients);
    c->parts = rf_alloc((size_t)clients * sizeof *c->parts);
    c->weights = rf_alloc((size_t)clients * sizeof *c->weights);
    c->polls = rf_alloc(polls * sizeof *c->polls);
    c->sum = rf_alloc(FEDERATED_PIECE * sizeof *c->sum);
    if (!c->clients || !c->parts || !c->weights || !c->polls || !c->sum)
        return rf_fail(RF_ENOMEM, "out of memory for %d clients", clients);
    return RF_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int check(const struct rf_coordinator_opts *opts)
{
    if (!opts->rule || opts->rounds < 1)
        return rf_fail(RF_EINVAL, "a coordinator needs a rule, and 1 round or more");
    if (!opts->clients || opts->client_count < 1)
        return rf_fail(RF_EAUTH, "a coordinator needs the names and keys of its clients: nothing "
                                 "listens without a key");
    if (opts->client_count > MOST_CLIENTS || opts->min_clients > opts->client_count ||
        opts->min_clients < 0)
        return rf_fail(RF_EINVAL,
                       "at least %d of %d clients: there may be %d, and at least 1 to all of them "
                       "are needed for a round",
                       opts->min_clients, opts->client_count, MOST_CLIENTS);
    if ((opts->initial != NULL) != (opts->count > 0) || opts->save_every < 0 ||
        (opts->resume && !opts->save) || opts->port < 0 || opts->port > 65535)
        return rf_fail(RF_EINVAL, "the first parameters have their number, save_every is 0 or "
                                  "more, resume needs a folder, and a port is 0 to 65535");
    RETURN_IF_ERROR(rf_check_seconds("rf_coordinator_open", opts->round_s));
    RETURN_IF_ERROR(rf_check_seconds("rf_coordinator_open", opts->wait_s));
    return federated_check_rule(opts->rule);
}

static void copy_rule(struct rf_coordinator *c, const struct rf_rounds_rule *rule)
{
    static const struct rf_optimizer_opts sgd = {.kind = RF_SGD};
    c->rule = *rule;
    c->outer = rule->outer ? *rule->outer : sgd;
    c->rule.outer = rule->outer ? &c->outer : NULL;
    c->rule.mixing.weights = NULL;
    federated_rule_text(&c->rule, c->rule_text);
}

static int copy_start(struct rf_coordinator *c, const struct rf_coordinator_opts *opts)
{
    if (opts->save && !(c->folder = rf_strdup(opts->save)))
        return rf_fail(RF_ENOMEM, "out of memory for a coordinator");
    if (c->folder)
        RETURN_IF_ERROR(rf_folder_lock(c->folder, &c->lock));
    if (c->folder)
        RETURN_IF_ERROR(federated_load(c));
    if (c->has_params || !opts->initial)
        return RF_OK;
    RETURN_IF_ERROR(federated_make_room(c, opts->count));
    memcpy(c->params, opts->initial, (size_t)opts->count * sizeof *c->params);
    c->has_params = true;
    return federated_finite(c->params, c->count)
               ? RF_OK
               : rf_fail(RF_EINVAL, "the first parameters have a value that is not finite");
}

static int open_all(struct rf_coordinator *c, const struct rf_coordinator_opts *opts)
{
    static const struct rf_job_key none;
    struct rf_job_key key = none;
    int fd = -1;
    RETURN_IF_ERROR(check(opts));
    copy_rule(c, opts->rule);
    RETURN_IF_ERROR(make_lists(c, opts->client_count));
    for (int k = 0; k < opts->client_count; k++)
        RETURN_IF_ERROR(add_client(c, opts->clients + k));
    RETURN_IF_ERROR(federated_secure_open(c));
    RETURN_IF_ERROR(copy_start(c, opts));
    c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (c->wake_fd < 0)
        return rf_socket_fail_files("a coordinator needs 2, and 1 for each client");
    const int rc = rf_socket_listen("0.0.0.0", opts->port, true, &fd, &c->port);
    if (rc == RF_EBUSY)
        return rf_fail(RF_EBUSY, "port %d is in use; choose another one for clients", opts->port);
    RETURN_IF_ERROR(rc);
    key.present = true; /* each client has its own */
    rf_listener_init(&c->listener, fd, FEDERATED_WORLD_SIZE, &key);
    c->listener.admit = federated_admit;
    c->listener.key_of = key_of;
    c->listener.refused = refused;
    c->listener.owner = c;
    rf_random(&c->run, sizeof c->run);
    return RF_OK;
}

int rf_coordinator_open(const struct rf_coordinator_opts *opts, struct rf_coordinator **out)
{
    if (!opts || !out)
        return rf_fail(RF_EINVAL, "a coordinator needs options, and room");
    struct rf_coordinator *c = rf_alloc(sizeof *c);
    if (!c)
        return rf_fail(RF_ENOMEM, "out of memory for a coordinator");
    c->opts = *opts;
    c->opts.clients = NULL;
    c->opts.client_count = 0; /* until they are added */
    c->opts.rule = NULL;
    c->opts.initial = NULL;
    c->opts.save = NULL;
    c->opts.min_clients = opts->min_clients ? opts->min_clients : 1;
    c->opts.save_every = opts->save_every ? opts->save_every : 1;
    c->opts.round_s = opts->round_s != 0 ? opts->round_s : DEFAULT_S;
    c->opts.wait_s = opts->wait_s != 0 ? opts->wait_s : DEFAULT_S;
    c->wake_fd = c->listener.fd = c->asked = -1;
    const int rc = open_all(c, opts);
    if (rc < 0) {
        const struct rf_error error = *rf_last_error();
        rf_coordinator_close(c);
        return rf_fail_error(&error);
    }
    *out = c;
    return RF_OK;
}

int rf_coordinator_port(const struct rf_coordinator *c)
{
    return c->port;
}

int64_t rf_coordinator_rounds(const struct rf_coordinator *c)
{
    return c->round;
}

/* ---- running --------------------------------------------------------------------------------- */

static int make_rounds(struct rf_coordinator *c)
{
    c->progress_ns = rf_now_ns();
    while (c->round < c->opts.rounds) {
        uint64_t next_ns = 0;
        federated_serve(c);
        if (c->stopped)
            return rf_fail(RF_EABORT, "the coordinator was stopped after %lld of %lld rounds",
                           (long long)c->round, (long long)c->opts.rounds);
        const int64_t before = c->round;
        RETURN_IF_ERROR(federated_advance(c, &next_ns));
        if (c->round == before && c->round < c->opts.rounds)
            federated_sleep(c, next_ns);
    }
    return RF_OK;
}

/* All that are here get the last parameters, and those that come within the time. */
static void say_end(struct rf_coordinator *c)
{
    const uint64_t until = rf_now_ns() + LINGER_NS;
    c->ended = true;
    for (int k = 0; k < c->opts.client_count; k++)
        if (c->clients[k].joined)
            federated_send_end(c, c->clients + k);
    while (!c->stopped && rf_now_ns() < until) {
        int here = c->leaving_count;
        federated_serve(c);
        for (int k = 0; k < c->opts.client_count; k++)
            here += c->clients[k].here;
        if (here == 0)
            return;
        federated_sleep(c, until);
    }
}

/* Clients that come later are told by their systems that nobody listens. */
static void hang_up(struct rf_coordinator *c)
{
    rf_listener_close(&c->listener);
    for (int k = 0; k < c->opts.client_count; k++)
        federated_drop(c, c->clients + k, NULL);
    for (int i = 0; i < c->leaving_count; i++)
        rf_channel_close(&c->leaving[i].channel);
    c->leaving_count = 0;
}

int rf_coordinator_run(struct rf_coordinator *c)
{
    if (!c)
        return rf_fail(RF_EINVAL, "there is no coordinator to run");
    const int rc = make_rounds(c);
    const struct rf_error error = *rf_last_error();
    if (rc == 0)
        say_end(c);
    hang_up(c);
    if (rc == 0)
        return RF_OK;
    if (c->folder && c->has_params && c->round > c->saved && federated_save(c) < 0)
        federated_note(c, "%s", rf_last_error()->message);
    return rf_fail_error(&error);
}

void rf_coordinator_stop(struct rf_coordinator *c)
{
    const uint64_t one = 1;
    if (write(c->wake_fd, &one, sizeof one) < 0) {
        /* The counter is full: it has been stopped before. */
    }
}

void rf_coordinator_close(struct rf_coordinator *c)
{
    if (!c)
        return;
    hang_up(c);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    for (int k = 0; k < c->opts.client_count; k++) {
        sodium_memzero(&c->clients[k].key, sizeof c->clients[k].key);
        rf_free(c->clients[k].update);
        rf_free(c->clients[k].masked);
    }
    for (int s = 0; s < RF_STATE_COUNT; s++)
        rf_free(c->state[s]);
    rf_folder_unlock(&c->lock);
    federated_secure_close(c);
    rf_free(c->params);
    rf_free(c->mean);
    rf_free(c->decay);
    rf_free(c->sum);
    rf_free(c->clients);
    rf_free(c->parts);
    rf_free(c->weights);
    rf_free(c->polls);
    rf_free(c->terms);
    rf_free(c->folder);
    rf_free(c);
}
