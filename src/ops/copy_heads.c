/* SPDX-License-Identifier: MIT
 *
 * Copies and sums of strided (B,T,H,D) operands (copy_heads.comp).
 */
#include "shaders/push/copy_heads.h"
#include "../base/base.h"
#include "heads.h"

int rf_copy_heads(struct rf_stream *stream, struct rf_heads out, struct rf_heads x, bool accumulate)
{
    static const char op[] = "copy_heads";
    RETURN_IF_ERROR(rf_check_heads(op, "x", &x));
    RETURN_IF_ERROR(rf_check_heads_like(op, "out", &out, x.tensor.dtype,
                                        (int64_t[]){x.batch, x.rows, x.heads, x.size}));
    RETURN_IF_ERROR(
        rf_check_heads_apart(op, (struct rf_named_heads[]){{"out", out}, {"x", x}}, 1, 2));
    const int64_t count = x.batch * x.rows * x.heads * x.size;
    if (count == 0)
        return 0;
    const bool vector = rf_heads_vector(&x) && rf_heads_vector(&out);
    const int64_t items = vector ? count / 4 : count;
    struct rf_tensor from = rf_heads_extent(&x), to = rf_heads_extent(&out);
    struct rf_push_copy_heads push = {.out_ = rf_address_of(to),
                                      .x = rf_address_of(from),
                                      .rows = (uint32_t)x.rows,
                                      .heads = (uint32_t)x.heads,
                                      .size = (uint32_t)x.size,
                                      .items = (uint32_t)items};
    rf_heads_strides(&out, push.out_strides);
    rf_heads_strides(&x, push.x_strides);
    static const struct rf_build shaders[2] = {RF_BUILD_TYPES(copy_heads_s),
                                               RF_BUILD_TYPES(copy_heads_v)};
    struct rf_job job = {.op = op,
                         .type = x.tensor.dtype,
                         .shader = shaders[vector],
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_flat(&job, rf_stream_device(stream), (uint64_t)items, RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, accumulate);
    rf_job_touches(&job, from, count, RF_TOUCH_READ);
    rf_job_touches(&job, to, count, accumulate ? RF_TOUCH_UPDATE : RF_TOUCH_WRITE);
    return rf_job_run(stream, &job);
}
