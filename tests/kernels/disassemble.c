/* SPDX-License-Identifier: MIT
 *
 * Writes the compiler's output for the large products: statistics, intermediate code and
 * disassembly, one file for each pipeline. ci/kernel_loops.py reads them. Nothing runs, so the
 * hardware may be absent.
 *
 *   kernel_disassemble FOLDER [WORD...]   pipelines of this library: matmul and attention of sizes
 *                                         that fill a GPU, those launches whose name holds a WORD
 *   kernel_disassemble --spirv FILE --to FILE [--constants "0=256 1=128"] [--subgroup N]
 *                                         a shader of others, with storage buffers in set 0
 *
 * A launch that the device refuses is printed and skipped.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ringforge/ops.h>
#include <ringforge/quantize.h>

#include "base/base.h"
#include "device/internal.h"
#include "record_nothing.h"

#define BUFFER_BYTES ((uint64_t)1 << 32)
#define MAX_SEEN 512
#define MAX_CONSTANTS 32
#define MAX_BINDINGS 8
#define MAX_TEXTS 16

static PFN_vkCreateComputePipelines create_pipelines;

/* Replaces the device's function: requests the texts, too. */
static VKAPI_ATTR VkResult VKAPI_CALL capture(VkDevice device, VkPipelineCache cache,
                                              uint32_t count,
                                              const VkComputePipelineCreateInfo *infos,
                                              const VkAllocationCallbacks *allocator,
                                              VkPipeline *out)
{
    VkComputePipelineCreateInfo info = infos[0]; /* the library creates them one by one */
    info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                  VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
    return create_pipelines(device, VK_NULL_HANDLE, count, &info, allocator, out);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void write_texts(const struct rf_kernel *kernel, FILE *file)
{
    const struct rf_core *core = kernel->core;
    PFN_vkGetPipelineExecutableInternalRepresentationsKHR get =
        (PFN_vkGetPipelineExecutableInternalRepresentationsKHR)core->instance.GetDeviceProcAddr(
            core->handle, "vkGetPipelineExecutableInternalRepresentationsKHR");
    VkPipelineExecutableInternalRepresentationKHR texts[MAX_TEXTS];
    VkPipelineExecutableInfoKHR first = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                         .pipeline = kernel->pipeline};
    uint32_t count = MAX_TEXTS;
    for (uint32_t i = 0; i < MAX_TEXTS; i++)
        texts[i] = (VkPipelineExecutableInternalRepresentationKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR};
    if (!get || get(core->handle, &first, &count, texts) < 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        texts[i].pData = texts[i].dataSize ? calloc(1, texts[i].dataSize + 1) : NULL;
    if (get(core->handle, &first, &count, texts) >= 0)
        for (uint32_t i = 0; i < count; i++)
            if (texts[i].isText && texts[i].pData)
                fprintf(file, "=== %s\n%s\n", texts[i].name, (const char *)texts[i].pData);
    for (uint32_t i = 0; i < count; i++)
        free(texts[i].pData);
}

static int write_file(const struct rf_device *device, const struct rf_kernel *kernel,
                      const char *path, const char *launch, const char *constants)
{
    struct rf_kernel_statistic list[RF_MAX_STATISTICS];
    uint32_t count = rf_kernel_statistics(kernel, list, RF_MAX_STATISTICS);
    const struct rf_device_info *info = rf_device_get_info(device);
    FILE *file = fopen(path, "w");
    if (!file) {
        fprintf(stderr, "kernel_disassemble: cannot write %s\n", path);
        return -1;
    }
    fprintf(file, "# device: %s\n# driver: %s\n# shader: %s\n# launch: %s\n# constants: %s\n",
            info->name, info->driver, kernel->name, launch, constants);
    for (uint32_t i = 0; i < count; i++)
        fprintf(file, "# statistic %s: %.0f\n", list[i].name, list[i].value);
    write_texts(kernel, file);
    fclose(file);
    printf("%s\n", path);
    return 0;
}

/* ---- pipelines of this library --------------------------------------------------------------- */

struct products {
    struct rf_device *device;
    struct rf_stream *stream;
    struct rf_buffer *buffer;
    uint64_t used;
    const char *folder, *launch;
    char **words;
    int word_count, failures;
    const struct rf_kernel *seen[MAX_SEEN];
    uint32_t seen_count;
};

static void visit(void *user, const struct rf_kernel_desc *desc, const struct rf_kernel *kernel)
{
    struct products *p = user;
    char path[512], name[128], constants[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < p->seen_count; i++)
        if (p->seen[i] == kernel)
            return;
    if (p->seen_count == MAX_SEEN) {
        p->failures++;
        return;
    }
    p->seen[p->seen_count++] = kernel;
    for (uint32_t i = 0; i < desc->spec_count && used < sizeof(constants); i++)
        used += (size_t)snprintf(constants + used, sizeof(constants) - used, "%s%u=%u",
                                 i ? " " : "", desc->specs[i].id, desc->specs[i].value);
    snprintf(name, sizeof(name), "%s", p->launch);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c))
            *c = '_';
    snprintf(path, sizeof(path), "%s/%s-%s.txt", p->folder, name, kernel->name);
    p->failures += write_file(p->device, kernel, path, p->launch, constants) < 0;
}

