/* SPDX-License-Identifier: MIT
 *
 * Softmax over rows and its gradient: shaders/softmax.comp, on GPUs softmax_team.comp.
 * cross_entropy.c computes both at once for a loss.
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/softmax.h"

/* out = f(x, dout); dout may have no buffer. builds: a row per lane, and a row per team. */
static int run_rows(struct rf_stream *stream, const char *op, const struct rf_builds builds[2],
                    struct rf_tensor out, struct rf_tensor x, struct rf_tensor dout)
{
    int64_t columns = out.shape.ndim > 0 ? out.shape.dim[out.shape.ndim - 1] : 1;
    int64_t rows = columns ? rf_tensor_count(out) / columns : 0;
    RETURN_IF_ERROR(rf_check_rounds(rf_stream_device(stream), op, 3 * (columns / 4 + 1)));
    if (rows == 0)
        return 0;
    struct rf_push_softmax push = {.out_ = rf_address_of(out),
                                   .x = rf_address_of(x),
                                   .dout = rf_address_of(dout),
                                   .rows = (uint32_t)rows,
                                   .columns = (uint32_t)columns};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = out.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    const bool vector = rf_pick_vector(columns, (struct rf_tensor[]){out, x, dout}, 3);
    rf_job_build(&job, device, &builds[rf_device_teams(device)], vector,
                 (struct rf_source[]){{x}, {dout}}, dout.buffer ? 2 : 1, push.first);
    if (rf_device_teams(device))
        rf_job_teams(&job, device, (uint64_t)rows, columns, vector);
    else
        rf_job_flat(&job, device, (uint64_t)rows, rf_pick_row_lanes(device), 1);
    rf_job_reads(&job, x);
    rf_job_reads(&job, dout);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}

int rf_softmax(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x)
{
    static const char op[] = "softmax";
    static const struct rf_builds builds[] = {RF_BUILDS(softmax), RF_BUILDS_TEAM(softmax)};
    RETURN_IF_ERROR(rf_check_typed(op, "out", out, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "x", x, out.dtype, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "x", x));
    return run_rows(stream, op, builds, out, x, (struct rf_tensor){0});
}

int rf_softmax_backward(struct rf_stream *stream, struct rf_tensor dx, struct rf_tensor dout,
                        struct rf_tensor out)
{
    static const char op[] = "softmax_backward";
    static const struct rf_builds builds[] = {RF_BUILDS(softmax_backward),
                                              RF_BUILDS_TEAM(softmax_backward)};
    RETURN_IF_ERROR(rf_check_typed(op, "dx", dx, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "dout", dout, dx.dtype, rf_tensor_count(dx)));
    RETURN_IF_ERROR(rf_check_operand(op, "out", out, dx.dtype, rf_tensor_count(dx)));
    RETURN_IF_ERROR(rf_check_in_place(op, "dx", dx, "dout", dout));
    RETURN_IF_ERROR(rf_check_alias(op, "dx", dx, "out", out));
    return run_rows(stream, op, builds, dx, out, dout);
}
