/* SPDX-License-Identifier: MIT
 *
 * The Vulkan functions that the library uses, loaded per instance and per device; instances;
 * messages for VkResult. Only the files of device/ include it.
 */
#ifndef RF_DEVICE_VULKAN_H
#define RF_DEVICE_VULKAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <volk.h>

#include "../../compat/vulkan_new.h"

#define RF_INSTANCE_FUNCTIONS(X)                                                                   \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceFeatures2)                                                                  \
    X(GetPhysicalDeviceMemoryProperties)                                                           \
    X(GetPhysicalDeviceQueueFamilyProperties)                                                      \
    X(EnumerateDeviceExtensionProperties)                                                          \
    X(CreateDevice)                                                                                \
    X(GetDeviceProcAddr)
/* NULL if the extension is absent. */
#define RF_INSTANCE_FUNCTIONS_OPTIONAL(X)                                                          \
    X(CreateDebugUtilsMessengerEXT)                                                                \
    X(DestroyDebugUtilsMessengerEXT)                                                               \
    X(GetPhysicalDeviceCooperativeMatrixPropertiesKHR)                                             \
    X(GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV)

#define RF_DEVICE_FUNCTIONS(X)                                                                     \
    X(DestroyDevice)                                                                               \
    X(DeviceWaitIdle)                                                                              \
    X(GetDeviceQueue)                                                                              \
    X(QueueSubmit)                                                                                 \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(MapMemory)                                                                                   \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(GetBufferMemoryRequirements)                                                                 \
    X(BindBufferMemory)                                                                            \
    X(GetBufferDeviceAddress)                                                                      \
    X(CreateSemaphore)                                                                             \
    X(DestroySemaphore)                                                                            \
    X(GetSemaphoreCounterValue)                                                                    \
    X(WaitSemaphores)                                                                              \
    X(CreateCommandPool)                                                                           \
    X(DestroyCommandPool)                                                                          \
    X(ResetCommandPool)                                                                            \
    X(AllocateCommandBuffers)                                                                      \
    X(BeginCommandBuffer)                                                                          \
    X(EndCommandBuffer)                                                                            \
    X(CmdPipelineBarrier)                                                                          \
    X(CmdCopyBuffer)                                                                               \
    X(CmdFillBuffer)                                                                               \
    X(CmdBindPipeline)                                                                             \
    X(CmdPushConstants)                                                                            \
    X(CmdDispatch)                                                                                 \
    X(CmdResetQueryPool)                                                                           \
    X(CmdWriteTimestamp)                                                                           \
    X(CreateQueryPool)                                                                             \
    X(DestroyQueryPool)                                                                            \
    X(GetQueryPoolResults)                                                                         \
    X(CreateBufferView)                                                                            \
    X(DestroyBufferView)                                                                           \
    X(CreateDescriptorSetLayout)                                                                   \
    X(DestroyDescriptorSetLayout)                                                                  \
    X(CreateShaderModule)                                                                          \
    X(DestroyShaderModule)                                                                         \
    X(CreatePipelineLayout)                                                                        \
    X(DestroyPipelineLayout)                                                                       \
    X(CreateComputePipelines)                                                                      \
    X(DestroyPipeline)                                                                             \
    X(CreatePipelineCache)                                                                         \
    X(DestroyPipelineCache)                                                                        \
    X(GetPipelineCacheData)                                                                        \
    X(MergePipelineCaches)
#define RF_DEVICE_FUNCTIONS_OPTIONAL(X)                                                            \
    X(CmdBeginDebugUtilsLabelEXT)                                                                  \
    X(CmdEndDebugUtilsLabelEXT)                                                                    \
    X(CmdPushDescriptorSetKHR)                                                                     \
    X(GetMemoryHostPointerPropertiesEXT)                                                           \
    X(GetPipelineExecutablePropertiesKHR)                                                          \
    X(GetPipelineExecutableStatisticsKHR)

#define RF_FUNCTION_FIELD(name) PFN_vk##name name;
struct rf_vk_instance {
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    bool labels;                   /* command buffers get labels */
    atomic_uint_fast64_t messages; /* warnings and errors of the validation layer */
    RF_INSTANCE_FUNCTIONS(RF_FUNCTION_FIELD)
    RF_INSTANCE_FUNCTIONS_OPTIONAL(RF_FUNCTION_FIELD)
};
struct rf_vk_functions {
    RF_DEVICE_FUNCTIONS(RF_FUNCTION_FIELD)
    RF_DEVICE_FUNCTIONS_OPTIONAL(RF_FUNCTION_FIELD)
};

/* Loads Vulkan and creates an instance in place. Its address must not change, because the
 * validation layer keeps it. RF_ENODEV: the message tells what to install. */
int rf_vk_instance_init(struct rf_vk_instance *instance);
void rf_vk_instance_fini(struct rf_vk_instance *instance);
/* Loads the functions of a device. */
int rf_vk_load_device(const struct rf_vk_instance *instance, VkDevice device,
                      struct rf_vk_functions *out);
const char *rf_vk_result_text(VkResult result);
/* RF_ENOMEM or RF_EDEVICE with "<what>: <sentence>". */
int rf_vk_fail(VkResult result, const char *what);

#endif
