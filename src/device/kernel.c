/* SPDX-License-Identifier: MIT
 *
 * Creates compute pipelines from SPIR-V, push constants and specialization constants; keeps a
 * core's table of the library's own kernels.
 */
#include "glsl.h"
#include "internal.h"

#define MAX_SPECS 20

static int check_desc(const struct rf_device *device, const struct rf_kernel_desc *desc)
{
    const struct rf_device_info *info = &device->info;
    const struct rf_device_caps *caps = &device->caps;
    if (!desc->name)
        return rf_fail(RF_EINVAL, "a kernel needs a name");
    if (desc->push_bytes % 4 || desc->push_bytes > info->max_push_bytes)
        return rf_fail(RF_EINVAL,
                       "%s: %u bytes of push constants; %s takes multiples of 4 up to %u",
                       desc->name, desc->push_bytes, info->name, info->max_push_bytes);
    if (desc->spec_count > MAX_SPECS || (desc->spec_count && !desc->specs))
        return rf_fail(RF_EINVAL, "%s: %u specialization constants; at most %d are taken",
                       desc->name, desc->spec_count, MAX_SPECS);
    uint32_t size = desc->subgroup_size;
    if (size && size != info->subgroup_size &&
        (!caps->subgroup_size_control || size < caps->subgroup_min || size > caps->subgroup_max ||
         (size & (size - 1))))
        return rf_fail(RF_ENOTSUP, "%s needs subgroups of %u; %s offers %u to %u", desc->name, size,
                       info->name,
                       caps->subgroup_size_control ? caps->subgroup_min : info->subgroup_size,
                       caps->subgroup_size_control ? caps->subgroup_max : info->subgroup_size);
    return rf_spirv_check(device, desc);
}

static VkResult make_pipeline(struct rf_kernel *kernel, const struct rf_kernel_desc *desc,
                              VkShaderModule module)
{
    struct rf_device *device = kernel->device;
    struct rf_core *core = kernel->core;
    VkSpecializationMapEntry entries[MAX_SPECS];
    uint32_t values[MAX_SPECS];
    for (uint32_t i = 0; i < desc->spec_count; i++) {
        entries[i] = (VkSpecializationMapEntry){desc->specs[i].id, i * 4, 4};
        values[i] = desc->specs[i].value;
    }
    VkSpecializationInfo specs = {desc->spec_count, entries, desc->spec_count * 4, values};
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, desc->push_bytes};
    VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .setLayoutCount = kernel->views ? 1 : 0,
                                         .pSetLayouts = &core->view_layout,
                                         .pushConstantRangeCount = desc->push_bytes ? 1 : 0,
                                         .pPushConstantRanges = &range};
    VkResult result = core->vk.CreatePipelineLayout(core->handle, &layout, NULL, &kernel->layout);
    if (result != VK_SUCCESS)
        return result;
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT subgroup = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT,
        .requiredSubgroupSize = desc->subgroup_size};
    bool sized = desc->subgroup_size && device->caps.subgroup_size_control &&
                 device->caps.subgroup_min < device->caps.subgroup_max;
    /* The invocations of a subgroup share matrices, so all must be active. */
    bool full = device->caps.full_subgroups && rf_spirv_declares(desc, RF_SPIRV_COOPERATIVE_MATRIX);
    VkComputePipelineCreateInfo create = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = sized ? &subgroup : NULL,
                  .flags =
                      full ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT : 0,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = desc->spec_count ? &specs : NULL},
        .layout = kernel->layout};
    if (kernel->captured)
        create.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
    return core->vk.CreateComputePipelines(core->handle, core->cache, 1, &create, NULL,
                                           &kernel->pipeline);
}

static int create_of_spirv(struct rf_device *device, const struct rf_kernel_desc *desc,
                           bool capture, struct rf_kernel **out)
{
    RETURN_IF_ERROR(check_desc(device, desc));
    struct rf_kernel *kernel = rf_alloc(sizeof(*kernel));
    if (!kernel)
        return rf_fail(RF_ENOMEM, "no memory for kernel %s", desc->name);
    kernel->core = device->core;
    kernel->device = device;
    kernel->captured = capture && device->core->has_statistics;
    kernel->push_bytes = desc->push_bytes;
    kernel->views = rf_spirv_declares(desc, RF_SPIRV_SAMPLED_BUFFER);
    snprintf(kernel->name, sizeof(kernel->name), "%s", desc->name);
    if (device->counting) {
        *out = kernel;
        return 0;
    }
    VkShaderModuleCreateInfo create = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                       .codeSize = desc->spirv_bytes,
                                       .pCode = desc->spirv};
    VkShaderModule module = VK_NULL_HANDLE;
    VkResult result =
        device->core->vk.CreateShaderModule(device->core->handle, &create, NULL, &module);
    if (result == VK_SUCCESS)
        result = make_pipeline(kernel, desc, module);
    if (module)
        device->core->vk.DestroyShaderModule(device->core->handle, module, NULL);
    if (result != VK_SUCCESS) {
        char what[96];
        snprintf(what, sizeof(what), "compiling the kernel %s", desc->name);
        rf_kernel_destroy(kernel);
        return rf_vk_fail(result, what);
    }
    *out = kernel;
    return 0;
}

