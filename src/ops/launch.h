/* SPDX-License-Identifier: MIT
 *
 * Runs a shader of the library: by name, with specialization constants, push constants and the
 * ranges it touches. Also the argument checks that launchers share.
 */
#ifndef RF_OPS_LAUNCH_H
#define RF_OPS_LAUNCH_H

#include <ringforge/ops.h>

#include "../device/device.h"
#include "shader_ids.h"

#define RF_MAX_RANGES 12

/* A shader's build for each type; RF_SHADER_NONE: no such build. The macros name builds of the
 * lists in shaders/ (*.cmake); any other name does not compile. */
struct rf_build {
    enum rf_shader_id f32, f16, bf16;
};
#define RF_BUILD(name)                                                                             \
    {                                                                                              \
        .f32 = RF_SHADER_##name                                                                    \
    } /* for f32, or the type given by constants */
#define RF_BUILD_16(name)                                                                          \
    {                                                                                              \
        .f16 = RF_SHADER_##name##_f16, .bf16 = RF_SHADER_##name##_bf16                             \
    }
#define RF_BUILD_TYPES(name)                                                                       \
    {                                                                                              \
        RF_SHADER_##name, RF_SHADER_##name##_f16, RF_SHADER_##name##_bf16                          \
    }

struct rf_job {
    const char *op; /* for error messages: "layernorm" */
    struct rf_build shader;
    enum rf_dtype type; /* which build: f16, bf16, else f32 */
    struct rf_spec specs[20];
    uint32_t spec_count;
    const void *push;
    uint32_t push_bytes;
    uint32_t groups[3];
    struct rf_range ranges[RF_MAX_RANGES];
    uint32_t range_count;
    uint32_t subgroup_size; /* required; 0 = any */
    /* For shaders that read through texel views; the storage buffers that they write follow. */
    struct rf_view views[RF_MAX_VIEWS + RF_MAX_WRITTEN];
    uint32_t view_count;
    /* For counting devices. Bytes follow from the ranges. A launcher sets flops, and repeated, if
     * its arithmetic is more than one operation per element of the largest operand. */
    struct rf_work work;
    uint64_t largest; /* in elements: the largest operand */
    bool copies;      /* no arithmetic */
};
/* Adds a tensor's bytes to job->ranges; a NULL buffer adds nothing. rf_job_run refuses a job with
 * more than RF_MAX_RANGES (RF_EINVAL). An update also counts as a read. */
void rf_job_reads(struct rf_job *job, struct rf_tensor tensor);
void rf_job_writes(struct rf_job *job, struct rf_tensor tensor);
void rf_job_updates(struct rf_job *job, struct rf_tensor tensor);
/* The same if only `elements` elements of the tensor are touched: looked-up rows, or rows among
 * others. The range is the whole tensor. */
enum rf_touch { RF_TOUCH_READ = 1, RF_TOUCH_WRITE = 2, RF_TOUCH_UPDATE = 3 };
void rf_job_touches(struct rf_job *job, struct rf_tensor tensor, int64_t elements,
                    enum rf_touch touch);
/* Adds a view of the tensor and gives its first texel. If `wide`, the view has whole quads (texels
 * of 4 floats, or of the 2 that hold four 16-bit elements). False: no such view; use a build of the
 * shader without views. */
bool rf_job_view(struct rf_job *job, struct rf_tensor tensor, bool wide, uint32_t *first);
/* The kernel that the job runs. It refers to the job's constants. */
RF_MUST_CHECK int rf_job_kernel(const struct rf_job *job, struct rf_kernel_desc *out);
RF_MUST_CHECK int rf_job_run(struct rf_stream *stream, const struct rf_job *job);
/* Whether the library contains a build for the type (some need a newer compiler). */
bool rf_is_built(const struct rf_build *build, enum rf_dtype type);

/* Whether kernels can store it: f32, f16, bf16. */
bool rf_is_float_type(enum rf_dtype dtype);
/* Checks one operand; `what` is its name in the header ("dgamma"). count < 0: any. The message
 * names the operation, the operand, its actual and its expected form. */
RF_MUST_CHECK int rf_check_tensor(const char *op, const char *what, struct rf_tensor tensor,
                                  enum rf_dtype dtype, int64_t count);
/* Fails if the two overlap in memory. */
RF_MUST_CHECK int rf_check_alias(const char *op, const char *out_name, struct rf_tensor out,
                                 const char *in_name, struct rf_tensor in);
/* Groups for a flat launch of `items` items, `per_group` each: x first, then y, within the device's
 * maxComputeWorkGroupCount; a kernel computes its index as y * groups[0] + x. */
void rf_flat_groups(struct rf_device *device, uint64_t items, uint32_t per_group,
                    uint32_t groups[3]);
static inline uint64_t rf_address_of(struct rf_tensor tensor)
{
    return tensor.buffer ? rf_tensor_address(tensor) : 0;
}

#endif
