/* SPDX-License-Identifier: MIT
 *
 * rf_comm_by_host: an order of the ranks with groups of neighbours inside hosts.
 */
#include <ringforge/ringforge.h>

#include "../../base/base.h"
#include "../communicator.h"

/* The number of ranks on a host, and of those that are in whole groups. */
static int on_host(const struct rf_comm *comm, int host)
{
    int count = 0;
    for (int r = 0; r < comm->size; r++)
        count += comm->layout.hosts[r] == host;
    return count;
}

/* Appends a host's ranks in whole groups, or else its remaining ranks. */
static void append(const struct rf_comm *comm, int host, int together, bool whole, int *order,
                   int *count)
{
    const int grouped = on_host(comm, host) / together * together;
    for (int r = 0, seen = 0; r < comm->size; r++) {
        if (comm->layout.hosts[r] != host)
            continue;
        if ((seen < grouped) == whole)
            order[(*count)++] = r;
        seen++;
    }
}

static void append_all(const struct rf_comm *comm, int together, bool whole, int *order, int *count)
{
    int hosts = 0;
    for (int r = 0; r < comm->size; r++)
        hosts = comm->layout.hosts[r] + 1 > hosts ? comm->layout.hosts[r] + 1 : hosts;
    for (int host = 0; host < hosts; host++)
        append(comm, host, together, whole, order, count);
}

int rf_comm_by_host(struct rf_comm *comm, int together, struct rf_comm **out)
{
    if (!comm || !out)
        return rf_fail(RF_EINVAL, "by_host: the communicator or out is NULL");
    *out = NULL;
    if (together < 1 || comm->size % together != 0)
        return rf_fail(RF_EINVAL,
                       "by_host: groups of %d ranks do not divide the %d of the communicator",
                       together, comm->size);
    if (!comm->layout.hosts)
        return 0;
    int *order = rf_alloc((size_t)comm->size * sizeof(*order)), count = 0, key = 0;
    if (!order)
        return rf_fail(RF_ENOMEM, "no memory to order %d ranks", comm->size);
    /* Rank 0 stays first. */
    const bool first = on_host(comm, comm->layout.hosts[0]) >= together;
    append_all(comm, together, first, order, &count);
    append_all(comm, together, !first, order, &count);
    bool moved = false;
    for (int k = 0; k < comm->size; k++) {
        moved = moved || order[k] != k;
        key = order[k] == comm->rank ? k : key;
    }
    rf_free(order);
    return moved ? rf_comm_split(comm, 0, key, out) : 0;
}
