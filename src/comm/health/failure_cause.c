/* SPDX-License-Identifier: MIT
 *
 * Finds the cause of an operation's error before the communicator fails with it. If necessary it
 * waits for events of the other ranks.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"

/* Whether the peer waits in the same call as this rank, after the same calls. */
static bool waits_in_same_call(const struct rf_comm *comm, int peer, uint64_t sequence)
{
    if (peer < 0 || !comm->peers.states[peer].has_waiting)
        return false;
    const struct rf_call_record *own = rf_call_history_find(&comm->history, sequence);
    const struct rf_call_record *theirs = &comm->peers.states[peer].waiting;
    return own && theirs->contract.sequence == sequence && theirs->chain_hash == own->chain_hash;
}

/* Handles events for `ns`, or until the suspect waits in the same call. True: an event has failed
 * the communicator. */
static bool failed_within(struct rf_comm *comm, uint64_t ns, int suspect, uint64_t sequence)
{
    uint64_t end = rf_now_ns() + ns;
    do {
        if (rf_comm_events(comm) < 0)
            return true;
        if (waits_in_same_call(comm, suspect, sequence))
            return false;
        rf_sleep_ns(100000);
    } while (rf_now_ns() < end);
    return false;
}

bool rf_comm_failed_within(struct rf_comm *comm, uint64_t ns)
{
    return failed_within(comm, ns, -1, 0);
}

/* A message had another contract or size: asks the peer for its call, to name both sides. */
static int fail_on_foreign_message(struct rf_comm *comm, int suspect,
                                   const struct rf_contract *mine)
{
    char text[160];
    struct rf_error error = *rf_last_error();
    if (rf_contract_is_p2p(mine)) /* envelopes are compared before any data is sent */
        return rf_comm_fail_text(comm, RF_ECORRUPT, error.rank, mine, "%.200s", error.message);
    if (suspect < 0 || suspect >= comm->size)
        suspect = (comm->rank + comm->size - 1) % comm->size;
    rf_comm_send_waiting(comm, mine, suspect);
    if (failed_within(comm, RF_QUERY_NS, suspect, mine->sequence))
        return rf_fail_error(&comm->failure.error);
    if (waits_in_same_call(comm, suspect, mine->sequence))
        return rf_comm_fail_text(
            comm, RF_ECORRUPT, suspect, mine,
            "a message from rank %d to rank %d was damaged: both called %s, but "
            "contract or size in the message differ",
            suspect, comm->rank, rf_contract_text(mine, text, sizeof(text)));
    struct rf_contract unknown = {.sequence = mine->sequence, .root = -1};
    return rf_comm_fail_mismatch(comm, comm->rank, mine, suspect, &unknown);
}

int rf_comm_fail_operation(struct rf_comm *comm, int status, int suspect,
                           const struct rf_contract *mine)
{
    if (comm->failure.failed)
        return rf_fail_error(&comm->failure.error);
    if (status == RF_EMISMATCH)
        return fail_on_foreign_message(comm, suspect, mine);
    struct rf_error error = *rf_last_error();
    /* A broken connection is mostly the result of a failure that another rank is about to report.
     */
    if ((status == RF_EPEER || status == RF_ENET) && failed_within(comm, RF_QUERY_NS, -1, 0))
        return rf_fail_error(&comm->failure.error);
    char text[160];
    return rf_comm_fail_text(comm, status, error.rank, mine, "%s on rank %d: %.180s",
                             mine ? rf_contract_text(mine, text, 80) : "an operation", comm->rank,
                             error.message);
}
