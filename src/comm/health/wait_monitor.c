/* SPDX-License-Identifier: MIT
 *
 * The wait monitor of a running operation. It yields the processor while nothing arrives, handles
 * events of the control link, compares contracts after a while without progress, replies to wait
 * queries (wait_query.c), and ends the wait at the deadline.
 */
#include <sched.h>

#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../family.h"
#include "../p2p.h"

enum { SPINS = 100, LONG_SPINS = 4096, YIELD_EVERY = 64, CLOCK_EVERY = 256, REPLY_EVERY = 16 };
#define BACKED_OFF_NS 20000000ull
#define NAP_NS 50000ull

void rf_wait_monitor_begin(struct rf_comm *comm, struct rf_wait_monitor *monitor,
                           const struct rf_contract *mine, double timeout_s,
                           const struct rf_exec *exec)
{
    double seconds = timeout_s > 0 ? timeout_s : comm->settings.timeout_s;
    *monitor = (struct rf_wait_monitor){.comm = comm,
                                        .mine = mine,
                                        .exec = exec,
                                        .peer = -1,
                                        .blocking = true,
                                        .timeout_ns = rf_seconds_to_ns(seconds)};
}

static int waiting_for(const struct rf_wait_monitor *monitor)
{
    return monitor->exec ? rf_exec_waiting_for(monitor->exec) : monitor->peer;
}

/* A rank that has left will not take part in the call in which this rank waits. If it only leaves a
 * message unserved, another rank may know the difference behind this, and gets time to report it.
 */
static int fail_on_leaver(struct rf_comm *comm, const struct rf_contract *mine, int rank,
                          uint64_t quiet)
{
    char text[160];
    const struct rf_peer_state *peer = &comm->peers.states[rank];
    const struct rf_contract *last = &peer->last.contract;
    const bool is_p2p = rf_contract_is_p2p(mine);
    if (is_p2p ? peer->left_after > comm->history.next_sequence + rf_async_queued(comm->async)
               : rf_contract_is_p2p(last))
        return is_p2p ? rf_comm_fail_mismatch(comm, rank, last, comm->rank, mine)
                      : rf_comm_fail_mismatch(comm, comm->rank, mine, rank, last);
    if (is_p2p && quiet <= RF_QUIET_NS + RF_QUERY_NS)
        return 0;
    return rf_comm_fail_text(
        comm, RF_EPEER, rank, mine,
        "rank %d left after %llu operations, while rank %d waits in %s, operation %llu", rank,
        (unsigned long long)peer->left_after, comm->rank,
        rf_contract_text(mine, text, sizeof(text)), (unsigned long long)mine->sequence);
}

/* Compares the calls of leavers with this rank's calls. If they differ, a leaver gets time to
 * report the difference, because it may still be leaving. */
static int check_leavers(struct rf_comm *comm, const struct rf_wait_monitor *monitor,
                         uint64_t quiet)
{
    const struct rf_contract *mine = monitor->mine;
    const bool is_p2p = rf_contract_is_p2p(mine);
    for (int rank = 0; rank < comm->size; rank++) {
        const struct rf_peer_state *peer = &comm->peers.states[rank];
        if (!peer->has_left)
            continue;
        RETURN_IF_ERROR(rf_comm_compare_leaver(comm, rank));
        if (peer->differs) {
            if (quiet > RF_QUIET_NS + RF_QUERY_NS)
                return rf_comm_fail_leaver(comm, rank);
        } else if (is_p2p ? rank == waiting_for(monitor) : peer->left_after <= mine->sequence) {
            RETURN_IF_ERROR(fail_on_leaver(comm, mine, rank, quiet));
        }
    }
    return 0;
}

/* The rank to blame at the deadline: preferably one that has not joined the call, over one that
 * also waits in it. */
static int late_rank(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    int waited = waiting_for(monitor);
    const struct rf_contract *mine = monitor->mine;
    if (rf_contract_is_p2p(mine))
        return waited;
    int absent = -1;
    for (int rank = 0; rank < comm->size; rank++) {
        const struct rf_peer_state *peer = &comm->peers.states[rank];
        bool came = peer->has_waiting && peer->waiting.contract.sequence >= mine->sequence;
        if (rank == comm->rank || came || peer->gave_up)
            continue;
        if (absent < 0 || rank == waited)
            absent = rank;
    }
    return absent >= 0 ? absent : waited;
}

