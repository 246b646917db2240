/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy: losses with one row per lane (cross_entropy.comp), then the gradient as a
 * flat pass, in place if wanted (cross_entropy_backward.comp).
 */
#include <stddef.h>

#include "pick.h"

#include "../base/base.h"

#define UNROLL 4       /* of the backward shader: groups of four columns per lane */
#define WIDE_UNROLL 16 /* ... in _wide */
#define LOGIT_FLOPS 4  /* of each, in either kernel: maximum or scale, difference, exp, sum */

/* The most lanes that waste little at the end of a row. */
static uint32_t row_lanes(int64_t vocabulary)
{
    uint32_t best = 16;
    uint64_t best_span = UINT64_MAX;
    for (uint32_t lanes = RF_FLAT_LANES; lanes >= 16; lanes /= 2) {
        uint64_t span = 4ull * UNROLL * lanes;
        uint64_t covered = ((uint64_t)vocabulary + span - 1) / span * span;
        if (covered < best_span - best_span / 8) {
            best_span = covered;
            best = lanes;
        }
    }
    return best;
}

static int run_losses(struct rf_stream *stream, struct rf_tensor losses, struct rf_tensor logits,
                      struct rf_tensor targets, struct rf_tensor scratch, int64_t rows,
                      int64_t vocabulary, const struct rf_cross_entropy_opts *opts)
{
    static const struct rf_builds builds = {"cross_entropy_v", "cross_entropy_s",
                                            "cross_entropy_views", "cross_entropy_s_views"};
    struct {
        uint64_t logits, targets, losses, lse;
        uint32_t rows, vocabulary;
        float smoothing, z_loss;
        uint32_t first[1];
    } push = {.logits = rf_address_of(logits),
              .targets = rf_address_of(targets),
              .losses = rf_address_of(losses),
              .lse = rf_address_of(scratch),
              .rows = (uint32_t)rows,
              .vocabulary = (uint32_t)vocabulary,
              .smoothing = opts->smoothing,
              .z_loss = opts->z_loss};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = "cross_entropy", .type = logits.dtype, .push = &push, .push_bytes = sizeof(push)};
    rf_job_build(&job, device, &builds, rf_pick_vector(vocabulary, &logits, 1),
                 (struct rf_source[]){{logits}}, 1, push.first);
    rf_job_flat(&job, device, (uint64_t)rows, rf_pick_row_lanes(device), 1);
    rf_job_spec(&job, 1, opts->smoothing != 0 || opts->z_loss != 0);
    job.work.flops = LOGIT_FLOPS * (uint64_t)(rows * vocabulary);
    rf_job_reads(&job, logits);
    rf_job_reads(&job, targets);
    rf_job_writes(&job, losses);
    rf_job_writes(&job, scratch);
    return rf_job_run(stream, &job);
}

/* One launch; wide: of the build that writes by whole subgroups. */
static int run_rows(struct rf_stream *stream, struct rf_tensor dlogits, struct rf_tensor logits,
                    struct rf_tensor targets, struct rf_tensor scratch, int64_t rows,
                    int64_t vocabulary, const struct rf_cross_entropy_opts *opts, bool wide)
{
    static const struct rf_builds builds = {"cross_entropy_backward_v", "cross_entropy_backward_s",
                                            "cross_entropy_backward_views",
                                            "cross_entropy_backward_s_views"};
    struct rf_device *device = rf_stream_device(stream);
    uint32_t lanes = wide ? rf_device_get_info(device)->subgroup_size : row_lanes(vocabulary);
    int64_t span = 4 * (wide ? WIDE_UNROLL : UNROLL) * (int64_t)lanes;
    struct push {
        uint64_t dlogits, logits, targets, lse, device_scale;
        uint32_t rows, vocabulary, row_groups;
        float scale, z_loss, target_share, each_share;
        uint32_t first[1];
        uint32_t digits[RF_WIDE_DIGITS];
    } push = {.dlogits = rf_address_of(dlogits),
              .logits = rf_address_of(logits),
              .targets = rf_address_of(targets),
              .lse = rf_address_of(scratch),
              .device_scale = opts->device_scale ? rf_address_of(*opts->device_scale) : 0,
              .rows = (uint32_t)rows,
              .vocabulary = (uint32_t)vocabulary,
              .row_groups = (uint32_t)((vocabulary + span - 1) / span),
              .scale = opts->scale != 0 ? opts->scale : 1,
              .z_loss = opts->z_loss,
              .target_share = (float)(1.0 - (double)opts->smoothing),
              .each_share = (float)((double)opts->smoothing / (double)vocabulary)};
    bool vector = rf_pick_vector(vocabulary, (struct rf_tensor[]){logits, dlogits}, 2);
    struct rf_job job = {.op = "cross_entropy",
                         .type = logits.dtype,
                         .push = &push,
                         .push_bytes = offsetof(struct push, digits)};
    rf_job_build(&job, device, &builds, vector, (struct rf_source[]){{logits}}, 1, push.first);
    if (wide && job.view_count > 0) {
        job.shader = vector ? "cross_entropy_backward_wide" : "cross_entropy_backward_s_wide";
        job.push_bytes = sizeof(push);
        rf_job_wide(&job, device, (uint64_t)rows * push.row_groups * lanes, 1, &dlogits, 1,
                    push.digits);
    } else {
        rf_job_flat(&job, device, (uint64_t)rows * push.row_groups * lanes, lanes, 1);
    }
    job.work.flops = LOGIT_FLOPS * (uint64_t)(rows * vocabulary);
    rf_job_reads(&job, logits);
    rf_job_reads(&job, targets);
    rf_job_reads(&job, scratch);
    if (opts->device_scale)
        rf_job_reads(&job, *opts->device_scale);
    rf_job_writes(&job, dlogits);
    return rf_job_run(stream, &job);
}

