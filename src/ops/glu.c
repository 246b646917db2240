/* SPDX-License-Identifier: MIT
 *
 * Gated linear units, whose two inputs (and gradients) are two tensors or the halves of one.
 * shaders/glu.comp.
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/glu.h"

#define UNROLL 4 /* of the shader */

/* The two sides of a unit: rows of `columns` elements, `stride` elements apart. */
struct pair {
    struct rf_tensor gate, up;
    int64_t stride;
};

/* up without a buffer: gate holds both, (rows, 2 columns). */
static int check_pair(const char *op, const char *const names[2], struct rf_tensor gate,
                      struct rf_tensor up, enum rf_dtype dtype, int64_t rows, int64_t columns,
                      struct pair *out)
{
    *out = (struct pair){gate, up, columns};
    if (up.buffer) {
        RETURN_IF_ERROR(rf_check_rows(op, names[0], gate, dtype, rows, columns));
        return rf_check_rows(op, names[1], up, dtype, rows, columns);
    }
    RETURN_IF_ERROR(rf_check_rows(op, names[0], gate, dtype, rows, 2 * columns));
    if (rows == 0)
        return 0;
    /* Each side begins in the first row and ends in the last. */
    out->stride = 2 * columns;
    out->gate.shape = out->up.shape = rf_shape1((2 * rows - 1) * columns);
    out->up.buffer = gate.buffer;
    out->up.offset = gate.offset + (uint64_t)columns * rf_dtype_bytes(dtype);
    out->up.dtype = dtype;
    return 0;
}

static int check_out(const char *op, const char *name, struct rf_tensor out, int64_t *rows,
                     int64_t *columns)
{
    RETURN_IF_ERROR(rf_check_typed(op, name, out, -1));
    *columns = out.shape.ndim > 0 ? out.shape.dim[out.shape.ndim - 1] : 1;
    if (*columns < 1)
        return rf_fail(RF_EINVAL, "%s: %s has no columns", op, name);
    *rows = rf_tensor_count(out) / *columns;
    return 0;
}

static int run_glu(struct rf_stream *stream, const char *op, enum rf_activation kind,
                   struct rf_tensor out, const struct pair *d, struct rf_tensor dout,
                   const struct pair *in, int64_t rows, int64_t columns)
{
    static const struct rf_builds forward = RF_BUILDS(glu);
    static const struct rf_builds backward = RF_BUILDS(glu_backward);
    if (rows == 0)
        return 0;
    bool vector = rf_pick_vector(
        columns, (struct rf_tensor[]){out, dout, in->gate, in->up, d->gate, d->up}, 6);
    uint32_t width = vector ? 4 : 1;
    struct rf_push_glu push = {.out_ = rf_address_of(dout.buffer ? d->gate : out),
                               .dup = rf_address_of(d->up),
                               .dout = rf_address_of(dout),
                               .gate = rf_address_of(in->gate),
                               .up = rf_address_of(in->up),
                               .items = (uint32_t)(rows * columns / width),
                               .row_items = (uint32_t)(columns / width),
                               .gate_stride = (uint32_t)(in->stride / width),
                               .up_stride = (uint32_t)(in->stride / width),
                               .dgate_stride = (uint32_t)(d->stride / width),
                               .dup_stride = (uint32_t)(d->stride / width)};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = in->gate.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, dout.buffer ? &backward : &forward, vector,
                 (struct rf_source[]){{in->gate}, {in->up}, {dout}}, dout.buffer ? 3 : 2,
                 push.first);
    rf_job_flat(&job, device, push.items, RF_FLAT_LANES, UNROLL);
    rf_job_spec(&job, 1, kind);
    const int64_t count = rows * columns; /* per side, without the gaps between its rows */
    rf_job_touches(&job, in->gate, count, RF_TOUCH_READ);
    rf_job_touches(&job, in->up, count, RF_TOUCH_READ);
    rf_job_reads(&job, dout);
    rf_job_writes(&job, out);
    rf_job_touches(&job, d->gate, count, RF_TOUCH_WRITE);
    rf_job_touches(&job, d->up, count, RF_TOUCH_WRITE);
    return rf_job_run(stream, &job);
}

int rf_glu(struct rf_stream *stream, enum rf_activation kind, struct rf_tensor out,
           struct rf_tensor gate, struct rf_tensor up)
{
    static const char op[] = "glu";
    static const char *const names[2] = {"gate", "up"};
    const struct pair none = {.stride = 0};
    struct pair in;
    int64_t rows = 0, columns = 0;
    RETURN_IF_ERROR(rf_check_activation(op, kind));
    RETURN_IF_ERROR(check_out(op, "out", out, &rows, &columns));
    RETURN_IF_ERROR(check_pair(op, names, gate, up, out.dtype, rows, columns, &in));
    if (up.buffer) {
        RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "gate", gate));
        RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "up", up));
    } else {
        RETURN_IF_ERROR(rf_check_alias(op, "out", out, "gate", gate));
    }
    return run_glu(stream, op, kind, out, &none, (struct rf_tensor){0}, &in, rows, columns);
}

int rf_glu_backward(struct rf_stream *stream, enum rf_activation kind, struct rf_tensor gate,
                    struct rf_tensor up, const struct rf_glu_grads *grads)
{
    static const char op[] = "glu_backward";
    static const char *const in_names[2] = {"gate", "up"}, *const out_names[2] = {"dgate", "dup"};
    const struct rf_tensor dout = grads->dout, dgate = grads->dgate, dup = grads->dup;
    struct pair in, d;
    int64_t rows = 0, columns = 0;
    RETURN_IF_ERROR(rf_check_activation(op, kind));
    RETURN_IF_ERROR(check_out(op, "dout", dout, &rows, &columns));
    RETURN_IF_ERROR(check_pair(op, in_names, gate, up, dout.dtype, rows, columns, &in));
    RETURN_IF_ERROR(check_pair(op, out_names, dgate, dup, dout.dtype, rows, columns, &d));
    /* Each gradient may overwrite its own input only. */
    RETURN_IF_ERROR(rf_check_in_place(op, "dgate", dgate, "gate", gate));
    RETURN_IF_ERROR(rf_check_in_place(op, "dup", dup, "up", up));
    RETURN_IF_ERROR(rf_check_alias(op, "dgate", dgate, "up", up));
    RETURN_IF_ERROR(rf_check_alias(op, "dup", dup, "gate", gate));
    RETURN_IF_ERROR(rf_check_apart(op, (struct rf_named_tensor[]){{"dgate", dgate}, {"dup", dup}},
                                   2, (struct rf_named_tensor[]){{"dout", dout}}, 1));
    return run_glu(stream, op, kind, (struct rf_tensor){0}, &d, dout, &in, rows, columns);
}
