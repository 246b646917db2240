/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm, alone or of a sum, forward and the two halves of their backward pass.
 * RMSNorm is the form without a mean. Gradients of gamma and beta are summed over fixed blocks of
 * rows, then the blocks are added in a fixed order. CPU devices give a lane whole rows and columns,
 * GPUs give them to teams of lanes.
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/layernorm.h"
#include "shaders/push/layernorm_backward_input.h"
#include "shaders/push/layernorm_backward_weight.h"
#include "shaders/push/layernorm_fold.h"

#define ROW_BLOCK 32 /* ROWS of layernorm_backward_weight.comp */
#define COLUMNS 32   /* per workgroup of layernorm_backward_weight_team.comp */
#define FOLDED 8     /* per workgroup of layernorm_fold_team.comp */

/* The builds of a kernel for tensors of one type, or with x in f32: kernels with rows or columns
 * per lane, and those for GPUs, with rows or columns per team of lanes. */
struct kernel {
    struct rf_builds same, from_f32, team_same, team_from_f32;
};
#define BUILDS_F32(name)                                                                           \
    {                                                                                              \
        .aligned = RF_BUILD_16(name##_f32_v), .any = RF_BUILD_16(name##_f32_s)                     \
    }
#define KERNEL(name)                                                                               \
    {                                                                                              \
        RF_BUILDS(name), BUILDS_F32(name), RF_BUILDS_TEAM(name), BUILDS_F32(name##_team)           \
    }

/* FLOPs per element; RMSNorm has no mean to subtract and no beta. */
enum { NORM = 8, RMS = 4, INPUT = 12, RMS_INPUT = 9, WEIGHT = 5, RMS_WEIGHT = 3 };

static void declare_flops(struct rf_job *job, int64_t rows, int64_t channels, int of_element)
{
    job->work.flops = (uint64_t)(rows * channels * of_element);
}

static int64_t block_count(int64_t rows)
{
    return (rows + ROW_BLOCK - 1) / ROW_BLOCK;
}

static const struct rf_builds *builds_of(struct rf_device *device, const struct kernel *kernel,
                                         bool same)
{
    if (rf_device_teams(device))
        return same ? &kernel->team_same : &kernel->team_from_f32;
    return same ? &kernel->same : &kernel->from_f32;
}

static uint32_t unroll(int64_t channels)
{
    return channels % 16 == 0 ? 4 : 1;
}

/* Sets the first constants of a kernel that walks rows, and its groups. Returns the next constant.
 */
static uint32_t give_rows(struct rf_job *job, struct rf_device *device, int64_t rows,
                          int64_t channels, bool vector)
{
    if (rf_device_teams(device)) {
        rf_job_teams(job, device, (uint64_t)rows, channels, vector);
        return 3;
    }
    rf_job_flat(job, device, (uint64_t)rows, rf_pick_row_lanes(device), 1);
    rf_job_spec(job, 1, unroll(channels));
    return 2;
}

/* Sets constant 0 and the groups of a kernel whose workgroups have `each` of a block's columns. */
static void give_columns(struct rf_job *job, struct rf_device *device, uint32_t columns,
                         uint32_t each, int64_t blocks)
{
    rf_job_spec(job, 0, RF_TEAM_LANES);
    rf_flat_groups(device, (uint64_t)blocks * ((columns + each - 1) / each), 1, job->groups);
}

/* Checks gamma and x, and computes the problem size. */
static int check_size(struct rf_stream *stream, const char *op, struct rf_tensor gamma,
                      struct rf_tensor x, int64_t *rows, int64_t *channels)
{
    RETURN_IF_ERROR(rf_check_typed(op, "gamma", gamma, -1));
    *channels = rf_tensor_count(gamma);
    if (*channels < 1)
        return rf_fail(RF_EINVAL, "%s: gamma is empty", op);
    RETURN_IF_ERROR(rf_check_rows(op, "x", x, gamma.dtype, -1, *channels));
    *rows = rf_tensor_count(x) / *channels;
    /* Kernels walk a row up to three times. */
    return rf_check_rounds(rf_stream_device(stream), op, 3 * (*channels / (4 * unroll(*channels))));
}

/* out and dout have x's type, or 16 bits if x is f32. */
static int check_narrow(const char *op, const char *what, struct rf_tensor tensor,
                        struct rf_tensor x, int64_t rows, int64_t channels)
{
    const bool other = x.dtype == RF_F32 && rf_is_float_type(tensor.dtype);
    return rf_check_rows(op, what, tensor, other ? tensor.dtype : x.dtype, rows, channels);
}

/* Operands of a forward pass. Without a buffer: mean for RMSNorm, beta, and, with one input,
 * residual and sum. */
struct norm {
    struct rf_tensor out, sum, mean, rstd, x, residual, gamma, beta;
    float eps;
};

static int check_norm(struct rf_stream *stream, const char *op, const struct norm *n, int64_t *rows,
                      int64_t *channels)
{
    RETURN_IF_ERROR(check_size(stream, op, n->gamma, n->x, rows, channels));
    RETURN_IF_ERROR(check_narrow(op, "out", n->out, n->x, *rows, *channels));
    if (n->mean.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "mean", n->mean, RF_F32, *rows));
    RETURN_IF_ERROR(rf_check_operand(op, "rstd", n->rstd, RF_F32, *rows));
    if (n->beta.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "beta", n->beta, n->x.dtype, *channels));
    if (n->sum.buffer) {
        RETURN_IF_ERROR(rf_check_rows(op, "residual", n->residual, n->x.dtype, *rows, *channels));
        RETURN_IF_ERROR(rf_check_rows(op, "sum", n->sum, n->x.dtype, *rows, *channels));
        RETURN_IF_ERROR(rf_check_in_place(op, "sum", n->sum, "x", n->x));
        RETURN_IF_ERROR(rf_check_in_place(op, "sum", n->sum, "residual", n->residual));
    }
    const struct rf_named_tensor weights[] = {{"gamma", n->gamma}, {"beta", n->beta}};
    RETURN_IF_ERROR(
        rf_check_apart(op,
                       (struct rf_named_tensor[]){
                           {"out", n->out}, {"sum", n->sum}, {"mean", n->mean}, {"rstd", n->rstd}},
                       4, weights, 2));
    return rf_check_apart(
        op, (struct rf_named_tensor[]){{"out", n->out}, {"mean", n->mean}, {"rstd", n->rstd}}, 3,
        (struct rf_named_tensor[]){{"x", n->x}, {"residual", n->residual}}, 2);
}

