/* SPDX-License-Identifier: MIT
 *
 * `ringforge coordinate`: the coordinator of clients that train (ringforge/federated.h). Needs no
 * device and no model: the first parameters are those of the first client.
 */
#include <errno.h>
#include <fcntl.h>
#include <ringforge/federated.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

enum { MOST_LINE = 4095, MOST_CLIENTS = 10000 };

struct coordinate {
    const struct tool_command *command;
    int64_t port, rounds, min_clients, save_every;
    double deadline_s, wait_s;
    const char *sync, *clients, *save, *resume;
    struct rf_federated_client_key *keys;
    int count;
};

/* ---- the list of clients --------------------------------------------------------------------- */

/* A line "NAME KEY"; empty lines and those that begin with # have none. */
static int add_client(struct coordinate *c, char *line, int number)
{
    char *name = line + strspn(line, " \t"), *end = name + strcspn(name, " \t\r\n");
    char *key = end + strspn(end, " \t"), *last = key + strcspn(key, "\r\n");
    if (*name == '#' || end == name)
        return TOOL_OK;
    while (last > key && (last[-1] == ' ' || last[-1] == '\t'))
        last--;
    if (last == key || strlen(line) >= MOST_LINE)
        return tool_error(c->command,
                          "%s, line %d: write the name of a client and its key, in less than %d "
                          "bytes",
                          c->clients, number, MOST_LINE);
    *end = *last = 0;
    if (c->count == MOST_CLIENTS)
        return tool_error(c->command, "%s has more than %d clients", c->clients, MOST_CLIENTS);
    struct rf_federated_client_key *keys =
        realloc(c->keys, ((size_t)c->count + 1) * sizeof(*c->keys));
    if (!keys)
        return tool_error(c->command, "out of memory");
    c->keys = keys;
    c->keys[c->count] = (struct rf_federated_client_key){strdup(name), strdup(key)};
    const bool sound = c->keys[c->count].name && c->keys[c->count].key;
    c->count++;
    return sound ? TOOL_OK : tool_error(c->command, "out of memory");
}

/* Whoever may read the file can be any client. */
static int open_list(const struct coordinate *c, FILE **out)
{
    struct stat info;
    const int fd = open(c->clients, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return tool_error(c->command, "%s cannot be read: %s", c->clients, strerror(errno));
    int status = TOOL_OK;
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        status = tool_error(c->command, "%s is not a file", c->clients);
    else if (info.st_mode & (S_IRWXG | S_IRWXO))
        status = tool_error(c->command,
                            "%s has the keys of clients, and others may read or change it: chmod "
                            "600 %s",
                            c->clients, c->clients);
    if (status == TOOL_OK && !(*out = fdopen(fd, "r")))
        status = tool_error(c->command, "out of memory");
    if (status != TOOL_OK)
        close(fd);
    return status;
}

static int read_clients(struct coordinate *c)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    FILE *file = NULL;
    int status = open_list(c, &file);
    for (int number = 1; status == TOOL_OK && (bytes = getline(&line, &room, file)) >= 0; number++)
        status = strlen(line) == (size_t)bytes
                     ? add_client(c, line, number)
                     : tool_error(c->command, "%s, line %d has a zero byte", c->clients, number);
    if (status == TOOL_OK && !feof(file))
        status = tool_error(c->command, "%s cannot be read: %s", c->clients, strerror(errno));
    if (file)
        fclose(file);
    if (line)
        memset(line, 0, room);
    free(line);
    return status;
}

static void free_clients(struct coordinate *c)
{
    for (int k = 0; k < c->count; k++) {
        free((char *)(uintptr_t)c->keys[k].name);
        free((char *)(uintptr_t)c->keys[k].key);
    }
    free(c->keys);
}

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
    static const char *const words[] = {[RF_FEDERATED_LOST] = "lost", [RF_FEDERATED_LATE] = "late"};
    const struct coordinate *c = user;
    printf("round %lld: %d of %d clients, %.3g s", (long long)r->round, r->counted, c->count,
           (double)r->ns * 1e-9);
    for (int k = 0; k < c->count; k++)
        if (r->parts[k] == RF_FEDERATED_COUNTED)
            printf(", %s %.15g", c->keys[k].name, r->weights[k]);
        else if (r->parts[k] != RF_FEDERATED_ABSENT)
            printf(", %s %s", c->keys[k].name, words[r->parts[k]]);
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
    const struct rf_coordinator_opts opts = {.port = (int)c->port,
                                             .clients = c->keys,
                                             .client_count = c->count,
                                             .rule = rule,
                                             .rounds = c->rounds,
                                             .min_clients =
                                                 (int)(c->min_clients ? c->min_clients : c->count),
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
           rf_coordinator_port(running), c->count, (long long)c->rounds, c->sync);
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
         .least = 1, .most = MOST_CLIENTS},
        {"deadline", TOOL_COUNT, &c.deadline_s, "S",
         "seconds after which a round ends without clients that have not answered (600)"},
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
    if (status == TOOL_OK)
        status = check(&c);
    if (status == TOOL_OK && rf_rounds_text_read(c.sync, 1, &rule) < 0)
        status = tool_usage_error(command, "--sync %s: %s", c.sync, rf_last_error()->message);
    if (status == TOOL_OK)
        status = read_clients(&c);
    if (status == TOOL_OK)
        status = run(&c, &rule.rule);
    rf_rounds_text_free(&rule);
    free_clients(&c);
    return status;
}

const struct tool_command tool_coordinate = {
    .name = "coordinate",
    .summary = "average what clients train, each with data of its own (train --coordinator)",
    .usage = "--sync RULE --clients FILE --rounds N [OPTIONS]",
    .main = coordinate_main,
};
