/* SPDX-License-Identifier: MIT
 *
 * See matrix_reason.h.
 */
#include "matrix_reason.h"

#include "device/internal.h"

void matrix_described(const struct offered *offered, struct rf_device_info *out)
{
    const struct rf_vk_instance none = {0}; /* lists no shapes */
    struct rf_device_caps caps = {.memory_model = true,
                                  .ext_cooperative_matrix = offered->matrix,
                                  .ext_cooperative_matrix2 = offered->workgroups};
    const VkPhysicalDeviceCooperativeMatrixFeaturesKHR khr = {.cooperativeMatrix =
                                                                  offered->matrix_feature};
    const VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16 = {0};
    const unsigned features = offered->workgroup_features;
    const VkPhysicalDeviceCooperativeMatrix2FeaturesNV nv = {
        .cooperativeMatrixWorkgroupScope = features > 0,
        .cooperativeMatrixFlexibleDimensions = features > 1,
        .cooperativeMatrixPerElementOperations = features > 2,
        .cooperativeMatrixTensorAddressing = features > 3};
    *out = (struct rf_device_info){.name = ""};
    rf_matrix_describe(&none, VK_NULL_HANDLE, &khr, &bfloat16, &nv, out, &caps);
}
