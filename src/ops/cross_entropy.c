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

/* The arguments of rf_cross_entropy, or of a step of it for a part of the columns; rows of
 * `columns` logits. */
struct call {
    struct rf_tensor losses, dlogits, logits, targets, scratch;
    int64_t rows, columns;
    int64_t first; /* column, of all */
    const struct rf_cross_entropy_part *part;
    const struct rf_cross_entropy_opts *opts;
};

/* For a part, its three tensors replace losses and scratch. */
static int run_losses(struct rf_stream *stream, const struct call *c)
{
    static const struct rf_builds lanes = {.aligned = RF_BUILD_TYPES(cross_entropy_v),
                                           .any = RF_BUILD_TYPES(cross_entropy_s),
                                           .aligned_views = RF_BUILD(cross_entropy_views),
                                           .any_views = RF_BUILD(cross_entropy_s_views)},
                                  teams = RF_BUILDS_TEAM(cross_entropy);
    const struct rf_tensor none = {0}, losses = c->part ? c->part->total : c->losses,
                           lse = c->part ? c->part->most : c->scratch,
                           wanted = c->part ? c->part->wanted : none;
    struct rf_push_cross_entropy push = {.logits = rf_address_of(c->logits),
                                         .targets = rf_address_of(c->targets),
                                         .losses = rf_address_of(losses),
                                         .lse = rf_address_of(lse),
                                         .wanted = rf_address_of(wanted),
                                         .rows = (uint32_t)c->rows,
                                         .vocabulary = (uint32_t)c->columns,
                                         .first_column = (uint32_t)c->first,
                                         .smoothing = c->opts->smoothing,
                                         .z_loss = c->opts->z_loss};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {.op = "cross_entropy",
                         .type = c->logits.dtype,
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    const bool team = rf_device_teams(device), vector = rf_pick_vector(c->columns, &c->logits, 1);
    rf_job_build(&job, device, team ? &teams : &lanes, vector, (struct rf_source[]){{c->logits}}, 1,
                 push.first);
    if (team)
        rf_job_teams(&job, device, (uint64_t)c->rows, c->columns, vector);
    else
        rf_job_flat(&job, device, (uint64_t)c->rows, rf_pick_row_lanes(device), 1);
    rf_job_spec(&job, team ? 3 : 1, c->opts->smoothing != 0 || c->opts->z_loss != 0);
    rf_job_spec(&job, team ? 4 : 2, c->part != NULL);
    job.work.flops = LOGIT_FLOPS * (uint64_t)(c->rows * c->columns);
    rf_job_reads(&job, c->logits);
    rf_job_reads(&job, c->targets);
    rf_job_writes(&job, losses);
    rf_job_writes(&job, lse);
    rf_job_writes(&job, wanted);
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
    const struct rf_cross_entropy_opts *opts = c->opts;
    struct rf_device *device = rf_stream_device(stream);
    uint32_t lanes = wide ? rf_device_get_info(device)->subgroup_size : row_lanes(c->columns);
    int64_t span = 4 * (wide ? WIDE_UNROLL : UNROLL) * (int64_t)lanes;
    struct rf_push_cross_entropy_backward push = {
        .dlogits = rf_address_of(c->dlogits),
        .logits = rf_address_of(c->logits),
        .targets = rf_address_of(c->targets),
        .lse = rf_address_of(c->scratch),
        .device_scale = opts->device_scale ? rf_address_of(*opts->device_scale) : 0,
        .rows = (uint32_t)c->rows,
        .vocabulary = (uint32_t)c->columns,
        .row_groups = (uint32_t)((c->columns + span - 1) / span),
        .first_column = (uint32_t)c->first,
        .scale = rf_option(opts->scale, 1),
        .z_loss = opts->z_loss,
        .target_share = (float)(1.0 - (double)opts->smoothing),
        .each_share = (float)((double)opts->smoothing / (double)c->columns)};
    bool vector = rf_pick_vector(c->columns, (struct rf_tensor[]){c->logits, c->dlogits}, 2);
    struct rf_job job = {.op = "cross_entropy",
                         .type = c->logits.dtype,
                         .push = &push,
                         .push_bytes = offsetof(struct rf_push_cross_entropy_backward, digits)};
    rf_job_build(&job, device, &builds, vector, (struct rf_source[]){{c->logits}}, 1, push.first);
    if (wide && job.view_count > 0) {
        job.shader = wide_builds[vector];
        job.push_bytes = RF_PUSH_BYTES(push);
        rf_job_wide(&job, device, (uint64_t)c->rows * push.row_groups * lanes, 1, &c->dlogits, 1,
                    push.digits);
    } else {
        rf_job_flat(&job, device, (uint64_t)c->rows * push.row_groups * lanes, lanes, 1);
    }
    job.work.flops = LOGIT_FLOPS * (uint64_t)(c->rows * c->columns);
    rf_job_reads(&job, c->logits);
    rf_job_reads(&job, c->targets);
    rf_job_reads(&job, c->scratch);
    if (opts->device_scale)
        rf_job_reads(&job, *opts->device_scale);
    rf_job_writes(&job, c->dlogits);
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

/* Reads c->scratch, which holds lse. */
static int run_gradient(struct rf_stream *stream, const struct call *c)
{
    struct rf_device *device = rf_stream_device(stream);
    const int64_t columns = c->columns;
    for (int64_t done = 0, count; done < c->rows; done += count) {
        const int64_t left = c->rows - done;
        struct rf_tensor rest = rf_elements(c->dlogits, done * columns, left * columns);
        bool wide = (count = wide_rows(device, rest, left, columns)) > 0;
        if (!wide)
            count = left;
        struct call some = *c;
        some.rows = count;
        some.dlogits = rf_elements(c->dlogits, done * columns, count * columns);
        some.logits = rf_elements(c->logits, done * columns, count * columns);
        some.targets = rf_elements(c->targets, done, count);
        some.scratch = rf_elements(c->scratch, done, count);
        RETURN_IF_ERROR(run_rows(stream, &some, wide));
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

/* Sets c->rows and c->columns. */
static int check_logits(struct rf_stream *stream, const char *op, struct call *c)
{
    RETURN_IF_ERROR(check_options(op, c->opts));
    RETURN_IF_ERROR(rf_check_operand(op, "targets", c->targets, RF_I32, -1));
    RETURN_IF_ERROR(rf_check_typed(op, "logits", c->logits, -1));
    const struct rf_shape shape = c->logits.shape;
    c->rows = rf_tensor_count(c->targets);
    c->columns = shape.ndim > 0 ? shape.dim[shape.ndim - 1] : rf_tensor_count(c->logits);
    if (c->columns < 1)
        return rf_fail(RF_EINVAL, "%s: logits have no columns", op);
    RETURN_IF_ERROR(rf_check_rows(op, "logits", c->logits, c->logits.dtype, c->rows, c->columns));
    return rf_check_rounds(rf_stream_device(stream), op, c->columns / 16 + 1);
}

static int check_dlogits(const char *op, const struct call *c)
{
    RETURN_IF_ERROR(rf_check_rows(op, "dlogits", c->dlogits, c->logits.dtype, c->rows, c->columns));
    return rf_check_in_place(op, "dlogits", c->dlogits, "logits", c->logits);
}

int rf_cross_entropy(struct rf_stream *stream, struct rf_tensor losses, struct rf_tensor dlogits,
                     struct rf_tensor logits, struct rf_tensor targets, struct rf_tensor scratch,
                     const struct rf_cross_entropy_opts *opts)
{
    static const struct rf_cross_entropy_opts none;
    static const char op[] = "cross_entropy";
    struct call c = {.losses = losses,
                     .dlogits = dlogits,
                     .logits = logits,
                     .targets = targets,
                     .scratch = scratch,
                     .opts = opts ? opts : &none};
    RETURN_IF_ERROR(check_logits(stream, op, &c));
    RETURN_IF_ERROR(rf_check_operand(op, "losses", losses, RF_F32, c.rows));
    RETURN_IF_ERROR(rf_check_operand(op, "scratch", scratch, RF_F32, c.rows));
    if (dlogits.buffer)
        RETURN_IF_ERROR(check_dlogits(op, &c));
    RETURN_IF_ERROR(rf_check_apart(
        op, (struct rf_named_tensor[]){{"losses", losses}, {"scratch", scratch}}, 2,
        (struct rf_named_tensor[]){{"logits", logits}, {"targets", targets}, {"dlogits", dlogits}},
        3));
    RETURN_IF_ERROR(rf_check_alias(op, "dlogits", dlogits, "targets", targets));
    if (c.opts->device_scale)
        RETURN_IF_ERROR(rf_check_apart(
            op,
            (struct rf_named_tensor[]){
                {"dlogits", dlogits}, {"losses", losses}, {"scratch", scratch}},
            3, (struct rf_named_tensor[]){{"device_scale", *c.opts->device_scale}}, 1));
    if (c.rows == 0)
        return 0;

    RETURN_IF_ERROR(run_losses(stream, &c));
    return dlogits.buffer ? run_gradient(stream, &c) : 0;
}

/* ---- parts of the columns -------------------------------------------------------------------- */

static int check_part(const char *op, const struct rf_cross_entropy_part *part,
                      const struct call *c)
{
    if (part->first < 0 || part->vocabulary > INT32_MAX ||
        part->first + c->columns > part->vocabulary)
        return rf_fail(RF_EINVAL, "%s: columns %lld to %lld are no part of a vocabulary of %lld",
                       op, (long long)part->first, (long long)(part->first + c->columns - 1),
                       (long long)part->vocabulary);
    if (c->opts->smoothing != 0 || c->opts->z_loss != 0)
        return rf_fail(RF_EINVAL,
                       "%s: parts of the columns have neither smoothing nor z_loss; leave both 0",
                       op);
    return 0;
}

static int check_values(const char *op, const struct rf_cross_entropy_part *part, int64_t rows)
{
    RETURN_IF_ERROR(rf_check_operand(op, "most", part->most, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "total", part->total, RF_F32, rows));
    return rf_check_operand(op, "wanted", part->wanted, RF_F32, rows);
}

int rf_cross_entropy_part_rows(struct rf_stream *stream, const struct rf_cross_entropy_part *part,
                               struct rf_tensor logits, struct rf_tensor targets)
{
    static const struct rf_cross_entropy_opts none;
    static const char op[] = "cross_entropy_part_rows";
    struct call c = {
        .logits = logits, .targets = targets, .first = part->first, .part = part, .opts = &none};
    RETURN_IF_ERROR(check_logits(stream, op, &c));
    RETURN_IF_ERROR(check_part(op, part, &c));
    RETURN_IF_ERROR(check_values(op, part, c.rows));
    RETURN_IF_ERROR(
        rf_check_apart(op,
                       (struct rf_named_tensor[]){
                           {"most", part->most}, {"total", part->total}, {"wanted", part->wanted}},
                       3, (struct rf_named_tensor[]){{"logits", logits}, {"targets", targets}}, 2));
    return c.rows == 0 ? 0 : run_losses(stream, &c);
}

/* A shader with one row per lane, for f32 only. */
static int run_join(struct rf_stream *stream, struct rf_job *job, int64_t rows)
{
    struct rf_device *device = rf_stream_device(stream);
    rf_job_flat(job, device, (uint64_t)rows, rf_pick_row_lanes(device), 1);
    job->work.flops = 2 * LOGIT_FLOPS * (uint64_t)rows;
    return rf_job_run(stream, job);
}

int rf_cross_entropy_part_sums(struct rf_stream *stream, struct rf_tensor sums,
                               const struct rf_cross_entropy_part *part, struct rf_tensor greatest)
{
    static const char op[] = "cross_entropy_part_sums";
    RETURN_IF_ERROR(rf_check_operand(op, "greatest", greatest, RF_F32, -1));
    const int64_t rows = rf_tensor_count(greatest);
    RETURN_IF_ERROR(check_values(op, part, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "sums", sums, RF_F32, 2 * rows));
    RETURN_IF_ERROR(rf_check_apart(op, (struct rf_named_tensor[]){{"sums", sums}}, 1,
                                   (struct rf_named_tensor[]){{"greatest", greatest},
                                                              {"most", part->most},
                                                              {"total", part->total},
                                                              {"wanted", part->wanted}},
                                   4));
    if (rows == 0)
        return 0;
    struct rf_push_cross_entropy_sums push = {.sums = rf_address_of(sums),
                                              .most = rf_address_of(part->most),
                                              .total = rf_address_of(part->total),
                                              .wanted = rf_address_of(part->wanted),
                                              .greatest = rf_address_of(greatest),
                                              .rows = (uint32_t)rows};
    struct rf_job job = {.op = op,
                         .shader = RF_BUILD(cross_entropy_join_0),
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_reads(&job, part->most);
    rf_job_reads(&job, part->total);
    rf_job_reads(&job, part->wanted);
    rf_job_reads(&job, greatest);
    rf_job_writes(&job, sums);
    return run_join(stream, &job, rows);
}

int rf_cross_entropy_part_losses(struct rf_stream *stream, struct rf_tensor losses,
                                 struct rf_tensor lse, struct rf_tensor greatest,
                                 struct rf_tensor sums, struct rf_tensor targets,
                                 int64_t vocabulary)
{
    static const char op[] = "cross_entropy_part_losses";
    RETURN_IF_ERROR(rf_check_operand(op, "targets", targets, RF_I32, -1));
    const int64_t rows = rf_tensor_count(targets);
    RETURN_IF_ERROR(rf_check_operand(op, "losses", losses, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "lse", lse, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "greatest", greatest, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "sums", sums, RF_F32, 2 * rows));
    RETURN_IF_ERROR(rf_check_apart(
        op, (struct rf_named_tensor[]){{"losses", losses}, {"lse", lse}}, 2,
        (struct rf_named_tensor[]){{"greatest", greatest}, {"sums", sums}, {"targets", targets}},
        3));
    if (vocabulary < 1 || vocabulary > INT32_MAX)
        return rf_fail(RF_EINVAL, "%s: a vocabulary of %lld must be from 1 to %d", op,
                       (long long)vocabulary, INT32_MAX);
    if (rows == 0)
        return 0;
    struct rf_push_cross_entropy_losses push = {.losses = rf_address_of(losses),
                                                .lse = rf_address_of(lse),
                                                .greatest = rf_address_of(greatest),
                                                .sums = rf_address_of(sums),
                                                .targets = rf_address_of(targets),
                                                .rows = (uint32_t)rows,
                                                .vocabulary = (uint32_t)vocabulary};
    struct rf_job job = {.op = op,
                         .shader = RF_BUILD(cross_entropy_join_1),
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_reads(&job, greatest);
    rf_job_reads(&job, sums);
    rf_job_reads(&job, targets);
    rf_job_writes(&job, losses);
    rf_job_writes(&job, lse);
    return run_join(stream, &job, rows);
}

int rf_cross_entropy_part_gradient(struct rf_stream *stream, struct rf_tensor dlogits,
                                   const struct rf_cross_entropy_part *part,
                                   struct rf_tensor logits, struct rf_tensor targets,
                                   struct rf_tensor lse, const struct rf_cross_entropy_opts *opts)
{
    static const struct rf_cross_entropy_opts none;
    static const char op[] = "cross_entropy_part_gradient";
    struct call c = {.dlogits = dlogits,
                     .logits = logits,
                     .targets = targets,
                     .scratch = lse,
                     .first = part->first,
                     .opts = opts ? opts : &none};
    RETURN_IF_ERROR(check_logits(stream, op, &c));
    RETURN_IF_ERROR(check_part(op, part, &c));
    RETURN_IF_ERROR(check_dlogits(op, &c));
    RETURN_IF_ERROR(rf_check_operand(op, "lse", lse, RF_F32, c.rows));
    RETURN_IF_ERROR(rf_check_apart(op, (struct rf_named_tensor[]){{"dlogits", dlogits}}, 1,
                                   (struct rf_named_tensor[]){{"targets", targets}, {"lse", lse}},
                                   2));
    if (c.opts->device_scale)
        RETURN_IF_ERROR(
            rf_check_alias(op, "dlogits", dlogits, "device_scale", *c.opts->device_scale));
    return c.rows == 0 ? 0 : run_gradient(stream, &c);
}