/* All ranks that this one waits for. Last: the rank to blame as far as is known here. */
static int all_waits(struct rf_comm *comm, const struct rf_wait_monitor *monitor, int *ranks)
{
    const int late = late_rank(comm, monitor);
    ranks[0] = waiting_for(monitor);
    const int count = rf_async_waits(comm->async, ranks, 1, RF_REPLY_RANKS - 1);
    ranks[count] = late;
    return count + 1;
}

/* Describes the state of the blamed rank. */
static void describe_state(const struct rf_comm *comm, const struct rf_wait_monitor *monitor,
                           int late, char *state, size_t bytes)
{
    char text[160];
    const struct rf_peer_state *peer = late >= 0 ? &comm->peers.states[late] : NULL;
    const bool waits = peer && peer->has_waiting && !rf_contract_is_p2p(monitor->mine);
    if (!waits)
        snprintf(state, bytes, "which has not called it");
    else if (peer->waiting.contract.sequence >= monitor->mine->sequence)
        snprintf(state, bytes, "which takes part, but its data do not arrive");
    else
        snprintf(state, bytes, "whose last known call is %s, operation %llu",
                 rf_contract_text(&peer->waiting.contract, text, 100),
                 (unsigned long long)peer->waiting.contract.sequence);
}

/* Sends queries before it blames a rank: the awaited rank may itself wait for another one. */
static int fail_deadline(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    char text[160], state[224];
    int waits[RF_REPLY_RANKS];
    const struct rf_contract *mine = monitor->mine;
    const int count = all_waits(comm, monitor, waits);
    struct rf_stalled stalled;
    RETURN_IF_ERROR(rf_wait_query(comm, waits, count, &stalled));
    if (stalled.rank < 0 && comm->membership.has_groups &&
        rf_comm_failed_by_groups(comm, waits, count))
        return rf_fail_error(&comm->failure.error);
    int late = stalled.rank >= 0        ? stalled.rank
               : stalled.elsewhere >= 0 ? stalled.elsewhere
                                        : late_rank(comm, monitor);
    int first = late;
    if (stalled.rank >= 0 && stalled.via != stalled.rank) {
        first = stalled.via;
        snprintf(state, sizeof(state), "which waits for rank %d, which does not reply", late);
    } else if (stalled.rank < 0 && stalled.elsewhere >= 0) {
        snprintf(state, sizeof(state),
                 "which waits in another communicator, for rank %d of the job",
                 stalled.elsewhere_for);
    } else {
        describe_state(comm, monitor, late, state, sizeof(state));
    }
    return rf_comm_fail_text(comm, RF_ETIMEOUT, late, mine,
                             "rank %d waited %.3g s in %s, operation %llu, for rank %d, %s",
                             comm->rank, (double)monitor->timeout_ns * 1e-9,
                             rf_contract_text(mine, text, 100), (unsigned long long)mine->sequence,
                             first, state);
}

/* The time without progress, by checks. 0: there was progress since the last check. */
static uint64_t quiet_ns(struct rf_wait_monitor *monitor)
{
    uint64_t now = rf_now_ns();
    if (monitor->quiet_since_ns == 0 || monitor->quiet_activity != monitor->activity) {
        monitor->quiet_activity = monitor->activity;
        monitor->quiet_since_ns = now;
        monitor->announced = false;
        return 0;
    }
    monitor->backed_off = now - monitor->quiet_since_ns > BACKED_OFF_NS;
    return now - monitor->quiet_since_ns;
}

static void handle_sibling_events(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    comm->wait.monitor = monitor;
    int rc = rf_comm_events(comm);
    comm->wait.monitor = NULL;
    if (rc < 0 && comm->failure.failed)
        comm->failure.unreported = true; /* the next call on it returns the error */
}

/* Handles events of the family's other communicators: while this thread waits in a call, no other
 * thread does. Negative: the communicator in which it waits has failed. */