static int create_of_glsl(struct rf_device *device, const struct rf_kernel_desc *desc,
                          struct rf_kernel **out)
{
    struct rf_kernel_desc compiled = *desc;
    uint32_t *spirv = NULL;
    if (!desc->name)
        return rf_fail(RF_EINVAL, "a kernel needs a name");
    if (desc->spirv)
        return rf_fail(RF_EINVAL, "%s: give a kernel as GLSL or as SPIR-V, not both", desc->name);
    RETURN_IF_ERROR(rf_glsl_compile(desc->name, desc->glsl, &spirv, &compiled.spirv_bytes));
    compiled.spirv = spirv;
    const int rc = create_of_spirv(device, &compiled, device->opts.kernel_statistics, out);
    rf_free(spirv);
    return rc;
}

int rf_kernel_create(struct rf_device *device, const struct rf_kernel_desc *desc,
                     struct rf_kernel **out)
{
    if (!device || !desc || !out)
        return rf_fail(
            RF_EINVAL,
            "rf_kernel_create needs a device, a description and a pointer for its result");
    RETURN_IF_ERROR(rf_device_check(device));
    return desc->glsl ? create_of_glsl(device, desc, out)
                      : create_of_spirv(device, desc, device->opts.kernel_statistics, out);
}

int rf_kernel_create_captured(struct rf_device *device, const struct rf_kernel_desc *desc,
                              struct rf_kernel **out)
{
    RETURN_IF_ERROR(rf_device_check(device));
    return create_of_spirv(device, desc, true, out);
}

void rf_kernel_destroy(struct rf_kernel *kernel)
{
    if (!kernel)
        return;
    const struct rf_core *core = kernel->core;
    if (kernel->device) /* those of the table outlive all recordings */
        rf_recordings_lose_kernel(kernel->device, kernel);
    if (kernel->pipeline)
        core->vk.DestroyPipeline(core->handle, kernel->pipeline, NULL);
    if (kernel->layout)
        core->vk.DestroyPipelineLayout(core->handle, kernel->layout, NULL);
    rf_free(kernel);
}

/* ---- the core's table: open addressing, keyed by module and constants ---------------------- */

struct rf_kernel_slot {
    const uint32_t *spirv;
    uint32_t push_bytes, subgroup_size, spec_count, hash;
    struct rf_spec specs[MAX_SPECS];
    struct rf_kernel *kernel; /* NULL while it is being compiled */
};

static uint32_t hash_desc(const struct rf_kernel_desc *desc)
{
    uint64_t h = (uint64_t)(uintptr_t)desc->spirv;
    h = (h ^ desc->push_bytes) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 29) ^ desc->subgroup_size) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < desc->spec_count; i++)
        h = (h ^ (h >> 29) ^ desc->specs[i].id ^ ((uint64_t)desc->specs[i].value << 32)) *
            0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

static bool same(const struct rf_kernel_slot *slot, const struct rf_kernel_desc *desc)
{
    return slot->spirv == desc->spirv && slot->push_bytes == desc->push_bytes &&
           slot->subgroup_size == desc->subgroup_size && slot->spec_count == desc->spec_count &&
           (desc->spec_count == 0 ||
            memcmp(slot->specs, desc->specs, desc->spec_count * sizeof(*desc->specs)) == 0);
}

/* The slot of the kernel, or the free one for it. The table is never full. */
static struct rf_kernel_slot **place_of(const struct rf_kernel_table *table, uint32_t hash,
                                        const struct rf_kernel_desc *desc)
{
    for (uint32_t i = hash;; i++) {
        struct rf_kernel_slot **slot = &table->slots[i & (table->capacity - 1)];
        if (!*slot || (desc && (*slot)->hash == hash && same(*slot, desc)))
            return slot;
    }
}

static int resize(struct rf_kernel_table *table, uint32_t capacity)
{
    struct rf_kernel_table wider = {.capacity = capacity};
    wider.slots = rf_alloc(capacity * sizeof(*wider.slots));
    if (!wider.slots)
        return rf_fail(RF_ENOMEM, "no memory for the table of kernels");
    for (uint32_t i = 0; i < table->capacity; i++) {
        if (table->slots[i])
            *place_of(&wider, table->slots[i]->hash, NULL) = table->slots[i];
    }
    rf_free(table->slots);
    table->slots = wider.slots;
    table->capacity = capacity;
    return 0;
}

