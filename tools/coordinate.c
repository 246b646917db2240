/* SPDX-License-Identifier: MIT
 *
 * `ringforge coordinate`: the coordinator of clients that train (ringforge/federated.h). Needs no
 * device and no model: the first parameters are those of the first client.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "client_list.h"

struct coordinate {
    const struct tool_command *command;
    int64_t port, rounds, min_clients, secure, save_every;
    double deadline_s, wait_s;
    const char *sync, *clients, *save, *resume;
    bool identity;
    struct tool_client_list list;
};

/* ---- running --------------------------------------------------------------------------------- */

static struct rf_coordinator *running;
static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    const int error = errno;
    stopped = number;
    if (running)
        rf_coordinator_stop(running);
    errno = error;
}

static int print_round(void *user, const struct rf_federated_round *r)
{
    static const char *const words[] = {[RF_FEDERATED_LOST] = "lost",
                                        [RF_FEDERATED_LATE] = "late",
                                        [RF_FEDERATED_FAILED] = "not counted"};
    const struct coordinate *c = user;
    printf("round %lld: %d of %d clients, %.3g s", (long long)r->round, r->counted, c->list.count,
           (double)r->ns * 1e-9);
    for (int k = 0; k < c->list.count; k++)
        if (r->parts[k] == RF_FEDERATED_COUNTED && c->secure)
            printf(", %s", c->list.all[k].name);
        else if (r->parts[k] == RF_FEDERATED_COUNTED)
            printf(", %s %.15g", c->list.all[k].name, r->weights[k]);
        else if (r->parts[k] != RF_FEDERATED_ABSENT)
            printf(", %s %s", c->list.all[k].name, words[r->parts[k]]);
    if (c->secure)
        printf(", together %.15g", r->weight);
    printf("; %llu bytes sent, %llu received so far\n", (unsigned long long)r->sent_bytes,
           (unsigned long long)r->received_bytes);
    fflush(stdout);
    return 0;
}

static void print_note(void *user, const char *text)
{
    (void)user;
    fprintf(stderr, "ringforge coordinate: %s\n", text);
}

static int run(struct coordinate *c, const struct rf_rounds_rule *rule)
{
    const struct rf_coordinator_opts opts = {
        .port = (int)c->port,
        .clients = c->list.all,
        .client_count = c->list.count,
        .rule = rule,
        .rounds = c->rounds,
        .min_clients = (int)(c->min_clients ? c->min_clients : c->list.count),
        .secure = (int)c->secure,
        .round_s = c->deadline_s,
        .wait_s = c->wait_s,
        .save = c->resume ? c->resume : c->save,
        .save_every = c->save_every,
        .resume = c->resume != NULL,
        .ended = print_round,
        .note = print_note,
        .user = c};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    if (rf_coordinator_open(&opts, &running) < 0)
        return tool_library_error(c->command, -1);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    printf("coordinator on port %d: %d clients, %lld rounds of --sync %s\n",
           rf_coordinator_port(running), c->list.count, (long long)c->rounds, c->sync);
    if (c->secure)
        printf("secure aggregation of at least %lld clients\n", (long long)c->secure);
    if (c->resume)
        printf("continues after %lld rounds\n", (long long)rf_coordinator_rounds(running));
    fflush(stdout);
    const int rc = rf_coordinator_run(running);
    int status = rc == 0 ? TOOL_OK : stopped ? TOOL_BY_SIGNAL + stopped : TOOL_ERROR;
    if (status == TOOL_ERROR)
        status = tool_library_error(c->command, -1);
    struct rf_coordinator *done = running;
    running = NULL;
    rf_coordinator_close(done);
    return status;
}

static int check(const struct coordinate *c)
{
    const struct {
        const void *value;
        const char *name, *what;
    } needed[] = {{c->sync, "sync", "the rule of the rounds, as the clients have it"},
                  {c->clients, "clients", "the file of the clients' names and keys"}};
    for (size_t k = 0; k < sizeof(needed) / sizeof(needed[0]); k++)
        if (!needed[k].value)
            return tool_usage_error(c->command, "--%s is needed: %s", needed[k].name,
                                    needed[k].what);
    if (c->save && c->resume)
        return tool_usage_error(c->command, "--resume DIR also saves into DIR: omit --save");
    return c->rounds > 0 ? TOOL_OK : tool_usage_error(c->command, "--rounds is needed");
}

