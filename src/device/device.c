/* SPDX-License-Identifier: MIT
 *
 * Opens and closes a device: enables features, initializes its parts in order, and waits for all
 * work. select.c chooses the device.
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
    if (device->has_statistics) {
        *tail = &e->executable;
        e->extensions[e->extension_count++] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    }
    if (caps->ext_external_memory_host)
        e->extensions[e->extension_count++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    if (caps->views)
        e->extensions[e->extension_count++] = VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME;
}

static int create_device(struct rf_device *device)
{
    struct enabled e;
    float priorities[RF_MAX_QUEUES] = {1, 1, 1, 1};
    /* Kernels are chosen by them, but not on CPUs. */
    device->has_statistics = device->caps.ext_executable_properties &&
                             (device->opts.kernel_statistics || device->info.kind != RF_DEVICE_CPU);
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
    VkResult result =
        device->instance.CreateDevice(device->physical, &create, NULL, &device->handle);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "opening the device");
    RETURN_IF_ERROR(rf_vk_load_device(&device->instance, device->handle, &device->vk));
    device->queue_count = device->caps.queue_count;
    for (uint32_t i = 0; i < device->queue_count; i++)
        device->vk.GetDeviceQueue(device->handle, device->caps.family, i, &device->queues[i]);
    return 0;
}

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
    RETURN_IF_ERROR(rf_vk_instance_init(&device->instance));
    RETURN_IF_ERROR(rf_select_device(&device->instance, select, &device->physical, &device->info,
                                     &device->caps));
    device->cpu = rf_cpu_of(&device->info);
    if (device->opts.hide_matrix_units)
        rf_matrix_hide(&device->info, &device->caps, "the device was opened without matrix units");
    RETURN_IF_ERROR(create_device(device));
    rf_memory_choose(device);
    RETURN_IF_ERROR(rf_ranges_open(device));
    RETURN_IF_ERROR(rf_submit_open(device));
    RETURN_IF_ERROR(rf_kernels_open(device));
    RETURN_IF_ERROR(rf_views_open(device));
    rf_cache_load(device);
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
           device->info.driver, device->queue_count, device->queue_count == 1 ? "" : "s",
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
            device->vk.DeviceWaitIdle(device->handle);
        rf_staging_fini(device);
        rf_submit_close(device);
    }
    if (device->kernels.capacity)
        rf_kernels_close(device);
    rf_views_close(device);
    rf_ranges_close(device);
    rf_cache_save(device);
    for (struct rf_timeline *t = device->free_timelines, *next; t; t = next) {
        next = t->next_free;
        if (t->semaphore)
            device->vk.DestroySemaphore(device->handle, t->semaphore, NULL);
        rf_free(t);
    }
    if (device->handle && device->vk.DestroyDevice)
        device->vk.DestroyDevice(device->handle, NULL);
    rf_vk_instance_fini(&device->instance);
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
    return atomic_load(&device->instance.messages);
}
