/* SPDX-License-Identifier: MIT
 *
 * Reads the capabilities that a SPIR-V module declares, before a driver gets it: some drivers crash
 * on capabilities that they lack. Called by kernel.c.
 */
#include "internal.h"

enum { OP_CAPABILITY = 17, HEADER_WORDS = 5, SPIRV_MAGIC = 0x07230203 };

static bool has_subgroup(const struct rf_device *device, VkSubgroupFeatureFlags bit)
{
    return device->caps.subgroup_operations & bit;
}

/* Only capabilities that the library enables may be used; all others count as absent. */
static bool offered(const struct rf_device *device, uint32_t capability, const char **name)
{
    const struct rf_device_info *info = &device->info;
    const struct rf_device_caps *caps = &device->caps;
    const struct {
        uint32_t capability;
        bool offered;
        const char *name;
    } rows[] = {
        {0, true, "Matrix"},
        {1, true, "Shader"},
        {9, info->float16, "Float16"},
        {10, info->float64, "Float64"},
        {11, info->int64, "Int64"},
        {22, info->int16, "Int16"},
        {39, info->int8, "Int8"},
        {RF_SPIRV_SAMPLED_BUFFER, caps->views, "SampledBuffer"},
        {61, has_subgroup(device, VK_SUBGROUP_FEATURE_BASIC_BIT), "GroupNonUniform"},
        {62, has_subgroup(device, VK_SUBGROUP_FEATURE_VOTE_BIT), "GroupNonUniformVote"},
        {63, has_subgroup(device, VK_SUBGROUP_FEATURE_ARITHMETIC_BIT), "GroupNonUniformArithmetic"},
        {64, has_subgroup(device, VK_SUBGROUP_FEATURE_BALLOT_BIT), "GroupNonUniformBallot"},
        {65, has_subgroup(device, VK_SUBGROUP_FEATURE_SHUFFLE_BIT), "GroupNonUniformShuffle"},
        {66, has_subgroup(device, VK_SUBGROUP_FEATURE_SHUFFLE_RELATIVE_BIT),
         "GroupNonUniformShuffleRelative"},
        {67, has_subgroup(device, VK_SUBGROUP_FEATURE_CLUSTERED_BIT), "GroupNonUniformClustered"},
        {68, has_subgroup(device, VK_SUBGROUP_FEATURE_QUAD_BIT), "GroupNonUniformQuad"},
        {4433, info->storage16, "StorageBuffer16BitAccess"},
        {4434, caps->uniform16, "UniformAndStorageBuffer16BitAccess"},
        {4448, info->storage8, "StorageBuffer8BitAccess"},
        {4449, caps->uniform8, "UniformAndStorageBuffer8BitAccess"},
        {5116, info->bfloat16, "BFloat16TypeKHR"},
        {5118, info->bfloat16 && caps->bfloat16_matrix, "BFloat16CooperativeMatrixKHR"},
        {5345, caps->memory_model, "VulkanMemoryModel"},
        {5346, caps->memory_model_device_scope, "VulkanMemoryModelDeviceScope"},
        {5347, true, "PhysicalStorageBufferAddresses"},
        {RF_SPIRV_COOPERATIVE_MATRIX, info->cooperative_matrix, "CooperativeMatrixKHR"},
        {5432, info->workgroup_matrix, "CooperativeMatrixPerElementOperationsNV"},
        {5433, info->workgroup_matrix, "CooperativeMatrixTensorAddressingNV"},
        {5439, info->workgroup_matrix, "TensorAddressingNV"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].capability == capability) {
            *name = rows[i].name;
            return rows[i].offered;
        }
    }
    *name = "unknown to this library";
    return false;
}

int rf_spirv_check(const struct rf_device *device, const struct rf_kernel_desc *desc)
{
    const uint32_t *words = desc->spirv;
    size_t count = desc->spirv_bytes / 4;
    if (!words || desc->spirv_bytes % 4 || count < HEADER_WORDS || words[0] != SPIRV_MAGIC)
        return rf_fail(RF_EINVAL, "%s: it is not a SPIR-V module in this machine's byte order",
                       desc->name);
    /* Capabilities are the first instructions of every module. */
    for (size_t i = HEADER_WORDS; i < count;) {
        uint32_t length = words[i] >> 16, op = words[i] & 0xffff;
        if (op != OP_CAPABILITY)
            break;
        if (length != 2 || i + length > count)
            return rf_fail(RF_EINVAL, "%s: its SPIR-V is damaged at word %zu", desc->name, i);
        const char *name;
        if (!device->counting && !offered(device, words[i + 1], &name))
            return rf_fail(RF_ENOTSUP, "%s needs the capability %u (%s), which %s does not offer",
                           desc->name, words[i + 1], name, device->info.name);
        i += length;
    }
    return 0;
}

bool rf_spirv_declares(const struct rf_kernel_desc *desc, uint32_t capability)
{
    const uint32_t *words = desc->spirv;
    const size_t count = desc->spirv_bytes / 4;
    for (size_t i = HEADER_WORDS; i < count && words[i] == (2u << 16 | OP_CAPABILITY); i += 2)
        if (words[i + 1] == capability)
            return true;
    return false;
}