static int run_norm(struct rf_stream *stream, const char *op, const struct norm *n)
{
    static const struct kernel kernel = KERNEL(layernorm);
    int64_t rows = 0, channels = 0;
    RETURN_IF_ERROR(check_norm(stream, op, n, &rows, &channels));
    if (rows == 0)
        return 0;

    bool vector = rf_pick_vector(
        channels, (struct rf_tensor[]){n->out, n->x, n->gamma, n->beta, n->residual, n->sum}, 6);
    struct rf_push_layernorm push = {.out_ = rf_address_of(n->out),
                                     .mean = rf_address_of(n->mean),
                                     .rstd = rf_address_of(n->rstd),
                                     .x = rf_address_of(n->x),
                                     .gamma = rf_address_of(n->gamma),
                                     .beta = rf_address_of(n->beta),
                                     .residual = rf_address_of(n->residual),
                                     .sum = rf_address_of(n->sum),
                                     .rows = (uint32_t)rows,
                                     .channels = (uint32_t)channels,
                                     .eps = n->eps};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = n->out.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, builds_of(device, &kernel, n->out.dtype == n->x.dtype), vector,
                 (struct rf_source[]){{n->x}, {n->gamma}, {n->beta}, {n->residual}}, 4, push.first);
    const uint32_t next = give_rows(&job, device, rows, channels, vector);
    rf_job_spec(&job, next, !n->mean.buffer);
    rf_job_spec(&job, next + 1, n->beta.buffer != NULL);
    rf_job_spec(&job, next + 2, n->sum.buffer != NULL);
    declare_flops(&job, rows, channels, (n->mean.buffer ? NORM : RMS) + (n->sum.buffer != NULL));
    rf_job_reads(&job, n->x);
    rf_job_reads(&job, n->residual);
    rf_job_reads(&job, n->gamma);
    rf_job_reads(&job, n->beta);
    rf_job_writes(&job, n->out);
    rf_job_writes(&job, n->sum);
    rf_job_writes(&job, n->mean);
    rf_job_writes(&job, n->rstd);
    return rf_job_run(stream, &job);
}

