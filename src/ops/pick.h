/* SPDX-License-Identifier: MIT
 *
 * Selection of a shader's build (_v: aligned rows of a multiple of 4 elements, _s: any) and of the
 * lanes of a workgroup, and the checks that launch.h lacks.
 */
#ifndef RF_OPS_PICK_H
#define RF_OPS_PICK_H

#include <ringforge/quantize.h>

#include "launch.h"

/* Lanes of a workgroup if each lane does some items of a flat range. */
#define RF_FLAT_LANES 64

/* Whether rows of row_elements are whole quads in every tensor: a multiple of 4 elements, starting
 * at a multiple of 4 elements' bytes. Tensors without a buffer are ignored. */
bool rf_pick_vector(int64_t row_elements, const struct rf_tensor *tensors, size_t count);
/* Lanes of a workgroup if a lane does a whole row: few on a CPU, so that every core gets work. */
uint32_t rf_pick_row_lanes(struct rf_device *device);
/* Sets specialization constant 0 (the lanes of a workgroup) and flat groups for `items`. */
void rf_job_flat(struct rf_job *job, struct rf_device *device, uint64_t items, uint32_t lanes,
                 uint32_t items_per_lane);
void rf_job_spec(struct rf_job *job, uint32_t id, uint32_t value);
/* The constant of shaders/quantized.glsl. */
void rf_quantized_spec(struct rf_job *job, enum rf_quantization kind);

/* Lanes of a workgroup of kernels with teams (rf_device_teams): every device supports this number.
 */
#define RF_TEAM_LANES 128
/* Sets constants 0 to 2 (lanes, TEAM and KEEP of team.glsl) and the groups: a team for each row.
 * aligned: rows are whole quads (rf_pick_vector). */
void rf_job_teams(struct rf_job *job, struct rf_device *device, uint64_t rows, int64_t columns,
                  bool aligned);

/* A tensor that a kernel reads through a view if the build has views. */
struct rf_source {
    struct rf_tensor tensor; /* without a buffer: the view's content does not matter */
    bool single;             /* texels are always one float */
};
/* The builds of a shader: for aligned rows, for any, and the same two with views. Zero: no such
 * build. */
struct rf_builds {
    struct rf_build aligned, any, aligned_views, any_views;
    struct rf_build wide; /* aligned_views, writes by whole subgroups; only for some launchers */
};
/* The builds of rf_shader_builds(name ...) in shaders/training.cmake. */
#define RF_BUILDS(name)                                                                            \
    {                                                                                              \
        .aligned = RF_BUILD_TYPES(name##_v), .any = RF_BUILD_TYPES(name##_s),                      \
        .aligned_views = RF_BUILD(name##_views)                                                    \
    }
/* For teams of lanes: NAME_team_v, NAME_team_s. */
#define RF_BUILDS_TEAM(name)                                                                       \
    {                                                                                              \
        .aligned = RF_BUILD_TYPES(name##_team_v), .any = RF_BUILD_TYPES(name##_team_s)             \
    }
#define RF_BUILDS_WIDE(name)                                                                       \
    {                                                                                              \
        .aligned = RF_BUILD_TYPES(name##_v), .any = RF_BUILD_TYPES(name##_s),                      \
        .aligned_views = RF_BUILD(name##_views), .wide = RF_BUILD(name##_wide)                     \
    }
/* Chooses job->shader for aligned or unaligned operands (rf_pick_vector). For a build with views,
 * adds the views of the sources, in order, with their first texels. Builds for job->type other than
 * f32 have no views: set it before. */
void rf_job_build(struct rf_job *job, struct rf_device *device, const struct rf_builds *builds,
                  bool aligned, const struct rf_source *sources, uint32_t count, uint32_t *first);

/* Builds that write by whole subgroups (WIDE in common.glsl), `per_lane` quads per lane. Returns
 * how many of `quads` one launch of such a build can write to these tensors; 0: none, because it is
 * not faster on the device, a tensor is not aligned, or the rest is too small. */
#define RF_WIDE_DIGITS 4
#define RF_WIDE_GROUPS 65535 /* per launch: the limit of the digits */
uint64_t rf_wide_quads(struct rf_device *device, uint64_t quads, uint32_t per_lane,
                       const struct rf_tensor *written, uint32_t count);
/* Bytes that one such launch may write from the tensor's first on; 0: not supported for this
 * tensor. */
uint64_t rf_wide_bytes(struct rf_tensor written);
/* Sets specialization constant 0 and the groups, and adds the tensors, after the texel views. */
void rf_job_wide(struct rf_job *job, struct rf_device *device, uint64_t quads, uint32_t per_lane,
                 const struct rf_tensor *written, uint32_t count, uint32_t digits[RF_WIDE_DIGITS]);
/* `count` elements from `first` on, as one dimension. A NULL buffer stays NULL. */
struct rf_tensor rf_elements(struct rf_tensor tensor, int64_t first, int64_t count);

/* Mesa's CPU driver silently ends a kernel's loops after 65535 iterations in all: RF_ENOTSUP if
 * more are needed on such a device. */
RF_MUST_CHECK int rf_check_rounds(struct rf_device *device, const char *op, int64_t rounds);
/* rf_check_tensor, and kernels must be able to index it with 31 bits (else RF_ENOTSUP). */
RF_MUST_CHECK int rf_check_operand(const char *op, const char *what, struct rf_tensor tensor,
                                   enum rf_dtype dtype, int64_t count);
/* rf_check_operand for the tensor that gives an operation its type: f32, f16 or bf16. */
RF_MUST_CHECK int rf_check_typed(const char *op, const char *what, struct rf_tensor tensor,
                                 int64_t count);
RF_MUST_CHECK int rf_check_activation(const char *op, enum rf_activation kind);
/* rf_check_operand for (rows, columns): the last dimension must be `columns`; rows < 0: any. */
RF_MUST_CHECK int rf_check_rows(const char *op, const char *what, struct rf_tensor tensor,
                                enum rf_dtype dtype, int64_t rows, int64_t columns);
/* Like rf_check_alias, but the very same memory is allowed. */
RF_MUST_CHECK int rf_check_in_place(const char *op, const char *out_name, struct rf_tensor out,
                                    const char *in_name, struct rf_tensor in);

/* A field of the arguments of several calls: whether it is set, and which calls use it, as bits. */
struct rf_use {
    const char *name;
    bool set;
    uint32_t calls;
};
/* Refuses fields that are set though `call` does not use them. */
RF_MUST_CHECK int rf_check_uses(const char *op, uint32_t call, const struct rf_use *uses,
                                size_t count);

/* One operand of a table of checks. */
struct rf_named_tensor {
    const char *name;
    struct rf_tensor tensor;
};
/* No output may overlap another output or an input. Tensors without a buffer do not count. */
RF_MUST_CHECK int rf_check_apart(const char *op, const struct rf_named_tensor *outs,
                                 size_t out_count, const struct rf_named_tensor *ins,
                                 size_t in_count);

#endif
