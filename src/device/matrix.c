/* SPDX-License-Identifier: MIT
 *
 * The matrix units of a device: the sizes and types of products, by a subgroup or by a whole
 * workgroup. select.c calls it for every device. Shapes that the library's kernels cannot use
 * (other than 16-bit operands with fp32 sums) are omitted.
 */
#include "internal.h"

void rf_extension_reason(char *text, size_t bytes, const char *extension, bool offered,
                         const char *feature, bool there)
{
    if (there)
        snprintf(text, bytes, "%s", "");
    else if (!offered)
        snprintf(text, bytes, "its driver does not offer %s", extension);
    else
        snprintf(text, bytes, "its driver offers %s without %s", extension, feature);
}

static bool operand_of(VkComponentTypeKHR type, enum rf_dtype *out)
{
    *out = type == VK_COMPONENT_TYPE_FLOAT16_KHR ? RF_F16 : RF_BF16;
    return type == VK_COMPONENT_TYPE_FLOAT16_KHR || type == VK_COMPONENT_TYPE_BFLOAT16_KHR;
}

/* Adds a shape if the kernels can use its types. */
static void add(struct rf_device_info *info, struct rf_matrix_shape shape, VkComponentTypeKHR a,
                VkComponentTypeKHR b, VkComponentTypeKHR c, VkComponentTypeKHR result)
{
    if (info->matrix_shape_count == RF_MAX_MATRIX_SHAPES || !operand_of(a, &shape.operand) ||
        a != b || c != VK_COMPONENT_TYPE_FLOAT32_KHR || result != c)
        return;
    info->matrix_shapes[info->matrix_shape_count++] = shape;
}

static void list_subgroup(const struct rf_vk_instance *vk, VkPhysicalDevice physical,
                          struct rf_device_info *info)
{
    uint32_t count = 0;
    if (!vk->GetPhysicalDeviceCooperativeMatrixPropertiesKHR ||
        vk->GetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical, &count, NULL) < 0)
        return;
    VkCooperativeMatrixPropertiesKHR *list = rf_alloc(count * sizeof(*list) + 1);
    for (uint32_t i = 0; list && i < count; i++)
        list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    if (!list || vk->GetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical, &count, list) < 0)
        count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const VkCooperativeMatrixPropertiesKHR *p = &list[i];
        if (p->scope != VK_SCOPE_SUBGROUP_KHR || p->saturatingAccumulation ||
            (p->MSize | p->NSize | p->KSize) > UINT16_MAX)
            continue;
        add(info,
            (struct rf_matrix_shape){
                .m = (uint16_t)p->MSize, .n = (uint16_t)p->NSize, .k = (uint16_t)p->KSize},
            p->AType, p->BType, p->CType, p->ResultType);
    }
    rf_free(list);
}

static void list_workgroup(const struct rf_vk_instance *vk, VkPhysicalDevice physical,
                           struct rf_device_info *info)
{
    uint32_t count = 0;
    if (!vk->GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV ||
        vk->GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV(physical, &count,
                                                                             NULL) < 0)
        return;
    VkCooperativeMatrixFlexibleDimensionsPropertiesNV *list = rf_alloc(count * sizeof(*list) + 1);
    for (uint32_t i = 0; list && i < count; i++)
        list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_FLEXIBLE_DIMENSIONS_PROPERTIES_NV;
    if (!list || vk->GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV(
                     physical, &count, list) < 0)
        count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const VkCooperativeMatrixFlexibleDimensionsPropertiesNV *p = &list[i];
        if (p->scope != VK_SCOPE_WORKGROUP_KHR || p->saturatingAccumulation ||
            (p->MGranularity | p->NGranularity | p->KGranularity | p->workgroupInvocations) >
                UINT16_MAX)
            continue;
        add(info,
            (struct rf_matrix_shape){.m = (uint16_t)p->MGranularity,
                                     .n = (uint16_t)p->NGranularity,
                                     .k = (uint16_t)p->KGranularity,
                                     .invocations = (uint16_t)p->workgroupInvocations},
            p->AType, p->BType, p->CType, p->ResultType);
    }
    rf_free(list);
}

/* The first missing feature of those that the workgroup kernels need; NULL: all are present. */
static const char *missing_for_workgroups(const VkPhysicalDeviceCooperativeMatrix2FeaturesNV *f)
{
    const struct {
        VkBool32 there;
        const char *name;
    } features[] = {
        {f->cooperativeMatrixWorkgroupScope, "its feature cooperativeMatrixWorkgroupScope"},
        {f->cooperativeMatrixFlexibleDimensions, "its feature cooperativeMatrixFlexibleDimensions"},
        {f->cooperativeMatrixPerElementOperations,
         "its feature cooperativeMatrixPerElementOperations"},
        {f->cooperativeMatrixTensorAddressing, "its feature cooperativeMatrixTensorAddressing"},
    };
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
        if (!features[i].there)
            return features[i].name;
    return NULL;
}

void rf_matrix_hide(struct rf_device_info *info, struct rf_device_caps *caps, const char *why)
{
    info->cooperative_matrix = info->workgroup_matrix = caps->bfloat16_matrix = false;
    info->matrix_shape_count = 0;
    snprintf(info->matrix_reason, sizeof(info->matrix_reason), "%s", why);
    snprintf(info->workgroup_reason, sizeof(info->workgroup_reason), "%s", why);
}

void rf_matrix_describe(const struct rf_vk_instance *vk, VkPhysicalDevice physical,
                        const VkPhysicalDeviceCooperativeMatrixFeaturesKHR *khr,
                        const VkPhysicalDeviceShaderBfloat16FeaturesKHR *bfloat16,
                        const VkPhysicalDeviceCooperativeMatrix2FeaturesNV *nv,
                        struct rf_device_info *info, struct rf_device_caps *caps)
{
    const char *wanted = rf_env("RF_MATRIX_UNITS"), *missing = missing_for_workgroups(nv);
    if (!caps->ext_cooperative_matrix || !khr->cooperativeMatrix) {
        char why[sizeof(info->matrix_reason)];
        rf_extension_reason(why, sizeof(why), VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME,
                            caps->ext_cooperative_matrix, "its feature cooperativeMatrix", false);
        rf_matrix_hide(info, caps, why);
        return;
    }
    if (!caps->memory_model) {
        rf_matrix_hide(info, caps, "its driver lacks the feature vulkanMemoryModel");
        return;
    }
    if (wanted && strcmp(wanted, "0") == 0) {
        rf_matrix_hide(info, caps, "RF_MATRIX_UNITS=0 switches matrix units off");
        return;
    }
    info->cooperative_matrix = true;
    caps->bfloat16_matrix =
        bfloat16->shaderBFloat16Type && bfloat16->shaderBFloat16CooperativeMatrix;
    list_subgroup(vk, physical, info);
    info->workgroup_matrix = caps->ext_cooperative_matrix2 && !missing;
    rf_extension_reason(info->workgroup_reason, sizeof(info->workgroup_reason),
                        VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME, caps->ext_cooperative_matrix2,
                        missing, info->workgroup_matrix);
    if (info->workgroup_matrix)
        list_workgroup(vk, physical, info);
}
