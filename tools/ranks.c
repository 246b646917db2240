/* SPDX-License-Identifier: MIT
 *
 * How one subcommand becomes several ranks: threads of this process, processes started here, or the
 * one rank that a launcher assigned to this process.
 */
#define _GNU_SOURCE /* program_invocation_name */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

enum { MOST_RANKS = 4096 };
/* Whether a launcher has started this process as a rank. A usage error if its variables make no
 * sense. */
static int launcher(const struct tool_command *command, struct rf_launcher_info *out)
{
    const char *local = getenv("LOCAL_RANK");
    int64_t place;
    if (local && *local &&
        tool_take_int(command, "LOCAL_RANK", local, strlen(local), 0, MOST_RANKS, &place) !=
            TOOL_OK)
        return TOOL_USAGE;
    return rf_launcher_find(out) < 0 ? tool_error(command, "%s", rf_last_error()->message)
                                     : TOOL_OK;
}

static bool is_loopback(const struct tool_ranks *ranks)
{
    struct rf_provider_info info;
    return ranks->provider && rf_provider_find(ranks->provider, &info) == 0 && info.threads;
}

int tool_ranks_count(const struct tool_command *command, const struct tool_ranks *ranks, int *count)
{
    struct rf_launcher_info launched;
    if (ranks->provider && rf_provider_find(ranks->provider, NULL) < 0)
        return tool_usage_error(command, "%s", rf_last_error()->message);
    if (ranks->ranks > MOST_RANKS)
        return tool_usage_error(command, "--ranks %lld is more than %d", (long long)ranks->ranks,
                                MOST_RANKS);
    const int status = launcher(command, &launched);
    if (status != TOOL_OK)
        return status;
    if (launched.name && !is_loopback(ranks)) {
        if (ranks->ranks && ranks->ranks != launched.size)
            return tool_usage_error(command,
                                    "--ranks %lld contradicts the launcher's world of "
                                    "%d; leave --ranks away",
                                    (long long)ranks->ranks, launched.size);
        *count = launched.size;
        return TOOL_OK;
    }
    if (launched.size > 1)
        return tool_usage_error(command, "loopback ranks are threads of one process: use --ranks N "
                                         "without a launcher");
    *count = ranks->ranks ? (int)ranks->ranks : 1;
    return TOOL_OK;
}

/* Processes that a launcher started as one job should not run as jobs of one rank each without a
 * word. */
static void warn_if_alone(const struct tool_command *command)
{
    struct rf_launcher_info launched;
    if (rf_launcher_find(&launched) == 0 && launched.size == 1 && launched.others[0])
        fprintf(stderr,
                "ringforge %s: warning: this process runs alone, but %s may mean that a launcher "
                "has started several; for one job of them set RANK, WORLD_SIZE, MASTER_ADDR and "
                "MASTER_PORT in each, or start them by `ringforge run`, torchrun, srun or mpirun\n",
                command->name, launched.others);
}

/* Whether a job ended well by its communicator; if that failed before, fn has continued without it.
 */
static bool end_comm(struct rf_comm *comm, bool elastic)
{
    const bool left = elastic && rf_comm_async_error(comm) < 0;
    return rf_comm_close(comm) == 0 || left;
}

/* ---- threads --------------------------------------------------------------------------------- */

struct thread_rank {
    pthread_t thread;
    const struct tool_command *command;
    struct rf_loopback *loopback;
    struct rf_comm_opts opts;
    bool elastic, closes;
    int (*fn)(struct rf_comm *comm, void *user);
    void *user;
    int status;
};

static void *run_thread(void *argument)
{
    struct thread_rank *self = argument;
    struct rf_comm *comm = NULL;
    rf_set_thread_rank(self->opts.rank);
    if (rf_comm_open_loopback(self->loopback, self->opts.rank, &self->opts, &comm) < 0) {
        self->status = tool_library_error(self->command, self->opts.rank);
        return NULL;
    }
    self->status = self->fn(comm, self->user);
    if (self->closes)
        return NULL;
    if (self->status != TOOL_OK && self->status < TOOL_BY_SIGNAL)
        rf_comm_abort(comm, TOOL_ABORTED);
    if (!end_comm(comm, self->elastic) && self->status == TOOL_OK)
        self->status = tool_library_error(self->command, self->opts.rank);
    return NULL;
}

static int run_threads(const struct tool_command *command, const struct tool_ranks *ranks,
                       int count, int (*fn)(struct rf_comm *comm, void *user), void *user)
{
    struct rf_loopback *loopback = NULL;
    if (rf_loopback_create(count, &ranks->link, &loopback) < 0)
        return tool_library_error(command, -1);
    int status = TOOL_OK, started = 0;
    struct thread_rank *all = calloc((size_t)count, sizeof(*all));
    for (int r = 0; all && r < count; r++, started++) {
        all[r].command = command;
        all[r].loopback = loopback;
        all[r].opts =
            (struct rf_comm_opts){.rank = r, .size = count, .timeout_s = ranks->timeout_s};
        all[r].elastic = ranks->elastic;
        all[r].closes = ranks->closes;
        all[r].fn = fn;
        all[r].user = user;
        if (pthread_create(&all[r].thread, NULL, run_thread, &all[r]) != 0)
            break;
    }
    if (started < count) /* the threads that did start wait for the others: end here */
        exit(tool_error(command, "cannot start %d threads", count));
    for (int r = 0; r < started; r++) {
        pthread_join(all[r].thread, NULL);
        if (status == TOOL_OK)
            status = all[r].status;
    }
    rf_loopback_destroy(loopback);
    free(all);
    return status;
}

