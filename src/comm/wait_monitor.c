/* SPDX-License-Identifier: MIT
 *
 * The wait monitor of a running operation: gives the processor away while nothing comes, listens to
 * the control link, compares contracts when it is quiet for too long, says for whom it waits when
 * it is asked (ask.c), and ends the wait at the deadline.
 */
#include <sched.h>

#include <ringforge/ringforge.h>

#include "communicator.h"
#include "family.h"
#include "p2p.h"

enum { SPINS = 100, LONG_SPINS = 4096, YIELD_EVERY = 64, TICK_EVERY = 256, ANSWER_EVERY = 16 };
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

/* It will take part in nothing more, and what it called last is not what this rank waits in. Where
 * it only leaves a message unserved, another rank may know of a difference that this follows from,
 * and has some time to say so. */
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
    if (is_p2p && quiet <= RF_QUIET_NS + RF_ASK_NS)
        return 0;
    return rf_comm_fail_text(
        comm, RF_EPEER, rank, mine,
        "rank %d left after %llu operations, while rank %d waits in %s, operation %llu", rank,
        (unsigned long long)peer->left_after, comm->rank,
        rf_contract_text(mine, text, sizeof(text)), (unsigned long long)mine->sequence);
}

/* A rank that has left will never answer. What it called is compared with this rank's calls; where
 * they have differed for longer it is asked, as it may be leaving still. */
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
            if (quiet > RF_QUIET_NS + RF_ASK_NS)
                return rf_comm_fail_leaver(comm, rank);
        } else if (is_p2p ? rank == waiting_for(monitor) : peer->left_after <= mine->sequence) {
            RETURN_IF_ERROR(fail_on_leaver(comm, mine, rank, quiet));
        }
    }
    return 0;
}

/* Whom to name at the deadline: rather one who has not even come than one who waits like us. */
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

/* All that this rank waits for, the nearest first; whoever has not come last. */
static int all_waits(struct rf_comm *comm, const struct rf_wait_monitor *monitor, int *ranks)
{
    const int late = late_rank(comm, monitor);
    ranks[0] = waiting_for(monitor);
    const int count = rf_async_waits(comm->async, ranks, 1, RF_TELL_RANKS - 1);
    ranks[count] = late;
    return count + 1;
}

/* What is known of the rank that is named. */
static void state_of(const struct rf_comm *comm, const struct rf_wait_monitor *monitor, int late,
                     char *state, size_t bytes)
{
    char text[160];
    const struct rf_peer_state *peer = late >= 0 ? &comm->peers.states[late] : NULL;
    const bool waits = peer && peer->has_waiting && !rf_contract_is_p2p(monitor->mine);
    if (!waits)
        snprintf(state, bytes, "which has not come");
    else if (peer->waiting.contract.sequence >= monitor->mine->sequence)
        snprintf(state, bytes, "which takes part, but its data do not arrive");
    else
        snprintf(state, bytes, "which was last heard of in %s, operation %llu",
                 rf_contract_text(&peer->waiting.contract, text, 100),
                 (unsigned long long)peer->waiting.contract.sequence);
}

/* Asks before it blames: the awaited rank may itself be waiting, and another one stand still. */
static int fail_deadline(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    char text[160], state[224];
    int waits[RF_TELL_RANKS];
    const struct rf_contract *mine = monitor->mine;
    const int count = all_waits(comm, monitor, waits);
    struct rf_silent who;
    RETURN_IF_ERROR(rf_ask(comm, waits, count, &who));
    if (who.rank < 0 && comm->membership.has_groups && rf_comm_failed_by_groups(comm, waits, count))
        return rf_fail_error(&comm->failure.error);
    int late = who.rank >= 0 ? who.rank : who.away >= 0 ? who.away : late_rank(comm, monitor);
    int first = late;
    if (who.rank >= 0 && who.first != who.rank) {
        first = who.first;
        snprintf(state, sizeof(state), "which waits for rank %d, which says nothing", late);
    } else if (who.rank < 0 && who.away >= 0) {
        snprintf(state, sizeof(state),
                 "which waits in another communicator, for rank %d of the job", who.away_for);
    } else {
        state_of(comm, monitor, late, state, sizeof(state));
    }
    return rf_comm_fail_text(comm, RF_ETIMEOUT, late, mine,
                             "rank %d waited %.3g s in %s, operation %llu, for rank %d, %s",
                             comm->rank, (double)monitor->timeout_ns * 1e-9,
                             rf_contract_text(mine, text, 100), (unsigned long long)mine->sequence,
                             first, state);
}

