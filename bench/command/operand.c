/* SPDX-License-Identifier: MIT
 *
 * Operands of kernel benchmarks: declared by a row, made and filled here, read back as rounded to
 * the type, and compared with fp64 after a launch. The device converts 16-bit types.
 */
#include <math.h>
#include <string.h>

#include "kernel.h"

#define SAMPLED 256

int bench_add_typed(struct bench_case *c, struct rf_shape shape, enum rf_dtype dtype,
                    enum bench_fill fill, int use, int64_t limit)
{
    if (c->count == BENCH_OPERANDS)
        abort(); /* a row's own mistake */
    c->operand[c->count] = (struct bench_operand){
        .tensor = {.shape = shape, .dtype = dtype}, .fill = fill, .use = use, .limit = limit};
    return c->count++;
}

int bench_add(struct bench_case *c, struct rf_shape shape, enum bench_fill fill, int use)
{
    return bench_add_typed(c, shape, c->dtype, fill, use, 0);
}

int bench_add_scratch(struct bench_case *c, int64_t count, enum rf_dtype dtype)
{
    return bench_add_typed(c, rf_shape1(count > 0 ? count : 1), dtype, BENCH_NOTHING, BENCH_SCRATCH,
                           0);
}

static uint32_t hash(uint64_t index, uint32_t salt)
{
    uint64_t h = (index + 1) * 0x9e3779b97f4a7c15ull + salt * 0xd1b54a32d192ed03ull;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93ull;
    return (uint32_t)(h >> 32);
}

static float value(const struct bench_operand *o, uint64_t index, uint32_t salt)
{
    static const struct rf_step_scalars scalars = {.lr = 1e-3f,
                                                   .inv_tokens = 0.5f,
                                                   .step = 3,
                                                   .updates = 3,
                                                   .factor = 0.25f,
                                                   .bias1 = 0.271f,
                                                   .bias2 = 0.002997001f};
    const float unit = (float)(hash(index, salt) >> 8) / 16777216.0f;
    switch (o->fill) {
    case BENCH_RANDOM:
        return 2 * unit - 1;
    case BENCH_POSITIVE:
        return unit + 0.5f;
    case BENCH_SCALARS:
        return ((const float *)&scalars)[index % (sizeof(scalars) / sizeof(float))];
    default:
        return 0;
    }
}

static int32_t word(const struct bench_operand *o, uint64_t index, uint32_t salt)
{
    const int64_t first = (int64_t)(index / 2) * 1024;
    switch (o->fill) {
    case BENCH_INDICES:
        return (int32_t)(hash(index, salt) % (uint64_t)o->limit);
    case BENCH_ONES:
        return 1;
    case BENCH_CHUNKS:
        return (int32_t)(index % 2 == 0            ? first
                         : o->limit - first < 1024 ? o->limit - first
                                                   : 1024);
    default:
        return 0;
    }
}

/* Between host floats and a tensor of any float type, through f32. */
static int transfer(struct bench_case *c, struct rf_tensor t, float *host, bool write)
{
    struct rf_tensor plain = t;
    const uint64_t bytes = (uint64_t)rf_tensor_count(t) * sizeof(float);
    if (t.dtype == RF_F32)
        return write ? rf_tensor_write(t, host, bytes) : rf_tensor_read(t, host, bytes);
    int rc = rf_tensor_create(c->device, t.shape, RF_F32, &plain);
    if (rc == 0 && write)
        rc = rf_tensor_write(plain, host, bytes);
    if (rc == 0)
        rc = rf_cast(c->stream, write ? t : plain, write ? plain : t);
    if (rc == 0)
        rc = rf_stream_wait(c->stream);
    if (rc == 0 && !write)
        rc = rf_tensor_read(plain, host, bytes);
    if (plain.buffer != t.buffer)
        rf_buffer_destroy(plain.buffer);
    return rc;
}

