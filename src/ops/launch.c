/* SPDX-License-Identifier: MIT
 *
 * Runs a shader of the library by name, and checks operands. Called by every launcher in ops/;
 * independent of what a kernel computes.
 */
#include "launch.h"

#include "../base/base.h"
#include "shader_table.h"

void rf_job_touches(struct rf_job *job, struct rf_tensor tensor, int64_t elements,
                    enum rf_touch touch)
{
    if (!tensor.buffer)
        return;
    if (job->range_count < RF_MAX_RANGES)
        job->ranges[job->range_count] = (struct rf_range){.address = rf_tensor_address(tensor),
                                                          .bytes = rf_tensor_bytes(tensor),
                                                          .write = (touch & RF_TOUCH_WRITE) != 0};
    job->range_count++; /* also counts ranges that do not fit, so that rf_job_run refuses */
    const uint64_t count = (uint64_t)elements, bytes = count * rf_dtype_bytes(tensor.dtype);
    job->work.read += touch & RF_TOUCH_READ ? bytes : 0;
    job->work.written += touch & RF_TOUCH_WRITE ? bytes : 0;
    job->largest = count > job->largest ? count : job->largest;
}

void rf_job_reads(struct rf_job *job, struct rf_tensor tensor)
{
    rf_job_touches(job, tensor, rf_tensor_count(tensor), RF_TOUCH_READ);
}

void rf_job_writes(struct rf_job *job, struct rf_tensor tensor)
{
    rf_job_touches(job, tensor, rf_tensor_count(tensor), RF_TOUCH_WRITE);
}

void rf_job_updates(struct rf_job *job, struct rf_tensor tensor)
{
    rf_job_touches(job, tensor, rf_tensor_count(tensor), RF_TOUCH_UPDATE);
}

bool rf_job_view(struct rf_job *job, struct rf_tensor tensor, bool wide, uint32_t *first)
{
    struct rf_view view = {tensor.buffer, tensor.offset, rf_tensor_bytes(tensor),
                           !wide                    ? 1
                           : tensor.dtype == RF_F32 ? 4
                                                    : 2};
    if (job->view_count >= RF_MAX_VIEWS || !rf_device_has_views(rf_buffer_device(tensor.buffer)) ||
        !rf_view_first(&view, first))
        return false;
    job->views[job->view_count++] = view;
    return true;
}

bool rf_is_float_type(enum rf_dtype dtype)
{
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}

/* NULL: no such build, or not compiled in. */
static const struct rf_shader *find_shader(const struct rf_build *build, enum rf_dtype type)
{
    const enum rf_shader_id id = type == RF_F16    ? build->f16
                                 : type == RF_BF16 ? build->bf16
                                                   : build->f32;
    return id == RF_SHADER_NONE || id > RF_SHADER_LAST ? NULL : &rf_shader_table[id - 1];
}

bool rf_is_built(const struct rf_build *build, enum rf_dtype type)
{
    return find_shader(build, type) != NULL;
}

static void count(struct rf_stream *stream, const struct rf_job *job)
{
    struct rf_work work = job->work;
    work.launches = 1;
    if (work.flops == 0 && !job->copies)
        work.flops = job->largest;
    rf_stream_count(stream, &work);
}

int rf_job_kernel(const struct rf_job *job, struct rf_kernel_desc *out)
{
    const struct rf_shader *shader = find_shader(&job->shader, job->type);
    if (!shader)
        return rf_fail(RF_ENOTSUP, "%s: this library has no build of the shader for %s", job->op,
                       rf_dtype_name(job->type));
    *out = (struct rf_kernel_desc){.name = shader->name,
                                   .spirv = shader->words,
                                   .spirv_bytes = shader->bytes,
                                   .specs = job->specs,
                                   .spec_count = job->spec_count,
                                   .push_bytes = job->push_bytes,
                                   .subgroup_size = job->subgroup_size};
    return 0;
}

int rf_job_run(struct rf_stream *stream, const struct rf_job *job)
{
    struct rf_kernel_desc desc;
    struct rf_kernel *kernel = NULL;
    RETURN_IF_ERROR(rf_job_kernel(job, &desc));
    if (job->range_count > RF_MAX_RANGES)
        return rf_fail(RF_EINVAL,
                       "%s: the launch declares %u ranges of memory and a job holds %d; raise "
                       "RF_MAX_RANGES in src/ops/launch.h",
                       job->op, job->range_count, RF_MAX_RANGES);
    RETURN_IF_ERROR(rf_device_kernel(rf_stream_device(stream), &desc, &kernel));
    RETURN_IF_ERROR(rf_launch_views(stream, kernel,
                                    (struct rf_dispatch){job->push, job->push_bytes, job->groups,
                                                         job->ranges, job->range_count},
                                    job->views, job->view_count));
    if (rf_device_counts(rf_stream_device(stream)))
        count(stream, job);
    return 0;
}

int rf_check_tensor(const char *op, const char *what, struct rf_tensor tensor, enum rf_dtype dtype,
                    int64_t count)
{
    char text[96];
    if (!tensor.buffer)
        return rf_fail(RF_EINVAL, "%s: %s has no buffer", op, what);
    if (tensor.dtype != dtype)
        return rf_fail(RF_EINVAL, "%s: %s is %s, expected %s", op, what,
                       rf_tensor_text(tensor, text, sizeof(text)), rf_dtype_name(dtype));
    if (count >= 0 && rf_tensor_count(tensor) != count)
        return rf_fail(RF_EINVAL, "%s: %s is %s, expected %lld elements", op, what,
                       rf_tensor_text(tensor, text, sizeof(text)), (long long)count);
    if (tensor.offset % rf_dtype_bytes(dtype) != 0 ||
        tensor.offset + rf_tensor_bytes(tensor) > rf_buffer_bytes(tensor.buffer))
        return rf_fail(RF_EINVAL, "%s: %s lies outside its buffer or is not aligned to its type",
                       op, what);
    return 0;
}

int rf_check_alias(const char *op, const char *out_name, struct rf_tensor out, const char *in_name,
                   struct rf_tensor in)
{
    if (!out.buffer || out.buffer != in.buffer)
        return 0;
    uint64_t out_end = out.offset + rf_tensor_bytes(out), in_end = in.offset + rf_tensor_bytes(in);
    if (out.offset < in_end && in.offset < out_end)
        return rf_fail(RF_EINVAL, "%s: %s must not overlap %s", op, out_name, in_name);
    return 0;
}

void rf_flat_groups(struct rf_device *device, uint64_t items, uint32_t per_group,
                    uint32_t groups[3])
{
    uint64_t n = (items + per_group - 1) / per_group;
    uint64_t limit = rf_device_get_info(device)->max_workgroup_count[0];
    uint64_t rows = n ? (n + limit - 1) / limit : 1;
    groups[0] = (uint32_t)((n + rows - 1) / rows);
    groups[1] = (uint32_t)rows;
    groups[2] = 1;
}
