/* SPDX-License-Identifier: MIT
 *
 * Opens and closes a device: initializes its parts in order, and waits for all work. select.c
 * chooses the device, core.c opens the driver's.
 */
#include "internal.h"

/* Everything that needs the locks. */
static int start(struct rf_device *device, const char *select)
{
    long check, visible;
    RETURN_IF_ERROR(rf_env_check());
    RETURN_IF_ERROR(rf_env_int("RF_CHECK_BARRIERS", 0, &check));
    RETURN_IF_ERROR(rf_env_int("RF_HOST_VISIBLE", 1, &visible));
    if (check)
        device->opts.check_barriers = true;
    if (!visible)
        device->opts.hide_host_memory = true;
    RETURN_IF_ERROR(rf_core_open(device, select));
    rf_memory_choose(device);
    RETURN_IF_ERROR(rf_ranges_open(device));
    RETURN_IF_ERROR(rf_submit_open(device));
    return rf_profile_open(device);
}

int rf_device_open(const char *select, const struct rf_device_opts *opts, struct rf_device **out)
{
    if (!out)
        return rf_fail(RF_EINVAL, "rf_device_open needs a pointer for its result");
    struct rf_device *device = rf_alloc(sizeof(*device));
    if (!device)
        return rf_fail(RF_ENOMEM, "no memory for a device's record");
    if (opts)
        device->opts = *opts;
    pthread_mutex_init(&device->memory_lock, NULL);
    pthread_mutex_init(&device->staging.lock, NULL);
    int rc = start(device, select);
    if (rc < 0) {
        rf_device_close(device);
        return rc;
    }
    rf_log("device", 2, "opened %s (%s), %u queue%s, memory %s", device->info.name,
           device->info.driver, device->core->queue_count,
           device->core->queue_count == 1 ? "" : "s",
           device->info.host_visible ? "mapped" : "staged");
    *out = device;
    return 0;
}

void rf_device_close(struct rf_device *device)
{
    if (!device)
        return;
    if (device->submit_opened) {
        if (rf_device_wait(device) < 0)
            rf_core_wait_idle(device->core);
        rf_staging_fini(device);
        rf_submit_close(device);
    }
    rf_ranges_close(device);
    for (struct rf_timeline *t = device->free_timelines, *next; t; t = next) {
        next = t->next_free;
        if (t->semaphore)
            device->core->vk.DestroySemaphore(device->core->handle, t->semaphore, NULL);
        rf_free(t);
    }
    rf_core_close(device);
    pthread_mutex_destroy(&device->staging.lock);
    pthread_mutex_destroy(&device->memory_lock);
    rf_free(device);
}

const struct rf_device_info *rf_device_get_info(const struct rf_device *device)
{
    return &device->info;
}

bool rf_device_teams(const struct rf_device *device)
{
    return device->teams || device->info.kind != RF_DEVICE_CPU;
}

void rf_device_force_teams(struct rf_device *device, bool teams)
{
    device->teams = teams;
}

uint64_t rf_device_validation_messages(const struct rf_device *device)
{
    return atomic_load(&device->core->instance.messages);
}
