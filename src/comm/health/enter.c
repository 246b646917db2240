/* SPDX-License-Identifier: MIT
 *
 * The beginning of public calls: it waits for asynchronous work, and refuses a failed communicator.
 */
#include "../communicator.h"
#include "../family.h"
#include "../task.h"

int rf_comm_ready(struct rf_comm *comm)
{
    rf_family_enter(comm->membership.family);
    if (rf_async_busy(comm->async))
        rf_async_drain(comm->async, 0);
    return comm->failure.failed ? rf_comm_failed_earlier(comm) : 0;
}

int rf_comm_enter(struct rf_comm *comm)
{
    RETURN_IF_ERROR(rf_comm_ready(comm));
    if (rf_comm_has_events(comm))
        return rf_comm_events(comm);
    return 0;
}
