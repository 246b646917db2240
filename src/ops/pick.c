/* SPDX-License-Identifier: MIT
 *
 * Choice of shader builds and workgroup sizes, and operand checks, for the launchers of ops/.
 */
#include "pick.h"

#include "../base/base.h"

bool rf_pick_vector(int64_t row_elements, const struct rf_tensor *tensors, size_t count)
{
    if (row_elements % 4 != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        if (rf_address_of(tensors[i]) % (4 * rf_dtype_bytes(tensors[i].dtype)) != 0)
            return false;
    return true;
}

uint32_t rf_pick_row_lanes(struct rf_device *device)
{
    const struct rf_device_info *info = rf_device_get_info(device);
    return info->kind == RF_DEVICE_CPU && info->subgroup_size > 0 ? info->subgroup_size
                                                                  : RF_FLAT_LANES;
}

void rf_job_spec(struct rf_job *job, uint32_t id, uint32_t value)
{
    job->specs[job->spec_count++] = (struct rf_spec){.id = id, .value = value};
}

void rf_quantized_spec(struct rf_job *job, enum rf_quantization kind)
{
    if (kind == RF_MXFP4 || kind == RF_NVFP4)
        rf_job_spec(job, 20, kind == RF_NVFP4);
}

void rf_job_flat(struct rf_job *job, struct rf_device *device, uint64_t items, uint32_t lanes,
                 uint32_t items_per_lane)
{
    rf_job_spec(job, 0, lanes);
    rf_flat_groups(device, items, lanes * items_per_lane, job->groups);
}

#define SHORT_ROW 1024 /* columns, for a small team */
/* Quads that a lane keeps: 32 or 64 registers. In unaligned rows, addresses of single elements need
 * so many registers that some compilers spill. The bits do not depend on this. */
#define MOST_KEPT 8
#define MOST_KEPT_OF_ANY 2

void rf_job_teams(struct rf_job *job, struct rf_device *device, uint64_t rows, int64_t columns,
                  bool aligned)
{
    const uint64_t most = aligned ? MOST_KEPT : MOST_KEPT_OF_ANY;
    const uint32_t team = columns <= SHORT_ROW ? 32 : RF_TEAM_LANES;
    const uint64_t quads = ((uint64_t)columns + 4 * team - 1) / (4 * team);
    rf_job_spec(job, 0, RF_TEAM_LANES);
    rf_job_spec(job, 1, team);
    rf_job_spec(job, 2, (uint32_t)(quads < most ? quads : most));
    rf_flat_groups(device, rows * team, RF_TEAM_LANES, job->groups);
}

void rf_job_build(struct rf_job *job, struct rf_device *device, const struct rf_builds *builds,
                  bool aligned, const struct rf_source *sources, uint32_t count, uint32_t *first)
{
    const struct rf_build views = aligned ? builds->aligned_views : builds->any_views;
    job->shader = aligned ? builds->aligned : builds->any;
    if (!rf_is_built(&views, job->type) || !rf_device_get_info(device)->int64)
        return;
    for (uint32_t i = 0; i < count; i++) {
        const struct rf_source *source = sources[i].tensor.buffer ? &sources[i] : &sources[0];
        if (!rf_job_view(job, source->tensor, aligned && !source->single, &first[i])) {
            job->view_count = 0;
            return;
        }
    }
    job->shader = views;
}

uint64_t rf_wide_bytes(struct rf_tensor written)
{
    const struct rf_view view = {written.buffer, written.offset, 0, 0};
    const struct rf_device *device = rf_buffer_device(written.buffer);
    return rf_device_get_info(device)->int64 ? rf_view_writable(&view) : 0;
}

uint64_t rf_wide_quads(struct rf_device *device, uint64_t quads, uint32_t per_lane,
                       const struct rf_tensor *written, uint32_t count)
{
    const uint64_t group = (uint64_t)rf_device_get_info(device)->subgroup_size * per_lane;
    uint64_t most = RF_WIDE_GROUPS * group;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t capacity = rf_wide_bytes(written[i]) / (4 * rf_dtype_bytes(written[i].dtype));
        most = capacity < most ? capacity : most;
    }
    return (quads < most ? quads : most) / group * group;
}

