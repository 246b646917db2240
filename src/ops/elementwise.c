/* SPDX-License-Identifier: MIT
 *
 * Operations on one flat range of elements (shaders/elementwise.comp) and activations
 * (shaders/activation.comp). A new operation is a line of shaders/elementwise_ops.h and a function
 * here.
 */
#include <stddef.h>

#include "pick.h"

#include "../base/base.h"
#include "shaders/push/elementwise.h"

#define UNROLL 4       /* of the shaders: items of a lane */
#define WIDE_UNROLL 16 /* ... in _wide */

/* OP_add and so on. */
#define PAIR(number, name, result) OP_##name = number,
#define SINGLE PAIR
enum {
#include "shaders/elementwise_ops.h"
};

static const struct rf_tensor none;
static const struct rf_builds elementwise = RF_BUILDS_WIDE(elementwise);

/* One launch; wide: the build that writes by whole subgroups. */
static int run_part(struct rf_stream *stream, const char *op, const struct rf_builds *builds,
                    struct rf_tensor out, struct rf_tensor a, struct rf_tensor b, float factor,
                    uint32_t kind, bool wide)
{
    int64_t count = rf_tensor_count(out);
    bool vector = rf_pick_vector(count, (struct rf_tensor[]){out, a, b}, 3);
    uint32_t items = (uint32_t)(vector ? count / 4 : count);
    struct rf_push_elementwise push = {.out_ = rf_address_of(out),
                                       .a = rf_address_of(a),
                                       .b = rf_address_of(b),
                                       .items = items,
                                       .factor = factor};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {.op = op,
                         .type = out.dtype,
                         .push = &push,
                         .push_bytes = wide ? RF_PUSH_BYTES(push)
                                            : offsetof(struct rf_push_elementwise, digits)};
    rf_job_build(&job, device, builds, vector, (struct rf_source[]){{a}, {b}}, b.buffer ? 2 : 1,
                 push.first);
    if (wide && job.view_count == 0) /* casts have views in this build only */
        rf_job_view(&job, a, true, push.first);
    if (wide && job.view_count > 0) {
        job.shader = builds->wide;
        rf_job_wide(&job, device, items, WIDE_UNROLL, &out, 1, push.digits);
    } else {
        job.push_bytes = offsetof(struct rf_push_elementwise, digits);
        rf_job_flat(&job, device, items, RF_FLAT_LANES, UNROLL);
    }
    job.copies = builds == &elementwise && kind == OP_copy;
    rf_job_spec(&job, 1, kind);
    rf_job_reads(&job, a);
    rf_job_reads(&job, b);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}

/* out = f(a, b), with equal counts; b may have no buffer. kind: specialization constant 1. */
static int run_flat(struct rf_stream *stream, const char *op, const struct rf_builds *builds,
                    struct rf_tensor out, struct rf_tensor a, struct rf_tensor b, float factor,
                    uint32_t kind)
{
    struct rf_device *device = rf_stream_device(stream);
    int64_t count = rf_tensor_count(out), done = 0, part = 0;
    if (rf_is_built(&builds->wide, out.dtype) &&
        rf_pick_vector(count, (struct rf_tensor[]){out, a, b}, 3)) {
        for (; done < count; done += part) {
            const struct rf_tensor rest = rf_elements(out, done, count - done);
            part = 4 * (int64_t)rf_wide_quads(device, (uint64_t)(count - done) / 4, WIDE_UNROLL,
                                              &rest, 1);
            if (part == 0)
                break;
            RETURN_IF_ERROR(run_part(stream, op, builds, rf_elements(out, done, part),
                                     rf_elements(a, done, part), rf_elements(b, done, part), factor,
                                     kind, true));
        }
    }
    if (done == count)
        return 0;
    return run_part(stream, op, builds, rf_elements(out, done, count - done),
                    rf_elements(a, done, count - done), rf_elements(b, done, count - done), factor,
                    kind, false);
}

const char *rf_activation_name(enum rf_activation kind)
{
#define NAME(constant, name) name,
    static const char *const names[] = {RF_ACTIVATIONS(NAME)};
#undef NAME
    return (unsigned)kind < RF_ACTIVATION_COUNT ? names[kind] : NULL;
}

int rf_activate(struct rf_stream *stream, enum rf_activation kind, struct rf_tensor out,
                struct rf_tensor x)
{
    static const struct rf_builds builds = RF_BUILDS_WIDE(activation);
    static const char op[] = "activate";
    RETURN_IF_ERROR(rf_check_activation(op, kind));
    RETURN_IF_ERROR(rf_check_typed(op, "out", out, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "x", x, out.dtype, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "x", x));
    return run_flat(stream, op, &builds, out, x, none, 0, kind);
}

int rf_activate_backward(struct rf_stream *stream, enum rf_activation kind, struct rf_tensor dx,
                         struct rf_tensor dout, struct rf_tensor x)
{
    static const struct rf_builds builds = RF_BUILDS_WIDE(activation_backward);
    static const char op[] = "activate_backward";
    RETURN_IF_ERROR(rf_check_activation(op, kind));
    RETURN_IF_ERROR(rf_check_typed(op, "dx", dx, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "dout", dout, dx.dtype, rf_tensor_count(dx)));
    RETURN_IF_ERROR(rf_check_operand(op, "x", x, dx.dtype, rf_tensor_count(dx)));
    RETURN_IF_ERROR(rf_check_in_place(op, "dx", dx, "dout", dout));
    RETURN_IF_ERROR(rf_check_in_place(op, "dx", dx, "x", x));
    return run_flat(stream, op, &builds, dx, x, dout, 0, kind);
}

