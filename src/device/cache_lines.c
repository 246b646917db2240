/* SPDX-License-Identifier: MIT
 *
 * Text files of lines next to the pipeline cache, one for each device and driver, with values
 * measured or found for a device. The first line names kind, device and driver; the last one has
 * the number of lines between them. Files are not trusted, and an incomplete one is ignored.
 */
#include <errno.h>
#include <unistd.h>

#include "internal.h"

struct rf_driver_key rf_driver_key_of(const struct rf_device *device)
{
    const struct rf_device_info *info = &device->info;
    struct rf_driver_key key = {.driver_version = info->driver_version, .cpu = device->cpu};
    memcpy(key.device_uuid, info->device_uuid, sizeof(key.device_uuid));
    memcpy(key.driver_uuid, info->driver_uuid, sizeof(key.driver_uuid));
    return key;
}

bool rf_driver_keys_equal(const struct rf_driver_key *a, const struct rf_driver_key *b)
{
    return memcmp(a->device_uuid, b->device_uuid, sizeof(a->device_uuid)) == 0 &&
           memcmp(a->driver_uuid, b->driver_uuid, sizeof(a->driver_uuid)) == 0 &&
           a->driver_version == b->driver_version && a->cpu == b->cpu;
}

static void head_text(const struct rf_device *device, const struct rf_cache_lines *kind, char *text,
                      size_t bytes)
{
    const struct rf_driver_key key = rf_driver_key_of(device);
    char uuid[2][33];
    for (int i = 0; i < 16; i++) {
        snprintf(uuid[0] + 2 * i, 3, "%02x", key.device_uuid[i]);
        snprintf(uuid[1] + 2 * i, 3, "%02x", key.driver_uuid[i]);
    }
    const int used = snprintf(text, bytes, "ringforge-%s %d %s %s %u", kind->suffix, kind->version,
                              uuid[0], uuid[1], key.driver_version);
    if (key.cpu)
        snprintf(text + used, bytes - (size_t)used, " %08x\n", key.cpu);
    else
        snprintf(text + used, bytes - (size_t)used, "\n");
}

/* The reason why the file is not used; NULL if it is. */
static const char *read_lines(FILE *file, const char *head, uint32_t most,
                              bool (*take)(void *user, const char *line), void *user)
{
    char line[RF_CACHE_LINE_BYTES];
    uint32_t taken = 0, count;
    char end;
    if (!fgets(line, sizeof(line), file) || strcmp(line, head) != 0)
        return "it belongs to another version, device or driver";
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "end %u %c", &count, &end) == 1)
            return count == taken ? NULL : "it is not complete";
        if (taken == most || !take(user, line))
            return "a line of it is not valid";
        taken++;
    }
    return "it is not complete";
}

bool rf_cache_lines_load(const struct rf_device *device, const struct rf_cache_lines *kind,
                         bool (*take)(void *user, const char *line), void *user)
{
    char path[RF_CACHE_PATH_BYTES], head[RF_CACHE_LINE_BYTES];
    const char *why;
    if (!rf_device_cache_path(device, kind->suffix, path, false))
        return false;
    FILE *file = rf_open_input(path, &why);
    if (!file && errno == ENOENT)
        return false;
    if (file) {
        head_text(device, kind, head, sizeof(head));
        why = read_lines(file, head, kind->most, take, user);
        fclose(file);
    }
    if (why)
        rf_log("device", 1, "%s is ignored: %s; %s", path, why, kind->remedy);
    else
        rf_log("device", 2, "read %s", path);
    return !why;
}

int rf_cache_lines_save(const struct rf_device *device, const struct rf_cache_lines *kind,
                        uint32_t count, void (*print)(void *user, uint32_t i, FILE *file),
                        void *user, char *path, size_t bytes)
{
    char name[RF_CACHE_PATH_BYTES], temporary[RF_CACHE_PATH_BYTES + 16], head[RF_CACHE_LINE_BYTES];
    if (!rf_device_cache_path(device, kind->suffix, name, true))
        return rf_fail(RF_EIO,
                       "there is no folder for the file of the device's %s; set RF_CACHE_DIR",
                       kind->suffix);
    snprintf(temporary, sizeof(temporary), "%s.%ld", name, (long)getpid());
    unlink(temporary); /* of a killed process with the same number */
    FILE *file = fopen(temporary, "wxe");
    if (!file)
        return rf_fail(RF_EIO, "%s cannot be written", temporary);
    head_text(device, kind, head, sizeof(head));
    fputs(head, file);
    for (uint32_t i = 0; i < count; i++)
        print(user, i, file);
    fprintf(file, "end %u\n", count);
    bool ok = fflush(file) == 0 && fsync(fileno(file)) == 0;
    ok = fclose(file) == 0 && ok;
    if (!ok || rename(temporary, name) != 0) {
        unlink(temporary);
        return rf_fail(RF_EIO, "%s cannot be written", name);
    }
    if (path)
        snprintf(path, bytes, "%s", name);
    return 0;
}
