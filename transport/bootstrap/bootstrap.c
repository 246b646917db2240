/* SPDX-License-Identifier: MIT
 *
 * Joins a job, given a URL and the environment: finds the rank of this process, the number of ranks
 * and the rendezvous. gather.c (rank 0) and join.c (all others) then connect the ranks. Called by
 * comm.
 */
#include <errno.h>
#include <ringforge/ringforge.h>
#include <unistd.h>

#include "../control/control.h"
#include "../transport.h"
#include "base/base.h"
#include "join.h"
#include "launchers.h"

static const double START_TIMEOUT_S = 60;
enum { MOST_RANKS = 1 << 16 };

static int find_rank(const struct rf_comm_opts *opts, struct rf_rendezvous *rendezvous)
{
    /* In an options structure left at zero, rank 0 is not a choice unless a size is given. */
    bool given = opts && (opts->size > 0 || opts->rank > 0);
    long rank = given ? opts->rank : -1, size = opts && opts->size > 0 ? opts->size : 0;
    int count;
    const struct rf_launcher *launchers = rf_launcher_rows(&count);
    for (int i = 0; i < count; i++) {
        if (!rf_env(launchers[i].rank) || !rf_env(launchers[i].size))
            continue;
        if (rank < 0)
            RETURN_IF_ERROR(rf_env_int(launchers[i].rank, -1, &rank));
        if (size <= 0)
            RETURN_IF_ERROR(rf_env_int(launchers[i].size, 0, &size));
        break;
    }
    if (rank < 0 || size <= 0) {
        struct rf_launcher_info info = {.others = ""};
        RETURN_IF_ERROR(rf_launcher_find(&info)); /* only one of the two is set */
        return rf_fail(RF_EINVAL,
                       "rank and number of ranks are not known%s%s%s: set RANK and WORLD_SIZE, or "
                       "start with a launcher such as `ringforge run --ranks 4 -- ...`",
                       info.others[0] ? " (" : "", info.others, info.others[0] ? ")" : "");
    }
    if (size > MOST_RANKS)
        return rf_fail(RF_EINVAL, "%ld ranks; at most %d are possible", size, MOST_RANKS);
    if (rank >= size)
        return rf_fail_rank(RF_EINVAL, (int)rank, "rank %ld is outside a world of %ld ranks", rank,
                            size);
    rendezvous->rank = (int)rank;
    rendezvous->size = (int)size;
    return 0;
}

static int parse_port(const char *text, const char *what, int *out)
{
    char *end = NULL;
    long port = strtol(text, &end, 10);
    if (end == text || *end || port < 1 || port > 65535)
        return rf_fail(RF_EINVAL, "%s: \"%s\" is not a port (1 to 65535)", what, text);
    *out = (int)port;
    return 0;
}

/* host:port, [v6]:port */
static int parse_host_port(const char *text, struct rf_rendezvous *rendezvous)
{
    const char *colon = strrchr(text, ':'), *start = text, *end = colon;
    if (!colon || colon == text)
        return rf_fail(RF_EINVAL, "tcp://%s: expected tcp://host:port", text);
    if (*start == '[' && colon[-1] == ']') {
        start++;
        end--;
    }
    size_t length = (size_t)(end - start);
    if (length == 0 || length >= sizeof(rendezvous->host))
        return rf_fail(RF_EINVAL, "tcp://%s: expected tcp://host:port", text);
    memcpy(rendezvous->host, start, length);
    rendezvous->host[length] = 0;
    return parse_port(colon + 1, "the port of the URL", &rendezvous->port);
}

int rf_rendezvous_parse(const char *url, struct rf_rendezvous *rendezvous)
{
    const char *text = strncmp(url, "tcp://", 6) == 0 ? url + 6 : url;
    return parse_host_port(text, rendezvous);
}

