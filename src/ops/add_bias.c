/* SPDX-License-Identifier: MIT
 *
 * Rows plus a bias plus other rows: the end of a product whose sums come from several ranks.
 * shaders/add_bias.comp.
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/add_bias.h"

#define UNROLL 4 /* of the shader */

int rf_add_bias(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                struct rf_tensor bias, struct rf_tensor residual)
{
    static const char op[] = "add_bias";
    static const struct rf_builds same = RF_BUILDS(add_bias),
                                  wide = {.aligned = RF_BUILD_16(add_bias_f32_v),
                                          .any = RF_BUILD_16(add_bias_f32_s)};
    RETURN_IF_ERROR(rf_check_typed(op, "out", out, -1));
    const int64_t count = rf_tensor_count(out);
    const int64_t columns = out.shape.ndim > 0 ? out.shape.dim[out.shape.ndim - 1] : 1;
    RETURN_IF_ERROR(rf_check_typed(op, "bias", bias, columns));
    if (bias.dtype != out.dtype && out.dtype != RF_F32)
        return rf_fail(RF_EINVAL, "add_bias: bias is %s; it must be of out's type, %s",
                       rf_dtype_name(bias.dtype), rf_dtype_name(out.dtype));
    RETURN_IF_ERROR(rf_check_operand(op, "a", a, out.dtype, count));
    RETURN_IF_ERROR(rf_check_operand(op, "residual", residual, out.dtype, count));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "a", a));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "residual", residual));
    RETURN_IF_ERROR(rf_check_alias(op, "out", out, "bias", bias));
    if (count == 0)
        return 0;
    const bool vector = rf_pick_vector(columns, (struct rf_tensor[]){out, a, bias, residual}, 4);
    const uint32_t width = vector ? 4 : 1;
    struct rf_push_add_bias push = {.out_ = rf_address_of(out),
                                    .a = rf_address_of(a),
                                    .bias = rf_address_of(bias),
                                    .residual = rf_address_of(residual),
                                    .items = (uint32_t)(count / width),
                                    .row_items = (uint32_t)(columns / width)};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = bias.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, bias.dtype == out.dtype ? &same : &wide, vector,
                 (struct rf_source[]){{a}, {bias}, {residual}}, 3, push.first);
    rf_job_flat(&job, device, push.items, RF_FLAT_LANES, UNROLL);
    rf_job_reads(&job, a);
    rf_job_reads(&job, bias);
    rf_job_reads(&job, residual);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}
