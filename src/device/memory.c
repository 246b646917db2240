/* SPDX-License-Identifier: MIT
 *
 * The memory of buffers: one allocation each, with a device address; and the byte counts by
 * category.
 */
#include "internal.h"

const char *rf_category_name(enum rf_category category)
{
    static const char *const names[RF_CATEGORY_COUNT] = {
        "other", "params", "grads", "optimizer", "activations", "comm", "scratch", "cache"};
    return (unsigned)category < RF_CATEGORY_COUNT ? names[category] : "?";
}

#define LOCAL VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define MAPPABLE (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
#define CACHED VK_MEMORY_PROPERTY_HOST_CACHED_BIT

/* The score of a memory type for the purpose; 0: unfit. */
static uint64_t score_type(VkMemoryPropertyFlags flags, uint64_t heap_mib, enum rf_device_kind kind,
                           enum rf_memory memory, bool *mapped)
{
    bool mappable = (flags & MAPPABLE) == MAPPABLE, cached = flags & CACHED;
    if (flags & (VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT))
        return 0;
    if (flags &
        (VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD))
        return 0;
    if (memory == RF_MEMORY_HOST) {
        *mapped = true;
        return mappable ? 1 + 4u * cached + 2u * (kind != RF_DEVICE_DISCRETE || !(flags & LOCAL))
                        : 0;
    }
    /* Host reads of a discrete GPU's memory without a cache are slower than staging, so such memory
     * counts as unmapped. */
    *mapped = mappable && (cached || kind == RF_DEVICE_INTEGRATED || kind == RF_DEVICE_CPU);
    if (!(flags & LOCAL))
        return 0;
    /* The largest heap is preferred: a small window of mappable memory is not suitable for tensors.
     */
    return 1 + heap_mib * 4 + 2u * *mapped + (*mapped ? cached : !mappable);
}

uint32_t rf_memory_type(const VkPhysicalDeviceMemoryProperties *memory, enum rf_device_kind kind,
                        enum rf_memory purpose, bool hide, bool *mapped)
{
    uint64_t best = 0;
    uint32_t type = 0;
    *mapped = false;
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
        bool can_map;
        uint64_t mib = memory->memoryHeaps[memory->memoryTypes[i].heapIndex].size >> 20;
        uint64_t score =
            score_type(memory->memoryTypes[i].propertyFlags, mib, kind, purpose, &can_map);
        if (score > best) {
            best = score;
            type = i;
            *mapped = can_map && !hide;
        }
    }
    return type;
}

void rf_memory_choose(struct rf_device *device)
{
    VkPhysicalDeviceMemoryProperties memory;
    device->core->instance.GetPhysicalDeviceMemoryProperties(device->core->physical, &memory);
    device->memory_type[RF_MEMORY_DEVICE] =
        rf_memory_type(&memory, device->info.kind, RF_MEMORY_DEVICE, device->opts.hide_host_memory,
                       &device->memory_mapped[RF_MEMORY_DEVICE]);
    device->memory_type[RF_MEMORY_HOST] = rf_memory_type(
        &memory, device->info.kind, RF_MEMORY_HOST, false, &device->memory_mapped[RF_MEMORY_HOST]);
    device->info.host_visible = device->memory_mapped[RF_MEMORY_DEVICE];
}

static void count(struct rf_device *device, enum rf_category category, uint64_t bytes)
{
    struct rf_memory_stats *stats = &device->stats;
    pthread_mutex_lock(&device->memory_lock);
    stats->now[category] += bytes;
    if (stats->now[category] > stats->peak[category])
        stats->peak[category] = stats->now[category];
    stats->allocations++;
    pthread_mutex_unlock(&device->memory_lock);
}

void rf_device_memory(const struct rf_device *device, struct rf_memory_stats *out)
{
    struct rf_device *d = (struct rf_device *)device; /* only its lock is modified */
    pthread_mutex_lock(&d->memory_lock);
    *out = d->stats;
    pthread_mutex_unlock(&d->memory_lock);
}

void rf_device_memory_reset_peak(struct rf_device *device)
{
    pthread_mutex_lock(&device->memory_lock);
    memcpy(device->stats.peak, device->stats.now, sizeof(device->stats.peak));
    pthread_mutex_unlock(&device->memory_lock);
}

static int fail_full(struct rf_device *device, uint64_t bytes, enum rf_category category)
{
    struct rf_memory_stats stats;
    uint64_t used = 0;
    rf_device_memory(device, &stats);
    for (int i = 0; i < RF_CATEGORY_COUNT; i++)
        used += stats.now[i];
    return rf_fail(RF_ENOMEM,
                   "%s: %llu bytes do not fit on %s: this process has %llu bytes there, and the "
                   "device has %llu in all",
                   rf_category_name(category), (unsigned long long)bytes, device->info.name,
                   (unsigned long long)used, (unsigned long long)device->info.heap_bytes);
}

VkBufferUsageFlags rf_buffer_usage(const struct rf_device *device)
{
    return VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
           VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
           (device->caps.views ? VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT : 0);
}

uint64_t rf_buffer_ask_address(const struct rf_buffer *buffer)
{
    const VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                            .buffer = buffer->handle};
    return buffer->device->core->vk.GetBufferDeviceAddress(buffer->device->core->handle, &info);
}

