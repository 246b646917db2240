/* SPDX-License-Identifier: MIT
 *
 * Lists devices and their properties, and finds the selected one. Does not open devices.
 */
#define _GNU_SOURCE /* strcasestr */
#include <ctype.h>
#include <stdlib.h>

#include "internal.h"

#define MAX_DEVICES 64

struct features {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT subgroup_size;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR cooperative;
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16;
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV cooperative2;
};
struct properties {
    VkPhysicalDeviceProperties2 core;
    VkPhysicalDeviceVulkan11Properties v11;
    VkPhysicalDeviceVulkan12Properties v12;
    VkPhysicalDeviceSubgroupSizeControlPropertiesEXT subgroup_size;
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT external_host;
};

/* Appends a structure to a chain. */
static void chain(void *head, void *added)
{
    VkBaseOutStructure *last = head;
    while (last->pNext)
        last = last->pNext;
    last->pNext = added;
}

static void find_extensions(const struct rf_vk_instance *vk, VkPhysicalDevice physical,
                            struct rf_device_caps *caps)
{
    const struct {
        const char *name;
        bool *found;
    } rows[] = {
        {VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME, &caps->ext_subgroup_size_control},
        {VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME, &caps->ext_external_memory_host},
        {VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME, &caps->ext_dma_buf},
        {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, &caps->ext_memory_fd},
        {VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, &caps->ext_cooperative_matrix},
        {VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME, &caps->ext_push_descriptor},
        {VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME, &caps->ext_bfloat16},
        {VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME, &caps->ext_cooperative_matrix2},
        {VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME, &caps->ext_executable_properties},
    };
    uint32_t count = 0;
    vk->EnumerateDeviceExtensionProperties(physical, NULL, &count, NULL);
    VkExtensionProperties *list = rf_alloc(count * sizeof(*list) + 1);
    if (!list || vk->EnumerateDeviceExtensionProperties(physical, NULL, &count, list) < 0)
        count = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
            if (strcmp(list[i].extensionName, rows[row].name) == 0)
                *rows[row].found = true;
        }
    }
    rf_free(list);
}

/* The compute family with the most queues. Of equal families, one without graphics, because the
 * desktop does not use it. */
static bool find_family(const struct rf_vk_instance *vk, VkPhysicalDevice physical,
                        struct rf_device_info *info, struct rf_device_caps *caps)
{
    VkQueueFamilyProperties list[32];
    uint32_t count = 32, best = 0, all = 0;
    vk->GetPhysicalDeviceQueueFamilyProperties(physical, &count, list);
    for (uint32_t i = 0; i < count; i++) {
        if (!(list[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || list[i].queueCount == 0)
            continue;
        all += list[i].queueCount;
        uint32_t score = 2 * list[i].queueCount + !(list[i].queueFlags & VK_QUEUE_GRAPHICS_BIT);
        if (score > best) {
            best = score;
            caps->family = i;
            caps->queue_count =
                list[i].queueCount < RF_MAX_QUEUES ? list[i].queueCount : RF_MAX_QUEUES;
            caps->timestamp_bits = list[i].timestampValidBits;
        }
    }
    info->single_queue = all == 1;
    return best > 0;
}

static enum rf_device_kind kind_of(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return RF_DEVICE_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return RF_DEVICE_DISCRETE;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return RF_DEVICE_CPU;
    default:
        return RF_DEVICE_OTHER;
    }
}

/* 25 for "llvmpipe, Mesa 25.0.7 (LLVM 19.1.7)"; 0 if it is not Mesa. The driver's numeric version
 * is 0.0.1 in every release of that driver. */
static int mesa_version(const struct rf_device_info *info)
{
    const char *mesa = strstr(info->driver, "Mesa ");
    return mesa ? atoi(mesa + 5) : 0;
}

static void fill_properties(const struct rf_vk_instance *vk, VkPhysicalDevice physical,
                            struct rf_device_info *info, struct rf_device_caps *caps)
{
    struct properties p = {
        .core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
        .v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
        .v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES,
        .subgroup_size.sType =
            VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT,
        .external_host.sType =
            VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT,
    };
    chain(&p.core, &p.v11);
    chain(&p.core, &p.v12);
    if (caps->ext_subgroup_size_control || caps->api_1_3)
        chain(&p.core, &p.subgroup_size);
    if (caps->ext_external_memory_host)
        chain(&p.core, &p.external_host);
    vk->GetPhysicalDeviceProperties2(physical, &p.core);
    const VkPhysicalDeviceLimits *limits = &p.core.properties.limits;

