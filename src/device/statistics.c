/* SPDX-License-Identifier: MIT
 *
 * What the driver's compiler says of the device's kernels: registers, spills, shared memory,
 * occupancy. For devices opened with opts.kernel_statistics; used by the tests' table of pipelines.
 */
#include "internal.h"

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
    const struct rf_device *device = kernel->device;
    const struct rf_vk_functions *vk = &device->vk;
    VkPipelineExecutablePropertiesKHR executable = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
    VkPipelineExecutableStatisticKHR list[RF_MAX_STATISTICS];
    uint32_t executables = 1, found = RF_MAX_STATISTICS, count = 0;
    VkPipelineInfoKHR pipeline = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR,
                                  .pipeline = kernel->pipeline};
    VkPipelineExecutableInfoKHR first = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                         .pipeline = kernel->pipeline};
    if (!device->opts.kernel_statistics || !device->caps.ext_executable_properties)
        return 0;
    for (uint32_t i = 0; i < RF_MAX_STATISTICS; i++)
        list[i] = (VkPipelineExecutableStatisticKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
    /* A compute pipeline has one executable. */
    if (vk->GetPipelineExecutablePropertiesKHR(device->handle, &pipeline, &executables,
                                               &executable) < 0 ||
        executables == 0 ||
        vk->GetPipelineExecutableStatisticsKHR(device->handle, &first, &found, list) < 0)
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
