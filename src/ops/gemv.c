/* SPDX-License-Identifier: MIT
 *
 * Products of few rows (gemv.comp).
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/gemv.h"

#define LANES 64  /* TEAM * TEAMS of gemv.comp */
#define COLUMNS 8 /* of a workgroup: COLUMNS * TEAMS of gemv.comp */

static int check(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                 struct rf_tensor w, struct rf_tensor bias, struct rf_tensor residual)
{
    static const char op[] = "gemv";
    RETURN_IF_ERROR(rf_check_typed(op, "w", w, -1));
    if (w.shape.ndim != 2 || rf_tensor_count(w) == 0)
        return rf_fail(RF_EINVAL, "%s: w must have two dimensions, and elements", op);
    const int64_t columns = w.shape.dim[0], terms = w.shape.dim[1];
    RETURN_IF_ERROR(rf_check_rows(op, "x", x, w.dtype, -1, terms));
    const int64_t rows = rf_tensor_count(x) / terms;
    const enum rf_dtype type = out.dtype == RF_F32 ? RF_F32 : w.dtype;
    RETURN_IF_ERROR(rf_check_rows(op, "out", out, type, rows, columns));
    if (bias.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "bias", bias, w.dtype, columns));
    if (residual.buffer) {
        RETURN_IF_ERROR(rf_check_rows(op, "residual", residual, type, rows, columns));
        RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "residual", residual));
    }
    RETURN_IF_ERROR(rf_check_apart(op, (struct rf_named_tensor[]){{"out", out}}, 1,
                                   (struct rf_named_tensor[]){{"x", x}, {"w", w}, {"bias", bias}},
                                   3));
    return rf_check_rounds(rf_stream_device(stream), op, terms / 128 + 40);
}

int rf_gemv(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x, struct rf_tensor w,
            struct rf_tensor bias, struct rf_tensor residual)
{
    static const struct rf_builds same = RF_BUILDS(gemv),
                                  to_f32 = {.aligned = RF_BUILD_16(gemv_f32_v),
                                            .any = RF_BUILD_16(gemv_f32_s)};
    RETURN_IF_ERROR(check(stream, out, x, w, bias, residual));
    const int64_t columns = w.shape.dim[0], terms = w.shape.dim[1];
    const int64_t rows = rf_tensor_count(x) / terms;
    if (rows == 0)
        return 0;
    const uint32_t at_once = rows > 4 ? 8 : rows > 2 ? 4 : (uint32_t)rows;
    const bool vector = rf_pick_vector(terms, (struct rf_tensor[]){x, w}, 2);
    struct rf_push_gemv push = {.out_ = rf_address_of(out),
                                .x = rf_address_of(x),
                                .w = rf_address_of(w),
                                .bias = rf_address_of(bias),
                                .residual = rf_address_of(residual),
                                .rows = (uint32_t)rows,
                                .columns = (uint32_t)columns,
                                .terms = (uint32_t)terms};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {.op = "gemv", .type = w.dtype, .push = &push, .push_bytes = sizeof(push)};
    rf_job_build(&job, device, out.dtype == w.dtype ? &same : &to_f32, vector,
                 (struct rf_source[]){{x}, {w}}, 2, push.first);
    const uint64_t across = (uint64_t)(columns + COLUMNS - 1) / COLUMNS;
    const uint64_t down = (uint64_t)(rows + at_once - 1) / at_once;
    rf_job_spec(&job, 0, LANES);
    rf_job_spec(&job, 1, at_once);
    rf_flat_groups(device, across * down, 1, job.groups);
    job.work.flops = 2 * (uint64_t)(rows * columns * terms);
    rf_job_reads(&job, x);
    rf_job_reads(&job, w);
    rf_job_reads(&job, bias);
    rf_job_reads(&job, residual);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}
