/* SPDX-License-Identifier: MIT
 *
 * See spread.h. A group's own failure reaches its members alone, and has their numbers in it. Who
 * has seen a death or a difference knows enough and tells all ranks. Who has only waited asks the
 * rank that did not come (ask.c): it may be waiting for one of another group, and that one is to be
 * named. Who has been told that a member gave up first hears what others have to say.
 */
#include "spread.h"

#include <ringforge/ringforge.h>

#include "communicator.h"
#include "family.h"
#include "p2p.h"

/* What a group's failure says about who is to blame. */
enum worth { WORTH_NOTHING, WORTH_ECHO, WORTH_SURMISE, WORTH_KNOWLEDGE };

static enum worth worth_of(const struct rf_comm *group)
{
    if (!group || rf_async_busy(group->async) || !group->failure.failed)
        return WORTH_NOTHING;
    const bool late = group->failure.error.status == RF_ETIMEOUT;
    if (group->failure.error.status == RF_EABORT ||
        (late && group->failure.error.rank == group->rank))
        return WORTH_ECHO;
    return late ? WORTH_SURMISE : WORTH_KNOWLEDGE;
}

static enum worth best_of(struct rf_comm *const *groups, int count, const struct rf_comm **best)
{
    enum worth most = WORTH_NOTHING;
    for (int k = 0; k < count; k++) {
        const enum worth worth = worth_of(groups[k]);
        if (worth > most)
            *best = groups[k];
        most = worth > most ? worth : most;
    }
    return most;
}

/* Whose wait began with ours says so within one time of asking, and knows more after another. */
static bool is_over(uint64_t start_ns, bool others_wait)
{
    return rf_now_ns() - start_ns > (others_wait ? 3 : 1) * RF_ASK_NS;
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
        rf_ask_answer(comm, waits, count);
        rf_sleep_ns(100000);
    }
    return false;
}

/* Listens until the best that this rank's groups can say is known. *missed: the rank that did not
 * come to one of them, of which *who says more; -1: there is none. Negative: comm has failed. */
static int judge(struct rf_comm *comm, struct rf_comm *const *groups, int count,
                 const struct rf_comm **group, int *missed, struct rf_silent *who)
{
    bool asked = false;
    for (uint64_t start = rf_now_ns();;) {
        RETURN_IF_ERROR(rf_comm_events(comm));
        const enum worth worth = best_of(groups, count, group);
        if (worth == WORTH_KNOWLEDGE) {
            who->rank = -1;
            return 0;
        }
        if (worth == WORTH_SURMISE && !asked) {
            asked = true;
            *missed = rf_comm_failure_for(*group, comm).rank;
            rf_comm_send_gave_up(comm);
            RETURN_IF_ERROR(rf_ask(comm, missed, 1, who));
            start = rf_now_ns();
            continue;
        }
        /* Whom others have missed may itself miss another one, and hear of it later than they. */
        const bool blamed = worth == WORTH_ECHO && (*group)->failure.error.status == RF_ETIMEOUT;
        if (who->rank >= 0 ||
            is_over(start, blamed || (*missed >= 0 && comm->peers.states[*missed].gave_up)))
            return 0;
        rf_ask_answer(comm, missed, 1);
        rf_sleep_ns(100000);
    }
}

int rf_comm_spread(struct rf_comm *comm, struct rf_comm *const *groups, int count)
{
    const struct rf_comm *group = NULL;
    struct rf_silent who = {.rank = -1};
    int missed = -1;
    rf_family_enter(comm->membership.family);
    rf_async_drain(comm->async, 0);
    RETURN_IF_ERROR(judge(comm, groups, count, &group, &missed, &who));
    if (!group)
        return 0;
    struct rf_failure failure = rf_comm_failure_for(group, comm);
    if (who.rank >= 0 && who.rank != missed) {
        failure.rank = who.rank;
        snprintf(failure.message, sizeof(failure.message),
                 "rank %d did not come to its group in time: it waits for rank %d, which says "
                 "nothing",
                 missed, who.rank);
    }
    return rf_comm_fail(comm, &failure, true);
}