/* Creates the buffer and binds new memory to it, `slack` bytes more than requested. */
static int allocate(struct rf_buffer *buffer, enum rf_memory memory, uint64_t slack)
{
    struct rf_device *device = buffer->device;
    const struct rf_vk_functions *vk = &device->core->vk;
    if (device->counting)
        return rf_counting_allocate(buffer, memory);
    VkBufferCreateInfo create = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                 .size = buffer->bytes + slack,
                                 .usage = rf_buffer_usage(device)};
    VkResult result = vk->CreateBuffer(device->core->handle, &create, NULL, &buffer->handle);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "making a buffer");
    VkMemoryRequirements needs;
    vk->GetBufferMemoryRequirements(device->core->handle, buffer->handle, &needs);
    VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                       .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = &flags,
                                 .allocationSize = needs.size,
                                 .memoryTypeIndex = device->memory_type[memory]};
    if (needs.size > device->info.max_allocation_bytes)
        return rf_fail(RF_ENOMEM,
                       "%s: %llu bytes in one buffer are more than %s allows (%llu); split them",
                       rf_category_name(buffer->category), (unsigned long long)needs.size,
                       device->info.name, (unsigned long long)device->info.max_allocation_bytes);
    if (!(needs.memoryTypeBits >> info.memoryTypeIndex & 1))
        return rf_fail(RF_EDEVICE, "%s does not put buffers into its own memory type %u",
                       device->info.name, info.memoryTypeIndex);
    result = vk->AllocateMemory(device->core->handle, &info, NULL, &buffer->memory);
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY)
        return fail_full(device, needs.size, buffer->category);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "allocating memory");
    buffer->allocated = needs.size;
    count(device, buffer->category, needs.size);
    result = vk->BindBufferMemory(device->core->handle, buffer->handle, buffer->memory, 0);
    void *map = NULL;
    if (result == VK_SUCCESS && device->memory_mapped[memory])
        result = vk->MapMemory(device->core->handle, buffer->memory, 0, VK_WHOLE_SIZE, 0, &map);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "binding memory to a buffer");
    buffer->map = map;
    buffer->address = rf_buffer_ask_address(buffer);
    return 0;
}

static void release(struct rf_buffer *buffer)
{
    struct rf_device *device = buffer->device;
    rf_views_release(buffer);
    if (device->counting)
        rf_free(buffer->map);
    if (buffer->handle)
        device->core->vk.DestroyBuffer(device->core->handle, buffer->handle, NULL);
    if (buffer->memory) /* unmaps it, too */
        device->core->vk.FreeMemory(device->core->handle, buffer->memory, NULL);
    pthread_mutex_lock(&device->memory_lock);
    device->stats.now[buffer->category] -= buffer->allocated;
    pthread_mutex_unlock(&device->memory_lock);
    buffer->handle = VK_NULL_HANDLE;
    buffer->memory = VK_NULL_HANDLE;
    buffer->map = NULL;
    buffer->allocated = 0;
}

int rf_buffer_make(struct rf_device *device, uint64_t bytes, enum rf_memory memory,
                   enum rf_category category, struct rf_buffer **out)
{
    if (bytes == 0)
        return rf_fail(RF_EINVAL, "a buffer needs at least one byte");
    if ((unsigned)category >= RF_CATEGORY_COUNT || (unsigned)memory > RF_MEMORY_HOST)
        return rf_fail(RF_EINVAL, "unknown category %d or memory kind %d of a buffer",
                       (int)category, (int)memory);
    if (bytes > device->info.max_allocation_bytes)
        return rf_fail(RF_ENOMEM,
                       "%s: %llu bytes in one buffer are more than %s allows (%llu); split them",
                       rf_category_name(category), (unsigned long long)bytes, device->info.name,
                       (unsigned long long)device->info.max_allocation_bytes);
    struct rf_buffer *buffer = rf_alloc(sizeof(*buffer));
    if (!buffer)
        return rf_fail(RF_ENOMEM, "no memory for a buffer's record");
    *buffer = (struct rf_buffer){.device = device, .bytes = bytes, .category = category};
    int rc = allocate(buffer, memory, 0);
    if (rc == 0 && buffer->address % RF_ADDRESS_ALIGNMENT != 0) {
        /* The driver's alignment is smaller, so allocate again with space to start later. */
        release(buffer);
        rc = allocate(buffer, memory, RF_ADDRESS_ALIGNMENT);
        buffer->shift = (0 - buffer->address) % RF_ADDRESS_ALIGNMENT;
        buffer->address += buffer->shift;
        if (buffer->map)
            buffer->map += buffer->shift;
    }
    if (rc < 0) {
        rf_buffer_free(buffer);
        return rc;
    }
    if (buffer->map)
        memset(buffer->map, 0, bytes);
    *out = buffer;
    return 0;
}

void rf_buffer_free(struct rf_buffer *buffer)
{
    release(buffer);
    rf_free(buffer);
}

uint64_t rf_buffer_address(const struct rf_buffer *buffer)
{
    return buffer->address;
}

uint64_t rf_buffer_bytes(const struct rf_buffer *buffer)
{
    return buffer->bytes;
}

void *rf_buffer_map(const struct rf_buffer *buffer)
{
    return buffer->map;
}

struct rf_device *rf_buffer_device(const struct rf_buffer *buffer)
{
    return buffer->device;
}
