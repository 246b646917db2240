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
enum { NORM = 8, RMS = 4, INPUT_FLOPS = 12, RMS_INPUT = 9, WEIGHT_FLOPS = 5, RMS_WEIGHT = 3 };

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

/* ---- checks ---------------------------------------------------------------------------------- */

enum call { FORWARD = 1, INPUT = 2, WEIGHT = 4, ALL = 7 };

/* The name in messages and of launches. */
static const char *name_of(const struct rf_norm_args *a, enum call call)
{
    static const char *const names[][2] = {
        {"layernorm", "rmsnorm"},
        {"residual_layernorm", "residual_rmsnorm"},
        {"layernorm_backward_input", "rmsnorm_backward_input"},
        {"layernorm_backward_weight", "rmsnorm_backward_weight"},
    };
    const bool of_sum = a->sum.buffer || a->residual.buffer;
    return names[call == FORWARD ? of_sum : call == INPUT ? 2 : 3][a->rms];
}

static int check_uses(const char *op, const struct rf_norm_args *a, enum call call)
{
    const struct rf_use uses[] = {
        {"eps", a->eps != 0, FORWARD},
        {"residual", a->residual.buffer, FORWARD},
        {"gamma", a->gamma.buffer, FORWARD | INPUT},
        {"beta", a->beta.buffer, a->rms ? 0 : FORWARD},
        {"out", a->out.buffer, FORWARD},
        {"sum", a->sum.buffer, FORWARD},
        {"mean", a->mean.buffer, a->rms ? 0 : ALL},
        {"dout", a->dout.buffer, INPUT | WEIGHT},
        {"dx", a->dx.buffer, INPUT},
        {"accumulate_dx", a->accumulate_dx, INPUT},
        {"dgamma", a->dgamma.buffer, WEIGHT},
        {"dbeta", a->dbeta.buffer, a->rms ? 0 : WEIGHT},
        {"scratch", a->scratch.buffer, WEIGHT},
    };
    return rf_check_uses(op, call, uses, sizeof(uses) / sizeof(uses[0]));
}

/* Checks gamma and x, and computes the problem size. */
static int check_size(struct rf_stream *stream, const char *op, const struct rf_norm_args *a,
                      int64_t *rows, int64_t *channels)
{
    RETURN_IF_ERROR(rf_check_typed(op, "gamma", a->gamma, -1));
    *channels = rf_tensor_count(a->gamma);
    if (*channels < 1)
        return rf_fail(RF_EINVAL, "%s: gamma is empty", op);
    RETURN_IF_ERROR(rf_check_rows(op, "x", a->x, a->gamma.dtype, -1, *channels));
    *rows = rf_tensor_count(a->x) / *channels;
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

static int check_statistics(const char *op, const struct rf_norm_args *a, int64_t rows)
{
    if (!a->rms)
        RETURN_IF_ERROR(rf_check_operand(op, "mean", a->mean, RF_F32, rows));
    return rf_check_operand(op, "rstd", a->rstd, RF_F32, rows);
}

static int check_norm(struct rf_stream *stream, const char *op, const struct rf_norm_args *a,
                      int64_t *rows, int64_t *channels)
{
    RETURN_IF_ERROR(check_uses(op, a, FORWARD));
    RETURN_IF_ERROR(check_size(stream, op, a, rows, channels));
    RETURN_IF_ERROR(check_narrow(op, "out", a->out, a->x, *rows, *channels));
    RETURN_IF_ERROR(check_statistics(op, a, *rows));
    if (a->beta.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "beta", a->beta, a->x.dtype, *channels));
    if (a->sum.buffer || a->residual.buffer) {
        RETURN_IF_ERROR(rf_check_rows(op, "residual", a->residual, a->x.dtype, *rows, *channels));
        RETURN_IF_ERROR(rf_check_rows(op, "sum", a->sum, a->x.dtype, *rows, *channels));
        RETURN_IF_ERROR(rf_check_in_place(op, "sum", a->sum, "x", a->x));
        RETURN_IF_ERROR(rf_check_in_place(op, "sum", a->sum, "residual", a->residual));
    }
    const struct rf_named_tensor weights[] = {{"gamma", a->gamma}, {"beta", a->beta}};
    RETURN_IF_ERROR(
        rf_check_apart(op,
                       (struct rf_named_tensor[]){
                           {"out", a->out}, {"sum", a->sum}, {"mean", a->mean}, {"rstd", a->rstd}},
                       4, weights, 2));
    return rf_check_apart(
        op, (struct rf_named_tensor[]){{"out", a->out}, {"mean", a->mean}, {"rstd", a->rstd}}, 3,
        (struct rf_named_tensor[]){{"x", a->x}, {"residual", a->residual}}, 2);
}