    snprintf(info->driver, sizeof(info->driver), "%.250s%s%.250s", p.v12.driverName,
             p.v12.driverInfo[0] ? ", " : "", p.v12.driverInfo);
    info->driver_id = p.v12.driverID;
    memcpy(info->device_uuid, p.v11.deviceUUID, sizeof(info->device_uuid));
    memcpy(info->driver_uuid, p.v11.driverUUID, sizeof(info->driver_uuid));
    memcpy(caps->pipeline_cache_uuid, p.core.properties.pipelineCacheUUID, 16);
    info->subgroup_size = p.v11.subgroupSize;
    if (p.v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT)
        caps->subgroup_operations = p.v11.subgroupSupportedOperations;
    info->subgroup_shuffle = caps->subgroup_operations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    info->subgroup_arithmetic = caps->subgroup_operations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    caps->subgroup_min = caps->subgroup_max = info->subgroup_size;
    if (p.subgroup_size.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) {
        caps->subgroup_min = p.subgroup_size.minSubgroupSize;
        caps->subgroup_max = p.subgroup_size.maxSubgroupSize;
    }
    info->min_subgroup_size = caps->subgroup_min;
    info->max_subgroup_size = caps->subgroup_max;
    info->external_memory_host = caps->ext_external_memory_host;
    info->dma_buf = caps->ext_dma_buf && caps->ext_memory_fd;
    rf_extension_reason(info->dma_buf_reason, sizeof(info->dma_buf_reason),
                        VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME, caps->ext_dma_buf,
                        VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME, info->dma_buf);
    info->min_import_alignment = p.external_host.minImportedHostPointerAlignment;
    info->max_workgroup_invocations = limits->maxComputeWorkGroupInvocations;
    memcpy(info->max_workgroup_size, limits->maxComputeWorkGroupSize, 3 * sizeof(uint32_t));
    memcpy(info->max_workgroup_count, limits->maxComputeWorkGroupCount, 3 * sizeof(uint32_t));
    info->max_shared_bytes = limits->maxComputeSharedMemorySize;
    info->max_push_bytes = limits->maxPushConstantsSize;
    caps->max_texels = limits->maxTexelBufferElements;
    caps->max_storage_range = limits->maxStorageBufferRange;
    caps->storage_alignment = limits->minStorageBufferOffsetAlignment;
    caps->views = info->kind == RF_DEVICE_CPU && caps->ext_push_descriptor;
    /* Three times as fast with 22.3. With 25.0 and 26.2 some kernels are faster and others slower.
     */
    caps->wide_writes =
        caps->views && info->driver_id == VK_DRIVER_ID_MESA_LLVMPIPE && mesa_version(info) < 25;
    info->max_allocation_bytes = p.v11.maxMemoryAllocationSize;
    info->timestamp_period_ns = caps->timestamp_bits ? limits->timestampPeriod : 0;
}

/* Returns the first missing feature, or NULL. */
static const char *fill_features(const struct rf_vk_instance *vk, VkPhysicalDevice physical,
                                 struct rf_device_info *info, struct rf_device_caps *caps)
{
    struct features f = {
        .core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .subgroup_size.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
        .cooperative.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .bfloat16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR,
        .cooperative2.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV,
    };
    chain(&f.core, &f.v11);
    chain(&f.core, &f.v12);
    if (caps->ext_subgroup_size_control || caps->api_1_3)
        chain(&f.core, &f.subgroup_size);
    if (caps->ext_cooperative_matrix)
        chain(&f.core, &f.cooperative);
    if (caps->ext_bfloat16)
        chain(&f.core, &f.bfloat16);
    if (caps->ext_cooperative_matrix2)
        chain(&f.core, &f.cooperative2);
    vk->GetPhysicalDeviceFeatures2(physical, &f.core);

