/* SPDX-License-Identifier: MIT
 *
 * See failure_broadcast.h. A group's failure reaches only its members, and names their ranks in the
 * group. A rank that has seen a death or a mismatch knows the cause, and sends it to all ranks. A
 * rank that only had a timeout sends a query to the missing rank (wait_query.c), which may be
 * waiting for a rank of another group; then that rank is to blame. A rank that was told of another
 * member's timeout first waits for the others' events.
 */
#include "failure_broadcast.h"

#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../family.h"
#include "../p2p.h"

/* The quality of a group's failure as evidence for the rank to blame. ECHO: another rank's failure.
 */
enum evidence { EVIDENCE_NONE, EVIDENCE_ECHO, EVIDENCE_TIMEOUT, EVIDENCE_CAUSE };

static enum evidence evidence_of(const struct rf_comm *group)
{
    if (!group || rf_async_busy(group->async) || !group->failure.failed)
        return EVIDENCE_NONE;
    const bool late = group->failure.error.status == RF_ETIMEOUT;
    if (group->failure.error.status == RF_EABORT ||
        (late && group->failure.error.rank == group->rank))
        return EVIDENCE_ECHO;
    return late ? EVIDENCE_TIMEOUT : EVIDENCE_CAUSE;
}

static enum evidence best_evidence(struct rf_comm *const *groups, int count,
                                   const struct rf_comm **best)
{
    enum evidence most = EVIDENCE_NONE;
    for (int k = 0; k < count; k++) {
        const enum evidence evidence = evidence_of(groups[k]);
        if (evidence > most)
            *best = groups[k];
        most = evidence > most ? evidence : most;
    }
    return most;
}

/* A rank whose wait began with ours reports its timeout within one query, and its cause after
 * another one. */
static bool is_over(uint64_t start_ns, bool others_wait)
{
    return rf_now_ns() - start_ns > (others_wait ? 3 : 1) * RF_QUERY_NS;
}

bool rf_comm_failed_by_groups(struct rf_comm *comm, const int *waits, int count)
{
    const uint64_t start = rf_now_ns();
    bool wait = false;
    while (!is_over(start, wait)) {
        if (rf_comm_events(comm) < 0)
            return true;
        for (int rank = 0; rank < comm->size; rank++)
            wait = wait || comm->peers.states[rank].gave_up;
        rf_wait_query_reply(comm, waits, count);
        rf_sleep_ns(100000);
    }
    return false;
}

/* Handles events until the best evidence is known. *group: the group with the evidence. *missed:
 * the rank missing from that group, or -1; *stalled: the rank that it waits for. Negative: comm has
 * failed. */
static int find_cause(struct rf_comm *comm, struct rf_comm *const *groups, int count,
                      const struct rf_comm **group, int *missed, struct rf_stalled *stalled)
{
    bool queried = false;
    for (uint64_t start = rf_now_ns();;) {
        RETURN_IF_ERROR(rf_comm_events(comm));
        const enum evidence evidence = best_evidence(groups, count, group);
        if (evidence == EVIDENCE_CAUSE) {
            stalled->rank = -1;
            return 0;
        }
        if (evidence == EVIDENCE_TIMEOUT && !queried) {
            queried = true;
            *missed = rf_comm_failure_for(*group, comm).rank;
            rf_comm_send_gave_up(comm);
            RETURN_IF_ERROR(rf_wait_query(comm, missed, 1, stalled));
            start = rf_now_ns();
            continue;
        }
        /* A rank that others are waiting for may itself wait for another one, and time out later.
         */
        const bool blamed =
            evidence == EVIDENCE_ECHO && (*group)->failure.error.status == RF_ETIMEOUT;
        if (stalled->rank >= 0 ||
            is_over(start, blamed || (*missed >= 0 && comm->peers.states[*missed].gave_up)))
            return 0;
        rf_wait_query_reply(comm, missed, 1);
        rf_sleep_ns(100000);
    }
}

int rf_comm_broadcast_failure(struct rf_comm *comm, struct rf_comm *const *groups, int count)
{
    const struct rf_comm *group = NULL;
    struct rf_stalled stalled = {.rank = -1};
    int missed = -1;
    rf_family_enter(comm->membership.family);
    rf_async_drain(comm->async, 0);
    RETURN_IF_ERROR(find_cause(comm, groups, count, &group, &missed, &stalled));
    if (!group)
        return 0;
    struct rf_failure failure = rf_comm_failure_for(group, comm);
    if (stalled.rank >= 0 && stalled.rank != missed) {
        failure.rank = stalled.rank;
        snprintf(failure.message, sizeof(failure.message),
                 "rank %d did not come to its group in time: it waits for rank %d, which does "
                 "not reply",
                 missed, stalled.rank);
    }
    return rf_comm_fail(comm, &failure, true);
}
