/* SPDX-License-Identifier: MIT
 *
 * Queue operations of devices that share a core, one at a time.
 */
#include "internal.h"

VkResult rf_core_submit(struct rf_core *core, VkQueue queue, const VkSubmitInfo *info)
{
    pthread_mutex_lock(&core->queue_lock);
    VkResult result = core->vk.QueueSubmit(queue, 1, info, VK_NULL_HANDLE);
    pthread_mutex_unlock(&core->queue_lock);
    return result;
}

VkResult rf_core_wait_idle(struct rf_core *core)
{
    pthread_mutex_lock(&core->queue_lock);
    VkResult result = core->vk.DeviceWaitIdle(core->handle);
    pthread_mutex_unlock(&core->queue_lock);
    return result;
}