void rf_job_wide(struct rf_job *job, struct rf_device *device, uint64_t quads, uint32_t per_lane,
                 const struct rf_tensor *written, uint32_t count, uint32_t digits[RF_WIDE_DIGITS])
{
    const uint32_t lanes = rf_device_get_info(device)->subgroup_size;
    for (uint32_t i = 0; i < RF_WIDE_DIGITS; i++)
        digits[i] = i;
    for (uint32_t i = 0; i < count; i++)
        job->views[job->view_count++] =
            (struct rf_view){written[i].buffer, written[i].offset, rf_tensor_bytes(written[i]), 0};
    rf_job_spec(job, 0, lanes);
    job->subgroup_size = lanes;
    job->groups[0] = (uint32_t)(quads / lanes / per_lane);
    job->groups[1] = job->groups[2] = 1;
}

struct rf_tensor rf_elements(struct rf_tensor tensor, int64_t first, int64_t count)
{
    if (!tensor.buffer)
        return tensor;
    tensor.offset += (uint64_t)first * rf_dtype_bytes(tensor.dtype);
    tensor.shape = rf_shape1(count);
    return tensor;
}

#define MOST_ROUNDS 65000

int rf_check_rounds(struct rf_device *device, const char *op, int64_t rounds)
{
    if (rounds <= MOST_ROUNDS || rf_device_get_info(device)->kind != RF_DEVICE_CPU)
        return 0;
    return rf_fail(RF_ENOTSUP,
                   "%s: this size needs loops of %lld rounds; CPU devices end loops after %d", op,
                   (long long)rounds, MOST_ROUNDS);
}

int rf_check_operand(const char *op, const char *what, struct rf_tensor tensor, enum rf_dtype dtype,
                     int64_t count)
{
    RETURN_IF_ERROR(rf_check_tensor(op, what, tensor, dtype, count));
    if (rf_tensor_count(tensor) > INT32_MAX)
        return rf_fail(RF_ENOTSUP, "%s: %s has %lld elements; kernels index up to %d", op, what,
                       (long long)rf_tensor_count(tensor), INT32_MAX);
    return 0;
}

int rf_check_typed(const char *op, const char *what, struct rf_tensor tensor, int64_t count)
{
    char text[96];
    if (tensor.buffer && !rf_is_float_type(tensor.dtype))
        return rf_fail(RF_EINVAL, "%s: %s is %s, expected f32, f16 or bf16", op, what,
                       rf_tensor_text(tensor, text, sizeof(text)));
    return rf_check_operand(op, what, tensor, tensor.dtype, count);
}

int rf_check_activation(const char *op, enum rf_activation kind)
{
    if (rf_activation_name(kind))
        return 0;
    return rf_fail(RF_EINVAL, "%s: unknown activation %d; see enum rf_activation", op, (int)kind);
}

int rf_check_rows(const char *op, const char *what, struct rf_tensor tensor, enum rf_dtype dtype,
                  int64_t rows, int64_t columns)
{
    char text[96];
    RETURN_IF_ERROR(rf_check_operand(op, what, tensor, dtype, -1));
    int32_t ndim = tensor.shape.ndim;
    bool ok = ndim > 0 && tensor.shape.dim[ndim - 1] == columns;
    if (ok && (rows < 0 || rf_tensor_count(tensor) == rows * columns))
        return 0;
    rf_tensor_text(tensor, text, sizeof(text));
    if (rows < 0)
        return rf_fail(RF_EINVAL, "%s: %s is %s, expected rows of %lld", op, what, text,
                       (long long)columns);
    return rf_fail(RF_EINVAL, "%s: %s is %s, expected (%lld, %lld)", op, what, text,
                   (long long)rows, (long long)columns);
}

int rf_check_in_place(const char *op, const char *out_name, struct rf_tensor out,
                      const char *in_name, struct rf_tensor in)
{
    if (out.buffer == in.buffer && out.offset == in.offset)
        return 0;
    return rf_check_alias(op, out_name, out, in_name, in);
}

int rf_check_uses(const char *op, uint32_t call, const struct rf_use *uses, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (uses[i].set && !(uses[i].calls & call))
            return rf_fail(RF_EINVAL, "%s: %s has no use in this call; leave it zero", op,
                           uses[i].name);
    return 0;
}

int rf_check_apart(const char *op, const struct rf_named_tensor *outs, size_t out_count,
                   const struct rf_named_tensor *ins, size_t in_count)
{
    for (size_t i = 0; i < out_count; i++) {
        for (size_t k = 0; k < in_count; k++)
            RETURN_IF_ERROR(
                rf_check_alias(op, outs[i].name, outs[i].tensor, ins[k].name, ins[k].tensor));
        for (size_t k = i + 1; k < out_count; k++)
            RETURN_IF_ERROR(
                rf_check_alias(op, outs[i].name, outs[i].tensor, outs[k].name, outs[k].tensor));
    }
    return 0;
}