/* Since when nothing has moved, as far as has been checked; 0: it has moved since the last check.
 */
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

static void listen(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    comm->wait.monitor = monitor;
    int rc = rf_comm_events(comm);
    comm->wait.monitor = NULL;
    if (rc < 0 && comm->failure.failed)
        comm->failure.unreported = true; /* to the next call on it */
}

/* Handles what the control links of the family's other communicators have to say: while this thread
 * waits in a call for long, nobody else can. Negative: that in which it waits has failed. */
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
        if (comm != in && rf_comm_is_idle(comm) && rf_comm_has_news(comm))
            listen(comm, monitor);
    pthread_mutex_unlock(&family->lock);
    return in->failure.failed ? rf_fail_error(&in->failure.error) : 0;
}

/* Looks at the clock. Of what waits while its caller goes on, only time is judged where sends and
 * receives are concerned: what the caller does next may end the wait. */
static int tick(struct rf_comm *comm, struct rf_wait_monitor *monitor)
{
    const uint64_t quiet = quiet_ns(monitor);
    const bool is_p2p = rf_contract_is_p2p(monitor->mine);
    if (quiet == 0)
        return 0;
    if (quiet > RF_QUIET_NS && !monitor->announced && quiet < monitor->timeout_ns &&
        (monitor->blocking || !is_p2p)) {
        monitor->announced = true;
        rf_comm_send_waiting(comm, monitor->mine, -1);
        rf_cycle_probe(comm, monitor);
    }
    if (quiet > RF_QUIET_NS || quiet > monitor->timeout_ns) {
        RETURN_IF_ERROR(check_leavers(comm, monitor, quiet));
        if (!is_p2p && monitor->blocking)
            RETURN_IF_ERROR(rf_comm_check_p2p(comm, monitor->mine, monitor->exec));
        RETURN_IF_ERROR(serve_family(monitor));
    }
    return quiet > monitor->timeout_ns ? fail_deadline(comm, monitor) : 0;
}

/* Who gives a core away to strangers may get it back milliseconds later, and all wait for it. */
static void give_way(const struct rf_comm *comm, uint32_t idle)
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
        give_way(comm, idle);
}

static int hear(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    comm->wait.monitor = monitor;
    int rc = rf_comm_events(comm);
    comm->wait.monitor = NULL;
    return rc;
}

/* Oftener than the clock is looked at: on a busy core each turn may take milliseconds. */
static void answer(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    int waits[RF_TELL_RANKS];
    if (monitor->idle % ANSWER_EVERY == 0 && rf_ask_is_asked(comm))
        rf_ask_answer(comm, waits, all_waits(comm, monitor, waits));
}

int rf_wait_monitor_turn(struct rf_comm *comm, struct rf_wait_monitor *monitor, uint64_t activity)
{
    if (rf_comm_has_news(comm))
        RETURN_IF_ERROR(hear(comm, monitor));
    if (moved(monitor, activity))
        return 0;
    back_off(comm, monitor);
    answer(comm, monitor);
    return monitor->idle % TICK_EVERY == 0 ? tick(comm, monitor) : 0;
}

int rf_wait_monitor_check(struct rf_comm *comm, struct rf_wait_monitor *monitor, uint64_t activity)
{
    if (moved(monitor, activity))
        return 0;
    answer(comm, monitor);
    return monitor->idle % TICK_EVERY == 0 ? tick(comm, monitor) : 0;
}

void rf_wait_monitor_backoff(const struct rf_comm *comm, struct rf_wait_monitor *monitor,
                             uint64_t activity)
{
    if (moved(monitor, activity))
        return;
    back_off(comm, monitor);
    if (monitor->idle % TICK_EVERY == 0)
        quiet_ns(monitor);
}
