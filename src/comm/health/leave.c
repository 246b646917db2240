/* SPDX-License-Identifier: MIT
 *
 * Leaving: ranks compare their last calls, so that a difference that no call has found is reported.
 */
#include "control_message.h"

int rf_comm_begin_leaving(struct rf_comm *comm)
{
    RETURN_IF_ERROR(rf_comm_events(comm));
    comm->peers.leaving = true;
    comm->peers.missed = -1;
    rf_comm_send_leaving(comm);
    for (int rank = 0; rank < comm->size; rank++)
        if (comm->peers.states[rank].has_left)
            RETURN_IF_ERROR(rf_compare_last(comm, rank));
    return 0;
}

int rf_comm_end_leaving(struct rf_comm *comm)
{
    int rank = comm->peers.missed;
    for (int r = 0; r < comm->size && rank < 0; r++)
        rank = comm->peers.states[r].differs ? r : -1;
    if (rank < 0)
        return 0;
    if (rf_comm_failed_within(comm, RF_QUERY_NS))
        return rf_fail_error(&comm->failure.error);
    return rf_comm_fail_leaver(comm, rank);
}
