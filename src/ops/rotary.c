/* SPDX-License-Identifier: MIT
 *
 * Rotary embedding, forward and backward (rotary.comp).
 */
#include <math.h>

#include "../base/base.h"
#include "heads.h"
#include "shaders/push/rotary.h"

#define POWERS 7 /* of rotary.comp: heads of up to 2 * 2^7 elements */

/* A number in 0..1 as 64 bits after the point: high, low word. long double: f64 would lose bits
 * that distant rows multiply. */
static void fraction(long double x, uvec2 *out)
{
    long double high = floorl(x * 0x1p32L);
    out->x = high < 0x1p32L ? (uint32_t)high : UINT32_MAX;
    out->y = high < 0x1p32L ? (uint32_t)((x * 0x1p32L - high) * 0x1p32L) : UINT32_MAX;
}

static int check_scaling(const char *op, const struct rf_rotary_scaling *s)
{
    if (s->factor == 0)
        return 0;
    if (s->factor >= 1 && isfinite(s->factor) && s->low > 0 && s->low < s->high &&
        s->original > 0 && s->original <= INT32_MAX && s->high <= (double)s->original &&
        s->high - s->low >= 0x1p-31 * (double)s->original)
        return 0;
    return rf_fail(RF_EINVAL,
                   "%s: scaling by %g from %g to %g turns in %lld tokens; the factor must be 1 or "
                   "more, and the numbers of turns in rising order from above 0 to the tokens",
                   op, s->factor, s->low, s->high, (long long)s->original);
}

/* Constants 2 to 10 of rotary.comp. A fraction of a turn per token is between low / original and
 * high / original; shifted to the left, the width of this range is 1/2 to below 1. */
static void specify_scaling(struct rf_job *job, const struct rf_rotary_scaling *s)
{
    const long double low = (long double)s->low / s->original,
                      high = (long double)s->high / s->original;
    int exponent = 0;
    const long double width = frexpl(high - low, &exponent); /* 1/2 to below 1 */
    const long double parts[] = {low, high, 1 / (long double)s->factor, 1 / width - 1};
    rf_job_spec(job, 2, (uint32_t)-exponent + 1);
    for (uint32_t k = 0; k < 4; k++) {
        uvec2 words;
        fraction(parts[k], &words);
        rf_job_spec(job, 3 + 2 * k, words.x);
        rf_job_spec(job, 4 + 2 * k, words.y);
    }
}

static int check(const char *op, const struct rf_named_heads *out, const struct rf_named_heads *x,
                 const struct rf_rotary_opts *opts)
{
    const struct rf_heads *h = &x->heads;
    RETURN_IF_ERROR(rf_check_heads(op, x->name, h));
    RETURN_IF_ERROR(rf_check_heads_like(op, out->name, &out->heads, h->tensor.dtype,
                                        (int64_t[]){h->batch, h->rows, h->heads, h->size}));
    if (h->size % 2 != 0)
        return rf_fail(RF_EINVAL, "%s: heads of %lld elements are not pairs", op,
                       (long long)h->size);
    if (h->size > 2 << POWERS)
        return rf_fail(RF_ENOTSUP, "%s: heads of %lld elements; up to %d are supported", op,
                       (long long)h->size, 2 << POWERS);
    if (opts->theta != 0 && !(opts->theta >= 1 && isfinite(opts->theta)))
        return rf_fail(RF_EINVAL, "%s: theta is %g; it must be 1 or more (0: 10000)", op,
                       opts->theta);
    if (opts->position < 0 || opts->position > INT32_MAX - h->rows)
        return rf_fail(RF_EINVAL, "%s: position %lld of %lld rows; positions go from 0 to %d", op,
                       (long long)opts->position, (long long)h->rows, INT32_MAX);
    RETURN_IF_ERROR(check_scaling(op, &opts->scaling));
    /* In place, each item reads the elements that it writes, if they are exactly the same. */
    bool in_place = rf_heads_same_place(&out->heads, h);
    return rf_check_heads_apart(op, (struct rf_named_heads[]){*out, *x}, 1, in_place ? 1 : 2);
}

static int run_rotary(struct rf_stream *stream, const char *op, struct rf_named_heads out,
                      struct rf_named_heads x, const struct rf_rotary_opts *given, bool back)
{
    static const struct rf_build shaders[2][2] = {
        {RF_BUILD_TYPES(rotary_s), RF_BUILD_TYPES(rotary_v)},
        {RF_BUILD_TYPES(rotary_halves_s), RF_BUILD_TYPES(rotary_halves_v)}};
    static const struct rf_rotary_opts none = {0};
    const struct rf_rotary_opts *opts = given ? given : &none;
    const struct rf_heads *h = &x.heads;
    RETURN_IF_ERROR(check(op, &out, &x, opts));
    int64_t lines = h->batch * h->rows;
    if (lines == 0)
        return 0;
    struct rf_device *device = rf_stream_device(stream);
    RETURN_IF_ERROR(rf_check_rounds(device, op, h->heads + POWERS));
    bool vector = h->size % 8 == 0 && rf_heads_vector(h) && rf_heads_vector(&out.heads);
    int64_t items = lines * (h->size / (vector ? 8 : 2));
    struct rf_tensor in = rf_heads_extent(h), to = rf_heads_extent(&out.heads);
    struct rf_push_rotary push = {.out_ = rf_address_of(to),
                                  .x = rf_address_of(in),
                                  .rows = (uint32_t)h->rows,
                                  .heads = (uint32_t)h->heads,
                                  .size = (uint32_t)h->size,
                                  .position = (uint32_t)opts->position,
                                  .items = (uint32_t)items};
    long double power = powl(opts->theta != 0 ? opts->theta : 10000.0L, -2.0L / h->size);
    fraction(0.159154943091895335768883763372514362L, &push.turn);
    for (int i = 0; i < POWERS; i++, power *= power)
        fraction(power, &push.power[i]);
    rf_heads_strides(&out.heads, push.out_strides);
    rf_heads_strides(h, push.x_strides);
    struct rf_job job = {.op = op,
                         .type = h->tensor.dtype,
                         .shader = shaders[opts->halves][vector],
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_flat(&job, device, (uint64_t)items, RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, back);
    if (opts->scaling.factor != 0)
        specify_scaling(&job, &opts->scaling);
    const int64_t count = lines * h->heads * h->size;
    job.work.flops = 3 * (uint64_t)count; /* rotating a pair: four products, two sums */
    rf_job_touches(&job, in, count, RF_TOUCH_READ);
    rf_job_touches(&job, to, count, RF_TOUCH_WRITE);
    return rf_job_run(stream, &job);
}

int rf_rotary(struct rf_stream *stream, struct rf_heads out, struct rf_heads x,
              const struct rf_rotary_opts *opts)
{
    return run_rotary(stream, "rotary", (struct rf_named_heads){"out", out},
                      (struct rf_named_heads){"x", x}, opts, false);
}

int rf_rotary_backward(struct rf_stream *stream, struct rf_heads dx, struct rf_heads dout,
                       const struct rf_rotary_opts *opts)
{
    return run_rotary(stream, "rotary_backward", (struct rf_named_heads){"dx", dx},
                      (struct rf_named_heads){"dout", dout}, opts, true);
}
