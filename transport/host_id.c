/* SPDX-License-Identifier: MIT
 *
 * Identifies the host of this process, which is one running kernel and one view of the network, or
 * what RF_HOSTS says; and counts its cores.
 */
#define _GNU_SOURCE /* CPU_COUNT */
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "transport.h"

void rf_host_name(char *out, size_t bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    out[0] = 0;
    if (file) {
        if (!fgets(out, (int)bytes, file))
            out[0] = 0;
        fclose(file);
    }
    out[strcspn(out, "\n")] = 0;
    if (!out[0])
        gethostname(out, bytes - 1);
}

int rf_host_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static uint64_t hash(const char *text, size_t bytes)
{
    return (uint64_t)rf_hash32(text, bytes, 1) << 32 | rf_hash32(text, bytes, 2);
}

/* The rank-th word of a list such as "a,a,b,b"; 0 if there is none. */
static size_t word(const char *list, int rank, const char **out)
{
    for (; rank > 0 && *list; list++)
        rank -= *list == ',';
    *out = list;
    return strcspn(list, ",");
}

uint64_t rf_host_id(int rank)
{
    const char *list = rf_env("RF_HOSTS"), *name = NULL;
    size_t length = list ? word(list, rank, &name) : 0;
    if (length > 0)
        return hash(name, length);
    char kernel[64] = "", text[128];
    struct stat network = {0};
    rf_host_name(kernel, sizeof(kernel));
    (void)stat("/proc/self/ns/net", &network);
    snprintf(text, sizeof(text), "%s/%llu", kernel, (unsigned long long)network.st_ino);
    return hash(text, strlen(text));
}