    info->int64 = f.core.features.shaderInt64;
    info->int16 = f.core.features.shaderInt16;
    info->float64 = f.core.features.shaderFloat64;
    info->storage16 = f.v11.storageBuffer16BitAccess;
    caps->uniform16 = f.v11.uniformAndStorageBuffer16BitAccess;
    info->float16 = f.v12.shaderFloat16;
    info->int8 = f.v12.shaderInt8;
    info->storage8 = f.v12.storageBuffer8BitAccess;
    caps->uniform8 = f.v12.uniformAndStorageBuffer8BitAccess;
    caps->subgroup_extended_types = f.v12.shaderSubgroupExtendedTypes;
    caps->memory_model = f.v12.vulkanMemoryModel;
    caps->memory_model_device_scope = f.v12.vulkanMemoryModelDeviceScope;
    caps->subgroup_size_control = f.subgroup_size.subgroupSizeControl;
    caps->full_subgroups = f.subgroup_size.computeFullSubgroups;
    info->bfloat16 = f.bfloat16.shaderBFloat16Type;
    rf_extension_reason(info->bfloat16_reason, sizeof(info->bfloat16_reason),
                        VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME, caps->ext_bfloat16,
                        "its feature shaderBFloat16Type", info->bfloat16);
    rf_matrix_describe(vk, physical, &f.cooperative, &f.bfloat16, &f.cooperative2, info, caps);
    if (!f.v12.bufferDeviceAddress)
        return "bufferDeviceAddress";
    if (!f.v12.timelineSemaphore)
        return "timelineSemaphore";
    if (!f.v12.scalarBlockLayout)
        return "scalarBlockLayout";
    return NULL;
}

/* The memory of buffers of kind RF_MEMORY_DEVICE: the size of its heap, and whether it is mapped.
 * memory.c chooses the type by the same rule. */
static void fill_memory(const struct rf_vk_instance *vk, VkPhysicalDevice physical,
                        struct rf_device_info *info)
{
    VkPhysicalDeviceMemoryProperties memory;
    vk->GetPhysicalDeviceMemoryProperties(physical, &memory);
    bool mapped;
    uint32_t type = rf_memory_type(&memory, info->kind, RF_MEMORY_DEVICE, false, &mapped);
    info->heap_bytes = memory.memoryHeaps[memory.memoryTypes[type].heapIndex].size;
    const char *visible = rf_env("RF_HOST_VISIBLE");
    info->host_visible = mapped && !(visible && strcmp(visible, "0") == 0);
    if (info->max_allocation_bytes > info->heap_bytes)
        info->max_allocation_bytes = info->heap_bytes;
}

static void describe(const struct rf_vk_instance *vk, VkPhysicalDevice physical, uint32_t index,
                     struct rf_device_info *info, struct rf_device_caps *caps)
{
    memset(info, 0, sizeof(*info));
    memset(caps, 0, sizeof(*caps));
    VkPhysicalDeviceProperties2 basic = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    vk->GetPhysicalDeviceProperties2(physical, &basic);
    const VkPhysicalDeviceProperties *p = &basic.properties;
    snprintf(info->name, sizeof(info->name), "%s", p->deviceName);
    info->index = index;
    info->vendor_id = p->vendorID;
    info->device_id = p->deviceID;
    info->driver_version = p->driverVersion;
    info->api_version = p->apiVersion;
    info->kind = kind_of(p->deviceType);
    if (p->apiVersion < VK_API_VERSION_1_2) {
        snprintf(info->reason, sizeof(info->reason),
                 "its driver supports Vulkan %u.%u; 1.2 is needed",
                 VK_API_VERSION_MAJOR(p->apiVersion), VK_API_VERSION_MINOR(p->apiVersion));
        return;
    }
    caps->api_1_3 = p->apiVersion >= VK_API_VERSION_1_3;
    find_extensions(vk, physical, caps);
    bool compute = find_family(vk, physical, info, caps);
    fill_properties(vk, physical, info, caps);
    const char *missing = fill_features(vk, physical, info, caps);
    fill_memory(vk, physical, info);
    if (!compute)
        snprintf(info->reason, sizeof(info->reason), "it has no queue for compute");
    else if (missing)
        snprintf(info->reason, sizeof(info->reason), "its driver lacks the feature %s", missing);
    info->usable = info->reason[0] == '\0';
}

static int enumerate(const struct rf_vk_instance *vk, VkPhysicalDevice *list, uint32_t *count)
{
    *count = MAX_DEVICES;
    VkResult result = vk->EnumeratePhysicalDevices(vk->handle, count, list);
    if (result < 0)
        return rf_vk_fail(result, "listing the Vulkan devices");
    if (*count == 0)
        return rf_fail(RF_ENODEV, "Vulkan is installed, but it finds no device: install a driver "
                                  "(Debian, Ubuntu: apt install mesa-vulkan-drivers)");
    return 0;
}

int rf_device_list(struct rf_device_info *infos, uint32_t capacity, uint32_t *count)
{
    if (!count || (capacity > 0 && !infos))
        return rf_fail(RF_EINVAL, "rf_device_list needs a pointer for its results");
    struct rf_vk_instance vk;
    VkPhysicalDevice list[MAX_DEVICES];
    uint32_t found;
    RETURN_IF_ERROR(rf_vk_instance_init(&vk));
    int rc = enumerate(&vk, list, &found);
    struct rf_device_caps caps;
    for (uint32_t i = 0; rc == 0 && i < found && i < capacity; i++)
        describe(&vk, list[i], i, &infos[i], &caps);
    rf_vk_instance_fini(&vk);
    if (rc == 0)
        *count = found;
    return rc;
}

/* Discrete, then integrated, then other, then CPU. */
static int rank_of(const struct rf_device_info *info)
{
    static const int rank[] = {[RF_DEVICE_OTHER] = 2,
                               [RF_DEVICE_INTEGRATED] = 3,
                               [RF_DEVICE_DISCRETE] = 4,
                               [RF_DEVICE_CPU] = 1};
    return info->usable ? rank[info->kind] : 0;
}

static bool is_number(const char *text)
{
    if (!*text)
        return false;
    for (; *text; text++) {
        if (!isdigit((unsigned char)*text))
            return false;
    }
    return true;
}

/* "0 llvmpipe (LLVM 15.0.6, 256 bits); 1 ..." */
static void name_all(const struct rf_device_info *infos, uint32_t count, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%u %s%s", i ? "; " : "", i,
                                 infos[i].name, infos[i].usable ? "" : " (not usable)");
}

