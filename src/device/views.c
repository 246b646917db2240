/* SPDX-License-Identifier: MIT
 *
 * Texel views: on CPU drivers, kernels read float tensors through them. These drivers gather texels
 * without a branch, but process the lanes one by one for every element at an address (4 to 5 times
 * slower in a matmul). ops/ uses them through device.h. Kernels are correct without them, and GPUs
 * do not use them.
 *
 * A view covers a window of its buffer, because a driver limits the texels of a view. Windows
 * overlap by half, so a range of at most half a window is always inside one.
 */
#include "internal.h"

struct rf_buffer_view {
    struct rf_buffer_view *next;
    VkBufferView handle;
    uint32_t components;
    uint64_t window;
};

static uint64_t texel_bytes(const struct rf_view *view)
{
    return 4 * (uint64_t)view->components;
}

/* Bytes from the start of one window to the next: half a window. */
static uint64_t stride(const struct rf_device *device, const struct rf_view *view)
{
    return device->caps.max_texels / 2 * texel_bytes(view) / 65536 * 65536;
}

bool rf_device_has_views(const struct rf_device *device)
{
    return device->caps.views;
}

void rf_device_limit_views(struct rf_device *device, uint32_t texels)
{
    device->caps.max_texels = texels;
    device->caps.max_storage_range = texels;
}

int rf_views_open(struct rf_device *device)
{
    if (!device->caps.views)
        return 0;
    VkDescriptorSetLayoutBinding bindings[RF_MAX_VIEWS + RF_MAX_WRITTEN];
    for (uint32_t i = 0; i < RF_MAX_VIEWS + RF_MAX_WRITTEN; i++)
        bindings[i] = (VkDescriptorSetLayoutBinding){i,
                                                     i < RF_MAX_VIEWS
                                                         ? VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER
                                                         : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                                     1, VK_SHADER_STAGE_COMPUTE_BIT, NULL};
    VkDescriptorSetLayoutCreateInfo create = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .flags = VK_DESCRIPTOR_SET_LAYOUT_CREATE_PUSH_DESCRIPTOR_BIT_KHR,
        .bindingCount = RF_MAX_VIEWS + RF_MAX_WRITTEN,
        .pBindings = bindings};
    VkResult result = device->core->vk.CreateDescriptorSetLayout(device->core->handle, &create,
                                                                 NULL, &device->core->view_layout);
    return result == VK_SUCCESS ? 0 : rf_vk_fail(result, "making the layout of views");
}

void rf_views_close(struct rf_device *device)
{
    if (device->core->view_layout)
        device->core->vk.DestroyDescriptorSetLayout(device->core->handle, device->core->view_layout,
                                                    NULL);
    device->core->view_layout = VK_NULL_HANDLE;
}

void rf_views_release(struct rf_buffer *buffer)
{
    struct rf_device *device = buffer->device;
    for (struct rf_buffer_view *view = buffer->views, *next; view; view = next) {
        next = view->next;
        device->core->vk.DestroyBufferView(device->core->handle, view->handle, NULL);
        rf_free(view);
    }
    buffer->views = NULL;
}

bool rf_view_first(const struct rf_view *view, uint32_t *first)
{
    struct rf_device *device = view->buffer->device;
    uint64_t texel = texel_bytes(view), at = view->buffer->shift + view->offset;
    if (!device->caps.views || at % texel || view->bytes % texel ||
        view->bytes > stride(device, view))
        return false;
    *first = (uint32_t)(at % stride(device, view) / texel);
    return true;
}

uint64_t rf_view_writable(const struct rf_view *view)
{
    struct rf_device *device = view->buffer->device;
    uint64_t at = view->buffer->shift + view->offset;
    if (!device->caps.wide_writes || at % 16 || at % device->caps.storage_alignment)
        return 0;
    return device->caps.max_storage_range / 65536 * 65536;
}

