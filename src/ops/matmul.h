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
    uint32_t split; /* of f32 operands, into parts of split_type; 0: none */
    enum rf_dtype split_type;
    uint32_t tile; /* from 1: row of the path's table of tiles; 0: the path's choice */
};

struct rf_matmul_path {
    const char *name;
    /* NULL: it can run this product on this device. Else a sentence about the device or the product
     * that says why not. Of the tensors only the types may be looked at. */
    const char *(*why_not)(const struct rf_device_info *info, const struct rf_product *product);
    /* Whether it is the best for the device, of those that can. */
    bool (*suits)(const struct rf_device_info *info, const struct rf_product *product);
    int (*run)(struct rf_stream *stream, const struct rf_product *product);
    /* Whether its shaders for operands of this type are in this library; NULL: always. */
    bool (*built)(enum rf_dtype type);
};

/* What every kernel is told, and where; the flags are as in the shaders. */
enum { RF_MATMUL_BIAS = 1, RF_MATMUL_ACCUMULATE = 2, RF_MATMUL_GELU = 4, RF_MATMUL_PRE = 8 };
struct rf_matmul_push {
    uint64_t a, b, out, bias, pre;
    uint32_t m, n, k, flags;
    uint32_t tiles_m, tiles_n, groups_x, rows_first;
    uint32_t a_first, b_first, out_first; /* first texels of views */
    uint32_t k_first, k_end;              /* the part of k to add up: subgroup path only */
};
/* Fills both for a kernel whose workgroups compute one tile each. */
void rf_matmul_fill(const struct rf_product *product, uint32_t tile_m, uint32_t tile_n,
                    struct rf_matmul_push *push, struct rf_job *job);

const char *rf_matmul_subgroup_why_not(const struct rf_device_info *info,
                                       const struct rf_product *product);
bool rf_matmul_subgroup_suits(const struct rf_device_info *info, const struct rf_product *product);
int rf_matmul_subgroup_run(struct rf_stream *stream, const struct rf_product *product);
const char *rf_matmul_tiled_why_not(const struct rf_device_info *info,
                                    const struct rf_product *product);
bool rf_matmul_tiled_suits(const struct rf_device_info *info, const struct rf_product *product);
int rf_matmul_tiled_run(struct rf_stream *stream, const struct rf_product *product);
/* matmul_cooperative.c */
const char *rf_matmul_cooperative_why_not(const struct rf_device_info *info,
                                          const struct rf_product *product);
bool rf_matmul_cooperative_suits(const struct rf_device_info *info,
                                 const struct rf_product *product);
int rf_matmul_cooperative_run(struct rf_stream *stream, const struct rf_product *product);

#endif
