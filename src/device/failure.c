/* SPDX-License-Identifier: MIT
 *
 * Failure of a device: keeps the first error, drops held-back submissions, and wakes all waiting
 * threads.
 */
#include "internal.h"

int rf_device_check(struct rf_device *device)
{
    if (!atomic_load(&device->failed))
        return 0;
    return rf_fail_error(&device->failure);
}

void rf_device_fail_locked(struct rf_device *device, int status)
{
    if (!atomic_load(&device->failed)) {
        device->failure = *rf_last_error();
        device->failure.status = status;
        atomic_store(&device->failed, true);
        rf_log("device", 0, "%s failed: %s", device->info.name, device->failure.message);
    }
    for (struct rf_submission *s = device->pending, *next; s; s = next) {
        next = s->pending;
        s->pending = NULL;
    }
    device->pending = NULL;
    device->pending_tail = &device->pending;
    pthread_cond_broadcast(&device->changed);
}

int rf_device_failed(struct rf_device *device, VkResult result, const char *what)
{
    int status = rf_vk_fail(result, what);
    pthread_mutex_lock(&device->lock);
    rf_device_fail_locked(device, status);
    pthread_mutex_unlock(&device->lock);
    return rf_device_check(device);
}