static bool wanted(const struct products *p, const char *launch)
{
    for (int i = 0; i < p->word_count; i++)
        if (strstr(launch, p->words[i]))
            return true;
    return p->word_count == 0;
}

static void launched(struct products *p, const char *launch, int status)
{
    p->launch = launch;
    if (status < 0)
        printf("refused: %s: %s\n", launch, rf_last_error()->message);
    rf_device_each_kernel(p->device, visit, p);
}

static struct rf_tensor take(struct products *p, struct rf_shape shape, enum rf_dtype dtype)
{
    struct rf_tensor tensor = {p->buffer, p->used, shape, dtype};
    p->used = (p->used + rf_tensor_bytes(tensor) + 255) / 256 * 256;
    return tensor;
}

static void matmul(struct products *p, const char *path, enum rf_dtype dtype, int form,
                   uint32_t split)
{
    static const char *const forms[] = {"nn", "nt", "tn"};
    const int64_t n = 4096;
    char name[64], parts[16] = "";
    const struct rf_shape square = rf_shape2(n, n);
    const struct rf_matmul_opts opts = {.transpose_a = form == 2,
                                        .transpose_b = form == 1,
                                        .split = split,
                                        .split_type = RF_F16,
                                        .path = path};
    if (split)
        snprintf(parts, sizeof(parts), " split%u", split);
    snprintf(name, sizeof(name), "matmul%s%s %s %s%s", path ? " " : "", path ? path : "",
             forms[form], rf_dtype_name(dtype), parts);
    p->used = 0;
    if (wanted(p, name))
        launched(p, name,
                 rf_matmul(p->stream, take(p, square, dtype), take(p, square, dtype),
                           take(p, square, dtype), &opts));
}

static void quantized_matmul(struct products *p, enum rf_dtype dtype, enum rf_quantization kind,
                             bool transpose_b)
{
    const int64_t n = 4096;
    const struct rf_shape square = rf_shape2(n, n);
    const struct rf_matmul_opts opts = {.transpose_b = transpose_b, .b_quantized = kind};
    char name[64];
    snprintf(name, sizeof(name), "matmul %s %s %s", transpose_b ? "nt" : "nn", rf_dtype_name(dtype),
             rf_quantization_name(kind));
    p->used = 0;
    if (wanted(p, name))
        launched(p, name,
                 rf_matmul(p->stream, take(p, square, dtype), take(p, square, dtype),
                           take(p, rf_shape1((int64_t)rf_quantized_bytes(kind, n * n)), RF_U8),
                           &opts));
}