static int serve_family(const struct rf_wait_monitor *monitor)
{
    struct rf_comm *in = monitor->comm;
    struct rf_family *family = in->membership.family;
    const uint64_t self = rf_thread_number();
    if (!monitor->blocking || rf_async_busy(in->async) || atomic_load(&family->thread) != self)
        return 0;
    pthread_mutex_lock(&family->lock);
    for (struct rf_comm *comm = family->first;
         comm && !in->failure.failed && atomic_load(&family->thread) == self;
         comm = comm->membership.next)
        if (comm != in && rf_comm_is_idle(comm) && rf_comm_has_events(comm))
            handle_sibling_events(comm, monitor);
    pthread_mutex_unlock(&family->lock);
    return in->failure.failed ? rf_fail_error(&in->failure.error) : 0;
}

/* Checks the clock. A send or receive whose caller is not blocked is only checked for its deadline:
 * the next call may end its wait. */
static int check_clock(struct rf_comm *comm, struct rf_wait_monitor *monitor)
{
    const uint64_t quiet = quiet_ns(monitor);
    const bool is_p2p = rf_contract_is_p2p(monitor->mine);
    if (quiet == 0)
        return 0;
    if (quiet > RF_QUIET_NS && !monitor->announced && quiet < monitor->timeout_ns &&
        (monitor->blocking || !is_p2p)) {
        monitor->announced = true;
        rf_comm_send_waiting(comm, monitor->mine, -1);
        rf_deadlock_probe(comm, monitor);
    }
    if (quiet > RF_QUIET_NS || quiet > monitor->timeout_ns) {
        RETURN_IF_ERROR(check_leavers(comm, monitor, quiet));
        if (!is_p2p && monitor->blocking)
            RETURN_IF_ERROR(rf_comm_check_p2p(comm, monitor->mine, monitor->exec));
        RETURN_IF_ERROR(serve_family(monitor));
    }
    return quiet > monitor->timeout_ns ? fail_deadline(comm, monitor) : 0;
}

/* A core yielded to another program may come back milliseconds later, while all ranks wait. So it
 * is yielded only if another rank may need it, or after many turns. */
static void yield_core(const struct rf_comm *comm, uint32_t idle)
{
    struct rf_transport *transport = comm->links.transport;
    bool wanted = transport->ops->idle ? transport->ops->idle(transport) : true;
    if (wanted || idle > LONG_SPINS)
        sched_yield();
}

static bool moved(struct rf_wait_monitor *monitor, uint64_t activity)
{
    if (activity == monitor->activity) {
        monitor->idle++;
        return false;
    }
    monitor->activity = activity;
    monitor->idle = 0;
    monitor->backed_off = false;
    return true;
}

static void back_off(const struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    const uint32_t idle = monitor->idle;
    if (monitor->backed_off && idle % YIELD_EVERY == 0)
        rf_sleep_ns(NAP_NS);
    else if (comm->links.transport->yield || (idle > SPINS && idle % YIELD_EVERY == 0))
        yield_core(comm, idle);
}

static int handle_events(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    comm->wait.monitor = monitor;
    int rc = rf_comm_events(comm);
    comm->wait.monitor = NULL;
    return rc;
}

/* More often than the clock is checked: on a busy core each turn may take milliseconds. */
static void reply(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    int waits[RF_REPLY_RANKS];
    if (monitor->idle % REPLY_EVERY == 0 && rf_wait_query_pending(comm))
        rf_wait_query_reply(comm, waits, all_waits(comm, monitor, waits));
}

int rf_wait_monitor_turn(struct rf_comm *comm, struct rf_wait_monitor *monitor, uint64_t activity)
{
    if (rf_comm_has_events(comm))
        RETURN_IF_ERROR(handle_events(comm, monitor));
    if (moved(monitor, activity))
        return 0;
    back_off(comm, monitor);
    reply(comm, monitor);
    return monitor->idle % CLOCK_EVERY == 0 ? check_clock(comm, monitor) : 0;
}

int rf_wait_monitor_check(struct rf_comm *comm, struct rf_wait_monitor *monitor, uint64_t activity)
{
    if (moved(monitor, activity))
        return 0;
    reply(comm, monitor);
    return monitor->idle % CLOCK_EVERY == 0 ? check_clock(comm, monitor) : 0;
}

void rf_wait_monitor_backoff(const struct rf_comm *comm, struct rf_wait_monitor *monitor,
                             uint64_t activity)
{
    if (moved(monitor, activity))
        return;
    back_off(comm, monitor);
    if (monitor->idle % CLOCK_EVERY == 0)
        quiet_ns(monitor);
}