/* Removing an entry moves the entries after it, so these are inserted again. Only after a failed
 * compilation. */
static void remove_slot(struct rf_kernel_table *table, struct rf_kernel_slot *slot)
{
    for (uint32_t i = 0; i < table->capacity; i++) {
        if (table->slots[i] == slot)
            table->slots[i] = NULL;
    }
    table->count--;
    rf_free(slot);
    for (uint32_t i = 0; i < table->capacity; i++) {
        struct rf_kernel_slot *moved = table->slots[i];
        if (!moved)
            continue;
        table->slots[i] = NULL;
        *place_of(table, moved->hash, NULL) = moved;
    }
}

/* Compiles without the lock, so that lookups do not wait. */
static int compile(struct rf_device *device, const struct rf_kernel_desc *desc, uint32_t hash,
                   struct rf_kernel **out)
{
    struct rf_kernel_table *table = &device->core->kernels;
    struct rf_kernel_slot *slot = rf_alloc(sizeof(*slot));
    if (!slot)
        return rf_fail(RF_ENOMEM, "no memory for kernel %s", desc->name);
    *slot = (struct rf_kernel_slot){.spirv = desc->spirv,
                                    .push_bytes = desc->push_bytes,
                                    .subgroup_size = desc->subgroup_size,
                                    .spec_count = desc->spec_count,
                                    .hash = hash};
    if (desc->spec_count)
        memcpy(slot->specs, desc->specs, desc->spec_count * sizeof(*desc->specs));
    *place_of(table, hash, desc) = slot;
    table->count++;
    pthread_mutex_unlock(&table->lock);
    struct rf_kernel *kernel = NULL;
    int rc = rf_kernel_create(device, desc, &kernel);
    pthread_mutex_lock(&table->lock);
    if (rc == 0) {
        kernel->device = NULL;
        *out = slot->kernel = kernel;
    } else
        remove_slot(table, slot);
    pthread_cond_broadcast(&table->compiled);
    return rc;
}

int rf_device_kernel(struct rf_device *device, const struct rf_kernel_desc *desc,
                     struct rf_kernel **out)
{
    struct rf_kernel_table *table = &device->core->kernels;
    if (desc->spec_count > MAX_SPECS)
        return check_desc(device, desc);
    uint32_t hash = hash_desc(desc);
    int rc = 0;
    pthread_mutex_lock(&table->lock);
    for (;;) {
        struct rf_kernel_slot *slot = *place_of(table, hash, desc);
        if (slot && slot->kernel) {
            *out = slot->kernel;
            break;
        }
        if (slot) { /* another thread compiles it; if that fails, the slot is removed and this
                     * thread tries */
            pthread_cond_wait(&table->compiled, &table->lock);
            continue;
        }
        if (4 * (table->count + 1) > 3 * table->capacity)
            rc = resize(table, 2 * table->capacity);
        if (rc == 0)
            rc = compile(device, desc, hash, out);
        break;
    }
    pthread_mutex_unlock(&table->lock);
    return rc;
}

void rf_device_each_kernel(struct rf_device *device,
                           void (*visit)(void *user, const struct rf_kernel_desc *desc,
                                         const struct rf_kernel *kernel),
                           void *user)
{
    struct rf_kernel_table *table = &device->core->kernels;
    pthread_mutex_lock(&table->lock);
    for (uint32_t i = 0; i < table->capacity; i++) {
        const struct rf_kernel_slot *slot = table->slots[i];
        if (!slot || !slot->kernel)
            continue;
        struct rf_kernel_desc desc = {.name = slot->kernel->name,
                                      .spirv = slot->spirv,
                                      .specs = slot->specs,
                                      .spec_count = slot->spec_count,
                                      .push_bytes = slot->push_bytes,
                                      .subgroup_size = slot->subgroup_size};
        visit(user, &desc, slot->kernel);
    }
    pthread_mutex_unlock(&table->lock);
}

int rf_kernels_open(struct rf_core *core)
{
    pthread_mutex_init(&core->kernels.lock, NULL);
    pthread_cond_init(&core->kernels.compiled, NULL);
    return resize(&core->kernels, 64);
}

void rf_kernels_close(struct rf_core *core)
{
    struct rf_kernel_table *table = &core->kernels;
    for (uint32_t i = 0; i < table->capacity; i++) {
        if (table->slots[i]) {
            rf_kernel_destroy(table->slots[i]->kernel);
            rf_free(table->slots[i]);
        }
    }
    rf_free(table->slots);
    table->slots = NULL;
    table->capacity = 0;
    pthread_cond_destroy(&table->compiled);
    pthread_mutex_destroy(&table->lock);
}
