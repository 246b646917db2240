/* SPDX-License-Identifier: MIT
 *
 * The result of rf_matrix_describe for a driver with these extensions and features. In C, like the
 * device's internal header.
 */
#ifndef RF_TESTS_DEVICE_MATRIX_REASON_H
#define RF_TESTS_DEVICE_MATRIX_REASON_H

#include <ringforge/ringforge.h>

struct offered {
    bool matrix, matrix_feature; /* VK_KHR_cooperative_matrix */
    bool workgroups;             /* VK_NV_cooperative_matrix2, */
    unsigned workgroup_features; /* and its first features; four are needed */
};

/* Fills the members about matrix units. */
void matrix_described(const struct offered *offered, struct rf_device_info *out);

#endif
