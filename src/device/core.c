/* SPDX-License-Identifier: MIT
 *
 * The core: the parts that devices of a process share, which are the driver's device, its queues
 * and the compiled kernels. On CPU drivers all devices of a process share one core, so that a
 * kernel is compiled once, and not once per rank that is a thread: these drivers take longer to
 * translate SPIR-V than to run small kernels, and cache no translation. Memory, streams and
 * failures belong to each device. On GPUs each device has a core, and so queues, of its own. Called
 * by device.c.
 */
#include <unistd.h>

#include "internal.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rf_core *registry; /* those that may be shared; guarded by registry_lock */

/* Not after a fork: the driver's threads are in the parent. Not under the validation layer: its
 * messages are counted per device. */
static bool can_share(const struct rf_core *core, const struct rf_device *device)
{
    const struct rf_core *fresh = device->core;
    const struct rf_device_info *a = &core->info, *b = &device->info;
    return core->process == fresh->process && !core->instance.messenger &&
           !fresh->instance.messenger && core->instance.labels == fresh->instance.labels &&
           core->has_statistics == fresh->has_statistics &&
           memcmp(a->device_uuid, b->device_uuid, sizeof(a->device_uuid)) == 0 &&
           memcmp(a->driver_uuid, b->driver_uuid, sizeof(a->driver_uuid)) == 0 &&
           a->driver_version == b->driver_version && strcmp(a->driver, b->driver) == 0 &&
           strcmp(a->name, b->name) == 0 && a->subgroup_size == b->subgroup_size &&
           a->cooperative_matrix == b->cooperative_matrix &&
           a->workgroup_matrix == b->workgroup_matrix && a->bfloat16 == b->bfloat16;
}

static void destroy(struct rf_core *core)
{
    if (core->handle && core->vk.DestroyDevice)
        core->vk.DestroyDevice(core->handle, NULL);
    rf_vk_instance_fini(&core->instance);
    pthread_mutex_destroy(&core->queue_lock);
    rf_free(core);
}

static int make(struct rf_device *device)
{
    struct rf_core *core = rf_alloc(sizeof(*core));
    if (!core)
        return rf_fail(RF_ENOMEM, "no memory for a device's record");
    pthread_mutex_init(&core->queue_lock, NULL);
    core->process = getpid();
    core->devices = 1;
    device->core = core;
    return 0;
}

static int choose(struct rf_device *device, const char *select)
{
    struct rf_core *core = device->core;
    RETURN_IF_ERROR(rf_vk_instance_init(&core->instance));
    RETURN_IF_ERROR(
        rf_select_device(&core->instance, select, &core->physical, &device->info, &device->caps));
    device->cpu = rf_cpu_of(&device->info);
    if (device->opts.hide_matrix_units)
        rf_matrix_hide(&device->info, &device->caps, "the device was opened without matrix units");
    /* The library chooses kernels by statistics, but not on CPUs. */
    core->has_statistics = device->caps.ext_executable_properties &&
                           (device->opts.kernel_statistics || device->info.kind != RF_DEVICE_CPU);
    core->info = device->info;
    return 0;
}

static int fill(struct rf_device *device)
{
    RETURN_IF_ERROR(rf_core_create(device));
    RETURN_IF_ERROR(rf_kernels_open(device->core));
    RETURN_IF_ERROR(rf_views_open(device));
    rf_cache_load(device);
    return 0;
}

/* With registry_lock held. */
static int open_locked(struct rf_device *device, const char *select)
{
    RETURN_IF_ERROR(make(device));
    RETURN_IF_ERROR(choose(device, select));
    const bool shares = device->info.kind == RF_DEVICE_CPU;
    for (struct rf_core *core = shares ? registry : NULL; core; core = core->next)
        if (can_share(core, device)) {
            destroy(device->core);
            device->core = core;
            core->devices++;
            return 0;
        }
    RETURN_IF_ERROR(fill(device));
    if (shares) {
        device->core->next = registry;
        registry = device->core;
    }
    return 0;
}

int rf_core_open(struct rf_device *device, const char *select)
{
    pthread_mutex_lock(&registry_lock);
    int rc = open_locked(device, select);
    pthread_mutex_unlock(&registry_lock);
    return rc;
}

int rf_core_open_counting(struct rf_device *device)
{
    RETURN_IF_ERROR(make(device));
    device->core->queue_count = 1;
    return rf_kernels_open(device->core);
}

void rf_core_close(struct rf_device *device)
{
    struct rf_core *core = device->core;
    if (!core)
        return;
    pthread_mutex_lock(&registry_lock);
    const bool last = --core->devices == 0;
    for (struct rf_core **link = &registry; last && *link; link = &(*link)->next)
        if (*link == core) {
            *link = core->next;
            break;
        }
    if (last) {
        if (core->kernels.capacity)
            rf_kernels_close(core);
        rf_views_close(device);
        rf_cache_save(device);
        destroy(core);
    }
    pthread_mutex_unlock(&registry_lock);
    device->core = NULL;
}
