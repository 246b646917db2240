/* SPDX-License-Identifier: MIT
 *
 * The values computed once per step in its block of scalars: norm, factor and whether the step is
 * skipped (step_begin.comp), and the next loss scale (loss_scale.comp). The block stays in device
 * memory, so a recorded step can be replayed.
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/loss_scale.h"
#include "shaders/push/step_begin.h"

_Static_assert(sizeof(struct rf_step_scalars) == RF_SCALAR_WORDS * sizeof(float),
               "kernels see the block as it is declared");

static int run_single(struct rf_stream *stream, struct rf_job *job)
{
    rf_job_flat(job, rf_stream_device(stream), 1, 1, 1);
    return rf_job_run(stream, job);
}

int rf_step_begin(struct rf_stream *stream, const struct rf_optimizer_opts *opts,
                  struct rf_tensor scalars, struct rf_tensor sum_squares)
{
    static const char op[] = "step_begin";
    if (!opts)
        return rf_fail(RF_EINVAL, "%s: the optimizer's options are needed", op);
    RETURN_IF_ERROR(rf_check_operand(op, "scalars", scalars, RF_F32, RF_SCALAR_WORDS));
    RETURN_IF_ERROR(rf_check_operand(op, "sum_squares", sum_squares, RF_F32, 1));
    RETURN_IF_ERROR(rf_check_apart(op, (struct rf_named_tensor[]){{"scalars", scalars}}, 1,
                                   (struct rf_named_tensor[]){{"sum_squares", sum_squares}}, 1));
    if (!(opts->beta1 >= 0 && opts->beta1 < 1) || !(opts->beta2 >= 0 && opts->beta2 < 1))
        return rf_fail(RF_EINVAL, "%s: beta1 %g and beta2 %g must be in [0, 1)", op,
                       (double)opts->beta1, (double)opts->beta2);
    const struct rf_optimizer_info *info = rf_optimizer_get_info(opts->kind);
    struct rf_push_step_begin push = {.scalars = rf_address_of(scalars),
                                      .sum_squares = rf_address_of(sum_squares),
                                      .beta1 = opts->beta1,
                                      .beta2 = opts->beta2,
                                      .correct_bias =
                                          info && info->corrects_bias && !opts->no_bias_correction};
    struct rf_job job = {
        .op = op, .shader = RF_BUILD(step_begin), .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_reads(&job, sum_squares);
    rf_job_updates(&job, scalars);
    return run_single(stream, &job);
}

int rf_loss_scale_update(struct rf_stream *stream, const struct rf_loss_scale_opts *opts,
                         struct rf_tensor scalars)
{
    static const char op[] = "loss_scale_update";
    const struct rf_loss_scale_opts given = opts ? *opts : (struct rf_loss_scale_opts){0};
    struct rf_push_loss_scale push = {.scalars = rf_address_of(scalars),
                                      .growth = given.growth != 0 ? given.growth : 2.0f,
                                      .backoff = given.backoff != 0 ? given.backoff : 0.5f,
                                      .interval = given.interval ? given.interval : 2000};
    RETURN_IF_ERROR(rf_check_operand(op, "scalars", scalars, RF_F32, RF_SCALAR_WORDS));
    if (!(push.growth >= 1) || !(push.backoff > 0 && push.backoff < 1))
        return rf_fail(RF_EINVAL,
                       "%s: growth %g must be at least 1, and backoff %g between 0 and 1", op,
                       (double)push.growth, (double)push.backoff);
    struct rf_job job = {
        .op = op, .shader = RF_BUILD(loss_scale), .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_updates(&job, scalars);
    return run_single(stream, &job);
}
