/* SPDX-License-Identifier: MIT
 *
 * Vulkan functions that do nothing, in place of those that a stream uses for recording.
 */
#include "record_nothing.h"

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice device,
                                                       const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkSemaphore *out)
{
    memset(out, 0xff, sizeof(*out)); /* anything but VK_NULL_HANDLE */
    return VK_SUCCESS;
}
static VKAPI_ATTR VkResult VKAPI_CALL create_pool(VkDevice device,
                                                  const VkCommandPoolCreateInfo *info,
                                                  const VkAllocationCallbacks *allocator,
                                                  VkCommandPool *out)
{
    memset(out, 0xff, sizeof(*out));
    return VK_SUCCESS;
}
static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device,
                                               const VkCommandBufferAllocateInfo *info,
                                               VkCommandBuffer *out)
{
    memset(out, 0xff, sizeof(*out));
    return VK_SUCCESS;
}
static VKAPI_ATTR VkResult VKAPI_CALL reset(VkDevice device, VkCommandPool pool,
                                            VkCommandPoolResetFlags flags)
{
    return VK_SUCCESS;
}
static VKAPI_ATTR VkResult VKAPI_CALL begin(VkCommandBuffer commands,
                                            const VkCommandBufferBeginInfo *info)
{
    return VK_SUCCESS;
}
static VKAPI_ATTR void VKAPI_CALL barrier(VkCommandBuffer commands, VkPipelineStageFlags from,
                                          VkPipelineStageFlags to, VkDependencyFlags flags,
                                          uint32_t memory_count, const VkMemoryBarrier *memory,
                                          uint32_t buffer_count,
                                          const VkBufferMemoryBarrier *buffers,
                                          uint32_t image_count, const VkImageMemoryBarrier *images)
{
}
static VKAPI_ATTR void VKAPI_CALL copy(VkCommandBuffer commands, VkBuffer src, VkBuffer dst,
                                       uint32_t count, const VkBufferCopy *regions)
{
}
static VKAPI_ATTR void VKAPI_CALL fill(VkCommandBuffer commands, VkBuffer dst, VkDeviceSize offset,
                                       VkDeviceSize bytes, uint32_t word)
{
}
static VKAPI_ATTR void VKAPI_CALL bind(VkCommandBuffer commands, VkPipelineBindPoint point,
                                       VkPipeline pipeline)
{
}
static VKAPI_ATTR void VKAPI_CALL push(VkCommandBuffer commands, VkPipelineLayout layout,
                                       VkShaderStageFlags stages, uint32_t offset, uint32_t bytes,
                                       const void *values)
{
}
static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y,
                                           uint32_t z)
{
}

void record_nothing(struct rf_device *device)
{
    struct rf_vk_functions *vk = &device->core->vk;
    vk->CreateSemaphore = create_semaphore;
    vk->CreateCommandPool = create_pool;
    vk->AllocateCommandBuffers = allocate;
    vk->ResetCommandPool = reset;
    vk->BeginCommandBuffer = begin;
    vk->CmdBeginDebugUtilsLabelEXT = NULL;
    vk->CmdEndDebugUtilsLabelEXT = NULL;
    vk->CmdPipelineBarrier = barrier;
    vk->CmdCopyBuffer = copy;
    vk->CmdFillBuffer = fill;
    vk->CmdBindPipeline = bind;
    vk->CmdPushConstants = push;
    vk->CmdDispatch = dispatch;
}
