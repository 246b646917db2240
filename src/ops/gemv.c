/* SPDX-License-Identifier: MIT
 *
 * Products of few rows by a matrix (gemv.comp).
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/gemv.h"

#define LANES 64  /* TEAM * TEAMS of gemv.comp */
#define COLUMNS 8 /* per workgroup: COLUMNS * TEAMS of gemv.comp */

/* A product: out (rows,columns), sums of `terms` terms. */
struct product {
    struct rf_tensor out, x, w, bias, residual;
    enum rf_quantization quantized;
    int64_t rows, columns, terms;
};

static int64_t last_of(struct rf_tensor t)
{
    return t.shape.ndim > 0 ? t.shape.dim[t.shape.ndim - 1] : 0;
}

/* A quantised w has no shape: the sizes come from x and out. */
static int check_quantized(const char *op, struct product *p)
{
    char text[96];
    RETURN_IF_ERROR(rf_check_typed(op, "x", p->x, -1));
    p->columns = last_of(p->out);
    p->terms = last_of(p->x);
    RETURN_IF_ERROR(rf_check_operand(op, "w", p->w, RF_U8, -1));
    const bool ok = p->columns > 0 && p->terms > 0 && p->terms <= INT32_MAX / p->columns;
    const uint64_t bytes = ok ? rf_quantized_bytes(p->quantized, p->columns * p->terms) : 0;
    if (bytes && (uint64_t)rf_tensor_count(p->w) == bytes && p->w.offset % 4 == 0)
        return 0;
    return rf_fail(RF_EINVAL,
                   "%s: w is %s; (%lld, %lld) in %s, below 2^31 elements, has %llu bytes, from a "
                   "multiple of 4 on",
                   op, rf_tensor_text(p->w, text, sizeof(text)), (long long)p->columns,
                   (long long)p->terms, rf_quantization_name(p->quantized),
                   (unsigned long long)bytes);
}

static int check_weight(const char *op, struct product *p)
{
    if ((int)p->quantized < 0 || p->quantized >= RF_QUANTIZATION_COUNT)
        return rf_fail(RF_EINVAL, "%s: w_quantized is %d; it is a kind of enum rf_quantization", op,
                       (int)p->quantized);
    if (p->quantized)
        return check_quantized(op, p);
    RETURN_IF_ERROR(rf_check_typed(op, "w", p->w, -1));
    if (p->w.shape.ndim != 2 || rf_tensor_count(p->w) == 0)
        return rf_fail(RF_EINVAL, "%s: w must have two dimensions, and elements", op);
    p->columns = p->w.shape.dim[0];
    p->terms = p->w.shape.dim[1];
    return 0;
}

static int check(struct rf_stream *stream, struct product *p)
{
    static const char op[] = "gemv";
    RETURN_IF_ERROR(check_weight(op, p));
    const enum rf_dtype operand = p->quantized ? p->x.dtype : p->w.dtype;
    const enum rf_dtype type = p->out.dtype == RF_F32 ? RF_F32 : operand;
    RETURN_IF_ERROR(rf_check_rows(op, "x", p->x, operand, -1, p->terms));
    p->rows = rf_tensor_count(p->x) / p->terms;
    RETURN_IF_ERROR(rf_check_rows(op, "out", p->out, type, p->rows, p->columns));
    if (p->bias.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "bias", p->bias, operand, p->columns));
    if (p->residual.buffer) {
        RETURN_IF_ERROR(rf_check_rows(op, "residual", p->residual, type, p->rows, p->columns));
        RETURN_IF_ERROR(rf_check_in_place(op, "out", p->out, "residual", p->residual));
    }
    RETURN_IF_ERROR(
        rf_check_apart(op, (struct rf_named_tensor[]){{"out", p->out}}, 1,
                       (struct rf_named_tensor[]){{"x", p->x}, {"w", p->w}, {"bias", p->bias}}, 3));
    return rf_check_rounds(rf_stream_device(stream), op, p->terms / 128 + 40);
}

