/* SPDX-License-Identifier: MIT
 *
 * Each file has a line for the driver and the device, and one for each pipeline, sorted by hash:
 * HASH and the figures of struct rf_kernel_figures, -1 if the driver does not report one.
 */
#include "kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8192, FIGURES = 7, MOST_BYTES = 64 };

static const size_t figure_at[FIGURES] = {offsetof(struct rf_kernel_figures, subgroup),
                                          offsetof(struct rf_kernel_figures, registers),
                                          offsetof(struct rf_kernel_figures, spills),
                                          offsetof(struct rf_kernel_figures, scratch_bytes),
                                          offsetof(struct rf_kernel_figures, shared_bytes),
                                          offsetof(struct rf_kernel_figures, occupancy),
                                          offsetof(struct rf_kernel_figures, instructions)};
/* The names that statistics.c knows; the subgroup's size is not a statistic. */
static const char *const figure_names[FIGURES] = {NULL,           "VGPRs",    "Spilled VGPRs",
                                                  "Scratch size", "LDS size", "Subgroups per SIMD",
                                                  "Instructions"};

struct pipeline {
    uint64_t hash;
    int64_t figures[FIGURES];
    bool met;
};

static struct {
    struct rf_device *device;
    struct rf_vk_functions vk; /* the driver's own */
    char head[MOST_BYTES];
    struct pipeline list[MOST];
    uint32_t count, compiled;
    uint64_t module, layout; /* hashes of the modules and layouts created last, for the next
                              * pipeline */
} kept;

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 1099511628211u; /* FNV-1a */
    return hash;
}

static uint64_t mix_number(uint64_t hash, uint64_t number)
{
    return mix(hash, &number, sizeof(number));
}

static struct pipeline *find(uint64_t hash)
{
    for (uint32_t i = 0; i < kept.count; i++)
        if (kept.list[i].hash == hash)
            return &kept.list[i];
    return NULL;
}

/* The pipeline behind one of this file's handles; NULL: the handle is the driver's. */
static const struct pipeline *pipeline_of(VkPipeline handle)
{
    uint64_t number = 0;
    memcpy(&number, &handle, sizeof(handle));
    const uint64_t first = (uint64_t)(uintptr_t)kept.list;
    return number >= first && number < first + sizeof(kept.list)
               ? (const struct pipeline *)(uintptr_t)number
               : NULL;
}

