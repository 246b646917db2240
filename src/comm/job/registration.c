/* SPDX-License-Identifier: MIT
 *
 * Memory that a user registers with a communicator's network once. Otherwise the network registers
 * it for every message.
 */
#include "../communicator.h"
#include "../task.h"

struct rf_registration {
    struct rf_comm *comm;
    void *handle; /* the transport's; NULL: not needed */
};

int rf_comm_register(struct rf_comm *comm, void *memory, size_t bytes, struct rf_registration **out)
{
    if (!comm || !memory || !out || bytes == 0)
        return rf_fail(RF_EINVAL, "register: the communicator, the memory or the result is NULL, "
                                  "or there are no bytes");
    RETURN_IF_ERROR(rf_comm_enter(comm));
    struct rf_registration *registration = rf_alloc(sizeof(*registration));
    if (!registration)
        return rf_fail(RF_ENOMEM, "no memory for a registration");
    registration->comm = comm;
    struct rf_transport *transport = comm->links.transport;
    int rc = 0;
    if (transport->ops->register_memory)
        rc = transport->ops->register_memory(transport, memory, bytes, &registration->handle);
    if (rc < 0) {
        rf_free(registration);
        return rc;
    }
    *out = registration;
    return 0;
}

void rf_comm_deregister(struct rf_registration *registration)
{
    if (!registration)
        return;
    struct rf_comm *comm = registration->comm;
    /* An unfinished call may still use it. */
    rf_async_drain(comm->async, 0);
    if (registration->handle)
        comm->links.transport->ops->deregister_memory(comm->links.transport, registration->handle);
    rf_free(registration);
}
