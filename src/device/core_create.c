/* SPDX-License-Identifier: MIT
 *
 * Opens the driver's device: enables the features and extensions that the library uses. Called by
 * core.c.
 */
#include "internal.h"

struct enabled {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT subgroup_size;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR cooperative;
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16;
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV cooperative2;
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executable;
    const char *extensions[12];
    uint32_t extension_count;
};

/* Only features that the library uses. robustBufferAccess stays off, because it costs time and
 * hides bugs. */
static void enable(const struct rf_device *device, struct enabled *e)
{
    const struct rf_device_info *info = &device->info;
    const struct rf_device_caps *caps = &device->caps;
    *e = (struct enabled){
        .core = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                 .pNext = &e->v11,
                 .features = {.shaderInt64 = info->int64,
                              .shaderInt16 = info->int16,
                              .shaderFloat64 = info->float64}},
        .v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                .pNext = &e->v12,
                .storageBuffer16BitAccess = info->storage16,
                .uniformAndStorageBuffer16BitAccess = caps->uniform16},
        .v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                .bufferDeviceAddress = VK_TRUE,
                .timelineSemaphore = VK_TRUE,
                .scalarBlockLayout = VK_TRUE,
                .shaderFloat16 = info->float16,
                .shaderInt8 = info->int8,
                .storageBuffer8BitAccess = info->storage8,
                .uniformAndStorageBuffer8BitAccess = caps->uniform8,
                .shaderSubgroupExtendedTypes = caps->subgroup_extended_types,
                .vulkanMemoryModel = caps->memory_model,
                .vulkanMemoryModelDeviceScope = caps->memory_model_device_scope},
        .subgroup_size = {.sType =
                              VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
                          .subgroupSizeControl = VK_TRUE,
                          .computeFullSubgroups = caps->full_subgroups},
        .cooperative = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
                        .cooperativeMatrix = VK_TRUE},
        .bfloat16 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR,
                     .shaderBFloat16Type = VK_TRUE,
                     .shaderBFloat16CooperativeMatrix = caps->bfloat16_matrix},
        .cooperative2 = {.sType =
                             VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV,
                         .cooperativeMatrixWorkgroupScope = VK_TRUE,
                         .cooperativeMatrixFlexibleDimensions = VK_TRUE,
                         .cooperativeMatrixPerElementOperations = VK_TRUE,
                         .cooperativeMatrixTensorAddressing = VK_TRUE},
        .executable = {
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
            .pipelineExecutableInfo = VK_TRUE}};
    void **tail = &e->v12.pNext;
    if (caps->subgroup_size_control) {
        *tail = &e->subgroup_size;
        tail = &e->subgroup_size.pNext;
        if (caps->ext_subgroup_size_control)
            e->extensions[e->extension_count++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
    }
    if (info->cooperative_matrix) {
        *tail = &e->cooperative;
        tail = &e->cooperative.pNext;
        e->extensions[e->extension_count++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
    }
    if (info->workgroup_matrix) {
        *tail = &e->cooperative2;
        tail = &e->cooperative2.pNext;
        e->extensions[e->extension_count++] = VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME;
    }
    if (info->bfloat16) {
        *tail = &e->bfloat16;
        tail = &e->bfloat16.pNext;
        e->extensions[e->extension_count++] = VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME;
    }
    if (device->core->has_statistics) {
        *tail = &e->executable;
        e->extensions[e->extension_count++] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    }
    if (caps->ext_external_memory_host)
        e->extensions[e->extension_count++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    if (caps->views)
        e->extensions[e->extension_count++] = VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME;
}

int rf_core_create(struct rf_device *device)
{
    struct rf_core *core = device->core;
    struct enabled e;
    float priorities[RF_MAX_QUEUES] = {1, 1, 1, 1};
    enable(device, &e);
    VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                      .queueFamilyIndex = device->caps.family,
                                      .queueCount = device->caps.queue_count,
                                      .pQueuePriorities = priorities};
    VkDeviceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                 .pNext = &e.core,
                                 .queueCreateInfoCount = 1,
                                 .pQueueCreateInfos = &queues,
                                 .enabledExtensionCount = e.extension_count,
                                 .ppEnabledExtensionNames = e.extensions};
    VkResult result = core->instance.CreateDevice(core->physical, &create, NULL, &core->handle);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "opening the device");
    RETURN_IF_ERROR(rf_vk_load_device(&core->instance, core->handle, &core->vk));
    core->queue_count = device->caps.queue_count;
    for (uint32_t i = 0; i < core->queue_count; i++)
        core->vk.GetDeviceQueue(core->handle, device->caps.family, i, &core->queues[i]);
    return 0;
}
