/* SPDX-License-Identifier: MIT
 *
 * The hosts of ranks: ranks on one host have the same host identifier in their control links.
 */

#include "../../base/base.h"
#include "../communicator.h"

int rf_hosts_number(struct rf_comm *comm, const uint64_t *first, size_t stride)
{
    size_t size = (size_t)comm->size;
    uint64_t *seen = rf_alloc(size * sizeof(*seen));
    int *hosts = rf_alloc(size * sizeof(*hosts)), count = 0;
    if (!seen || !hosts) {
        rf_free(seen);
        rf_free(hosts);
        return rf_fail(RF_ENOMEM, "no memory for the hosts of %zu ranks", size);
    }
    for (size_t r = 0; r < size; r++) {
        uint64_t id = *(const uint64_t *)(const void *)((const char *)first + r * stride);
        while (hosts[r] < count && seen[hosts[r]] != id)
            hosts[r]++;
        seen[hosts[r]] = id;
        count += hosts[r] == count;
    }
    rf_free(seen);
    if (count > 1)
        comm->layout.hosts = hosts;
    else
        rf_free(hosts);
    return 0;
}