static void attention(struct products *p, const char *path, enum rf_dtype dtype, int64_t head,
                      bool backward)
{
    const int64_t B = 2, T = 2048, H = 16, C = H * head;
    const struct rf_shape rows = rf_shape3(B, T, C), packed = rf_shape3(B, T, 3 * C);
    char name[64];
    p->used = 0;
    struct rf_tensor qkv = take(p, packed, dtype), dqkv = take(p, packed, dtype);
    struct rf_heads out = rf_heads_in(take(p, rows, dtype), head, 0, H);
    struct rf_attention_args args = {.q = rf_heads_in(qkv, head, 0, H),
                                     .k = rf_heads_in(qkv, head, H, H),
                                     .v = rf_heads_in(qkv, head, 2 * H, H),
                                     .out = out,
                                     .lse = take(p, rf_shape3(B, H, T), RF_F32),
                                     .path = path};
    struct rf_attention_grads grads = {.dout = rf_heads_in(take(p, rows, dtype), head, 0, H),
                                       .dq = rf_heads_in(dqkv, head, 0, H),
                                       .dk = rf_heads_in(dqkv, head, H, H),
                                       .dv = rf_heads_in(dqkv, head, 2 * H, H),
                                       .delta = take(p, rf_shape3(B, H, T), RF_F32)};
    snprintf(name, sizeof(name), "attention%s%s%s head %lld %s", backward ? "_backward" : "",
             path ? " " : "", path ? path : "", (long long)head, rf_dtype_name(dtype));
    if (wanted(p, name))
        launched(p, name,
                 backward ? rf_attend_backward(p->stream, &args, &grads)
                          : rf_attend(p->stream, &args));
}

static int disassemble_products(struct rf_device *device, const char *folder, char **words,
                                int word_count)
{
    static const enum rf_dtype types[] = {RF_F16, RF_BF16, RF_F32};
    struct rf_buffer buffer = {/* of no memory */
                               .device = device,
                               .bytes = BUFFER_BYTES,
                               .address = (uint64_t)1 << 33};
    struct products p = {.device = device,
                         .buffer = &buffer,
                         .folder = folder,
                         .words = words,
                         .word_count = word_count};
    record_nothing(device);
    if (rf_stream_create(device, "disassemble", &p.stream) < 0) {
        fprintf(stderr, "kernel_disassemble: %s\n", rf_last_error()->message);
        return 1;
    }
    for (int type = 0; type < 3; type++) {
        for (int form = 0; form < 3; form++)
            matmul(&p, NULL, types[type], form, 0);
        for (enum rf_quantization kind = RF_NF4; kind < RF_QUANTIZATION_COUNT; kind++)
            for (int transposed = 0; transposed < 2; transposed++)
                quantized_matmul(&p, types[type], kind, transposed);
        for (int backward = 0; backward < 2; backward++)
            for (int64_t head = 64; head <= 128; head += 64)
                attention(&p, types[type] == RF_F32 ? "tiled" : "units", types[type], head,
                          backward);
    }
    for (uint32_t parts = 1; parts <= 3; parts++)
        matmul(&p, NULL, RF_F32, 1, parts);
    matmul(&p, "tiled", RF_BF16, 1, 0);
    return p.failures > 0;
}

/* ---- a shader of others ---------------------------------------------------------------------- */

static uint32_t *read_words(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    uint32_t *words = size > 0 ? malloc((size_t)size) : NULL;
    *bytes = words ? fread(words, 1, (size_t)size, file) : 0;
    fclose(file);
    return words;
}

static VkResult make_layout(struct rf_device *device, VkPipelineLayout *out)
{
    VkDescriptorSetLayoutBinding bindings[MAX_BINDINGS];
    for (uint32_t i = 0; i < MAX_BINDINGS; i++)
        bindings[i] = (VkDescriptorSetLayoutBinding){i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1,
                                                     VK_SHADER_STAGE_COMPUTE_BIT, NULL};
    VkDescriptorSetLayoutCreateInfo set = {.sType =
                                               VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                           .bindingCount = MAX_BINDINGS,
                                           .pBindings = bindings};
    VkDescriptorSetLayout set_layout;
    VkResult result =
        device->core->vk.CreateDescriptorSetLayout(device->core->handle, &set, NULL, &set_layout);
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 128};
    VkPipelineLayoutCreateInfo create = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .setLayoutCount = 1,
                                         .pSetLayouts = &set_layout,
                                         .pushConstantRangeCount = 1,
                                         .pPushConstantRanges = &range};
    return result < 0
               ? result
               : device->core->vk.CreatePipelineLayout(device->core->handle, &create, NULL, out);
}

