/* SPDX-License-Identifier: MIT
 *
 * Buffers in host memory of the caller (VK_EXT_external_memory_host): kernels and collectives use
 * it in place. memory.c allocates and frees the device's own memory.
 */
#include "internal.h"

#define COHERENT (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
#define HANDLE VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT

static int check(const struct rf_device *device, const void *memory, uint64_t bytes)
{
    const uint64_t grain = device->info.min_import_alignment;
    if (!device->caps.ext_external_memory_host ||
        !device->core->vk.GetMemoryHostPointerPropertiesEXT)
        return rf_fail(RF_ENOTSUP,
                       "%s cannot import host memory: its driver does not offer "
                       "VK_EXT_external_memory_host; copy into a buffer of RF_MEMORY_HOST",
                       device->info.name);
    if (bytes == 0 || bytes % grain || (uintptr_t)memory % grain)
        return rf_fail(RF_EINVAL,
                       "import: %llu bytes at %p: address and size must be multiples of %llu "
                       "(rf_device_get_info: min_import_alignment)",
                       (unsigned long long)bytes, memory, (unsigned long long)grain);
    if (bytes > device->info.max_allocation_bytes)
        return rf_fail(RF_ENOMEM, "import: %llu bytes are more than %s allows (%llu)",
                       (unsigned long long)bytes, device->info.name,
                       (unsigned long long)device->info.max_allocation_bytes);
    return 0;
}

/* A memory type that buffer and pointer have in common, and that needs no flushing. */
static int choose_type(const struct rf_device *device, uint32_t bits, uint32_t *type)
{
    VkPhysicalDeviceMemoryProperties memory;
    device->core->instance.GetPhysicalDeviceMemoryProperties(device->core->physical, &memory);
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++)
        if (bits >> i & 1 && (memory.memoryTypes[i].propertyFlags & COHERENT) == COHERENT) {
            *type = i;
            return 0;
        }
    return rf_fail(RF_ENOTSUP, "import: %s has no coherent memory type for this memory",
                   device->info.name);
}

static int bind(struct rf_buffer *buffer, void *memory)
{
    struct rf_device *device = buffer->device;
    const struct rf_vk_functions *vk = &device->core->vk;
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = HANDLE};
    VkBufferCreateInfo create = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                 .pNext = &external,
                                 .size = buffer->bytes,
                                 .usage = rf_buffer_usage(device)};
    VkResult result = vk->CreateBuffer(device->core->handle, &create, NULL, &buffer->handle);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "making a buffer for host memory");
    VkMemoryHostPointerPropertiesEXT pointer = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    VkMemoryRequirements needs;
    vk->GetBufferMemoryRequirements(device->core->handle, buffer->handle, &needs);
    result = vk->GetMemoryHostPointerPropertiesEXT(device->core->handle, HANDLE, memory, &pointer);
    if (result != VK_SUCCESS || needs.size > buffer->bytes)
        return rf_fail(RF_ENOTSUP, "import: %s does not take %llu bytes of this memory",
                       device->info.name, (unsigned long long)buffer->bytes);
    VkImportMemoryHostPointerInfoEXT import = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = HANDLE,
        .pHostPointer = memory};
    VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                       .pNext = &import,
                                       .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = &flags,
                                 .allocationSize = buffer->bytes};
    RETURN_IF_ERROR(
        choose_type(device, pointer.memoryTypeBits & needs.memoryTypeBits, &info.memoryTypeIndex));
    result = vk->AllocateMemory(device->core->handle, &info, NULL, &buffer->memory);
    if (result == VK_ERROR_INVALID_EXTERNAL_HANDLE)
        return rf_fail(
            RF_ENOTSUP,
            "import: %s refuses this memory; memory mapped from a file is one possible reason",
            device->info.name);
    if (result == VK_SUCCESS)
        result = vk->BindBufferMemory(device->core->handle, buffer->handle, buffer->memory, 0);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "importing host memory");
    buffer->map = memory;
    buffer->address = rf_buffer_ask_address(buffer);
    if (buffer->address % RF_ADDRESS_ALIGNMENT)
        return rf_fail(RF_ENOTSUP,
                       "import: %s gives this memory an address that kernels cannot "
                       "use (%#llx)",
                       device->info.name, (unsigned long long)buffer->address);
    return 0;
}

int rf_buffer_import(struct rf_device *device, void *memory, uint64_t bytes, struct rf_buffer **out)
{
    if (!device || !memory || !out)
        return rf_fail(RF_EINVAL,
                       "rf_buffer_import needs a device, memory and a pointer for its result");
    RETURN_IF_ERROR(check(device, memory, bytes));
    struct rf_buffer *buffer = rf_alloc(sizeof(*buffer));
    if (!buffer)
        return rf_fail(RF_ENOMEM, "no memory for a buffer's record");
    *buffer = (struct rf_buffer){.device = device, .bytes = bytes};
    int rc = bind(buffer, memory);
    if (rc == 0)
        rc = rf_ranges_add_buffer(buffer);
    if (rc < 0) {
        rf_buffer_destroy(buffer);
        return rc;
    }
    *out = buffer;
    return 0;
}