/* ---- this process ---------------------------------------------------------------------------- */

/* Reports why there is no communicator. A reason known to all ranks is printed by rank 0. */
static int fail_open(const struct tool_command *command, const struct rf_launcher_info *launched)
{
    const int code = rf_last_error()->status;
    if (code == RF_EABORT && launched->rank > 0) {
        tool_errors_drop();
        return TOOL_ERROR;
    }
    const int status = tool_library_error(command, launched->size > 1 ? launched->rank : -1);
    if (code == RF_EINVAL || code == RF_EAUTH) /* it may not have reached the others */
        return tool_ranks_refuse(command, status);
    tool_errors_release(command);
    return status;
}

static int run_here(const struct tool_command *command, const struct tool_ranks *ranks, int count,
                    int (*fn)(struct rf_comm *comm, void *user), void *user)
{
    struct rf_launcher_info launched;
    struct rf_comm_opts opts = {
        .rank = -1, .provider = ranks->provider, .timeout_s = ranks->timeout_s};
    struct rf_comm *comm = NULL;
    if (ranks->joins) {
        tool_errors_release(command);
        return fn(NULL, user);
    }
    if (is_loopback(ranks))
        opts.provider = NULL;
    int status = launcher(command, &launched);
    if (status != TOOL_OK)
        return status;
    if (count == 1)
        warn_if_alone(command);
    if (rf_comm_open(launched.name ? "env:" : "self:", &opts, &comm) < 0)
        return fail_open(command, &launched);
    tool_errors_release(command);
    status = tool_ranks_agree(command, ranks, comm);
    const int own = rf_comm_rank(comm);
    const bool closes = status == TOOL_OK && ranks->closes;
    if (status == TOOL_OK)
        status = fn(comm, user);
    if (!closes && !end_comm(comm, ranks->elastic) && status == TOOL_OK)
        status = tool_library_error(command, count > 1 ? own : -1);
    return status;
}

int tool_ranks_outputs(const struct tool_command *command, const struct tool_ranks *ranks)
{
    struct rf_launcher_info launched;
    const int status = launcher(command, &launched);
    if (status != TOOL_OK || ranks->joins || (launched.name && !is_loopback(ranks)))
        return status;
    return tool_outputs_check(command, ranks->options);
}

int tool_ranks_run(const struct tool_command *command, const struct tool_ranks *ranks,
                   char *const *argv, int (*fn)(struct rf_comm *comm, void *user), void *user)
{
    struct rf_launcher_info launched;
    int count;
    int status = tool_ranks_count(command, ranks, &count);
    if (status == TOOL_OK)
        status = tool_ranks_outputs(command, ranks);
    if (status == TOOL_OK)
        status = launcher(command, &launched);
    if (status != TOOL_OK)
        return tool_ranks_refuse(command, status);
    if (count > 1 && is_loopback(ranks))
        return run_threads(command, ranks, count, fn, user);
    if (count == 1 || launched.name)
        return run_here(command, ranks, count, fn, user);

    /* Start this program again, once per rank: a fork would share open resources. */
    int words = 0;
    while (argv[words])
        words++;
    char **again = calloc((size_t)words + 2, sizeof(*again));
    if (!again)
        return tool_error(command, "out of memory");
    again[0] = access("/proc/self/exe", X_OK) == 0 ? "/proc/self/exe" : program_invocation_name;
    for (int i = 0; i < words; i++)
        again[1 + i] = argv[i];
    struct tool_launch launch = {.ranks = count, .argv = again, .elastic = ranks->elastic};
    status = tool_launch(command, &launch);
    free(again);
    return status;
}

/* ---- devices --------------------------------------------------------------------------------- */

const char *tool_rank_device(const char *select, char text[16])
{
    const char *local = getenv("LOCAL_RANK");
    int64_t place = 0;
    if (select || !local || !local[0] || getenv("RF_DEVICE"))
        return select;
    struct rf_device_info *infos = calloc(64, sizeof(*infos));
    uint32_t count = 0, gpus = 0;
    if (!infos || rf_device_list(infos, 64, &count) < 0) {
        free(infos);
        return NULL; /* opening will report the missing device */
    }
    if (count > 64)
        count = 64;
    uint32_t of_gpu[64];
    for (uint32_t i = 0; i < count; i++)
        if (infos[i].usable && infos[i].kind == RF_DEVICE_DISCRETE)
            of_gpu[gpus++] = infos[i].index;
    free(infos);
    if (gpus < 2 || tool_read_int(local, strlen(local), 0, MOST_RANKS, &place) != TOOL_NUMBER_OK)
        return NULL;
    snprintf(text, 16, "%u", of_gpu[(uint32_t)place % gpus]);
    return text;
}
