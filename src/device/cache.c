/* SPDX-License-Identifier: MIT
 *
 * The driver's pipeline cache on disk: one file for each device and driver, with a header and a
 * checksum. A damaged file, or the file of another driver, is ignored and replaced. A folder that
 * cannot be written is not an error. Useful on GPUs; CPU drivers put almost nothing into it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define PATH_BYTES RF_CACHE_PATH_BYTES
#define MAX_CACHE_BYTES ((uint64_t)1 << 30)

struct file_header {
    char magic[8];
    uint8_t pipeline_cache_uuid[16];
    uint32_t driver_version, hash; /* hash: of the bytes after the header */
    uint64_t bytes;                /* number of these */
};
static const char magic[8] = "RFPIPE1";

static bool folder(char *path)
{
    const char *own = rf_env("RF_CACHE_DIR"), *cache = rf_env("XDG_CACHE_HOME");
    const char *home = rf_env("HOME");
    int n = 0;
    if (own)
        n = snprintf(path, PATH_BYTES, "%s", own);
    else if (cache)
        n = snprintf(path, PATH_BYTES, "%s/ringforge", cache);
    else if (home)
        n = snprintf(path, PATH_BYTES, "%s/.cache/ringforge", home);
    return n > 0 && n < PATH_BYTES;
}

bool rf_device_cache_path(const struct rf_device *device, const char *suffix, char *path,
                          bool create)
{
    char name[112];
    size_t used = 0;
    if (device->counting || !folder(path))
        return false;
    if (create) { /* all parent folders */
        for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
            *slash = '\0';
            mkdir(path, 0700);
            *slash = '/';
        }
        mkdir(path, 0700);
    }
    for (int i = 0; i < 16; i++)
        used +=
            (size_t)snprintf(name + used, sizeof(name) - used, "%02x", device->info.device_uuid[i]);
    name[used++] = '-';
    for (int i = 0; i < 16; i++)
        used +=
            (size_t)snprintf(name + used, sizeof(name) - used, "%02x", device->info.driver_uuid[i]);
    if (device->cpu)
        snprintf(name + used, sizeof(name) - used, "-%08x", device->cpu);
    size_t length = strlen(path);
    int n = snprintf(path + length, PATH_BYTES - length, "/%s.%s", name, suffix);
    return n > 0 && (size_t)n < PATH_BYTES - length;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    for (const char *p = data; bytes > 0;) {
        ssize_t n = write(fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* The payload of a valid file (rf_free), or NULL. Then *why is the fault of the file, or NULL if it
 * does not exist. */
static void *read_file(const struct rf_device *device, const char *path, uint64_t *bytes,
                       const char **why)
{
    struct file_header header;
    struct stat info;
    void *payload = NULL;
    FILE *file = rf_open_input(path, why);
    if (!file) {
        *why = errno == ENOENT ? NULL : *why;
        return NULL;
    }
    *why = NULL;
    if (fstat(fileno(file), &info) < 0 || fread(&header, sizeof(header), 1, file) != 1)
        *why = "it is too short";
    else if (memcmp(header.magic, magic, sizeof(magic)) != 0)
        *why = "it is not a pipeline cache";
    else if (header.driver_version != device->info.driver_version ||
             memcmp(header.pipeline_cache_uuid, device->caps.pipeline_cache_uuid, 16) != 0)
        *why = "it is of another driver version";
    else if (header.bytes > MAX_CACHE_BYTES ||
             header.bytes != (uint64_t)info.st_size - sizeof(header))
        *why = "its size is wrong";
    else if (!(payload = rf_alloc(header.bytes + 1)) ||
             fread(payload, 1, header.bytes, file) != header.bytes)
        *why = "it cannot be read";
    else if (rf_hash32(payload, header.bytes, 0) != header.hash)
        *why = "its checksum is wrong";
    fclose(file);
    if (*why) {
        rf_free(payload);
        return NULL;
    }
    *bytes = header.bytes;
    return payload;
}

/* The driver's bytes (rf_free), or NULL. */
static void *get_data(struct rf_device *device, uint64_t *bytes, uint32_t *hash)
{
    size_t size = 0;
    *hash = 0;
    if (!device->core->cache ||
        device->core->vk.GetPipelineCacheData(device->core->handle, device->core->cache, &size,
                                              NULL) < 0 ||
        size == 0)
        return NULL;
    void *payload = rf_alloc(size);
    if (payload && device->core->vk.GetPipelineCacheData(device->core->handle, device->core->cache,
                                                         &size, payload) < 0) {
        rf_free(payload);
        return NULL;
    }
    if (payload) {
        *bytes = size;
        *hash = rf_hash32(payload, size, 0);
    }
    return payload;
}

void rf_cache_load(struct rf_device *device)
{
    char path[PATH_BYTES];
    uint64_t bytes = 0;
    void *payload = NULL;
    const char *why = NULL;
    if (rf_device_cache_path(device, "pipelines", path, false))
        payload = read_file(device, path, &bytes, &why);
    if (why)
        rf_log("device", 1, "pipeline cache %s is ignored: %s", path, why);
    VkPipelineCacheCreateInfo create = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                        .initialDataSize = payload ? bytes : 0,
                                        .pInitialData = payload};
    VkResult result = device->core->vk.CreatePipelineCache(device->core->handle, &create, NULL,
                                                           &device->core->cache);
    if (result != VK_SUCCESS && payload) { /* the driver rejects it, too: try without */
        create.initialDataSize = 0;
        result = device->core->vk.CreatePipelineCache(device->core->handle, &create, NULL,
                                                      &device->core->cache);
        bytes = 0;
    }
    if (result != VK_SUCCESS)
        device->core->cache = VK_NULL_HANDLE;
    rf_free(payload);
    /* The driver may return other data than it was given. The file is written only if the new data
     * are longer. */
    uint32_t hash;
    payload = get_data(device, &bytes, &hash);
    device->core->cache_bytes = payload && create.initialDataSize ? bytes : 0;
    device->core->cache_hash = hash;
    rf_free(payload);
}

/* Keeps what other processes have stored since this one loaded the file. */
static void merge_from_disk(struct rf_device *device, const char *path)
{
    uint64_t bytes;
    const char *why;
    void *payload = read_file(device, path, &bytes, &why);
    if (!payload)
        return;
    VkPipelineCacheCreateInfo create = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                        .initialDataSize = bytes,
                                        .pInitialData = payload};
    VkPipelineCache other = VK_NULL_HANDLE;
    if (device->core->vk.CreatePipelineCache(device->core->handle, &create, NULL, &other) ==
        VK_SUCCESS) {
        device->core->vk.MergePipelineCaches(device->core->handle, device->core->cache, 1, &other);
        device->core->vk.DestroyPipelineCache(device->core->handle, other, NULL);
    }
    rf_free(payload);
}

