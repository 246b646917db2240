/* SPDX-License-Identifier: MIT
 *
 * Communicators: joining, leaving, aborting, and their properties.
 */
#include <ringforge/ringforge.h>
#include <sys/random.h>

#include "../communicator.h"
#include "../family.h"
#include "../p2p.h"
#include "transport/transport.h"

enum { PROTOCOL_VERSION = 9 };
#define DEFAULT_TIMEOUT_S 600.0
#define DEFAULT_START_TIMEOUT_S 60.0
#define LEAVE_TIMEOUT_S 5.0

/* The record that ranks exchange when they open a communicator, because schedules and messages
 * depend on it. */
struct agreement {
    uint32_t version, little_endian;
    uint32_t checksum;
    uint32_t number; /* the highest becomes the communicator's */
    uint64_t segment_bytes;
    uint32_t over_network; /* joined over a network */
    uint32_t measure;      /* the value of RF_MEASURE */
    uint64_t flush;        /* settings.flush of the parent communicator */
    uint64_t host;
    uint8_t job[16]; /* random; rank 0's identifies this communicator */
};

static double start_timeout(const struct rf_comm_opts *opts)
{
    return opts && opts->start_timeout_s > 0 ? opts->start_timeout_s : DEFAULT_START_TIMEOUT_S;
}

enum measure { MEASURE_AUTO, MEASURE_ALWAYS, MEASURE_NEVER };

/* By default links within one host are not measured, because the table of algorithms was made for
 * them. */
static uint32_t measure_setting(void)
{
    const char *text = rf_env("RF_MEASURE");
    return !text                    ? MEASURE_AUTO
           : strcmp(text, "1") == 0 ? MEASURE_ALWAYS
           : strcmp(text, "0") == 0 ? MEASURE_NEVER
                                    : MEASURE_AUTO;
}

static int agree(struct rf_comm *comm, const struct rf_comm_opts *opts, bool *measure)
{
    bool never = false;
    const uint16_t one = 1;
    struct agreement mine = {.version = PROTOCOL_VERSION,
                             .little_endian = *(const uint8_t *)&one,
                             .checksum = comm->settings.checksum,
                             .number = rf_family_offer(comm),
                             .segment_bytes = comm->links.transport->segment_bytes,
                             .over_network = !rf_control_is_local(comm->links.control),
                             .measure = measure_setting(),
                             .flush = comm->settings.flush,
                             .host = comm->links.control->host};
    struct agreement *all = rf_alloc((size_t)comm->size * sizeof(*all));
    if (getrandom(mine.job, sizeof(mine.job), 0) != sizeof(mine.job))
        rf_log("comm", 1, "no random name for the communicator");
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory to agree with %d ranks", comm->size);
    int rc = comm->links.control->ops->all_gather(comm->links.control, &mine, sizeof(mine), all,
                                                  start_timeout(opts));
    for (int rank = 0; rc == 0 && rank < comm->size; rank++) {
        if (all[rank].version != mine.version || all[rank].little_endian != mine.little_endian)
            rc = rf_fail_rank(
                RF_ENOTSUP, rank,
                "rank %d has version %u of the messages, rank %d version %u (or their byte orders "
                "differ); start the same build everywhere",
                comm->rank, mine.version, rank, all[rank].version);
        else if (all[rank].checksum != mine.checksum)
            rc = rf_fail_rank(
                RF_EINVAL, rank,
                "rank %d %s checksums of messages, rank %d %s; set rf_comm_opts.checksum "
                "or RF_CHECKSUM to the same on every rank",
                comm->rank, comm->settings.checksum ? "demands" : "uses no", rank,
                all[rank].checksum ? "does" : "does not");
        else if (all[rank].segment_bytes < mine.segment_bytes)
            mine.segment_bytes = all[rank].segment_bytes;
        mine.flush |= all[rank].flush;
        mine.number = all[rank].number > mine.number ? all[rank].number : mine.number;
        *measure = *measure || all[rank].over_network || all[rank].measure == MEASURE_ALWAYS;
        never = never || all[rank].measure == MEASURE_NEVER;
    }
    *measure = *measure && !never && comm->size > 1;
    if (rc == 0)
        rc = rf_hosts_number(comm, &all[0].host, sizeof(*all));
    comm->settings.segment_bytes = mine.segment_bytes;
    if (rc == 0)
        rc = rf_comm_set_flush(comm, mine.flush != 0);
    rf_family_number(comm, mine.number);
    if (rc == 0)
        rc = rf_recorder_open(comm, all[0].job, &comm->history.recorder);
    rf_free(all);
    return rc;
}