/* Index of the device that `select` names; -1: none. */
static int find(const char *select, const struct rf_device_info *infos, uint32_t count)
{
    if (is_number(select)) {
        unsigned long index = strtoul(select, NULL, 10);
        return index < count ? (int)index : -1;
    }
    bool best = strcmp(select, "best") == 0;
    int chosen = -1;
    for (uint32_t i = 0; i < count; i++) {
        if (!best && !strcasestr(infos[i].name, select))
            continue;
        if (chosen < 0 || rank_of(&infos[i]) > rank_of(&infos[chosen]))
            chosen = (int)i;
    }
    return chosen;
}

int rf_select_device(const struct rf_vk_instance *instance, const char *select,
                     VkPhysicalDevice *physical, struct rf_device_info *info,
                     struct rf_device_caps *caps)
{
    VkPhysicalDevice list[MAX_DEVICES];
    uint32_t count;
    RETURN_IF_ERROR(enumerate(instance, list, &count));
    struct rf_device_info *infos = rf_alloc(count * sizeof(*infos));
    if (!infos)
        return rf_fail(RF_ENOMEM, "no memory for the list of devices");
    if (!select || !*select)
        select = rf_env("RF_DEVICE");
    if (!select)
        select = "best";
    for (uint32_t i = 0; i < count; i++)
        describe(instance, list[i], i, &infos[i], caps);
    int chosen = find(select, infos, count);
    char all[512];
    name_all(infos, count, all, sizeof(all));
    int rc = 0;
    if (chosen < 0)
        rc = rf_fail(RF_ENODEV, "there is no device \"%.64s\"; there are: %s", select, all);
    else if (!infos[chosen].usable)
        rc = rf_fail(RF_ENODEV, "device %d, %s, cannot be used: %s; there are: %s", chosen,
                     infos[chosen].name, infos[chosen].reason, all);
    if (rc == 0) {
        *physical = list[chosen];
        describe(instance, list[chosen], (uint32_t)chosen, info, caps);
    }
    rf_free(infos);
    return rc;
}