/* Writes under a unique name, then renames: readers see the old file or the new one. */
static bool write_file(const char *path, const struct file_header *header, const void *payload)
{
    static atomic_uint counter;
    char temporary[PATH_BYTES + 48];
    snprintf(temporary, sizeof(temporary), "%s.%ld.%u", path, (long)getpid(),
             atomic_fetch_add(&counter, 1));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = write_all(fd, header, sizeof(*header)) && write_all(fd, payload, header->bytes);
    ok = close(fd) == 0 && ok;
    if (ok)
        ok = rename(temporary, path) == 0;
    if (!ok)
        unlink(temporary);
    return ok;
}

static void save(struct rf_device *device)
{
    char path[PATH_BYTES];
    struct file_header header = {.driver_version = device->info.driver_version};
    void *payload = get_data(device, &header.bytes, &header.hash);
    bool same =
        header.bytes == device->core->cache_bytes && header.hash == device->core->cache_hash;
    rf_free(payload);
    if (header.bytes == 0 || same || !rf_device_cache_path(device, "pipelines", path, true))
        return;
    merge_from_disk(device, path);
    payload = get_data(device, &header.bytes, &header.hash);
    if (!payload)
        return;
    memcpy(header.magic, magic, sizeof(magic));
    memcpy(header.pipeline_cache_uuid, device->caps.pipeline_cache_uuid, 16);
    if (!write_file(path, &header, payload))
        rf_log("device", 1, "pipeline cache %s cannot be written: %s", path, strerror(errno));
    rf_free(payload);
}

void rf_cache_save(struct rf_device *device)
{
    if (!device->core->cache)
        return;
    if (!atomic_load(&device->failed))
        save(device);
    device->core->vk.DestroyPipelineCache(device->core->handle, device->core->cache, NULL);
    device->core->cache = VK_NULL_HANDLE;
}