/* out = op(a), in place or not. factor: pc.factor of the operation, 0 if it has no use for it. */
static int run_single(struct rf_stream *stream, const char *op, uint32_t number,
                      struct rf_tensor out, struct rf_tensor a, float factor)
{
    RETURN_IF_ERROR(rf_check_typed(op, "out", out, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "a", a, out.dtype, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "a", a));
    return run_flat(stream, op, &elementwise, out, a, none, factor, number);
}

/* out = a op b, in place or not. */
static int run_pair(struct rf_stream *stream, const char *op, uint32_t number, struct rf_tensor out,
                    struct rf_tensor a, struct rf_tensor b, float factor)
{
    RETURN_IF_ERROR(rf_check_typed(op, "out", out, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "a", a, out.dtype, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_operand(op, "b", b, out.dtype, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "a", a));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "b", b));
    return run_flat(stream, op, &elementwise, out, a, b, factor, number);
}

int rf_add(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a, struct rf_tensor b)
{
    return run_pair(stream, "add", OP_add, out, a, b, 0);
}

int rf_mul(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a, struct rf_tensor b)
{
    return run_pair(stream, "mul", OP_mul, out, a, b, 0);
}

int rf_maximum(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
               struct rf_tensor b)
{
    return run_pair(stream, "maximum", OP_maximum, out, a, b, 0);
}

/* The builds that read a type other than the one they write. */
static const struct rf_builds *builds_from(enum rf_dtype type)
{
    static const struct rf_builds
        from_f32 = {.aligned = RF_BUILD_16(cast_f32_v),
                    .any = RF_BUILD_16(cast_f32_s),
                    .wide = RF_BUILD_16(cast_f32_wide)},
        from_f16 = {.aligned = {.f32 = RF_SHADER_cast_f16_v, .bf16 = RF_SHADER_cast_f16_v_bf16},
                    .any = {.f32 = RF_SHADER_cast_f16_s, .bf16 = RF_SHADER_cast_f16_s_bf16},
                    .wide = RF_BUILD(cast_f16_wide)},
        from_bf16 = {.aligned = {.f32 = RF_SHADER_cast_bf16_v, .f16 = RF_SHADER_cast_bf16_v_f16},
                     .any = {.f32 = RF_SHADER_cast_bf16_s, .f16 = RF_SHADER_cast_bf16_s_f16},
                     .wide = RF_BUILD(cast_bf16_wide)};
    return type == RF_F32 ? &from_f32 : type == RF_F16 ? &from_f16 : &from_bf16;
}

int rf_scale(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a, float factor)
{
    RETURN_IF_ERROR(rf_check_typed("scale", "out", out, -1));
    RETURN_IF_ERROR(rf_check_typed("scale", "a", a, rf_tensor_count(out)));
    if (a.dtype != out.dtype) {
        RETURN_IF_ERROR(rf_check_alias("scale", "out", out, "a", a));
        return run_flat(stream, "scale", builds_from(a.dtype), out, a, none, factor, OP_scale);
    }
    return run_single(stream, "scale", OP_scale, out, a, factor);
}

int rf_cast(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a)
{
    RETURN_IF_ERROR(rf_check_typed("cast", "out", out, -1));
    RETURN_IF_ERROR(rf_check_typed("cast", "a", a, rf_tensor_count(out)));
    if (a.dtype == out.dtype)
        return rf_copy(stream, out, a);
    RETURN_IF_ERROR(rf_check_alias("cast", "out", out, "a", a));
    return run_flat(stream, "cast", builds_from(a.dtype), out, a, none, 0, OP_copy);
}

/* Views both as words if a kernel can copy them by quads: on an H100 the driver's copies within the
 * device reach a quarter of its bandwidth. */
static bool copied_by_kernel(struct rf_stream *stream, struct rf_tensor *out, struct rf_tensor *a)
{
    const int64_t words = (int64_t)(rf_tensor_bytes(*out) / 4);
    if (!rf_device_teams(rf_stream_device(stream)) || rf_tensor_bytes(*out) % 16 ||
        words > INT32_MAX || rf_address_of(*out) % 16 || rf_address_of(*a) % 16)
        return false;
    out->dtype = a->dtype = RF_F32;
    out->shape = a->shape = rf_shape1(words);
    return true;
}

int rf_copy(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a)
{
    RETURN_IF_ERROR(rf_check_tensor("copy", "out", out, out.dtype, -1));
    RETURN_IF_ERROR(rf_check_tensor("copy", "a", a, out.dtype, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_alias("copy", "out", out, "a", a));
    if (rf_tensor_count(out) == 0)
        return 0;
    if (copied_by_kernel(stream, &out, &a))
        return run_flat(stream, "copy", &elementwise, out, a, none, 0, OP_copy);
    return rf_stream_copy(stream, (struct rf_buffer_place){out.buffer, out.offset},
                          (struct rf_buffer_place){a.buffer, a.offset}, rf_tensor_bytes(out));
}

int rf_fill(struct rf_stream *stream, struct rf_tensor out, float value)
{
    static const struct rf_builds builds = {.aligned = RF_BUILD_16(fill_v),
                                            .any = RF_BUILD_16(fill_s)};
    uint32_t word;
    RETURN_IF_ERROR(rf_check_typed("fill", "out", out, -1));
    if (out.dtype != RF_F32) /* words may include neighbours' elements */
        return run_flat(stream, "fill", &builds, out, none, none, value, 0);
    if (rf_tensor_count(out) == 0)
        return 0;
    memcpy(&word, &value, sizeof(word));
    return rf_stream_fill(stream, out.buffer, out.offset, rf_tensor_bytes(out), word);
}
