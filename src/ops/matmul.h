/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the files of rf_matmul: matmul.c, which picks a path, matmul_check.c,
 * which checks operands, matmul_split.c, which splits k, and the paths. A new path is a row of the
 * table in matmul.c, a file or functions like those of matmul_paths.c, and a shader.
 */
#ifndef RF_OPS_MATMUL_H
#define RF_OPS_MATMUL_H

#include "pick.h"
#include "shaders/push/matmul.h"

/* A product that has passed the checks: out (m,n) = a b. Tensors without a buffer are absent. The
 * layouts are complete: rows are never 0; steps are 0 for a single product, or if the operand is
 * shared. A tensor's length is what is read or written of it. */
struct rf_product {
    struct rf_device *device;
    struct rf_tensor out, a, b, bias, pre, residual;
    struct rf_layout a_layout, b_layout, out_layout; /* pre and residual have out's layout */
    int64_t m, n, k, batch;
    bool transpose_a, transpose_b, accumulate, act_backward;
    enum rf_activation act;
    float alpha;
    uint32_t split; /* number of 16-bit parts of split_type per f32 operand; 0: none */
    enum rf_dtype split_type;
    enum rf_quantization quantized; /* of b; its layout counts elements, not bytes */
    struct rf_quantized_part b_part;
    /* If b is quantised, in words from b on: the numbers of its blocks; and the number of these
     * blocks, the first of b's, and how many of them are between two rows of b. */
    uint32_t numbers, blocks, first_block, block_gap;
    uint32_t tile; /* from 1: row of the path's table of tiles; 0: the path's choice */
    int64_t part;  /* 0, or z counts parts of k of this length (the last may be shorter) instead of
                    * products */
};

struct rf_matmul_path {
    const char *name;
    /* NULL: the path can run this product on this device. Otherwise the reason, a sentence about
     * the device or the product. Only the types of the tensors may be examined. */
    const char *(*why_not)(const struct rf_device_info *info, const struct rf_product *product);
    /* Whether the path is the best for the device among those that can run. */
    bool (*suits)(const struct rf_device_info *info, const struct rf_product *product);
    /* Number of tiles of out, for splitting k. */
    int64_t (*tiles)(const struct rf_device_info *info, const struct rf_product *product);
    int (*run)(struct rf_stream *stream, const struct rf_product *product);
    /* Whether the library contains its shaders for operands of this type; NULL: always. */
    bool (*built)(enum rf_dtype type);
    bool quantized; /* accepts a quantised b */
};

/* ---- matmul_table.c: measurements ------------------------------------------------------------ */

enum { RF_MATMUL_PATH_BYTES = sizeof(((struct rf_matmul_choice *)0)->path) };
/* "PATH" or "PATH:TILE"; false: no measurement. */
bool rf_matmul_tuned(const struct rf_product *product, char path[RF_MATMUL_PATH_BYTES]);

/* ---- matmul_check.c -------------------------------------------------------------------------- */

/* Sets everything that does not depend on tensors: transposes, activation, batch, ...; sizes may be
 * overwritten. */
void rf_matmul_take_options(struct rf_product *product, const struct rf_matmul_opts *opts);
/* Fills the product, or fails with the operand and its error. */
RF_MUST_CHECK int rf_matmul_check(struct rf_product *product, struct rf_stream *stream,
                                  struct rf_tensor out, struct rf_tensor a, struct rf_tensor b,
                                  const struct rf_matmul_opts *opts);

/* ---- matmul_split.c -------------------------------------------------------------------------- */

/* The length of the parts of k, with capacity for that many sums; 0: no split. */
int64_t rf_matmul_part(const struct rf_product *product, const struct rf_matmul_path *path,
                       int64_t capacity);
int64_t rf_matmul_parts(const struct rf_product *product, int64_t part);
RF_MUST_CHECK int rf_matmul_run_split(struct rf_stream *stream, const struct rf_matmul_path *path,
                                      const struct rf_product *product, struct rf_tensor scratch,
                                      int64_t part);

/* ---- matmul_paths.c -------------------------------------------------------------------------- */

/* As in shaders/matmul.glsl: flags for every kernel. */
enum {
    RF_MATMUL_BIAS = 1,
    RF_MATMUL_RESIDUAL = 2,
    RF_MATMUL_WRITE_PRE = 4,
    RF_MATMUL_BACKWARD = 8,
    RF_MATMUL_RELU = 16,
    RF_MATMUL_GELU = 32,
    RF_MATMUL_SILU = 64,
    RF_MATMUL_ROWS_FIRST = 128,
    RF_MATMUL_SPLIT_K = 256
};
/* Fills both for a kernel whose workgroups compute one tile each. */
void rf_matmul_fill(const struct rf_product *product, uint32_t tile_m, uint32_t tile_n,
                    struct rf_push_matmul *push, struct rf_job *job);
/* Whether rows of a, of b, and of tensors with out's layout (with bias) are whole quads. */
bool rf_matmul_a_wide(const struct rf_product *product);
bool rf_matmul_b_wide(const struct rf_product *product);
bool rf_matmul_out_wide(const struct rf_product *product);
/* TYPE_... of the shaders. */
uint32_t rf_matmul_type(enum rf_dtype dtype);

const char *rf_matmul_subgroup_why_not(const struct rf_device_info *info,
                                       const struct rf_product *product);
bool rf_matmul_subgroup_suits(const struct rf_device_info *info, const struct rf_product *product);
int64_t rf_matmul_subgroup_tiles(const struct rf_device_info *info,
                                 const struct rf_product *product);
int rf_matmul_subgroup_run(struct rf_stream *stream, const struct rf_product *product);
const char *rf_matmul_tiled_why_not(const struct rf_device_info *info,
                                    const struct rf_product *product);
bool rf_matmul_tiled_suits(const struct rf_device_info *info, const struct rf_product *product);
int64_t rf_matmul_tiled_tiles(const struct rf_device_info *info, const struct rf_product *product);
int rf_matmul_tiled_run(struct rf_stream *stream, const struct rf_product *product);
/* matmul_cooperative.c */
const char *rf_matmul_cooperative_why_not(const struct rf_device_info *info,
                                          const struct rf_product *product);
bool rf_matmul_cooperative_suits(const struct rf_device_info *info,
                                 const struct rf_product *product);
int64_t rf_matmul_cooperative_tiles(const struct rf_device_info *info,
                                    const struct rf_product *product);
int rf_matmul_cooperative_run(struct rf_stream *stream, const struct rf_product *product);
bool rf_matmul_cooperative_built(enum rf_dtype type);
/* matmul_workgroup.c */
const char *rf_matmul_workgroup_why_not(const struct rf_device_info *info,
                                        const struct rf_product *product);
bool rf_matmul_workgroup_suits(const struct rf_device_info *info, const struct rf_product *product);
int64_t rf_matmul_workgroup_tiles(const struct rf_device_info *info,
                                  const struct rf_product *product);
int rf_matmul_workgroup_run(struct rf_stream *stream, const struct rf_product *product);
bool rf_matmul_workgroup_built(enum rf_dtype type);

#endif