static VkResult make_pipeline(struct rf_kernel *kernel, const uint32_t *words, size_t bytes,
                              const char *constants, uint32_t subgroup_size)
{
    struct rf_device *device = kernel->device;
    VkSpecializationMapEntry entries[MAX_CONSTANTS];
    uint32_t values[MAX_CONSTANTS], count = 0;
    int length = 0;
    for (const char *c = constants; count < MAX_CONSTANTS; c += length, count++) {
        entries[count].offset = count * 4;
        entries[count].size = 4;
        if (sscanf(c, "%u=%u%n", &entries[count].constantID, &values[count], &length) != 2)
            break;
    }
    VkSpecializationInfo specs = {count, entries, sizeof(values), values};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT subgroup = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT,
        .requiredSubgroupSize = subgroup_size};
    VkShaderModuleCreateInfo module = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = words};
    VkComputePipelineCreateInfo create = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = subgroup_size ? &subgroup : NULL,
                  .flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .pName = "main",
                  .pSpecializationInfo = &specs}};
    VkResult result = make_layout(device, &create.layout);
    if (result >= 0)
        result = device->core->vk.CreateShaderModule(device->core->handle, &module, NULL,
                                                     &create.stage.module);
    return result < 0
               ? result
               : device->core->vk.CreateComputePipelines(device->core->handle, VK_NULL_HANDLE, 1,
                                                         &create, NULL, &kernel->pipeline);
}

static int disassemble_file(struct rf_device *device, const char *path, const char *to,
                            const char *constants, uint32_t subgroup_size)
{
    struct rf_kernel kernel = {.device = device, .captured = true};
    size_t bytes = 0;
    uint32_t *words = read_words(path, &bytes);
    if (!words || !to) {
        fprintf(stderr, "kernel_disassemble: cannot read %s, or --to is missing\n", path);
        return 2;
    }
    snprintf(kernel.name, sizeof(kernel.name), "%s", path);
    VkResult result = make_pipeline(&kernel, words, bytes, constants, subgroup_size);
    free(words);
    if (result < 0) {
        fprintf(stderr, "kernel_disassemble: %s: %s\n", path, rf_vk_result_text(result));
        return 1;
    }
    return write_file(device, &kernel, to, path, constants) < 0;
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return otherwise;
}

int main(int argc, char **argv)
{
    const char *spirv = option(argc, argv, "--spirv", NULL);
    struct rf_device *device;
    if (argc < 2) {
        fprintf(stderr,
                "use: kernel_disassemble FOLDER [WORD...]\n"
                "     kernel_disassemble --spirv FILE --to FILE [--constants \"0=256 ...\"] "
                "[--subgroup N]\n");
        return 2;
    }
    if (rf_device_open(NULL, &(struct rf_device_opts){.kernel_statistics = true}, &device)) {
        fprintf(stderr, "kernel_disassemble: %s\n", rf_last_error()->message);
        return 1;
    }
    create_pipelines = device->core->vk.CreateComputePipelines;
    device->core->vk.CreateComputePipelines = capture;
    int rc = spirv ? disassemble_file(device, spirv, option(argc, argv, "--to", NULL),
                                      option(argc, argv, "--constants", ""),
                                      (uint32_t)atoi(option(argc, argv, "--subgroup", "0")))
                   : disassemble_products(device, argv[1], argv + 2, argc - 2);
    fflush(NULL);
    _exit(rc); /* nothing is closed, as in report.c */
}