/* Takes ownership of control and transport, even on failure. */
static int open_connected(struct rf_comm *comm, const struct rf_comm_opts *opts)
{
    comm->settings.timeout_s = opts && opts->timeout_s > 0 ? opts->timeout_s : DEFAULT_TIMEOUT_S;
    long checksum = 0;
    RETURN_IF_ERROR(rf_env_int("RF_CHECKSUM", 0, &checksum));
    comm->settings.checksum = (opts && opts->checksum) || checksum != 0;
    comm->peers.states = rf_alloc((size_t)comm->size * sizeof(*comm->peers.states));
    if (!comm->peers.states)
        return rf_fail(RF_ENOMEM, "no memory for %d peers", comm->size);
    RETURN_IF_ERROR(rf_cache_create(&comm->cache));
    RETURN_IF_ERROR(rf_demux_create(comm->links.transport, &comm->p2p, &comm->links.demux));
    RETURN_IF_ERROR(rf_exec_create(comm->links.demux, &comm->executors.blocking));
    comm->executors.all[0] = comm->executors.blocking;
    RETURN_IF_ERROR(rf_p2p_create(comm, &comm->p2p));
    RETURN_IF_ERROR(rf_async_create(comm, &comm->async));
    RETURN_IF_ERROR(rf_survivors_prepare(comm->links.control, start_timeout(opts)));
    /* Last: afterwards all ranks can receive messages. */
    bool measure = false;
    RETURN_IF_ERROR(agree(comm, opts, &measure));
    return measure ? rf_links_measure(comm) : 0;
}

/* Frees everything except the control link. */
static void free_comm(struct rf_comm *comm)
{
    rf_async_destroy(comm->async);
    for (int i = 0; i < RF_INFLIGHT; i++)
        rf_exec_destroy(comm->executors.all[i]);
    if (comm->links.transport) {
        comm->links.transport->ops->cancel_all(comm->links.transport);
        rf_staging_destroy(&comm->staging);
        comm->links.transport->ops->destroy(comm->links.transport);
    }
    rf_demux_destroy(comm->links.demux);
    rf_p2p_destroy(comm->p2p);
    rf_cache_destroy(comm->cache);
    rf_recorder_close(comm->history.recorder);
    rf_group_destroy(comm->group);
    rf_family_leave(comm);
    rf_free(comm->conversion.memory);
    rf_free(comm->peers.states);
    rf_free(comm->links.model);
    rf_free(comm->layout.hosts);
    rf_free(comm->layout.job_ranks);
    rf_free(comm);
}

int rf_comm_adopt(struct rf_comm *comm, const struct rf_comm_opts *opts, int rc,
                  struct rf_comm **out)
{
    if (rc == 0 && !comm->membership.family)
        rc = rf_family_join(comm, NULL);
    if (rc == 0)
        rc = open_connected(comm, opts);
    if (rc < 0) {
        struct rf_error error = *rf_last_error();
        if (comm->links.control) {
            comm->links.control->ops->abort(comm->links.control, error.message);
            comm->links.control->ops->leave(comm->links.control, 0);
        }
        free_comm(comm);
        return rf_fail_error(&error);
    }
    rf_set_thread_rank(comm->rank);
    rf_log("comm", 2, "rank %d of %d over %s: %s", comm->rank, comm->size,
           comm->links.transport->name, comm->links.reason);
    rf_family_add(comm);
    *out = comm;
    return 0;
}

static int check_opts(const struct rf_comm_opts *opts)
{
    RETURN_IF_ERROR(rf_env_check());
    if (!opts)
        return 0;
    RETURN_IF_ERROR(rf_check_seconds("open", opts->timeout_s));
    return rf_check_seconds("open", opts->start_timeout_s);
}

static int join(struct rf_comm *comm, const char *url, const struct rf_comm_opts *opts)
{
    if (strcmp(url, "self:") == 0) {
        if (opts && (opts->size > 1 || opts->rank > 0))
            return rf_fail(RF_EINVAL, "open: self: is a world of one rank, not rank %d of %d",
                           opts->rank, opts->size);
        comm->size = 1;
        RETURN_IF_ERROR(rf_self_control(&comm->links.control));
    } else {
        RETURN_IF_ERROR(
            rf_bootstrap_join(url, opts, &comm->rank, &comm->size, &comm->links.control));
    }
    return rf_transport_create(comm->links.control, opts ? opts->provider : NULL,
                               &comm->links.transport, comm->links.reason,
                               sizeof(comm->links.reason));
}

int rf_comm_open(const char *url, const struct rf_comm_opts *opts, struct rf_comm **out)
{
    if (!url || !out)
        return rf_fail(RF_EINVAL, "open: url or out is NULL");
    RETURN_IF_ERROR(check_opts(opts));
    struct rf_comm *comm = rf_alloc(sizeof(*comm));
    if (!comm)
        return rf_fail(RF_ENOMEM, "no memory for a communicator");
    return rf_comm_adopt(comm, opts, join(comm, url, opts), out);
}

