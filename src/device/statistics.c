/* SPDX-License-Identifier: MIT
 *
 * The compiler's statistics of the device's kernels: registers, spills, shared memory, occupancy.
 * For devices opened with opts.kernel_statistics. Every driver has its own names.
 */
#include <stddef.h>

#include "internal.h"

/* The drivers' names of the figures. If a driver uses several names, the first row counts. */
static const struct {
    const char *name;
    size_t figure; /* its offset in struct rf_kernel_figures */
} names[] = {
#define FIGURE(name, member)                                                                       \
    {                                                                                              \
        name, offsetof(struct rf_kernel_figures, member)                                           \
    }
    FIGURE("Subgroup size", subgroup), /* of rf_kernel_statistics, for all drivers */
    /* RADV. Scalar registers are spilled to vector registers and not to memory. */
    FIGURE("VGPRs", registers),
    FIGURE("Spilled VGPRs", spills),
    FIGURE("Scratch size", scratch_bytes),
    FIGURE("LDS size", shared_bytes),
    FIGURE("Subgroups per SIMD", occupancy),
    /* ANV */
    FIGURE("Max live registers", registers),
    FIGURE("Spills", spills), /* from Mesa 26 */
    FIGURE("Spill Count", spills),
    FIGURE("Scratch Memory Size", scratch_bytes),
    FIGURE("Workgroup Memory Size", shared_bytes),
    /* NVK. "Spills to reg" stay in registers; SLM is the local memory of an invocation. */
    FIGURE("Number of GPRs", registers),
    FIGURE("Spills to memory", spills),
    FIGURE("SLM size", scratch_bytes),
    FIGURE("Max warps/SM", occupancy),
    /* Turnip: STP stores to the private memory of an invocation. */
    FIGURE("Registers used", registers),
    FIGURE("STP Count", spills),
    FIGURE("Max Waves Per Core", occupancy),
    /* several drivers */
    FIGURE("Instructions", instructions),
    FIGURE("Instruction count", instructions),
    FIGURE("Instruction Count", instructions),
#undef FIGURE
};

static double value_of(const VkPipelineExecutableStatisticKHR *statistic)
{
    switch (statistic->format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
        return statistic->value.b32;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
        return (double)statistic->value.i64;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
        return (double)statistic->value.u64;
    default:
        return statistic->value.f64;
    }
}

uint32_t rf_kernel_statistics(const struct rf_kernel *kernel, struct rf_kernel_statistic *out,
                              uint32_t capacity)
{
    const struct rf_core *core = kernel->core;
    const struct rf_vk_functions *vk = &core->vk;
    VkPipelineExecutablePropertiesKHR executable = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
    VkPipelineExecutableStatisticKHR list[RF_MAX_STATISTICS];
    uint32_t executables = 1, found = RF_MAX_STATISTICS, count = 0;
    VkPipelineInfoKHR pipeline = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR,
                                  .pipeline = kernel->pipeline};
    VkPipelineExecutableInfoKHR first = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                         .pipeline = kernel->pipeline};
    if (!kernel->captured)
        return 0;
    for (uint32_t i = 0; i < RF_MAX_STATISTICS; i++)
        list[i] = (VkPipelineExecutableStatisticKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    /* A compute pipeline has one executable. */
    if (vk->GetPipelineExecutablePropertiesKHR(core->handle, &pipeline, &executables, &executable) <
            0 ||
        executables == 0 ||
        vk->GetPipelineExecutableStatisticsKHR(core->handle, &first, &found, list) < 0)
        return 0;
    if (capacity > 0) {
        snprintf(out[0].name, sizeof(out[0].name), "Subgroup size");
        out[count++].value = executable.subgroupSize;
    }
    for (uint32_t i = 0; i < found && count < capacity; i++, count++) {
        snprintf(out[count].name, sizeof(out[count].name), "%.*s", (int)sizeof(out[count].name) - 1,
                 list[i].name);
        out[count].value = value_of(&list[i]);
    }
    return count;
}

bool rf_kernel_figures_of(const struct rf_kernel_statistic *list, uint32_t count,
                          struct rf_kernel_figures *out)
{
    *out = (struct rf_kernel_figures){-1, -1, -1, -1, -1, -1, -1};
    for (size_t row = 0; row < sizeof(names) / sizeof(names[0]); row++) {
        int64_t *figure = (int64_t *)((char *)out + names[row].figure);
        for (uint32_t i = 0; i < count && *figure < 0; i++)
            if (strcmp(list[i].name, names[row].name) == 0)
                *figure = (int64_t)list[i].value;
    }
    return out->spills >= 0 || out->scratch_bytes >= 0;
}

bool rf_kernel_get_figures(const struct rf_kernel *kernel, struct rf_kernel_figures *out)
{
    struct rf_kernel_statistic list[RF_MAX_STATISTICS];
    return rf_kernel_figures_of(list, rf_kernel_statistics(kernel, list, RF_MAX_STATISTICS), out);
}