/* Of the client whose key is in the environment. */
static int print_identity(const struct tool_command *command, const struct tool_option *table)
{
    char text[65];
    for (const struct tool_option *row = table; row->name; row++)
        if (row->said && strcmp(row->name, "identity") != 0)
            return tool_usage_error(command, "--identity prints one line only; omit --%s",
                                    row->name);
    if (rf_client_identity(NULL, text) < 0)
        return tool_library_error(command, -1);
    printf("%s\n", text);
    return TOOL_OK;
}

static int coordinate_main(const struct tool_command *command, int argc, char **argv)
{
    struct coordinate c = {.command = command, .port = 29700};
    struct rf_rounds_text rule = {0};
    struct tool_option table[] = {
        {"sync", TOOL_TEXT, &c.sync, "RULE",
         "rule of the rounds, the same as that of the clients: fedavg:H, fedopt:H, fedprox:H, "
         "local:H, diloco:H, and keys (docs/decentralised.md)"},
        {"clients", TOOL_TEXT, &c.clients, "FILE",
         "file of a line \"NAME KEY\" for each client, which only its owner may read",
         .path = TOOL_READS},
        {"rounds", TOOL_INT, &c.rounds, "N", "number of rounds, with those before --resume",
         .least = 1},
        {"min-clients", TOOL_INT, &c.min_clients, "N",
         "number of updates without which a round does not end (all clients of the list)",
         .least = 1, .most = TOOL_MOST_CLIENTS},
        {"secure-aggregation", TOOL_INT, &c.secure, "T",
         "threshold of an aggregation that tells the coordinator sums of T clients or more only; "
         "more than half of the list, which has at most 255 (none)",
         .least = 2, .most = 255},
        {"identity", TOOL_FLAG, &c.identity, NULL,
         "identity of the client whose secret is in RF_IDENTITY_KEY, for the lists of train "
         "--peers; nothing else"},
        {"deadline", TOOL_COUNT, &c.deadline_s, "S",
         "seconds after which a round ends without clients that have not answered, and so does "
         "each "
         "exchange of --secure-aggregation (600)"},
        {"wait", TOOL_COUNT, &c.wait_s, "S",
         "seconds to wait for enough clients, after which training ends with an error (600)"},
        {"port", TOOL_INT, &c.port, "P", "port for clients, on all addresses; 0: any (29700)",
         .most = 65535},
        {"save", TOOL_TEXT, &c.save, "DIR", "folder for the state after rounds",
         .path = TOOL_WRITES_INTO},
        {"save-every", TOOL_INT, &c.save_every, "N", "rounds between saved states (1)", .least = 1,
         .needs = "save|resume"},
        {"resume", TOOL_TEXT, &c.resume, "DIR",
         "folder of a saved state to continue from, and to save into", .path = TOOL_WRITES_INTO},
        {NULL},
    };
    int status = tool_options(command, table, argc, argv, NULL);
    if (status == TOOL_OK && c.identity)
        return print_identity(command, table);
    if (status == TOOL_OK)
        status = check(&c);
    if (status == TOOL_OK && rf_rounds_text_read(c.sync, 1, &rule) < 0)
        status = tool_usage_error(command, "--sync %s: %s", c.sync, rf_last_error()->message);
    if (status == TOOL_OK)
        status = tool_client_list_read(command, c.clients, true, &c.list);
    if (status == TOOL_OK)
        status = run(&c, &rule.rule);
    rf_rounds_text_free(&rule);
    tool_client_list_free(&c.list);
    return status;
}

const struct tool_command tool_coordinate = {
    .name = "coordinate",
    .summary = "average what clients train, each with data of its own (train --coordinator)",
    .usage = "--sync RULE --clients FILE --rounds N [OPTIONS] | --identity",
    .main = coordinate_main,
};
