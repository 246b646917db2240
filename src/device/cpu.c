/* SPDX-License-Identifier: MIT
 *
 * A hash that distinguishes CPU devices, because their drivers give all machines the same UUIDs.
 * Measurements of one machine must not be used on another, for example if hosts share a home
 * folder. Called by device.c; the names of files in the cache folder contain it.
 */
#include "internal.h"

/* Whether a line of /proc/cpuinfo names the processor, for x86, Arm, RISC-V and POWER. */
static bool names_processor(const char *line)
{
    static const char *const names[] = {"model name", "vendor_id", "cpu family", "model",
                                        "stepping",   "CPU ",      "cpu",        "uarch",
                                        "isa",        "processor"};
    const size_t bytes = strcspn(line, "\t:\n");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t length = strlen(names[i]);
        const bool prefix = names[i][length - 1] == ' ';
        if ((prefix ? bytes > length : bytes == length) && memcmp(line, names[i], length) == 0)
            return true;
    }
    return false;
}

uint32_t rf_cpu_hash(const char *cpuinfo, const char *device_name)
{
    uint32_t hash = rf_hash32(device_name, strlen(device_name), 0);
    while (*cpuinfo) {
        const size_t bytes = strcspn(cpuinfo, "\n");
        if (names_processor(cpuinfo))
            hash = rf_hash32(cpuinfo, bytes, hash);
        cpuinfo += bytes + (cpuinfo[bytes] == '\n');
    }
    return hash ? hash : 1;
}

/* The whole content of a file of /proc, zero-terminated; NULL: none. */
static char *read_file(const char *path)
{
    size_t used = 0, capacity = 1 << 16;
    FILE *file = fopen(path, "re");
    char *text = file ? rf_alloc(capacity) : NULL;
    while (text) {
        used += fread(text + used, 1, capacity - used - 1, file);
        if (used < capacity - 1)
            break;
        char *larger = rf_realloc(text, capacity *= 2);
        if (!larger)
            rf_free(text);
        text = larger;
    }
    if (text)
        text[used] = 0;
    if (file)
        fclose(file);
    return text;
}

uint32_t rf_cpu_of(const struct rf_device_info *info)
{
    if (info->kind != RF_DEVICE_CPU)
        return 0;
    char *text = read_file("/proc/cpuinfo");
    const uint32_t hash = rf_cpu_hash(text ? text : "", info->name);
    rf_free(text);
    return hash;
}
