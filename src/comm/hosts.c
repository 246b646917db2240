/* SPDX-License-Identifier: MIT
 *
 * Which ranks are on one host: one running kernel and one view of the network, or what RF_HOSTS
 * says.
 */
#include <ringforge/ringforge.h>
#include <sys/stat.h>

#include "../base/base.h"
#include "communicator.h"

static uint64_t hash(const char *text, size_t bytes)
{
    return (uint64_t)rf_hash32(text, bytes, 1) << 32 | rf_hash32(text, bytes, 2);
}

/* The rank-th word of a list such as "a,a,b,b"; 0 where it has none. */
static size_t word(const char *list, int rank, const char **out)
{
    for (; rank > 0 && *list; list++)
        rank -= *list == ',';
    *out = list;
    return strcspn(list, ",");
}

uint64_t rf_hosts_own(int rank)
{
    const char *list = rf_env("RF_HOSTS"), *name = NULL;
    size_t length = list ? word(list, rank, &name) : 0;
    if (length > 0)
        return hash(name, length);
    char kernel[64] = "", text[128];
    struct stat network = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        if (!fgets(kernel, sizeof(kernel), file))
            kernel[0] = 0;
        fclose(file);
    }
    (void)stat("/proc/self/ns/net", &network);
    snprintf(text, sizeof(text), "%s/%llu", kernel, (unsigned long long)network.st_ino);
    return hash(text, strlen(text));
}

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
        comm->hosts = hosts;
    else
        rf_free(hosts);
    return 0;
}
