/* SPDX-License-Identifier: MIT
 *
 * The clip factor (clip_scale.comp) and one optimizer update of a flat buffer (optimizer.comp). The
 * scalars of the step stay in device memory, so a recorded step can be replayed.
 */
#include "pick.h"

#include "../base/base.h"

#define PER_LANE 4 /* of optimizer.comp with views */
#define SCALARS ((int64_t)(sizeof(struct rf_step_scalars) / sizeof(float)))

int rf_clip_scale(struct rf_stream *stream, struct rf_tensor norm, struct rf_tensor sum_squares,
                  struct rf_tensor scalars)
{
    static const char op[] = "clip_scale";
    RETURN_IF_ERROR(rf_check_operand(op, "norm", norm, RF_F32, 2));
    RETURN_IF_ERROR(rf_check_operand(op, "sum_squares", sum_squares, RF_F32, 1));
    RETURN_IF_ERROR(rf_check_operand(op, "scalars", scalars, RF_F32, SCALARS));
    RETURN_IF_ERROR(rf_check_apart(
        op, (struct rf_operand[]){{"norm", norm}}, 1,
        (struct rf_operand[]){{"sum_squares", sum_squares}, {"scalars", scalars}}, 2));
    struct {
        uint64_t norm, sum_squares, scalars;
    } push = {.norm = rf_address_of(norm),
              .sum_squares = rf_address_of(sum_squares),
              .scalars = rf_address_of(scalars)};
    struct rf_job job = {
        .op = op, .shader = "clip_scale", .push = &push, .push_bytes = sizeof(push)};
    rf_job_flat(&job, rf_stream_device(stream), 1, 1, 1);
    rf_job_reads(&job, sum_squares);
    rf_job_reads(&job, scalars);
    rf_job_writes(&job, norm);
    return rf_job_run(stream, &job);
}

struct kind_row {
    struct rf_builds builds;
    bool moments;
};
static const struct kind_row kinds[RF_OPTIMIZER_COUNT] = {
    [RF_ADAMW] = {{"adamw_v", "adamw_s", "adamw_views", NULL}, true},
    [RF_SGD] = {{"sgd_v", "sgd_s", "sgd_views", NULL}, false},
};

static int check_step(const char *op, const struct kind_row *kind, struct rf_tensor param,
                      struct rf_tensor grad, struct rf_tensor m, struct rf_tensor v,
                      struct rf_tensor decay, struct rf_tensor norm, struct rf_tensor scalars)
{
    RETURN_IF_ERROR(rf_check_operand(op, "param", param, RF_F32, -1));
    int64_t count = rf_tensor_count(param);
    RETURN_IF_ERROR(rf_check_operand(op, "grad", grad, RF_F32, count));
    if (kind->moments) {
        RETURN_IF_ERROR(rf_check_operand(op, "m", m, RF_F32, count));
        RETURN_IF_ERROR(rf_check_operand(op, "v", v, RF_F32, count));
    }
    RETURN_IF_ERROR(rf_check_operand(op, "decay", decay, RF_I32, (count + 63) / 64));
    RETURN_IF_ERROR(rf_check_operand(op, "norm", norm, RF_F32, 2));
    RETURN_IF_ERROR(rf_check_operand(op, "scalars", scalars, RF_F32, SCALARS));
    return rf_check_apart(
        op, (struct rf_operand[]){{"param", param}, {"m", m}, {"v", v}}, 3,
        (struct rf_operand[]){
            {"grad", grad}, {"decay", decay}, {"norm", norm}, {"scalars", scalars}},
        4);
}

int rf_optimizer_step(struct rf_stream *stream, const struct rf_optimizer_opts *opts,
                      struct rf_tensor param, struct rf_tensor grad, struct rf_tensor m,
                      struct rf_tensor v, struct rf_tensor decay, struct rf_tensor norm,
                      struct rf_tensor scalars)
{
    static const char op[] = "optimizer_step";
    if (!opts || (unsigned)opts->kind >= RF_OPTIMIZER_COUNT)
        return rf_fail(RF_EINVAL, "%s: unknown kind of optimizer", op);
    const struct kind_row *kind = &kinds[opts->kind];
    if (!kind->moments) {
        m = (struct rf_tensor){0};
        v = m;
    }
    RETURN_IF_ERROR(check_step(op, kind, param, grad, m, v, decay, norm, scalars));
    int64_t count = rf_tensor_count(param);
    if (count == 0)
        return 0;

    bool vector = rf_pick_vector(count, (struct rf_tensor[]){param, grad, m, v}, 4);
    struct {
        uint64_t param, grad, m, v, decay, norm, scalars;
        uint32_t items;
        float beta1, beta2, rest1, rest2, eps, weight_decay;
        uint32_t first[4];
    } push = {.param = rf_address_of(param),
              .grad = rf_address_of(grad),
              .m = rf_address_of(m),
              .v = rf_address_of(v),
              .decay = rf_address_of(decay),
              .norm = rf_address_of(norm),
              .scalars = rf_address_of(scalars),
              .items = (uint32_t)(vector ? count / 4 : count),
              .beta1 = opts->beta1,
              .beta2 = opts->beta2,
              .rest1 = (float)(1.0 - (double)opts->beta1),
              .rest2 = (float)(1.0 - (double)opts->beta2),
              .eps = opts->eps,
              .weight_decay = opts->weight_decay};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {.op = op, .push = &push, .push_bytes = sizeof(push)};
    rf_job_build(&job, device, &kind->builds, vector,
                 (struct rf_source[]){{param}, {grad}, {m}, {v}}, kind->moments ? 4 : 2,
                 push.first);
    rf_job_flat(&job, device, push.items, RF_FLAT_LANES, job.view_count ? PER_LANE : 1);
    rf_job_reads(&job, grad);
    rf_job_reads(&job, decay);
    rf_job_reads(&job, norm);
    rf_job_reads(&job, scalars);
    rf_job_writes(&job, param);
    rf_job_writes(&job, m);
    rf_job_writes(&job, v);
    return rf_job_run(stream, &job);
}