static int check_input(struct rf_stream *stream, const char *op, const struct rf_norm_args *a,
                       int64_t *rows, int64_t *channels)
{
    RETURN_IF_ERROR(check_uses(op, a, INPUT));
    RETURN_IF_ERROR(check_size(stream, op, a, rows, channels));
    RETURN_IF_ERROR(rf_check_rows(op, "dx", a->dx, a->x.dtype, *rows, *channels));
    RETURN_IF_ERROR(check_narrow(op, "dout", a->dout, a->x, *rows, *channels));
    RETURN_IF_ERROR(check_statistics(op, a, *rows));
    if (a->dx.dtype == a->dout.dtype)
        RETURN_IF_ERROR(rf_check_in_place(op, "dx", a->dx, "dout", a->dout));
    else
        RETURN_IF_ERROR(rf_check_alias(op, "dx", a->dx, "dout", a->dout));
    return rf_check_apart(
        op, (struct rf_named_tensor[]){{"dx", a->dx}}, 1,
        (struct rf_named_tensor[]){
            {"x", a->x}, {"mean", a->mean}, {"rstd", a->rstd}, {"gamma", a->gamma}},
        4);
}

static int check_weight(const char *op, const struct rf_norm_args *a, int64_t *rows,
                        int64_t *channels)
{
    const bool beta_alone = !a->dgamma.buffer && a->dbeta.buffer;
    const char *name = beta_alone ? "dbeta" : "dgamma";
    const struct rf_tensor first = beta_alone ? a->dbeta : a->dgamma;
    RETURN_IF_ERROR(check_uses(op, a, WEIGHT));
    RETURN_IF_ERROR(rf_check_typed(op, name, first, -1));
    *channels = rf_tensor_count(first);
    if (*channels < 1)
        return rf_fail(RF_EINVAL, "%s: %s is empty", op, name);
    if (a->dbeta.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "dbeta", a->dbeta, first.dtype, *channels));
    RETURN_IF_ERROR(rf_check_typed(op, "x", a->x, -1));
    RETURN_IF_ERROR(rf_check_rows(op, "x", a->x, a->x.dtype, -1, *channels));
    *rows = rf_tensor_count(a->x) / *channels;
    RETURN_IF_ERROR(check_narrow(op, "dout", a->dout, a->x, *rows, *channels));
    RETURN_IF_ERROR(check_statistics(op, a, *rows));
    RETURN_IF_ERROR(
        rf_check_operand(op, "scratch", a->scratch, RF_F32, rf_norm_scratch(*rows, *channels)));
    return rf_check_apart(op,
                          (struct rf_named_tensor[]){
                              {"dgamma", a->dgamma}, {"dbeta", a->dbeta}, {"scratch", a->scratch}},
                          3,
                          (struct rf_named_tensor[]){
                              {"dout", a->dout}, {"x", a->x}, {"mean", a->mean}, {"rstd", a->rstd}},
                          4);
}

/* ---- launches -------------------------------------------------------------------------------- */

int rf_norm(struct rf_stream *stream, const struct rf_norm_args *a)
{
    static const struct kernel kernel = KERNEL(layernorm);
    const char *op = name_of(a, FORWARD);
    int64_t rows = 0, channels = 0;
    RETURN_IF_ERROR(check_norm(stream, op, a, &rows, &channels));
    if (rows == 0)
        return 0;

    bool vector = rf_pick_vector(
        channels, (struct rf_tensor[]){a->out, a->x, a->gamma, a->beta, a->residual, a->sum}, 6);
    struct rf_push_layernorm push = {.out_ = rf_address_of(a->out),
                                     .mean = rf_address_of(a->mean),
                                     .rstd = rf_address_of(a->rstd),
                                     .x = rf_address_of(a->x),
                                     .gamma = rf_address_of(a->gamma),
                                     .beta = rf_address_of(a->beta),
                                     .residual = rf_address_of(a->residual),
                                     .sum = rf_address_of(a->sum),
                                     .rows = (uint32_t)rows,
                                     .channels = (uint32_t)channels,
                                     .eps = a->eps};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = a->out.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, builds_of(device, &kernel, a->out.dtype == a->x.dtype), vector,
                 (struct rf_source[]){{a->x}, {a->gamma}, {a->beta}, {a->residual}}, 4, push.first);
    const uint32_t next = give_rows(&job, device, rows, channels, vector);
    rf_job_spec(&job, next, a->rms);
    rf_job_spec(&job, next + 1, a->beta.buffer != NULL);
    rf_job_spec(&job, next + 2, a->sum.buffer != NULL);
    declare_flops(&job, rows, channels, (a->rms ? RMS : NORM) + (a->sum.buffer != NULL));
    rf_job_reads(&job, a->x);
    rf_job_reads(&job, a->residual);
    rf_job_reads(&job, a->gamma);
    rf_job_reads(&job, a->beta);
    rf_job_writes(&job, a->out);
    rf_job_writes(&job, a->sum);
    rf_job_writes(&job, a->mean);
    rf_job_writes(&job, a->rstd);
    return rf_job_run(stream, &job);
}