int rf_comm_decline(const char *url, const struct rf_comm_opts *opts, const char *why)
{
    if (!url || !why)
        return rf_fail(RF_EINVAL, "decline: url or the reason is NULL");
    return rf_bootstrap_decline(url, opts, why); /* even if its environment is wrong */
}

int rf_comm_open_loopback(struct rf_loopback *loopback, int rank, const struct rf_comm_opts *opts,
                          struct rf_comm **out)
{
    if (!loopback || !out)
        return rf_fail(RF_EINVAL, "open: loopback or out is NULL");
    RETURN_IF_ERROR(check_opts(opts));
    struct rf_comm *comm = rf_alloc(sizeof(*comm));
    if (!comm)
        return rf_fail(RF_ENOMEM, "no memory for a communicator");
    snprintf(comm->links.reason, sizeof(comm->links.reason), "ranks are threads of one process");
    int rc = rf_loopback_control(loopback, rank, &comm->links.control);
    if (rc == 0)
        rc = rf_loopback_transport(loopback, rank, &comm->links.transport);
    if (rc == 0) {
        comm->rank = comm->links.transport->rank;
        comm->size = comm->links.transport->size;
    }
    return rf_comm_adopt(comm, opts, rc, out);
}

/* Leaves, and compares the other ranks' last calls until all have left. */
static int leave_together(struct rf_comm *comm)
{
    const uint64_t until_ns = rf_after_s(LEAVE_TIMEOUT_S);
    RETURN_IF_ERROR(rf_comm_begin_leaving(comm));
    while (comm->links.control->ops->part(comm->links.control, until_ns) == 1)
        RETURN_IF_ERROR(rf_comm_events(comm));
    return rf_comm_end_leaving(comm);
}

int rf_comm_close(struct rf_comm *comm)
{
    if (!comm)
        return 0;
    rf_family_enter(comm->membership.family);
    if (!rf_async_drain(comm->async, LEAVE_TIMEOUT_S)) {
        rf_comm_abort(comm, "closed with asynchronous work that does not end");
        rf_async_drain(comm->async, 0);
    }
    if (!comm->failure.failed && leave_together(comm) < 0)
        rf_log("comm", 2, "an error while leaving: %s", comm->failure.error.message);
    const struct rf_error error = comm->failure.error;
    rf_family_remove(comm);
    comm->links.control->ops->leave(comm->links.control, 0);
    free_comm(comm);
    return error.status < 0 ? rf_fail_error(&error) : 0;
}

void rf_comm_abort(struct rf_comm *comm, const char *reason)
{
    if (!comm || atomic_load(&comm->failure.abort_requested))
        return;
    rf_family_enter(comm->membership.family);
    snprintf(comm->failure.abort_reason, sizeof(comm->failure.abort_reason), "%.200s",
             reason ? reason : "no reason given");
    atomic_store_explicit(&comm->failure.abort_requested, 1, memory_order_release);
    /* A worker ends its tasks in its next turn. */
    rf_async_drain(comm->async, 0);
    if (rf_comm_events(comm) == 0)
        rf_log("comm", 1, "abort had no effect");
}

int rf_comm_rank(const struct rf_comm *comm)
{
    return comm->rank;
}

int rf_comm_size(const struct rf_comm *comm)
{
    return comm->size;
}

const char *rf_comm_provider(const struct rf_comm *comm)
{
    return comm->links.transport->name;
}

const char *rf_comm_why(const struct rf_comm *comm)
{
    return comm->links.reason;
}

const char *rf_comm_own_memory(const struct rf_comm *comm)
{
    return comm->links.transport->own_memory;
}

uint64_t rf_comm_sent_bytes(const struct rf_comm *comm)
{
    uint64_t bytes, messages;
    rf_p2p_overhead(comm->p2p, &bytes, &messages);
    int64_t other = 0;
    for (int i = 0; i < RF_INFLIGHT; i++)
        other += comm->executors.all[i] ? rf_exec_other_bytes(comm->executors.all[i]) : 0;
    return comm->links.transport->sent_bytes - bytes + (uint64_t)other;
}

uint64_t rf_comm_sent_messages(const struct rf_comm *comm)
{
    uint64_t bytes, messages;
    rf_p2p_overhead(comm->p2p, &bytes, &messages);
    return comm->links.transport->sent_messages - messages;
}

void rf_comm_set_track(struct rf_comm *comm, const char *track)
{
    comm->history.trace_track = track;
}

uint64_t rf_comm_staged_bytes(const struct rf_comm *comm)
{
    return comm->staging.copied_bytes;
}