/* Chooses the build, and for a quantised w the begins of its sections. */
static void choose(const struct product *p, struct rf_device *device, struct rf_push_gemv *push,
                   struct rf_job *job)
{
    static const struct rf_builds builds[RF_QUANTIZATION_COUNT] = {
        [RF_QUANTIZE_NONE] = RF_BUILDS(gemv),
        [RF_NF4] = {.aligned = RF_BUILD_TYPES(gemv_nf4_v), .any = RF_BUILD_TYPES(gemv_nf4_s)},
        [RF_INT8] = {.aligned = RF_BUILD_TYPES(gemv_int8_v), .any = RF_BUILD_TYPES(gemv_int8_s)},
        [RF_FP8] = {.aligned = RF_BUILD_TYPES(gemv_fp8_v), .any = RF_BUILD_TYPES(gemv_fp8_s)},
        [RF_MXFP4] = {.aligned = RF_BUILD_TYPES(gemv_fp4_v), .any = RF_BUILD_TYPES(gemv_fp4_s)},
        [RF_NVFP4] = {.aligned = RF_BUILD_TYPES(gemv_fp4_v), .any = RF_BUILD_TYPES(gemv_fp4_s)}};
    static const struct rf_builds to_f32[RF_QUANTIZATION_COUNT] = {
        [RF_QUANTIZE_NONE] = {.aligned = RF_BUILD_16(gemv_f32_v), .any = RF_BUILD_16(gemv_f32_s)},
        [RF_NF4] = {.aligned = RF_BUILD_16(gemv_nf4_f32_v), .any = RF_BUILD_16(gemv_nf4_f32_s)},
        [RF_INT8] = {.aligned = RF_BUILD_16(gemv_int8_f32_v), .any = RF_BUILD_16(gemv_int8_f32_s)},
        [RF_FP8] = {.aligned = RF_BUILD_16(gemv_fp8_f32_v), .any = RF_BUILD_16(gemv_fp8_f32_s)},
        [RF_MXFP4] = {.aligned = RF_BUILD_16(gemv_fp4_f32_v), .any = RF_BUILD_16(gemv_fp4_f32_s)},
        [RF_NVFP4] = {.aligned = RF_BUILD_16(gemv_fp4_f32_v), .any = RF_BUILD_16(gemv_fp4_f32_s)}};
    const struct rf_builds *of = p->out.dtype == p->x.dtype ? builds : to_f32;
    const bool vector =
        rf_pick_vector(p->terms, (struct rf_tensor[]){p->x, p->w}, p->quantized ? 1 : 2);
    rf_job_build(job, device, &of[p->quantized], vector, (struct rf_source[]){{p->x}, {p->w}}, 2,
                 push->first);
    if (!p->quantized)
        return;
    const struct rf_quantized_layout l = rf_quantized_layout(p->quantized, p->columns * p->terms);
    push->blocks = (uint32_t)(l.blocks / 4);
    push->largest = (uint32_t)(l.largest / 4);
    push->offset_ = (uint32_t)(l.offset / 4);
}

static int run(struct rf_stream *stream, const struct product *p)
{
    const uint32_t at_once = p->rows > 4 ? 8 : p->rows > 2 ? 4 : (uint32_t)p->rows;
    struct rf_push_gemv push = {.out_ = rf_address_of(p->out),
                                .x = rf_address_of(p->x),
                                .w = rf_address_of(p->w),
                                .bias = rf_address_of(p->bias),
                                .residual = rf_address_of(p->residual),
                                .rows = (uint32_t)p->rows,
                                .columns = (uint32_t)p->columns,
                                .terms = (uint32_t)p->terms};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = "gemv", .type = p->x.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    choose(p, device, &push, &job);
    const uint64_t across = (uint64_t)(p->columns + COLUMNS - 1) / COLUMNS;
    const uint64_t down = (uint64_t)(p->rows + at_once - 1) / at_once;
    rf_job_spec(&job, 0, LANES);
    rf_job_spec(&job, 1, at_once);
    rf_quantized_spec(&job, p->quantized);
    rf_flat_groups(device, across * down, 1, job.groups);
    job.work.flops = 2 * (uint64_t)(p->rows * p->columns * p->terms);
    rf_job_reads(&job, p->x);
    rf_job_reads(&job, p->w);
    rf_job_reads(&job, p->bias);
    rf_job_reads(&job, p->residual);
    rf_job_writes(&job, p->out);
    return rf_job_run(stream, &job);
}

int rf_gemv(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x, struct rf_tensor w,
            const struct rf_gemv_opts *opts)
{
    static const struct rf_gemv_opts defaults = {0};
    struct product p = {.out = out, .x = x, .w = w};
    opts = opts ? opts : &defaults;
    p.quantized = opts->w_quantized;
    if (opts->bias)
        p.bias = *opts->bias;
    if (opts->residual)
        p.residual = *opts->residual;
    RETURN_IF_ERROR(check(stream, &p));
    return p.rows == 0 ? 0 : run(stream, &p);
}