static int make(struct bench_case *c, int k)
{
    struct bench_operand *o = &c->operand[k];
    const uint64_t count = (uint64_t)rf_tensor_count(o->tensor);
    const bool words = o->tensor.dtype == RF_I32;
    int rc = rf_tensor_create(c->device, o->tensor.shape, o->tensor.dtype, &o->tensor);
    if (rc < 0 || o->use == BENCH_SCRATCH)
        return rc;
    if (words)
        o->words = calloc(count, sizeof(*o->words));
    else
        o->host = calloc(count, sizeof(*o->host));
    if (!o->words && !o->host)
        return RF_ENOMEM;
    if (o->fill == BENCH_NOTHING) /* buffers are zero when they are made */
        return 0;
    for (uint64_t i = 0; i < count; i++)
        if (words)
            o->words[i] = word(o, i, (uint32_t)k);
        else
            o->host[i] = value(o, i, (uint32_t)k);
    return words ? rf_tensor_write(o->tensor, o->words, count * sizeof(*o->words))
                 : transfer(c, o->tensor, o->host, true);
}

int bench_operands_make(struct bench_case *c)
{
    int rc = 0;
    for (int k = 0; k < c->count && rc == 0; k++)
        rc = make(c, k);
    if (rc == 0 && c->kernel->prepare)
        rc = c->kernel->prepare(c);
    if (rc == 0)
        rc = rf_stream_wait(c->stream);
    for (int k = 0; k < c->count && rc == 0; k++)
        if (c->operand[k].host && (c->operand[k].use & BENCH_READ))
            rc = transfer(c, c->operand[k].tensor, c->operand[k].host, false);
    return rc;
}

void bench_operands_free(struct bench_case *c)
{
    for (int k = 0; k < c->count; k++) {
        rf_buffer_destroy(c->operand[k].tensor.buffer);
        free(c->operand[k].host);
        free(c->operand[k].words);
    }
    c->count = 0;
}

/* Both ends, and places in between. */
static int64_t place(int64_t i, int64_t samples, int64_t count)
{
    if (count <= samples)
        return i;
    return i == 0 ? 0 : i == 1 ? count - 1 : (int64_t)(hash((uint64_t)i, 99) % (uint64_t)count);
}

static double compare(const struct bench_case *c, int k, const float *got)
{
    const struct rf_shape *shape = &c->operand[k].tensor.shape;
    const int64_t count = rf_tensor_count(c->operand[k].tensor);
    const int64_t samples = c->kernel->samples ? c->kernel->samples : SAMPLED;
    double worst = 0;
    for (int64_t i = 0; i < samples && i < count; i++) {
        int64_t index = place(i, samples, count), rest = index, at[RF_MAX_DIMS + 1] = {0};
        for (int d = shape->ndim - 1; d >= 0; d--) {
            at[d] = rest % shape->dim[d];
            rest /= shape->dim[d];
        }
        double scale = 0, want = c->kernel->want(c, k, at, &scale);
        scale = fmax(fmax(scale, fabs(want)), 1e-30);
        double error = fabs((double)got[index] - want) / scale;
        if (isnan(error) || error > worst) /* a NaN is the largest, and stays */
            worst = error;
    }
    return worst;
}

double bench_tolerance(enum rf_dtype type)
{
    return type == RF_F32 ? 1e-5 : type == RF_F16 ? 2e-3 : 1.6e-2;
}

int bench_operands_check(struct bench_case *c, double *error)
{
    *error = 0;
    int rc = c->kernel->launch(c);
    if (rc == 0)
        rc = rf_stream_wait(c->stream);
    for (int k = 0; k < c->count && rc == 0; k++) {
        if (!(c->operand[k].use & BENCH_WRITE))
            continue;
        float *got = malloc((size_t)rf_tensor_count(c->operand[k].tensor) * sizeof(*got));
        rc = got ? transfer(c, c->operand[k].tensor, got, false) : RF_ENOMEM;
        double worst = rc == 0 ? compare(c, k, got) : 0;
        if (isnan(worst) || worst > *error)
            *error = worst;
        free(got);
    }
    return rc;
}