/* The Vulkan view of the window; created once per buffer. Called with the memory lock held. */
static VkResult find_view(const struct rf_view *view, VkBufferView *out)
{
    struct rf_buffer *buffer = view->buffer;
    struct rf_device *device = buffer->device;
    uint64_t step = stride(device, view), window = (buffer->shift + view->offset) / step;
    for (struct rf_buffer_view *old = buffer->views; old; old = old->next) {
        if (old->components == view->components && old->window == window) {
            *out = old->handle;
            return VK_SUCCESS;
        }
    }
    static const VkFormat formats[] = {[1] = VK_FORMAT_R32_SFLOAT,
                                       [2] = VK_FORMAT_R32G32_SFLOAT,
                                       [4] = VK_FORMAT_R32G32B32A32_SFLOAT};
    struct rf_buffer_view *made = rf_alloc(sizeof(*made));
    if (!made)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    uint64_t rest = (buffer->shift + buffer->bytes - window * step) / texel_bytes(view);
    uint64_t most = 2 * step / texel_bytes(view);
    VkBufferViewCreateInfo create = {.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO,
                                     .buffer = buffer->handle,
                                     .format = formats[view->components],
                                     .offset = window * step,
                                     .range = (rest < most ? rest : most) * texel_bytes(view)};
    VkResult result =
        device->core->vk.CreateBufferView(device->core->handle, &create, NULL, &made->handle);
    if (result != VK_SUCCESS) {
        rf_free(made);
        return result;
    }
    made->components = view->components;
    made->window = window;
    made->next = buffer->views;
    buffer->views = made;
    *out = made->handle;
    return VK_SUCCESS;
}

/* Pushes the storage buffers that the launch writes. */
static int bind_written(struct rf_device *device, VkCommandBuffer commands,
                        const struct rf_kernel *kernel, const struct rf_view *views, uint32_t count)
{
    VkDescriptorBufferInfo infos[RF_MAX_WRITTEN];
    if (count > RF_MAX_WRITTEN)
        return rf_fail(RF_EINVAL, "%s writes up to %d storage buffers, not %u", kernel->name,
                       RF_MAX_WRITTEN, count);
    for (uint32_t i = 0; i < count; i++) {
        if (views[i].components != 0 || rf_view_writable(&views[i]) < views[i].bytes)
            return rf_fail(RF_ENOTSUP, "%s: no storage buffer of %llu bytes at %llu", kernel->name,
                           (unsigned long long)views[i].bytes, (unsigned long long)views[i].offset);
        infos[i] = (VkDescriptorBufferInfo){
            views[i].buffer->handle, views[i].buffer->shift + views[i].offset, views[i].bytes};
    }
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .dstBinding = RF_MAX_VIEWS,
                                  .descriptorCount = count,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                  .pBufferInfo = infos};
    if (count > 0)
        device->core->vk.CmdPushDescriptorSetKHR(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                                                 kernel->layout, 0, 1, &write);
    return 0;
}

int rf_views_bind(struct rf_device *device, VkCommandBuffer commands,
                  const struct rf_kernel *kernel, const struct rf_view *views, uint32_t all)
{
    uint32_t count = 0; /* of texel views, which come first */
    while (count < all && views[count].components > 0)
        count++;
    VkBufferView handles[RF_MAX_VIEWS];
    if (count == 0 || count > RF_MAX_VIEWS)
        return rf_fail(RF_EINVAL, "%s reads through 1 to %d views, not %u", kernel->name,
                       RF_MAX_VIEWS, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first;
        if (!rf_view_first(&views[i], &first))
            return rf_fail(RF_ENOTSUP, "%s: no view of %llu bytes at %llu with %u components",
                           kernel->name, (unsigned long long)views[i].bytes,
                           (unsigned long long)views[i].offset, views[i].components);
        pthread_mutex_lock(&device->memory_lock);
        VkResult result = find_view(&views[i], &handles[i]);
        pthread_mutex_unlock(&device->memory_lock);
        if (result != VK_SUCCESS)
            return rf_vk_fail(result, "making a view of a buffer");
    }
    /* A variant declares bindings that its constants leave unread. These need a view, too. */
    for (uint32_t i = count; i < RF_MAX_VIEWS; i++)
        handles[i] = handles[0];
    VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                  .descriptorCount = RF_MAX_VIEWS,
                                  .descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER,
                                  .pTexelBufferView = handles};
    device->core->vk.CmdPushDescriptorSetKHR(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                                             kernel->layout, 0, 1, &write);
    return bind_written(device, commands, kernel, views + count, all - count);
}