int rf_norm_backward_input(struct rf_stream *stream, const struct rf_norm_args *a)
{
    static const struct kernel kernel = KERNEL(layernorm_backward_input);
    const char *op = name_of(a, INPUT);
    int64_t rows = 0, channels = 0;
    RETURN_IF_ERROR(check_input(stream, op, a, &rows, &channels));
    if (rows == 0)
        return 0;

    bool vector = rf_pick_vector(channels, (struct rf_tensor[]){a->dx, a->dout, a->x, a->gamma}, 4);
    struct rf_push_layernorm_backward_input push = {.dx = rf_address_of(a->dx),
                                                    .dout = rf_address_of(a->dout),
                                                    .x = rf_address_of(a->x),
                                                    .mean = rf_address_of(a->mean),
                                                    .rstd = rf_address_of(a->rstd),
                                                    .gamma = rf_address_of(a->gamma),
                                                    .rows = (uint32_t)rows,
                                                    .channels = (uint32_t)channels};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = a->dout.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, builds_of(device, &kernel, a->dout.dtype == a->x.dtype), vector,
                 (struct rf_source[]){{a->dout}, {a->x}, {a->gamma}, {a->dx}}, 4, push.first);
    const uint32_t next = give_rows(&job, device, rows, channels, vector);
    rf_job_spec(&job, next, a->accumulate_dx);
    rf_job_spec(&job, next + 1, a->rms);
    declare_flops(&job, rows, channels, (a->rms ? RMS_INPUT : INPUT_FLOPS) + a->accumulate_dx);
    rf_job_reads(&job, a->dout);
    rf_job_reads(&job, a->x);
    rf_job_reads(&job, a->mean);
    rf_job_reads(&job, a->rstd);
    rf_job_reads(&job, a->gamma);
    rf_job_touches(&job, a->dx, rows * channels,
                   a->accumulate_dx ? RF_TOUCH_UPDATE : RF_TOUCH_WRITE);
    return rf_job_run(stream, &job);
}

int64_t rf_norm_scratch(int64_t rows, int64_t channels)
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

int rf_norm_backward_weight(struct rf_stream *stream, const struct rf_norm_args *a)
{
    static const struct kernel kernel = KERNEL(layernorm_backward_weight);
    const char *op = name_of(a, WEIGHT);
    int64_t rows = 0, channels = 0;
    RETURN_IF_ERROR(check_weight(op, a, &rows, &channels));
    if (rows == 0)
        return 0;

    struct rf_tensor scratch = a->scratch;
    bool vector = rf_pick_vector(channels, (struct rf_tensor[]){a->dout, a->x, scratch}, 3);
    uint32_t row_items = (uint32_t)(vector ? channels / 4 : channels);
    int64_t blocks = block_count(rows);
    RETURN_IF_ERROR(rf_check_rounds(rf_stream_device(stream), op, blocks));
    struct rf_push_layernorm_backward_weight push = {.partial = rf_address_of(scratch),
                                                     .dout = rf_address_of(a->dout),
                                                     .x = rf_address_of(a->x),
                                                     .mean = rf_address_of(a->mean),
                                                     .rstd = rf_address_of(a->rstd),
                                                     .rows = (uint32_t)rows,
                                                     .row_items = row_items,
                                                     .blocks = (uint32_t)blocks};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = a->dout.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, builds_of(device, &kernel, a->dout.dtype == a->x.dtype), vector,
                 (struct rf_source[]){{a->dout}, {a->x}, {a->mean, true}, {a->rstd, true}}, 4,
                 push.first);
    if (rf_device_teams(device))
        give_columns(&job, device, row_items, COLUMNS, blocks);
    else
        rf_job_flat(&job, device, (uint64_t)blocks * row_items, RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, a->rms);
    declare_flops(&job, rows, channels, a->rms ? RMS_WEIGHT : WEIGHT_FLOPS);
    rf_job_reads(&job, a->dout);
    rf_job_reads(&job, a->x);
    rf_job_reads(&job, a->mean);
    rf_job_reads(&job, a->rstd);
    rf_job_writes(&job, scratch);
    RETURN_IF_ERROR(rf_job_run(stream, &job));
    if (a->dgamma.buffer)
        return run_fold(stream, a->dgamma, a->dbeta, scratch, channels, blocks);
    /* In each block, the second of the two sums. */
    scratch.shape = rf_shape1(rf_tensor_count(scratch) - channels);
    scratch.offset += (uint64_t)channels * sizeof(float);
    return run_fold(stream, a->dbeta, a->dgamma, scratch, channels, blocks);
}
