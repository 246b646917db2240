/* SPDX-License-Identifier: MIT
 *
 * The values that are computed once per step in a block of scalars in host memory, with the same
 * operations as shaders/step_begin.comp and loss_scale.comp.
 */
#include <float.h>
#include <math.h>
#include <ringforge/host_step.h>

#include "../base/base.h"

#define HALF 0x1p48f /* the root of a sum in large form is 2^96 too small */

/* Upper half of the product of two fractions of 2^64, without the carry of its lowest quarter. */
static uint64_t multiply(uint64_t a, uint64_t b)
{
    const uint64_t a0 = a & UINT32_MAX, a1 = a >> 32, b0 = b & UINT32_MAX, b1 = b >> 32;
    return a1 * b1 + (a0 * b1 >> 32) + (a1 * b0 >> 32);
}

/* 1 - beta^t in integer arithmetic. */
static float correction(float beta, uint32_t t)
{
    const float scaled = beta * 0x1p32f, high = floorf(scaled);
    uint64_t factor = (uint64_t)(uint32_t)high << 32 | (uint32_t)((scaled - high) * 0x1p32f);
    uint64_t power = 0;
    bool any = false;
    for (; t != 0; t >>= 1) {
        if (t & 1u) {
            power = any ? multiply(power, factor) : factor;
            any = true;
        }
        factor = multiply(factor, factor);
    }
    if (power == 0)
        return 1;
    const uint64_t rest = ~power + 1;
    return (float)(uint32_t)(rest >> 32) * 0x1p-32f + (float)(uint32_t)rest * 0x1p-64f;
}

int rf_host_step_begin(const struct rf_optimizer_opts *opts, struct rf_step_scalars *scalars,
                       float sum_squares)
{
    static const char op[] = "host_step_begin";
    if (!opts || !scalars)
        return rf_fail(RF_EINVAL, "%s: the optimizer's options and a block of scalars are needed",
                       op);
    if (!(opts->beta1 >= 0 && opts->beta1 < 1) || !(opts->beta2 >= 0 && opts->beta2 < 1))
        return rf_fail(RF_EINVAL, "%s: beta1 %g and beta2 %g must be in [0, 1)", op,
                       (double)opts->beta1, (double)opts->beta2);
    struct rf_step_scalars *s = scalars;
    const float whole = s->inv_tokens * (s->loss_scale == 0 ? 1 : 1 / s->loss_scale);
    /* For a sum in large form the norm is part * HALF, otherwise part. The same holds for the clip
     * ratio. */
    const bool large = sum_squares < 0 && isfinite(sum_squares);
    const float half = large ? HALF : 1, tiny = large ? 1e-6f / HALF : 1e-6f;
    const float part = sqrtf(large ? -sum_squares : sum_squares) * half * whole;
    const float norm = part * half, ratio = s->clip / (part + tiny);
    const bool clips = s->clip > 0 && ratio < half;
    const bool skip = !isfinite(part) || !isfinite(sum_squares) || !(large || isfinite(norm));
    s->norm = large && !skip && !isfinite(norm) ? FLT_MAX : norm;
    s->factor = (clips ? ratio : 1) * whole;
    s->prescale = clips && large ? 1 / HALF : 1;
    s->skipped = skip;
    s->updates += skip ? 0 : 1;
    const struct rf_optimizer_info *info = rf_optimizer_get_info(opts->kind);
    const bool correct = info && info->corrects_bias && !opts->no_bias_correction;
    const uint32_t t = s->updates ? s->updates : 1;
    s->bias1 = correct ? correction(opts->beta1, t) : 1;
    s->bias2 = correct ? correction(opts->beta2, t) : 1;
    return 0;
}

int rf_host_loss_scale_update(const struct rf_loss_scale_opts *opts,
                              struct rf_step_scalars *scalars)
{
    static const char op[] = "host_loss_scale_update";
    const struct rf_loss_scale_opts given = opts ? *opts : (struct rf_loss_scale_opts){0};
    const float growth = given.growth != 0 ? given.growth : 2;
    const float backoff = given.backoff != 0 ? given.backoff : 0.5f;
    const uint32_t interval = given.interval ? given.interval : 2000;
    if (!scalars)
        return rf_fail(RF_EINVAL, "%s: a block of scalars is needed", op);
    if (!(growth >= 1) || !(backoff > 0 && backoff < 1))
        return rf_fail(RF_EINVAL,
                       "%s: growth %g must be at least 1, and backoff %g between 0 and 1", op,
                       (double)growth, (double)backoff);
    const float scale = scalars->loss_scale == 0 ? 1 : scalars->loss_scale;
    const uint32_t good = scalars->good_steps + 1;
    const bool grows = good >= interval && isfinite(scale * growth);
    scalars->good_steps = scalars->skipped || good >= interval ? 0 : good;
    scalars->loss_scale = scalars->skipped ? scale * backoff : grows ? scale * growth : scale;
    return 0;
}
