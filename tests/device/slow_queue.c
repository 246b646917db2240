/* SPDX-License-Identifier: MIT
 *
 * See slow_queue.h.
 */
#include "slow_queue.h"

#include <sched.h>

#include "device/internal.h"

static struct {
    struct rf_device *device;
    struct rf_stream *stream;
    PFN_vkQueueSubmit real;
    uint64_t value; /* the stream's, when the queue was placed */
    atomic_bool has_run;
    int batches;
} slow;

static VkResult submit(VkQueue queue, uint32_t count, const VkSubmitInfo *info, VkFence fence)
{
    uint64_t now = 0;
    if (slow.batches++ > 0)
        return VK_SUCCESS; /* of another submission */
    VkResult result = slow.real(queue, count, info, fence);
    while (result == VK_SUCCESS && now < slow.value)
        result = slow.device->core->vk.GetSemaphoreCounterValue(
            slow.device->core->handle, slow.stream->timeline->semaphore, &now);
    atomic_store(&slow.has_run, true);
    while (__atomic_load_n(&slow.stream->value, __ATOMIC_ACQUIRE) == slow.value)
        sched_yield();
    return result;
}

void slow_queue_place(struct rf_device *device, struct rf_stream *stream)
{
    slow.device = device;
    slow.stream = stream;
    slow.real = device->core->vk.QueueSubmit;
    slow.value = stream->value;
    slow.batches = 0;
    atomic_store(&slow.has_run, false);
    device->core->vk.QueueSubmit = submit;
}

bool slow_queue_has_run(void)
{
    return atomic_load(&slow.has_run);
}

int slow_queue_remove(void)
{
    pthread_mutex_lock(&slow.device->lock);
    slow.device->core->vk.QueueSubmit = slow.real;
    const int batches = slow.batches;
    pthread_mutex_unlock(&slow.device->lock);
    return batches;
}