static int find_environment(struct rf_rendezvous *rendezvous)
{
    const char *host = rf_env("MASTER_ADDR"), *own = rf_env("RF_PORT");
    const char *port = own ? own : rf_env("MASTER_PORT");
    if (rendezvous->size == 1)
        return 0;
    if (!host && !port && rf_launcher_rendezvous(rendezvous) == 0)
        return 0;
    if (!host || !port)
        return rf_fail(RF_EINVAL,
                       "%s is not set: it says %s, and all %d ranks need it (or use a "
                       "file: URL)",
                       host ? "MASTER_PORT" : "MASTER_ADDR",
                       host ? "on which port rank 0 gathers the job" : "on which host rank 0 runs",
                       rendezvous->size);
    if (strlen(host) >= sizeof(rendezvous->host))
        return rf_fail(RF_EINVAL, "MASTER_ADDR is too long");
    snprintf(rendezvous->host, sizeof(rendezvous->host), "%s", host);
    RETURN_IF_ERROR(parse_port(port, own ? "RF_PORT" : "MASTER_PORT", &rendezvous->port));
    if (!own)
        rf_launcher_port(rendezvous);
    return 0;
}

static int find_rendezvous(const char *url, const struct rf_comm_opts *opts,
                           struct rf_rendezvous *rendezvous)
{
    if (!url)
        return rf_fail(RF_EINVAL, "no URL to join; use self:, env:, tcp://host:port or file:/path");
    if (strcmp(url, "self:") == 0) {
        rendezvous->size = 1;
        return 0;
    }
    bool tcp = strncmp(url, "tcp://", 6) == 0, file = strncmp(url, "file:", 5) == 0;
    if (!tcp && !file && strcmp(url, "env:") != 0)
        return rf_fail(RF_EINVAL,
                       "unknown URL %.200s; use self:, env:, tcp://host:port or file:/path", url);
    RETURN_IF_ERROR(find_rank(opts, rendezvous));
    if (tcp)
        return rf_rendezvous_parse(url, rendezvous);
    if (!file)
        return find_environment(rendezvous);
    /* file:///path is the long form of file:/path */
    rendezvous->file = strncmp(url + 5, "///", 3) == 0 ? url + 7 : url + 5;
    if (!*rendezvous->file)
        return rf_fail(RF_EINVAL, "file: names no path");
    return 0;
}

int rf_rendezvous_join(struct rf_rendezvous *rendezvous, struct rf_control **out)
{
    const bool declines = rendezvous->declines != NULL;
    int count = rendezvous->rank == 0 ? rendezvous->size : 1, listener = -1;
    struct rf_link *links = rf_alloc((size_t)count * sizeof(*links));
    if (!links)
        return rf_fail(RF_ENOMEM, "no memory to join %d ranks", rendezvous->size);
    for (int i = 0; i < count; i++)
        rf_link_init(&links[i], -1, 0);
    int rc = rendezvous->rank == 0 ? rf_join_gather(rendezvous, links, &listener)
                                   : rf_join_connect(rendezvous, links);
    if (rc == 0 && !declines)
        rc = rf_control_create(rendezvous->rank, rendezvous->size, links, listener,
                               &rendezvous->key, out);
    rf_free(links);
    return rc;
}

static int find(const char *url, const struct rf_comm_opts *opts, struct rf_rendezvous *out)
{
    if (opts)
        RETURN_IF_ERROR(rf_check_seconds("join", opts->start_timeout_s));
    const char *key = opts && opts->key ? opts->key : rf_env("RF_JOB_KEY");
    out->timeout_s = opts && opts->start_timeout_s > 0 ? opts->start_timeout_s : START_TIMEOUT_S;
    RETURN_IF_ERROR(find_rendezvous(url, opts, out));
    return rf_job_key_init(&out->key, key);
}

int rf_bootstrap_decline(const char *url, const struct rf_comm_opts *opts, const char *why)
{
    struct rf_rendezvous rendezvous = {.declines = why};
    RETURN_IF_ERROR(find(url, opts, &rendezvous));
    return rendezvous.size == 1 ? 0 : rf_rendezvous_join(&rendezvous, NULL);
}

int rf_bootstrap_join(const char *url, const struct rf_comm_opts *opts, int *rank, int *size,
                      struct rf_control **out)
{
    struct rf_rendezvous rendezvous = {0};
    RETURN_IF_ERROR(find(url, opts, &rendezvous));
    struct rf_control *control = NULL;
    RETURN_IF_ERROR(rendezvous.size == 1 ? rf_self_control(&control)
                                         : rf_rendezvous_join(&rendezvous, &control));
    *rank = rendezvous.rank;
    *size = rendezvous.size;
    *out = control;
    return 0;
}