/* ---- in place of the driver's functions ------------------------------------------------------ */

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice device,
                                                    const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkShaderModule *out)
{
    kept.module = mix(14695981039346656037u, info->pCode, info->codeSize);
    return kept.vk.CreateShaderModule(device, info, allocator, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_layout(VkDevice device,
                                                    const VkPipelineLayoutCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkPipelineLayout *out)
{
    kept.layout = info->setLayoutCount;
    for (uint32_t i = 0; i < info->pushConstantRangeCount; i++)
        kept.layout = mix_number(kept.layout, info->pPushConstantRanges[i].size);
    return kept.vk.CreatePipelineLayout(device, info, allocator, out);
}

static uint64_t hash_of(const VkComputePipelineCreateInfo *info)
{
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT *sized = info->stage.pNext;
    const VkSpecializationInfo *specs = info->stage.pSpecializationInfo;
    uint64_t hash = mix_number(kept.module, kept.layout);
    hash = mix_number(hash, info->flags);
    hash = mix_number(hash, info->stage.flags);
    hash = mix_number(hash, sized ? sized->requiredSubgroupSize : 0);
    for (uint32_t i = 0; specs && i < specs->mapEntryCount; i++) {
        const VkSpecializationMapEntry *entry = &specs->pMapEntries[i];
        hash = mix_number(hash, entry->constantID);
        hash = mix(hash, (const char *)specs->pData + entry->offset, entry->size);
    }
    return hash;
}

static void keep(uint64_t hash, VkPipeline handle)
{
    const struct rf_kernel kernel = {
        .core = kept.device->core, .pipeline = handle, .captured = true};
    struct rf_kernel_figures figures;
    kept.compiled++;
    if (kept.count == MOST || !rf_kernel_get_figures(&kernel, &figures))
        return;
    struct pipeline *p = &kept.list[kept.count++];
    *p = (struct pipeline){.hash = hash, .met = true};
    for (int i = 0; i < FIGURES; i++)
        p->figures[i] = *(const int64_t *)((const char *)&figures + figure_at[i]);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache,
                                                       uint32_t count,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkPipeline *out)
{
    const uint64_t hash = hash_of(infos);
    struct pipeline *p = find(hash);
    if (count == 1 && p) {
        const uint64_t number = (uint64_t)(uintptr_t)p;
        p->met = true;
        memcpy(out, &number, sizeof(*out));
        return VK_SUCCESS;
    }
    const VkResult result =
        kept.vk.CreateComputePipelines(device, cache, count, infos, allocator, out);
    if (count == 1 && result == VK_SUCCESS)
        keep(hash, *out);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_pipeline(VkDevice device, VkPipeline handle,
                                                   const VkAllocationCallbacks *allocator)
{
    if (!pipeline_of(handle))
        kept.vk.DestroyPipeline(device, handle, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL get_properties(VkDevice device, const VkPipelineInfoKHR *info,
                                                     uint32_t *count,
                                                     VkPipelineExecutablePropertiesKHR *out)
{
    const struct pipeline *p = pipeline_of(info->pipeline);
    if (!p)
        return kept.vk.GetPipelineExecutablePropertiesKHR(device, info, count, out);
    *count = 1;
    if (out)
        out->subgroupSize = (uint32_t)p->figures[0];
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL get_statistics(VkDevice device,
                                                     const VkPipelineExecutableInfoKHR *info,
                                                     uint32_t *count,
                                                     VkPipelineExecutableStatisticKHR *out)
{
    const struct pipeline *p = pipeline_of(info->pipeline);
    uint32_t used = 0;
    if (!p)
        return kept.vk.GetPipelineExecutableStatisticsKHR(device, info, count, out);
    for (int i = 1; i < FIGURES && used < *count; i++) {
        if (p->figures[i] < 0)
            continue;
        snprintf(out[used].name, sizeof(out[used].name), "%s", figure_names[i]);
        out[used].format = VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR;
        out[used++].value.i64 = p->figures[i];
    }
    *count = used;
    return VK_SUCCESS;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool read_line(const char *line, struct pipeline *out)
{
    unsigned long long hash = 0;
    int used = 0;
    if (sscanf(line, "%16llx%n", &hash, &used) != 1)
        return false;
    out->hash = hash;
    for (int i = 0; i < FIGURES; i++) {
        long long number = 0;
        int more = 0;
        if (sscanf(line + used, " %lld%n", &number, &more) != 1)
            return false;
        out->figures[i] = number;
        used += more;
    }
    return true;
}

/* A file of another driver is ignored. */
static void read_file(const char *path)
{
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    if (file && fgets(line, sizeof(line), file) && strcmp(line, kept.head) == 0)
        while (kept.count < MOST && fgets(line, sizeof(line), file)) {
            struct pipeline p = {0};
            if (read_line(line, &p) && !find(p.hash))
                kept.list[kept.count++] = p;
        }
    if (file)
        fclose(file);
}

static int by_hash(const void *a, const void *b)
{
    const uint64_t x = ((const struct pipeline *)a)->hash, y = ((const struct pipeline *)b)->hash;
    return x < y ? -1 : x > y;
}

/* Mesa makes this identifier from the hardware's device and the driver's build. */
static void write_head(void)
{
    VkPhysicalDeviceProperties2 about = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    char text[2 * VK_UUID_SIZE + 1];
    kept.device->core->instance.GetPhysicalDeviceProperties2(kept.device->core->physical, &about);
    for (int i = 0; i < (int)VK_UUID_SIZE; i++)
        snprintf(text + (size_t)2 * (size_t)i, 3, "%02x", about.properties.pipelineCacheUUID[i]);
    snprintf(kept.head, sizeof(kept.head), "kernels 1 %s\n", text);
}

void kept_begin(struct rf_device *device)
{
    struct rf_vk_functions *vk = &device->core->vk;
    if (!getenv("KERNELS_KEPT"))
        return;
    kept.device = device;
    kept.vk = *vk;
    write_head();
    read_file(getenv("KERNELS_KNOWN"));
    read_file(getenv("KERNELS_KEPT"));
    vk->CreateShaderModule = create_module;
    vk->CreatePipelineLayout = create_layout;
    vk->CreateComputePipelines = create_pipelines;
    vk->DestroyPipeline = destroy_pipeline;
    vk->GetPipelineExecutablePropertiesKHR = get_properties;
    vk->GetPipelineExecutableStatisticsKHR = get_statistics;
}

uint32_t kept_end(void)
{
    const char *path = getenv("KERNELS_KEPT");
    char name[4096];
    if (!kept.device)
        return 0;
    snprintf(name, sizeof(name), "%s.new", path);
    FILE *file = fopen(name, "w");
    if (!file)
        return kept.compiled;
    qsort(kept.list, kept.count, sizeof(kept.list[0]), by_hash);
    fputs(kept.head, file);
    for (uint32_t i = 0; i < kept.count; i++) {
        if (!kept.list[i].met)
            continue;
        fprintf(file, "%016llx", (unsigned long long)kept.list[i].hash);
        for (int k = 0; k < FIGURES; k++)
            fprintf(file, " %lld", (long long)kept.list[i].figures[k]);
        fputc('\n', file);
    }
    if (fclose(file) == 0)
        rename(name, path);
    return kept.compiled;
}