/* An operand whose presence selects the computation. */
static int check_given(const char *op, const char *what, struct rf_tensor tensor)
{
    return tensor.buffer ? 0 : rf_fail(RF_EINVAL, "%s: %s has no buffer", op, what);
}

int rf_layernorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor mean,
                 struct rf_tensor rstd, struct rf_tensor x, struct rf_tensor gamma,
                 struct rf_tensor beta, float eps)
{
    RETURN_IF_ERROR(check_given("layernorm", "mean", mean));
    return run_norm(stream, "layernorm",
                    &(struct norm){.out = out,
                                   .mean = mean,
                                   .rstd = rstd,
                                   .x = x,
                                   .gamma = gamma,
                                   .beta = beta,
                                   .eps = eps});
}

int rf_rmsnorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor rstd,
               struct rf_tensor x, struct rf_tensor gamma, float eps)
{
    return run_norm(stream, "rmsnorm",
                    &(struct norm){.out = out, .rstd = rstd, .x = x, .gamma = gamma, .eps = eps});
}

int rf_residual_layernorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor sum,
                          struct rf_tensor mean, struct rf_tensor rstd, struct rf_tensor x,
                          struct rf_tensor residual, struct rf_tensor gamma, struct rf_tensor beta,
                          float eps)
{
    static const char op[] = "residual_layernorm";
    RETURN_IF_ERROR(check_given(op, "mean", mean));
    RETURN_IF_ERROR(check_given(op, "sum", sum));
    return run_norm(stream, op,
                    &(struct norm){out, sum, mean, rstd, x, residual, gamma, beta, eps});
}

int rf_residual_rmsnorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor sum,
                        struct rf_tensor rstd, struct rf_tensor x, struct rf_tensor residual,
                        struct rf_tensor gamma, float eps)
{
    static const char op[] = "residual_rmsnorm";
    RETURN_IF_ERROR(check_given(op, "sum", sum));
    return run_norm(stream, op,
                    &(struct norm){.out = out,
                                   .sum = sum,
                                   .rstd = rstd,
                                   .x = x,
                                   .residual = residual,
                                   .gamma = gamma,
                                   .eps = eps});
}

/* mean without a buffer: RMSNorm. */
static int run_input(struct rf_stream *stream, const char *op, struct rf_tensor dx,
                     struct rf_tensor dout, struct rf_tensor x, struct rf_tensor mean,
                     struct rf_tensor rstd, struct rf_tensor gamma, bool accumulate_dx)
{
    static const struct kernel kernel = KERNEL(layernorm_backward_input);
    int64_t rows = 0, channels = 0;
    RETURN_IF_ERROR(check_size(stream, op, gamma, x, &rows, &channels));
    RETURN_IF_ERROR(rf_check_rows(op, "dx", dx, x.dtype, rows, channels));
    RETURN_IF_ERROR(check_narrow(op, "dout", dout, x, rows, channels));
    if (mean.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "mean", mean, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "rstd", rstd, RF_F32, rows));
    if (dx.dtype == dout.dtype)
        RETURN_IF_ERROR(rf_check_in_place(op, "dx", dx, "dout", dout));
    else
        RETURN_IF_ERROR(rf_check_alias(op, "dx", dx, "dout", dout));
    RETURN_IF_ERROR(rf_check_apart(
        op, (struct rf_named_tensor[]){{"dx", dx}}, 1,
        (struct rf_named_tensor[]){{"x", x}, {"mean", mean}, {"rstd", rstd}, {"gamma", gamma}}, 4));
    if (rows == 0)
        return 0;

    bool vector = rf_pick_vector(channels, (struct rf_tensor[]){dx, dout, x, gamma}, 4);
    struct rf_push_layernorm_backward_input push = {.dx = rf_address_of(dx),
                                                    .dout = rf_address_of(dout),
                                                    .x = rf_address_of(x),
                                                    .mean = rf_address_of(mean),
                                                    .rstd = rf_address_of(rstd),
                                                    .gamma = rf_address_of(gamma),
                                                    .rows = (uint32_t)rows,
                                                    .channels = (uint32_t)channels};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = dout.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, builds_of(device, &kernel, dout.dtype == x.dtype), vector,
                 (struct rf_source[]){{dout}, {x}, {gamma}, {dx}}, 4, push.first);
    const uint32_t next = give_rows(&job, device, rows, channels, vector);
    rf_job_spec(&job, next, accumulate_dx ? 1 : 0);
    rf_job_spec(&job, next + 1, !mean.buffer);
    declare_flops(&job, rows, channels, (mean.buffer ? INPUT : RMS_INPUT) + accumulate_dx);
    rf_job_reads(&job, dout);
    rf_job_reads(&job, x);
    rf_job_reads(&job, mean);
    rf_job_reads(&job, rstd);
    rf_job_reads(&job, gamma);
    rf_job_touches(&job, dx, rows * channels, accumulate_dx ? RF_TOUCH_UPDATE : RF_TOUCH_WRITE);
    return rf_job_run(stream, &job);
}