/* Rows that one launch of a _wide build may do: with so many groups, so much memory, and the next
 * rows aligned again. */
static int64_t wide_rows(struct rf_device *device, struct rf_tensor dlogits, int64_t rows,
                         int64_t vocabulary)
{
    const int64_t lanes = rf_device_get_info(device)->subgroup_size;
    const int64_t span = 4 * WIDE_UNROLL * lanes, groups = (vocabulary + span - 1) / span;
    const int64_t by_groups = RF_WIDE_GROUPS / groups;
    const int64_t by_bytes = (int64_t)rf_wide_bytes(dlogits) / 4 / vocabulary;
    const int64_t most = by_groups < by_bytes ? by_groups : by_bytes;
    /* In shorter rows more than half of the lanes would be idle. */
    return dlogits.dtype != RF_F32 || vocabulary < span / 2 ? 0 : most < rows ? most / 4 * 4 : rows;
}

static int run_gradient(struct rf_stream *stream, struct rf_tensor dlogits, struct rf_tensor logits,
                        struct rf_tensor targets, struct rf_tensor scratch, int64_t rows,
                        int64_t vocabulary, const struct rf_cross_entropy_opts *opts)
{
    struct rf_device *device = rf_stream_device(stream);
    for (int64_t done = 0, part; done < rows; done += part) {
        struct rf_tensor rest = rf_elements(dlogits, done * vocabulary, (rows - done) * vocabulary);
        bool wide = (part = wide_rows(device, rest, rows - done, vocabulary)) > 0;
        if (!wide)
            part = rows - done;
        RETURN_IF_ERROR(run_rows(stream, rf_elements(dlogits, done * vocabulary, part * vocabulary),
                                 rf_elements(logits, done * vocabulary, part * vocabulary),
                                 rf_elements(targets, done, part), rf_elements(scratch, done, part),
                                 part, vocabulary, opts, wide));
    }
    return 0;
}

static int check_options(const char *op, const struct rf_cross_entropy_opts *opts)
{
    if (!(opts->smoothing >= 0 && opts->smoothing < 1))
        return rf_fail(RF_EINVAL, "%s: smoothing is %g, expected 0 <= smoothing < 1", op,
                       (double)opts->smoothing);
    if (opts->device_scale)
        return rf_check_operand(op, "device_scale", *opts->device_scale, RF_F32, 1);
    return 0;
}

int rf_cross_entropy(struct rf_stream *stream, struct rf_tensor losses, struct rf_tensor dlogits,
                     struct rf_tensor logits, struct rf_tensor targets, struct rf_tensor scratch,
                     const struct rf_cross_entropy_opts *opts)
{
    static const struct rf_cross_entropy_opts none;
    static const char op[] = "cross_entropy";
    if (!opts)
        opts = &none;
    RETURN_IF_ERROR(check_options(op, opts));
    RETURN_IF_ERROR(rf_check_operand(op, "targets", targets, RF_I32, -1));
    RETURN_IF_ERROR(rf_check_typed(op, "logits", logits, -1));
    int64_t rows = rf_tensor_count(targets);
    int64_t vocabulary =
        logits.shape.ndim > 0 ? logits.shape.dim[logits.shape.ndim - 1] : rf_tensor_count(logits);
    if (vocabulary < 1)
        return rf_fail(RF_EINVAL, "%s: logits have no columns", op);
    RETURN_IF_ERROR(rf_check_rows(op, "logits", logits, logits.dtype, rows, vocabulary));
    RETURN_IF_ERROR(rf_check_rounds(rf_stream_device(stream), op, vocabulary / 16 + 1));
    RETURN_IF_ERROR(rf_check_operand(op, "losses", losses, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "scratch", scratch, RF_F32, rows));
    if (dlogits.buffer) {
        RETURN_IF_ERROR(rf_check_rows(op, "dlogits", dlogits, logits.dtype, rows, vocabulary));
        RETURN_IF_ERROR(rf_check_in_place(op, "dlogits", dlogits, "logits", logits));
    }
    RETURN_IF_ERROR(rf_check_apart(
        op, (struct rf_operand[]){{"losses", losses}, {"scratch", scratch}}, 2,
        (struct rf_operand[]){{"logits", logits}, {"targets", targets}, {"dlogits", dlogits}}, 3));
    RETURN_IF_ERROR(rf_check_alias(op, "dlogits", dlogits, "targets", targets));
    if (opts->device_scale)
        RETURN_IF_ERROR(rf_check_apart(
            op,
            (struct rf_operand[]){{"dlogits", dlogits}, {"losses", losses}, {"scratch", scratch}},
            3, (struct rf_operand[]){{"device_scale", *opts->device_scale}}, 1));
    if (rows == 0)
        return 0;

    RETURN_IF_ERROR(run_losses(stream, losses, logits, targets, scratch, rows, vocabulary, opts));
    if (!dlogits.buffer)
        return 0;
    return run_gradient(stream, dlogits, logits, targets, scratch, rows, vocabulary, opts);
}
