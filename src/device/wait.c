/* SPDX-License-Identifier: MIT
 *
 * Waits for all work of a device.
 */
#include <ringforge/ringforge.h>

#include "internal.h"

/* Waits for all work of the queue, by a signal submitted to it. */
static int wait_queue(struct rf_device *device, VkQueue queue)
{
    struct rf_timeline *timeline = NULL;
    RETURN_IF_ERROR(rf_timeline_acquire(device, &timeline));
    pthread_mutex_lock(&device->lock);
    uint64_t value = timeline->submitted + 1;
    VkTimelineSemaphoreSubmitInfo values = {.sType =
                                                VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                            .signalSemaphoreValueCount = 1,
                                            .pSignalSemaphoreValues = &value};
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .pNext = &values,
                         .signalSemaphoreCount = 1,
                         .pSignalSemaphores = &timeline->semaphore};
    VkResult result = rf_core_submit(device->core, queue, &info);
    if (result == VK_SUCCESS)
        timeline->submitted = value;
    pthread_mutex_unlock(&device->lock);
    int rc = result == VK_SUCCESS ? rf_point_wait((struct rf_point){timeline, value}, UINT64_MAX)
                                  : rf_device_failed(device, result, "waiting for the device");
    rf_timeline_release(timeline);
    return rc;
}

int rf_device_wait(struct rf_device *device)
{
    if (!device)
        return rf_fail(RF_EINVAL, "rf_device_wait without a device");
    if (device->counting)
        return 0;
    pthread_mutex_lock(&device->lock);
    device->waiters++;
    while (device->pending && !atomic_load(&device->failed))
        pthread_cond_wait(&device->changed, &device->lock);
    device->waiters--;
    pthread_mutex_unlock(&device->lock);
    RETURN_IF_ERROR(rf_device_check(device));
    for (uint32_t i = 0; i < device->core->queue_count; i++)
        RETURN_IF_ERROR(wait_queue(device, device->core->queues[i]));
    return 0;
}
