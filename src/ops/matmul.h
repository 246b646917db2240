/* SPDX-License-Identifier: MIT
 *
 * What matmul.c, which checks a product and picks a path, shares with the paths that run it. A new
 * path is a row of the table in matmul.c, a file or function like those of matmul_paths.c, a
 * shader.
 */
#ifndef RF_OPS_MATMUL_H
#define RF_OPS_MATMUL_H

#include "pick.h"

/* A product that has passed the checks: out (m,n) = a b. Tensors without a buffer are absent. */
struct rf_product {
    struct rf_device *device;
    struct rf_tensor out, a, b, bias, pre;
    int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, gelu;
};

struct rf_matmul_path {
    const char *name;
    /* Whether it can run products of this form and size on this device at all. */
    bool (*can)(const struct rf_device_info *info, const struct rf_product *product);
    /* Whether it is the best for the device, of those that can. */
    bool (*suits)(const struct rf_device_info *info, const struct rf_product *product);
    int (*run)(struct rf_stream *stream, const struct rf_product *product);
};

bool rf_matmul_subgroup_can(const struct rf_device_info *info, const struct rf_product *product);
bool rf_matmul_subgroup_suits(const struct rf_device_info *info, const struct rf_product *product);
int rf_matmul_subgroup_run(struct rf_stream *stream, const struct rf_product *product);
bool rf_matmul_tiled_can(const struct rf_device_info *info, const struct rf_product *product);
bool rf_matmul_tiled_suits(const struct rf_device_info *info, const struct rf_product *product);
int rf_matmul_tiled_run(struct rf_stream *stream, const struct rf_product *product);

#endif
