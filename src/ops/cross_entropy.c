/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy: losses with a row for each lane (cross_entropy.comp) or, on GPUs, for each
 * team of lanes (cross_entropy_team.comp), then the gradient as a flat pass, optionally in place
 * (cross_entropy_backward.comp). For parts of the columns, cross_entropy_join.comp joins the parts
 * between the two.
 */
#include <stddef.h>

#include "pick.h"

#include "../base/base.h"
#include "shaders/push/cross_entropy.h"
#include "shaders/push/cross_entropy_backward.h"
#include "shaders/push/cross_entropy_losses.h"
#include "shaders/push/cross_entropy_sums.h"

#define UNROLL 4       /* of the backward shader: groups of four columns per lane */
#define WIDE_UNROLL 16 /* ... in _wide */
#define LOGIT_FLOPS 4  /* per logit, in either kernel: maximum or scale, difference, exp, sum */

/* The largest number of lanes that wastes little at the end of a row. */
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

enum { WHOLE = 1, ROWS = 2, SUMS = 4, LOSSES = 8, GRADIENT = 16 }; /* the calls */

/* One call, or some of its rows; rows of `columns` logits. */
struct call {
    const char *op;
    struct rf_cross_entropy_args args;
    int64_t rows, columns;
};

/* For a part, its three tensors replace losses and lse. */
static int run_losses(struct rf_stream *stream, const struct call *c, bool part)
{
    static const struct rf_builds lanes = {.aligned = RF_BUILD_TYPES(cross_entropy_v),
                                           .any = RF_BUILD_TYPES(cross_entropy_s),
                                           .aligned_views = RF_BUILD(cross_entropy_views),
                                           .any_views = RF_BUILD(cross_entropy_s_views)},
                                  teams = RF_BUILDS_TEAM(cross_entropy);
    const struct rf_cross_entropy_args *a = &c->args;
    const struct rf_tensor losses = part ? a->total : a->losses, lse = part ? a->most : a->lse;
    struct rf_push_cross_entropy push = {.logits = rf_address_of(a->logits),
                                         .targets = rf_address_of(a->targets),
                                         .losses = rf_address_of(losses),
                                         .lse = rf_address_of(lse),
                                         .wanted = rf_address_of(a->wanted),
                                         .rows = (uint32_t)c->rows,
                                         .vocabulary = (uint32_t)c->columns,
                                         .first_column = (uint32_t)a->first,
                                         .smoothing = a->opts.smoothing,
                                         .z_loss = a->opts.z_loss};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {.op = "cross_entropy",
                         .type = a->logits.dtype,
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    const bool team = rf_device_teams(device), vector = rf_pick_vector(c->columns, &a->logits, 1);
    rf_job_build(&job, device, team ? &teams : &lanes, vector, (struct rf_source[]){{a->logits}}, 1,
                 push.first);
    if (team)
        rf_job_teams(&job, device, (uint64_t)c->rows, c->columns, vector);
    else
        rf_job_flat(&job, device, (uint64_t)c->rows, rf_pick_row_lanes(device), 1);
    rf_job_spec(&job, team ? 3 : 1, a->opts.smoothing != 0 || a->opts.z_loss != 0);
    rf_job_spec(&job, team ? 4 : 2, part);
    job.work.flops = LOGIT_FLOPS * (uint64_t)(c->rows * c->columns);
    rf_job_reads(&job, a->logits);
    rf_job_reads(&job, a->targets);
    rf_job_writes(&job, losses);
    rf_job_writes(&job, lse);
    rf_job_writes(&job, a->wanted);
    return rf_job_run(stream, &job);
}

/* One launch; wide: the build that writes by whole subgroups. */
static int run_rows(struct rf_stream *stream, const struct call *c, bool wide)
{
    static const struct rf_builds builds = {.aligned = RF_BUILD_TYPES(cross_entropy_backward_v),
                                            .any = RF_BUILD_TYPES(cross_entropy_backward_s),
                                            .aligned_views = RF_BUILD(cross_entropy_backward_views),
                                            .any_views = RF_BUILD(cross_entropy_backward_s_views)};
    static const struct rf_build wide_builds[2] = {RF_BUILD(cross_entropy_backward_s_wide),
                                                   RF_BUILD(cross_entropy_backward_wide)};
    const struct rf_cross_entropy_args *a = &c->args;
    const struct rf_cross_entropy_opts *opts = &a->opts;
    struct rf_device *device = rf_stream_device(stream);
    uint32_t lanes = wide ? rf_device_get_info(device)->subgroup_size : row_lanes(c->columns);
    int64_t span = 4 * (wide ? WIDE_UNROLL : UNROLL) * (int64_t)lanes;
    struct rf_push_cross_entropy_backward push = {
        .dlogits = rf_address_of(a->dlogits),
        .logits = rf_address_of(a->logits),
        .targets = rf_address_of(a->targets),
        .lse = rf_address_of(a->lse),
        .device_scale = opts->device_scale ? rf_address_of(*opts->device_scale) : 0,
        .rows = (uint32_t)c->rows,
        .vocabulary = (uint32_t)c->columns,
        .row_groups = (uint32_t)((c->columns + span - 1) / span),
        .first_column = (uint32_t)a->first,
        .scale = rf_option(opts->scale, 1),
        .z_loss = opts->z_loss,
        .target_share = (float)(1.0 - (double)opts->smoothing),
        .each_share = (float)((double)opts->smoothing / (double)c->columns)};
    bool vector = rf_pick_vector(c->columns, (struct rf_tensor[]){a->logits, a->dlogits}, 2);
    struct rf_job job = {.op = "cross_entropy",
                         .type = a->logits.dtype,
                         .push = &push,
                         .push_bytes = offsetof(struct rf_push_cross_entropy_backward, digits)};
    rf_job_build(&job, device, &builds, vector, (struct rf_source[]){{a->logits}}, 1, push.first);
    if (wide && job.view_count > 0) {
        job.shader = wide_builds[vector];
        job.push_bytes = RF_PUSH_BYTES(push);
        rf_job_wide(&job, device, (uint64_t)c->rows * push.row_groups * lanes, 1, &a->dlogits, 1,
                    push.digits);
    } else {
        rf_job_flat(&job, device, (uint64_t)c->rows * push.row_groups * lanes, lanes, 1);
    }
    job.work.flops = LOGIT_FLOPS * (uint64_t)(c->rows * c->columns);
    rf_job_reads(&job, a->logits);
    rf_job_reads(&job, a->targets);
    rf_job_reads(&job, a->lse);
    if (opts->device_scale)
        rf_job_reads(&job, *opts->device_scale);
    rf_job_writes(&job, a->dlogits);
    return rf_job_run(stream, &job);
}

/* The number of rows that one launch of a _wide build can do, limited by groups and memory, such
 * that the next rows are aligned again. */
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

/* Reads lse. */
static int run_gradient(struct rf_stream *stream, const struct call *c)
{
    struct rf_device *device = rf_stream_device(stream);
    const struct rf_cross_entropy_args *a = &c->args;
    const int64_t columns = c->columns;
    for (int64_t done = 0, count; done < c->rows; done += count) {
        const int64_t left = c->rows - done;
        struct rf_tensor rest = rf_elements(a->dlogits, done * columns, left * columns);
        bool wide = (count = wide_rows(device, rest, left, columns)) > 0;
        if (!wide)
            count = left;
        struct call some = *c;
        some.rows = count;
        some.args.dlogits = rf_elements(a->dlogits, done * columns, count * columns);
        some.args.logits = rf_elements(a->logits, done * columns, count * columns);
        some.args.targets = rf_elements(a->targets, done, count);
        some.args.lse = rf_elements(a->lse, done, count);
        RETURN_IF_ERROR(run_rows(stream, &some, wide));
    }
    return 0;
}

static int check_uses(const char *op, uint32_t call, const struct rf_cross_entropy_args *a)
{
    const struct rf_use uses[] = {
        {"logits", a->logits.buffer, WHOLE | ROWS | GRADIENT},
        {"targets", a->targets.buffer, WHOLE | ROWS | LOSSES | GRADIENT},
        {"losses", a->losses.buffer, WHOLE | LOSSES},
        {"lse", a->lse.buffer, WHOLE | LOSSES | GRADIENT},
        {"dlogits", a->dlogits.buffer, WHOLE | GRADIENT},
        {"scale", a->opts.scale != 0, WHOLE | GRADIENT},
        {"smoothing", a->opts.smoothing != 0, WHOLE},
        {"z_loss", a->opts.z_loss != 0, WHOLE},
        {"device_scale", a->opts.device_scale, WHOLE | GRADIENT},
        {"first", a->first != 0, ROWS | GRADIENT},
        {"vocabulary", a->vocabulary != 0, ROWS | LOSSES | GRADIENT},
        {"most", a->most.buffer, ROWS | SUMS},
        {"total", a->total.buffer, ROWS | SUMS},
        {"wanted", a->wanted.buffer, ROWS | SUMS},
        {"greatest", a->greatest.buffer, SUMS | LOSSES},
        {"sums", a->sums.buffer, SUMS | LOSSES},
    };
    return rf_check_uses(op, call, uses, sizeof(uses) / sizeof(uses[0]));
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

/* Sets c->rows and c->columns. */
static int check_logits(struct rf_stream *stream, struct call *c)
{
    const struct rf_cross_entropy_args *a = &c->args;
    RETURN_IF_ERROR(check_options(c->op, &a->opts));
    RETURN_IF_ERROR(rf_check_operand(c->op, "targets", a->targets, RF_I32, -1));
    RETURN_IF_ERROR(rf_check_typed(c->op, "logits", a->logits, -1));
    const struct rf_shape shape = a->logits.shape;
    c->rows = rf_tensor_count(a->targets);
    c->columns = shape.ndim > 0 ? shape.dim[shape.ndim - 1] : rf_tensor_count(a->logits);
    if (c->columns < 1)
        return rf_fail(RF_EINVAL, "%s: logits have no columns", c->op);
    RETURN_IF_ERROR(
        rf_check_rows(c->op, "logits", a->logits, a->logits.dtype, c->rows, c->columns));
    return rf_check_rounds(rf_stream_device(stream), c->op, c->columns / 16 + 1);
}

/* dlogits, which may have no buffer, and what is not to overlap it. */
static int check_dlogits(const struct call *c)
{
    const struct rf_cross_entropy_args *a = &c->args;
    const struct rf_tensor none = {0};
    if (a->dlogits.buffer) {
        RETURN_IF_ERROR(
            rf_check_rows(c->op, "dlogits", a->dlogits, a->logits.dtype, c->rows, c->columns));
        RETURN_IF_ERROR(rf_check_in_place(c->op, "dlogits", a->dlogits, "logits", a->logits));
    }
    return rf_check_apart(
        c->op, (struct rf_named_tensor[]){{"dlogits", a->dlogits}}, 1,
        (struct rf_named_tensor[]){
            {"targets", a->targets},
            {"lse", a->lse},
            {"device_scale", a->opts.device_scale ? *a->opts.device_scale : none}},
        3);
}

int rf_cross_entropy(struct rf_stream *stream, const struct rf_cross_entropy_args *a)
{
    const struct rf_tensor none = {0};
    struct call c = {.op = "cross_entropy", .args = *a};
    RETURN_IF_ERROR(check_uses(c.op, WHOLE, a));
    RETURN_IF_ERROR(check_logits(stream, &c));
    RETURN_IF_ERROR(rf_check_operand(c.op, "losses", a->losses, RF_F32, c.rows));
    RETURN_IF_ERROR(rf_check_operand(c.op, "lse", a->lse, RF_F32, c.rows));
    RETURN_IF_ERROR(check_dlogits(&c));
    RETURN_IF_ERROR(
        rf_check_apart(c.op, (struct rf_named_tensor[]){{"losses", a->losses}, {"lse", a->lse}}, 2,
                       (struct rf_named_tensor[]){
                           {"logits", a->logits},
                           {"targets", a->targets},
                           {"dlogits", a->dlogits},
                           {"device_scale", a->opts.device_scale ? *a->opts.device_scale : none}},
                       4));
    if (c.rows == 0)
        return 0;

    RETURN_IF_ERROR(run_losses(stream, &c, false));
    return a->dlogits.buffer ? run_gradient(stream, &c) : 0;
}

/* ---- parts of the columns -------------------------------------------------------------------- */

static int check_part(const struct call *c)
{
    const struct rf_cross_entropy_args *a = &c->args;
    if (a->first < 0 || a->vocabulary > INT32_MAX || a->first + c->columns > a->vocabulary)
        return rf_fail(RF_EINVAL, "%s: columns %lld to %lld are no part of a vocabulary of %lld",
                       c->op, (long long)a->first, (long long)(a->first + c->columns - 1),
                       (long long)a->vocabulary);
    return 0;
}

static int check_values(const char *op, const struct rf_cross_entropy_args *a, int64_t rows)
{
    RETURN_IF_ERROR(rf_check_operand(op, "most", a->most, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "total", a->total, RF_F32, rows));
    return rf_check_operand(op, "wanted", a->wanted, RF_F32, rows);
}

int rf_cross_entropy_part_rows(struct rf_stream *stream, const struct rf_cross_entropy_args *a)
{
    struct call c = {.op = "cross_entropy_part_rows", .args = *a};
    RETURN_IF_ERROR(check_uses(c.op, ROWS, a));
    RETURN_IF_ERROR(check_logits(stream, &c));
    RETURN_IF_ERROR(check_part(&c));
    RETURN_IF_ERROR(check_values(c.op, a, c.rows));
    RETURN_IF_ERROR(rf_check_apart(
        c.op,
        (struct rf_named_tensor[]){{"most", a->most}, {"total", a->total}, {"wanted", a->wanted}},
        3, (struct rf_named_tensor[]){{"logits", a->logits}, {"targets", a->targets}}, 2));
    return c.rows == 0 ? 0 : run_losses(stream, &c, true);
}

/* A shader with one row per lane, for f32 only. */
static int run_join(struct rf_stream *stream, struct rf_job *job, int64_t rows)
{
    struct rf_device *device = rf_stream_device(stream);
    rf_job_flat(job, device, (uint64_t)rows, rf_pick_row_lanes(device), 1);
    job->work.flops = 2 * LOGIT_FLOPS * (uint64_t)rows;
    return rf_job_run(stream, job);
}

int rf_cross_entropy_part_sums(struct rf_stream *stream, const struct rf_cross_entropy_args *a)
{
    static const char op[] = "cross_entropy_part_sums";
    RETURN_IF_ERROR(check_uses(op, SUMS, a));
    RETURN_IF_ERROR(rf_check_operand(op, "greatest", a->greatest, RF_F32, -1));
    const int64_t rows = rf_tensor_count(a->greatest);
    RETURN_IF_ERROR(check_values(op, a, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "sums", a->sums, RF_F32, 2 * rows));
    RETURN_IF_ERROR(rf_check_apart(op, (struct rf_named_tensor[]){{"sums", a->sums}}, 1,
                                   (struct rf_named_tensor[]){{"greatest", a->greatest},
                                                              {"most", a->most},
                                                              {"total", a->total},
                                                              {"wanted", a->wanted}},
                                   4));
    if (rows == 0)
        return 0;
    struct rf_push_cross_entropy_sums push = {.sums = rf_address_of(a->sums),
                                              .most = rf_address_of(a->most),
                                              .total = rf_address_of(a->total),
                                              .wanted = rf_address_of(a->wanted),
                                              .greatest = rf_address_of(a->greatest),
                                              .rows = (uint32_t)rows};
    struct rf_job job = {.op = op,
                         .shader = RF_BUILD(cross_entropy_join_0),
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_reads(&job, a->most);
    rf_job_reads(&job, a->total);
    rf_job_reads(&job, a->wanted);
    rf_job_reads(&job, a->greatest);
    rf_job_writes(&job, a->sums);
    return run_join(stream, &job, rows);
}

int rf_cross_entropy_part_losses(struct rf_stream *stream, const struct rf_cross_entropy_args *a)
{
    static const char op[] = "cross_entropy_part_losses";
    RETURN_IF_ERROR(check_uses(op, LOSSES, a));
    RETURN_IF_ERROR(rf_check_operand(op, "targets", a->targets, RF_I32, -1));
    const int64_t rows = rf_tensor_count(a->targets);
    RETURN_IF_ERROR(rf_check_operand(op, "losses", a->losses, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "lse", a->lse, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "greatest", a->greatest, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "sums", a->sums, RF_F32, 2 * rows));
    RETURN_IF_ERROR(
        rf_check_apart(op, (struct rf_named_tensor[]){{"losses", a->losses}, {"lse", a->lse}}, 2,
                       (struct rf_named_tensor[]){
                           {"greatest", a->greatest}, {"sums", a->sums}, {"targets", a->targets}},
                       3));
    if (a->vocabulary < 1 || a->vocabulary > INT32_MAX)
        return rf_fail(RF_EINVAL, "%s: a vocabulary of %lld must be from 1 to %d", op,
                       (long long)a->vocabulary, INT32_MAX);
    if (rows == 0)
        return 0;
    struct rf_push_cross_entropy_losses push = {.losses = rf_address_of(a->losses),
                                                .lse = rf_address_of(a->lse),
                                                .greatest = rf_address_of(a->greatest),
                                                .sums = rf_address_of(a->sums),
                                                .targets = rf_address_of(a->targets),
                                                .rows = (uint32_t)rows,
                                                .vocabulary = (uint32_t)a->vocabulary};
    struct rf_job job = {.op = op,
                         .shader = RF_BUILD(cross_entropy_join_1),
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_reads(&job, a->greatest);
    rf_job_reads(&job, a->sums);
    rf_job_reads(&job, a->targets);
    rf_job_writes(&job, a->losses);
    rf_job_writes(&job, a->lse);
    return run_join(stream, &job, rows);
}

int rf_cross_entropy_part_gradient(struct rf_stream *stream, const struct rf_cross_entropy_args *a)
{
    struct call c = {.op = "cross_entropy_part_gradient", .args = *a};
    RETURN_IF_ERROR(check_uses(c.op, GRADIENT, a));
    RETURN_IF_ERROR(check_logits(stream, &c));
    RETURN_IF_ERROR(check_part(&c));
    RETURN_IF_ERROR(rf_check_operand(c.op, "dlogits", a->dlogits, a->logits.dtype, -1));
    RETURN_IF_ERROR(check_dlogits(&c));
    RETURN_IF_ERROR(rf_check_operand(c.op, "lse", a->lse, RF_F32, c.rows));
    return c.rows == 0 ? 0 : run_gradient(stream, &c);
}
