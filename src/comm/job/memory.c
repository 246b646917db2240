/* SPDX-License-Identifier: MIT
 *
 * Memory for the buffers of a communicator's collectives: shared memory if its ranks have it,
 * otherwise the memory of the process.
 */
#include <ringforge/comm.h>

#include "../communicator.h"

enum { PAGE = 4096 };

int rf_comm_alloc(struct rf_comm *comm, size_t bytes, void **out)
{
    if (!comm || !out)
        return rf_fail(RF_EINVAL, "alloc: the communicator or out is NULL");
    if (rf_transport_shares_memory(comm->links.transport))
        return comm->links.transport->ops->alloc(comm->links.transport, bytes, out);
    *out = rf_alloc_aligned(bytes > 0 ? bytes : 1, PAGE);
    return *out ? 0 : rf_fail(RF_ENOMEM, "no %zu bytes of memory for a buffer", bytes);
}

void rf_comm_free(struct rf_comm *comm, void *memory)
{
    if (!comm || !memory)
        return;
    if (rf_transport_shares_memory(comm->links.transport))
        comm->links.transport->ops->free(comm->links.transport, memory);
    else
        rf_free(memory);
}
