/* SPDX-License-Identifier: MIT
 *
 * Points in time. A host timeline is a counter under the device's lock. A stream's timeline is a
 * Vulkan timeline semaphore. submit.c handles work that waits for either.
 */
#include <errno.h>
#include <ringforge/ringforge.h>

#include "internal.h"

int rf_timeline_create(struct rf_device *device, struct rf_timeline **out)
{
    if (!device || !out)
        return rf_fail(RF_EINVAL, "rf_timeline_create needs a device and a pointer for its result");
    struct rf_timeline *timeline = rf_alloc(sizeof(*timeline));
    if (!timeline)
        return rf_fail(RF_ENOMEM, "no memory for a timeline");
    timeline->device = device;
    *out = timeline;
    return 0;
}

void rf_timeline_destroy(struct rf_timeline *timeline)
{
    if (!timeline)
        return;
    pthread_mutex_lock(&timeline->device->lock);
    rf_submit_forget(timeline->device, timeline);
    pthread_mutex_unlock(&timeline->device->lock);
    rf_free(timeline);
}

int rf_timeline_signal(struct rf_timeline *timeline, uint64_t value)
{
    if (!timeline || timeline->semaphore)
        return rf_fail(RF_EINVAL, "only a timeline made by rf_timeline_create can be signalled");
    struct rf_device *device = timeline->device;
    pthread_mutex_lock(&device->lock);
    uint64_t now = atomic_load(&timeline->reached);
    if (value > now) {
        atomic_store(&timeline->reached, value);
        rf_submit_wake(device);
    }
    pthread_mutex_unlock(&device->lock);
    if (value <= now)
        return rf_fail(RF_EINVAL,
                       "a timeline at %llu cannot be signalled with %llu; the value must grow",
                       (unsigned long long)now, (unsigned long long)value);
    return 0;
}

/* ---- timelines of streams -------------------------------------------------------------------- */

/* Recycled: the next stream continues the count of the last one, so points of a destroyed stream
 * stay valid (and reached) until the device is closed. */
int rf_timeline_acquire(struct rf_device *device, struct rf_timeline **out)
{
    pthread_mutex_lock(&device->lock);
    struct rf_timeline *timeline = device->free_timelines;
    if (timeline)
        device->free_timelines = timeline->next_free;
    pthread_mutex_unlock(&device->lock);
    if (timeline) {
        *out = timeline;
        return 0;
    }
    timeline = rf_alloc(sizeof(*timeline));
    if (!timeline)
        return rf_fail(RF_ENOMEM, "no memory for a timeline");
    timeline->device = device;
    if (device->counting) { /* its streams never submit: points stay at 0, which is reached */
        *out = timeline;
        return 0;
    }
    VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                      .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    VkSemaphoreCreateInfo create = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                    .pNext = &type};
    VkResult result =
        device->core->vk.CreateSemaphore(device->core->handle, &create, NULL, &timeline->semaphore);
    if (result != VK_SUCCESS) {
        rf_free(timeline);
        return rf_vk_fail(result, "making a timeline semaphore");
    }
    *out = timeline;
    return 0;
}

void rf_timeline_release(struct rf_timeline *timeline)
{
    if (!timeline)
        return;
    struct rf_device *device = timeline->device;
    pthread_mutex_lock(&device->lock);
    timeline->next_free = device->free_timelines;
    device->free_timelines = timeline;
    pthread_mutex_unlock(&device->lock);
}

static void raise_reached(struct rf_timeline *timeline, uint64_t value)
{
    uint64_t old = atomic_load(&timeline->reached);
    while (old < value && !atomic_compare_exchange_weak(&timeline->reached, &old, value))
        ;
}

bool rf_timeline_poll(struct rf_timeline *timeline, uint64_t value)
{
    struct rf_device *device = timeline->device;
    if (atomic_load(&timeline->reached) >= value)
        return true;
    if (!timeline->semaphore)
        return false;
    uint64_t now = 0;
    VkResult result =
        device->core->vk.GetSemaphoreCounterValue(device->core->handle, timeline->semaphore, &now);
    if (result != VK_SUCCESS) {
        rf_device_failed(device, result, "asking for a stream's progress");
        return false;
    }
    raise_reached(timeline, now);
    return now >= value;
}

/* ---- waiting --------------------------------------------------------------------------------- */

bool rf_point_reached(struct rf_point point)
{
    if (!point.timeline || rf_timeline_poll(point.timeline, point.value))
        return true;
    /* A failed device never reaches its points. A thread that polls must not hang; it gets the
     * error by waiting. */
    return atomic_load(&point.timeline->device->failed);
}

static int fail_timeout(struct rf_point point)
{
    return rf_fail(RF_ETIMEOUT, "point %llu was not reached in time",
                   (unsigned long long)point.value);
}

/* Waits until the value has been signalled (host timeline) or submitted to the queue (stream). */
static int wait_submitted(struct rf_point point, uint64_t deadline_ns)
{
    struct rf_timeline *timeline = point.timeline;
    struct rf_device *device = timeline->device;
    bool in_time = true;
    pthread_mutex_lock(&device->lock);
    device->waiters++;
    for (;;) {
        uint64_t got = timeline->semaphore ? timeline->submitted : atomic_load(&timeline->reached);
        if (got >= point.value || atomic_load(&device->failed) || !in_time)
            break;
        in_time = rf_cond_wait(&device->changed, &device->lock, deadline_ns);
    }
    bool there = (timeline->semaphore ? timeline->submitted : atomic_load(&timeline->reached)) >=
                 point.value;
    device->waiters--;
    pthread_mutex_unlock(&device->lock);
    if (there)
        return 0;
    RETURN_IF_ERROR(rf_device_check(device));
    return fail_timeout(point);
}

int rf_point_wait(struct rf_point point, uint64_t timeout_ns)
{
    struct rf_timeline *timeline = point.timeline;
    if (!timeline)
        return 0;
    struct rf_device *device = timeline->device;
    if (atomic_load(&timeline->reached) >= point.value)
        return 0;
    if (timeout_ns == 0) {
        if (rf_timeline_poll(timeline, point.value))
            return 0;
        RETURN_IF_ERROR(rf_device_check(device));
        return fail_timeout(point);
    }
    uint64_t now = rf_now_ns();
    uint64_t deadline = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    RETURN_IF_ERROR(wait_submitted(point, deadline));
    if (!timeline->semaphore)
        return 0;
    now = rf_now_ns();
    VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                .semaphoreCount = 1,
                                .pSemaphores = &timeline->semaphore,
                                .pValues = &point.value};
    uint64_t left = deadline == UINT64_MAX ? UINT64_MAX : deadline > now ? deadline - now : 0;
    VkResult result = device->core->vk.WaitSemaphores(device->core->handle, &wait, left);
    if (result == VK_TIMEOUT)
        return fail_timeout(point);
    if (result != VK_SUCCESS)
        return rf_device_failed(device, result, "waiting for the device");
    raise_reached(timeline, point.value);
    return 0;
}