int rf_layernorm_backward_input(struct rf_stream *stream, struct rf_tensor dx,
                                struct rf_tensor dout, struct rf_tensor x, struct rf_tensor mean,
                                struct rf_tensor rstd, struct rf_tensor gamma, bool accumulate_dx)
{
    static const char op[] = "layernorm_backward_input";
    RETURN_IF_ERROR(check_given(op, "mean", mean));
    return run_input(stream, op, dx, dout, x, mean, rstd, gamma, accumulate_dx);
}

int rf_rmsnorm_backward_input(struct rf_stream *stream, struct rf_tensor dx, struct rf_tensor dout,
                              struct rf_tensor x, struct rf_tensor rstd, struct rf_tensor gamma,
                              bool accumulate_dx)
{
    return run_input(stream, "rmsnorm_backward_input", dx, dout, x, (struct rf_tensor){0}, rstd,
                     gamma, accumulate_dx);
}

int64_t rf_layernorm_scratch(int64_t rows, int64_t channels)
{
    return 2 * channels * block_count(rows);
}

static int run_fold(struct rf_stream *stream, struct rf_tensor dgamma, struct rf_tensor dbeta,
                    struct rf_tensor scratch, int64_t channels, int64_t blocks)
{
    static const struct rf_builds lanes = RF_BUILDS(layernorm_fold),
                                  teams = RF_BUILDS_TEAM(layernorm_fold);
    bool vector = rf_pick_vector(channels, (struct rf_tensor[]){dgamma, dbeta, scratch}, 3);
    uint32_t row_items = (uint32_t)(vector ? channels / 4 : channels);
    uint32_t parts = dbeta.buffer ? 2 : 1;
    struct rf_push_layernorm_fold push = {.dgamma = rf_address_of(dgamma),
                                          .dbeta = rf_address_of(dbeta),
                                          .partial = rf_address_of(scratch),
                                          .row_items = row_items,
                                          .blocks = (uint32_t)blocks,
                                          .parts = parts};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {.op = "layernorm_backward_weight",
                         .type = dgamma.dtype,
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    const bool team = rf_device_teams(device);
    rf_job_build(&job, device, team ? &teams : &lanes, vector, (struct rf_source[]){{scratch}}, 1,
                 push.first);
    if (team)
        give_columns(&job, device, parts * row_items, FOLDED, 1);
    else
        rf_job_flat(&job, device, (uint64_t)parts * row_items, rf_pick_row_lanes(device), 1);
    /* Each block has both sums; one may be unused. */
    rf_job_touches(&job, rf_elements(scratch, 0, (2 * (blocks - 1) + parts) * channels),
                   parts * channels * blocks, RF_TOUCH_READ);
    rf_job_updates(&job, dgamma);
    rf_job_updates(&job, dbeta);
    return rf_job_run(stream, &job);
}

/* dgamma or dbeta without a buffer is not computed; mean without a buffer: RMSNorm. */
static int run_weight(struct rf_stream *stream, const char *op, struct rf_tensor dgamma,
                      struct rf_tensor dbeta, struct rf_tensor dout, struct rf_tensor x,
                      struct rf_tensor mean, struct rf_tensor rstd, struct rf_tensor scratch)
{
    static const struct kernel kernel = KERNEL(layernorm_backward_weight);
    const bool beta_alone = !dgamma.buffer && dbeta.buffer;
    const struct rf_tensor first = beta_alone ? dbeta : dgamma;
    RETURN_IF_ERROR(rf_check_typed(op, beta_alone ? "dbeta" : "dgamma", first, -1));
    int64_t channels = rf_tensor_count(first);
    if (channels < 1)
        return rf_fail(RF_EINVAL, "%s: %s is empty", op, beta_alone ? "dbeta" : "dgamma");
    if (dbeta.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "dbeta", dbeta, first.dtype, channels));
    RETURN_IF_ERROR(rf_check_typed(op, "x", x, -1));
    RETURN_IF_ERROR(rf_check_rows(op, "x", x, x.dtype, -1, channels));
    int64_t rows = rf_tensor_count(x) / channels;
    RETURN_IF_ERROR(check_narrow(op, "dout", dout, x, rows, channels));
    if (mean.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "mean", mean, RF_F32, rows));
    RETURN_IF_ERROR(rf_check_operand(op, "rstd", rstd, RF_F32, rows));
    RETURN_IF_ERROR(
        rf_check_operand(op, "scratch", scratch, RF_F32, rf_layernorm_scratch(rows, channels)));
    RETURN_IF_ERROR(rf_check_apart(
        op, (struct rf_named_tensor[]){{"dgamma", dgamma}, {"dbeta", dbeta}, {"scratch", scratch}},
        3, (struct rf_named_tensor[]){{"dout", dout}, {"x", x}, {"mean", mean}, {"rstd", rstd}},
        4));
    if (rows == 0)
        return 0;

    bool vector = rf_pick_vector(channels, (struct rf_tensor[]){dout, x, scratch}, 3);
    uint32_t row_items = (uint32_t)(vector ? channels / 4 : channels);
    int64_t blocks = block_count(rows);
    RETURN_IF_ERROR(rf_check_rounds(rf_stream_device(stream), op, blocks));
    struct rf_push_layernorm_backward_weight push = {.partial = rf_address_of(scratch),
                                                     .dout = rf_address_of(dout),
                                                     .x = rf_address_of(x),
                                                     .mean = rf_address_of(mean),
                                                     .rstd = rf_address_of(rstd),
                                                     .rows = (uint32_t)rows,
                                                     .row_items = row_items,
                                                     .blocks = (uint32_t)blocks};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = dout.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, builds_of(device, &kernel, dout.dtype == x.dtype), vector,
                 (struct rf_source[]){{dout}, {x}, {mean, true}, {rstd, true}}, 4, push.first);
    if (rf_device_teams(device))
        give_columns(&job, device, row_items, COLUMNS, blocks);
    else
        rf_job_flat(&job, device, (uint64_t)blocks * row_items, RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, !mean.buffer);
    declare_flops(&job, rows, channels, mean.buffer ? WEIGHT : RMS_WEIGHT);
    rf_job_reads(&job, dout);
    rf_job_reads(&job, x);
    rf_job_reads(&job, mean);
    rf_job_reads(&job, rstd);
    rf_job_writes(&job, scratch);
    RETURN_IF_ERROR(rf_job_run(stream, &job));
    if (!beta_alone)
        return run_fold(stream, dgamma, dbeta, scratch, channels, blocks);
    /* In each block, the second of the two sums. */
    scratch.shape = rf_shape1(rf_tensor_count(scratch) - channels);
    scratch.offset += (uint64_t)channels * sizeof(float);
    return run_fold(stream, dbeta, dgamma, scratch, channels, blocks);
}

int rf_layernorm_backward_weight(struct rf_stream *stream, struct rf_tensor dgamma,
                                 struct rf_tensor dbeta, struct rf_tensor dout, struct rf_tensor x,
                                 struct rf_tensor mean, struct rf_tensor rstd,
                                 struct rf_tensor scratch)
{
    static const char op[] = "layernorm_backward_weight";
    RETURN_IF_ERROR(check_given(op, "mean", mean));
    return run_weight(stream, op, dgamma, dbeta, dout, x, mean, rstd, scratch);
}

int rf_rmsnorm_backward_weight(struct rf_stream *stream, struct rf_tensor dgamma,
                               struct rf_tensor dout, struct rf_tensor x, struct rf_tensor rstd,
                               struct rf_tensor scratch)
{
    const struct rf_tensor none = {0};
    return run_weight(stream, "rmsnorm_backward_weight", dgamma, none, dout, x, none, rstd,
                      scratch);
}
