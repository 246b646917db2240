/* SPDX-License-Identifier: MIT
 *
 * Fixed point for the streams of reversible blocks. shaders/fixed.comp.
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/fixed.h"

#define UNROLL 4 /* of the shader */

enum mode { READ, WRITE, ADD, SUBTRACT };

static int run(struct rf_stream *stream, const char *op, enum mode mode, struct rf_tensor out,
               struct rf_tensor x, struct rf_tensor term)
{
    const int64_t count = rf_tensor_count(out);
    const struct rf_push_fixed push = {.out_ = rf_address_of(out),
                                       .x = rf_address_of(x),
                                       .term = rf_address_of(term),
                                       .items = (uint32_t)count};
    struct rf_job job = {.op = op,
                         .type = RF_F32,
                         .shader = RF_BUILD(fixed),
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    if (count == 0)
        return 0;
    rf_job_flat(&job, rf_stream_device(stream), push.items, RF_FLAT_LANES, UNROLL);
    rf_job_spec(&job, 1, mode);
    rf_job_reads(&job, x);
    rf_job_reads(&job, term);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}

int rf_fixed_read(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x)
{
    static const char op[] = "fixed_read";
    RETURN_IF_ERROR(rf_check_operand(op, "x", x, RF_I32, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_operand(op, "out", out, RF_F32, rf_tensor_count(x)));
    RETURN_IF_ERROR(rf_check_alias(op, "out", out, "x", x));
    return run(stream, op, READ, out, x, (struct rf_tensor){0});
}

int rf_fixed_write(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x)
{
    static const char op[] = "fixed_write";
    RETURN_IF_ERROR(rf_check_operand(op, "x", x, RF_F32, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_operand(op, "out", out, RF_I32, rf_tensor_count(x)));
    RETURN_IF_ERROR(rf_check_alias(op, "out", out, "x", x));
    return run(stream, op, WRITE, out, (struct rf_tensor){0}, x);
}

int rf_fixed_add(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                 struct rf_tensor term, bool subtract)
{
    static const char op[] = "fixed_add";
    RETURN_IF_ERROR(rf_check_operand(op, "x", x, RF_I32, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_operand(op, "term", term, RF_F32, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_operand(op, "out", out, RF_I32, rf_tensor_count(x)));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "x", x));
    RETURN_IF_ERROR(rf_check_alias(op, "out", out, "term", term));
    return run(stream, op, subtract ? SUBTRACT : ADD, out, x, term);
}
