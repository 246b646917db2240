/* SPDX-License-Identifier: MIT
 *
 * From a URL and the environment to a joined job: which rank this is of how many, and where they
 * meet. How they then meet is in join.c.
 */
#include <errno.h>
#include <ringforge/ringforge.h>
#include <unistd.h>

#include "../control/control.h"
#include "../transport.h"
#include "base/base.h"
#include "join.h"

static const double START_TIMEOUT_S = 60;
enum { MOST_RANKS = 1 << 16 };

/* Launchers, in the order in which they are believed: under mpirun within a Slurm job Slurm's own
 * variables may say rank 0 to everybody. */
static const struct {
    const char *rank, *size, *launcher;
} launchers[] = {
    {"RANK", "WORLD_SIZE", "torchrun or ringforge run"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"},
    {"PMI_RANK", "PMI_SIZE", "MPICH"},
    {"SLURM_PROCID", "SLURM_NTASKS", "srun"},
};

static int find_place(const struct rf_comm_opts *opts, struct rf_meeting *meeting)
{
    /* rank 0 of an options structure left at zero means nothing without a size. */
    bool given = opts && (opts->size > 0 || opts->rank > 0);
    long rank = given ? opts->rank : -1, size = opts && opts->size > 0 ? opts->size : 0;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        if (!rf_env(launchers[i].rank) || !rf_env(launchers[i].size))
            continue;
        if (rank < 0)
            RETURN_IF_ERROR(rf_env_int(launchers[i].rank, -1, &rank));
        if (size <= 0)
            RETURN_IF_ERROR(rf_env_int(launchers[i].size, 0, &size));
        break;
    }
    if (rank < 0 || size <= 0)
        return rf_fail(RF_EINVAL,
                       "rank and number of ranks are not known: set RANK and WORLD_SIZE, or "
                       "start with a launcher such as `ringforge run -n 4 -- ...`");
    if (size > MOST_RANKS)
        return rf_fail(RF_EINVAL, "%ld ranks; at most %d are possible", size, MOST_RANKS);
    if (rank >= size)
        return rf_fail_rank(RF_EINVAL, (int)rank, "rank %ld is outside a world of %ld ranks", rank,
                            size);
    meeting->rank = (int)rank;
    meeting->size = (int)size;
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
static int parse_host_port(const char *text, struct rf_meeting *meeting)
{
    const char *colon = strrchr(text, ':'), *start = text, *end = colon;
    if (!colon || colon == text)
        return rf_fail(RF_EINVAL, "tcp://%s: expected tcp://host:port", text);
    if (*start == '[' && colon[-1] == ']') {
        start++;
        end--;
    }
    size_t length = (size_t)(end - start);
    if (length == 0 || length >= sizeof(meeting->host))
        return rf_fail(RF_EINVAL, "tcp://%s: expected tcp://host:port", text);
    memcpy(meeting->host, start, length);
    meeting->host[length] = 0;
    return parse_port(colon + 1, "the port of the URL", &meeting->port);
}

int rf_meeting_parse(const char *url, struct rf_meeting *meeting)
{
    const char *text = strncmp(url, "tcp://", 6) == 0 ? url + 6 : url;
    return parse_host_port(text, meeting);
}

static int find_environment(struct rf_meeting *meeting)
{
    const char *host = rf_env("MASTER_ADDR"), *own = rf_env("RF_PORT");
    const char *port = own ? own : rf_env("MASTER_PORT");
    if (meeting->size == 1)
        return 0;
    if (!host && !port && rf_launcher_meeting(meeting) == 0)
        return 0;
    if (!host || !port)
        return rf_fail(RF_EINVAL,
                       "%s is not set: it says %s, and all %d ranks need it (or use a "
                       "file: URL)",
                       host ? "MASTER_PORT" : "MASTER_ADDR",
                       host ? "on which port rank 0 gathers the job" : "on which host rank 0 runs",
                       meeting->size);
    if (strlen(host) >= sizeof(meeting->host))
        return rf_fail(RF_EINVAL, "MASTER_ADDR is too long");
    snprintf(meeting->host, sizeof(meeting->host), "%s", host);
    RETURN_IF_ERROR(parse_port(port, own ? "RF_PORT" : "MASTER_PORT", &meeting->port));
    if (!own)
        rf_launcher_port(meeting);
    return 0;
}

static int find_meeting(const char *url, const struct rf_comm_opts *opts,
                        struct rf_meeting *meeting)
{
    if (!url)
        return rf_fail(RF_EINVAL, "no URL to join; use self:, env:, tcp://host:port or file:/path");
    if (strcmp(url, "self:") == 0) {
        meeting->size = 1;
        return 0;
    }
    bool tcp = strncmp(url, "tcp://", 6) == 0, file = strncmp(url, "file:", 5) == 0;
    if (!tcp && !file && strcmp(url, "env:") != 0)
        return rf_fail(RF_EINVAL,
                       "unknown URL %.200s; use self:, env:, tcp://host:port or file:/path", url);
    RETURN_IF_ERROR(find_place(opts, meeting));
    if (tcp)
        return rf_meeting_parse(url, meeting);
    if (!file)
        return find_environment(meeting);
    /* file:///path is the long form of file:/path */
    meeting->file = strncmp(url + 5, "///", 3) == 0 ? url + 7 : url + 5;
    if (!*meeting->file)
        return rf_fail(RF_EINVAL, "file: names no path");
    return 0;
}

int rf_meet(struct rf_meeting *meeting, struct rf_control **out)
{
    int count = meeting->rank == 0 ? meeting->size : 1, listener = -1;
    struct rf_link *links = rf_alloc((size_t)count * sizeof(*links));
    if (!links)
        return rf_fail(RF_ENOMEM, "no memory to join %d ranks", meeting->size);
    for (int i = 0; i < count; i++)
        rf_link_init(&links[i], -1, 0);
    int rc = meeting->rank == 0 ? rf_join_gather(meeting, links, &listener)
                                : rf_join_connect(meeting, links);
    if (rc == 0)
        rc = rf_control_create(meeting->rank, meeting->size, links, listener, &meeting->key, out);
    rf_free(links);
    return rc;
}

int rf_bootstrap_join(const char *url, const struct rf_comm_opts *opts, int *rank, int *size,
                      struct rf_control **out)
{
    struct rf_meeting meeting = {0};
    if (opts)
        RETURN_IF_ERROR(rf_check_seconds("join", opts->start_timeout_s));
    const char *key = opts && opts->key ? opts->key : rf_env("RF_JOB_KEY");
    meeting.timeout_s = opts && opts->start_timeout_s > 0 ? opts->start_timeout_s : START_TIMEOUT_S;
    RETURN_IF_ERROR(find_meeting(url, opts, &meeting));
    RETURN_IF_ERROR(rf_job_key_init(&meeting.key, key));
    struct rf_control *control = NULL;
    RETURN_IF_ERROR(meeting.size == 1 ? rf_self_control(&control) : rf_meet(&meeting, &control));
    *rank = meeting.rank;
    *size = meeting.size;
    *out = control;
    return 0;
}
