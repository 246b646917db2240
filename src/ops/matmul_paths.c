/* SPDX-License-Identifier: MIT
 *
 * The paths of rf_matmul: the products and devices that each supports, and the launch of its
 * kernel. Called through the table in matmul.c, after all checks.
 */
#include "matmul.h"

#include "../base/base.h"
#include "budget.h"
#include "forms.h"
#include "quantize.h"

/* Whether consecutive tiles are in one column, which is better if it re-reads less memory: a column
 * of tiles shares its part of b, a row of tiles its part of a. */
static bool rows_first(const struct rf_product *p)
{
    return p->n >= 4 * p->m;
}

static uint32_t flags_of(const struct rf_product *p)
{
    static const uint32_t acts[RF_ACTIVATION_COUNT] = {
        [RF_ACT_RELU] = RF_MATMUL_RELU,
        [RF_ACT_GELU] = RF_MATMUL_GELU,
        [RF_ACT_SILU] = RF_MATMUL_SILU,
    };
    return acts[p->act] | (p->bias.buffer ? RF_MATMUL_BIAS : 0) |
           (p->accumulate || p->residual.buffer ? RF_MATMUL_RESIDUAL : 0) |
           (p->act_backward ? RF_MATMUL_BACKWARD
            : p->pre.buffer ? RF_MATMUL_WRITE_PRE
                            : 0) |
           (rows_first(p) ? RF_MATMUL_ROWS_FIRST : 0) | (p->part ? RF_MATMUL_SPLIT_K : 0);
}

static int64_t tiles_along(int64_t size, uint32_t tile)
{
    return (size + tile - 1) / tile;
}

/* Declares the work and the ranges of one launch. k may be split into parts, whose sums are then a
 * batch of results; the launch that adds them up has no b. */
static void declare(const struct rf_product *p, struct rf_job *job)
{
    const bool adds = p->accumulate || p->residual.buffer, folds = !p->b.buffer;
    const int64_t products = p->part ? 1 : p->batch, outs = p->m * p->n * p->batch;
    const int64_t epilogue =
        (p->bias.buffer != NULL) + adds + (p->act != RF_ACT_NONE) + (p->alpha != 1);
    const int64_t sums = p->m * p->n * p->k * products;
    job->work.flops = (uint64_t)((folds ? sums : 2 * sums) + epilogue * outs);
    rf_job_touches(job, p->a, folds ? sums : p->m * p->k * (p->a_layout.step ? products : 1),
                   RF_TOUCH_READ);
    rf_job_touches(job, p->b,
                   p->quantized ? rf_tensor_count(p->b)
                                : p->n * p->k * (p->b_layout.step ? products : 1),
                   RF_TOUCH_READ);
    rf_job_reads(job, p->bias);
    rf_job_touches(job, p->residual, outs, RF_TOUCH_READ);
    rf_job_touches(job, p->out, outs, p->accumulate ? RF_TOUCH_UPDATE : RF_TOUCH_WRITE);
    rf_job_touches(job, p->pre, outs, p->act_backward ? RF_TOUCH_READ : RF_TOUCH_WRITE);
}

/* Fields that follow from the sizes for a quantised b, and say something else (push/matmul.h). */
static void fill_quantized(const struct rf_product *p, struct rf_push_matmul *push)
{
    if (!p->quantized)
        return;
    push->b_first = p->numbers;
    push->b_row = p->blocks;
    push->b_step = p->first_block;
    push->a_step = p->block_gap;
}

void rf_matmul_fill(const struct rf_product *p, uint32_t tile_m, uint32_t tile_n,
                    struct rf_push_matmul *push, struct rf_job *job)
{
    *push = (struct rf_push_matmul){.a = rf_address_of(p->a),
                                    .b = rf_address_of(p->b),
                                    .out_ = rf_address_of(p->out),
                                    /* CPU drivers may read an absent operand and discard the value,
                                     * so its address must be readable. b has at least n elements;
                                     * if there is none, a has. */
                                    .bias = rf_address_of(p->bias.buffer ? p->bias
                                                          : p->quantized ? p->out
                                                          : p->b.buffer  ? p->b
                                                                         : p->a),
                                    .pre = rf_address_of(p->pre.buffer ? p->pre : p->out),
                                    .residual =
                                        rf_address_of(p->residual.buffer ? p->residual : p->out),
                                    .M = (uint32_t)p->m,
                                    .N = (uint32_t)p->n,
                                    .K = (uint32_t)p->k,
                                    .flags = flags_of(p),
                                    .tiles_m = (uint32_t)tiles_along(p->m, tile_m),
                                    .tiles_n = (uint32_t)tiles_along(p->n, tile_n),
                                    .a_row = (uint32_t)p->a_layout.row,
                                    .b_row = (uint32_t)p->b_layout.row,
                                    .out_row = (uint32_t)p->out_layout.row,
                                    .a_step = (uint32_t)p->a_layout.step,
                                    .b_step = (uint32_t)p->b_layout.step,
                                    .out_step = (uint32_t)p->out_layout.step,
                                    .part = (uint32_t)p->part,
                                    .alpha = p->alpha};
    fill_quantized(p, push);
    rf_flat_groups(p->device, (uint64_t)push->tiles_m * push->tiles_n, 1, job->groups);
    job->groups[2] = (uint32_t)p->batch;
    push->groups_x = job->groups[0];
    job->push = push;
    job->push_bytes = RF_PUSH_BYTES(*push);
    declare(p, job);
}

static bool wide(int64_t columns, struct rf_layout layout, const struct rf_tensor *tensors,
                 size_t count)
{
    return layout.row % 4 == 0 && layout.step % 4 == 0 && rf_pick_vector(columns, tensors, count);
}

bool rf_matmul_a_wide(const struct rf_product *p)
{
    return wide(p->transpose_a ? p->m : p->k, p->a_layout, &p->a, 1);
}

bool rf_matmul_b_wide(const struct rf_product *p)
{
    return wide(p->transpose_b ? p->k : p->n, p->b_layout, &p->b, 1);
}

bool rf_matmul_out_wide(const struct rf_product *p)
{
    return wide(p->n, p->out_layout, (struct rf_tensor[]){p->out, p->pre, p->residual, p->bias}, 4);
}

uint32_t rf_matmul_type(enum rf_dtype dtype)
{
    return dtype == RF_F16 ? 1 : dtype == RF_BF16 ? 2 : 0;
}

/* ---- subgroup: one tile per subgroup, for CPU drivers ---------------------------------------- */

/* Rows of a tile: ROWS in matmul_subgroup.comp, without and with LOW. */
static const uint32_t subgroup_rows[] = {32, 8};
/* Up to this number of multiply-adds, low tiles are as fast, and compile in a third of the time. */
#define LOW_TILES_UP_TO (INT64_C(1) << 22)
#define SUBGROUP_K 1024 /* length of k per launch: that much of a and b stays in the caches */

/* Mesa's CPU driver ends a kernel's loops after 65535 iterations, and the epilogue has some. */
#define MOST_ROUNDS 64000

static int64_t longest_k(const struct rf_product *p)
{
    return p->part ? p->part : p->k;
}

const char *rf_matmul_subgroup_why_not(const struct rf_device_info *info,
                                       const struct rf_product *p)
{
    uint32_t lanes = info->subgroup_size;
    if (!info->subgroup_shuffle)
        return "the device has no subgroup shuffles";
    if (lanes != 4 && lanes != 8 && lanes != 16)
        return "it is for subgroups of 4, 8 or 16";
    if (p->transpose_a && p->transpose_b)
        return "it does not take both operands transposed";
    if (p->quantized && (p->transpose_b ? p->k : p->n) % RF_QUANTIZE_BLOCK)
        return "rows of the quantised b are not whole blocks of 64";
    if (longest_k(p) > 4 * MOST_ROUNDS)
        return "k is over 256000, and CPU drivers end loops early";
    if (p->tile > 2)
        return "it has tiles 1 (32 rows) and 2 (8 rows)";
    return NULL;
}

bool rf_matmul_subgroup_suits(const struct rf_device_info *info, const struct rf_product *p)
{
    return info->kind == RF_DEVICE_CPU;
}

static bool takes_low_tiles(const struct rf_product *p)
{
    return p->tile ? p->tile == 2 : p->m * p->n <= LOW_TILES_UP_TO / (p->k > 0 ? p->k : 1);
}

/* Counted with 32 rows per tile: the split of k, and so the bits, do not depend on the choice of
 * tile. */
int64_t rf_matmul_subgroup_tiles(const struct rf_device_info *info, const struct rf_product *p)
{
    return tiles_along(p->m, subgroup_rows[0]) * tiles_along(p->n, 8 * info->subgroup_size);
}

/* Adds the views in binding order. An absent operand is replaced by out, and so is a quantised b,
 * which is read by address. */
static bool add_views(const struct rf_product *p, struct rf_push_matmul *push, struct rf_job *job)
{
    bool like_out = rf_matmul_out_wide(p);
    const struct {
        struct rf_tensor tensor;
        bool wide;
        uint32_t *first;
    } views[] = {{p->a, rf_matmul_a_wide(p), &push->a_first},
                 {p->quantized ? p->out : p->b, p->quantized ? like_out : rf_matmul_b_wide(p),
                  &push->b_first},
                 {p->residual, like_out, &push->residual_first},
                 {p->pre, like_out, &push->pre_first}};
    if (!rf_device_get_info(p->device)->int64 || p->a.dtype != RF_F32 || p->out.dtype != RF_F32)
        return false;
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        if (!rf_job_view(job, views[i].tensor.buffer ? views[i].tensor : p->out, views[i].wide,
                         views[i].first)) {
            job->view_count = 0;
            return false;
        }
    return true;
}

static int run_part(struct rf_stream *stream, const struct rf_product *p)
{
#define FORMS(build) RF_BUILD(build##_nn), RF_BUILD(build##_nt)
    static const struct rf_build shaders[2][3][3] = {
        {{FORMS(matmul_subgroup), RF_BUILD(matmul_subgroup_tn)},
         {FORMS(matmul_subgroup_longs), RF_BUILD(matmul_subgroup_longs_tn)},
         {FORMS(matmul_subgroup_views), RF_BUILD(matmul_subgroup_views_tn)}},
        {{FORMS(matmul_subgroup_low), RF_BUILD(matmul_subgroup_low_tn)},
         {FORMS(matmul_subgroup_low_longs), RF_BUILD(matmul_subgroup_low_longs_tn)},
         {FORMS(matmul_subgroup_low_views), RF_BUILD(matmul_subgroup_low_views_tn)}}};
    static const struct rf_build quantized[2][RF_QUANTIZATION_COUNT][2][2] = {
        {[RF_NF4] = {{FORMS(matmul_subgroup_nf4)}, {FORMS(matmul_subgroup_views_nf4)}},
         [RF_INT8] = {{FORMS(matmul_subgroup_int8)}, {FORMS(matmul_subgroup_views_int8)}},
         [RF_FP8] = {{FORMS(matmul_subgroup_fp8)}, {FORMS(matmul_subgroup_views_fp8)}},
         [RF_MXFP4] = {{FORMS(matmul_subgroup_fp4)}, {FORMS(matmul_subgroup_views_fp4)}},
         [RF_NVFP4] = {{FORMS(matmul_subgroup_fp4)}, {FORMS(matmul_subgroup_views_fp4)}}},
        {[RF_NF4] = {{FORMS(matmul_subgroup_low_nf4)}, {FORMS(matmul_subgroup_low_views_nf4)}},
         [RF_INT8] = {{FORMS(matmul_subgroup_low_int8)}, {FORMS(matmul_subgroup_low_views_int8)}},
         [RF_FP8] = {{FORMS(matmul_subgroup_low_fp8)}, {FORMS(matmul_subgroup_low_views_fp8)}},
         [RF_MXFP4] = {{FORMS(matmul_subgroup_low_fp4)}, {FORMS(matmul_subgroup_low_views_fp4)}},
         [RF_NVFP4] = {{FORMS(matmul_subgroup_low_fp4)}, {FORMS(matmul_subgroup_low_views_fp4)}}}};
#undef FORMS
    const bool low = takes_low_tiles(p);
    const struct rf_device_info *info = rf_device_get_info(p->device);
    uint32_t lanes = info->subgroup_size;
    /* Two quads of k per round, if that leaves no remainder or there is one anyway. */
    bool pairs = info->int64 && lanes == 8 && (p->k % 8 == 0 || p->k % 4 != 0);
    uint32_t step = pairs ? 2 : 1;
    struct rf_push_matmul push;
    struct rf_job job = {.op = "matmul", .subgroup_size = lanes};
    rf_matmul_fill(p, subgroup_rows[low], 8 * lanes, &push, &job);
    int build = add_views(p, &push, &job) ? 2 : info->int64;
    fill_quantized(p, &push); /* the view of b has changed it */
    job.shader = p->quantized ? quantized[low][p->quantized][build == 2][p->transpose_b]
                              : shaders[low][build][p->transpose_a ? 2 : p->transpose_b];
    rf_job_spec(&job, 0, lanes);
    rf_job_spec(&job, 1, lanes);
    rf_job_spec(&job, 2, rf_matmul_a_wide(p));
    rf_job_spec(&job, 3, rf_matmul_b_wide(p));
    rf_job_spec(&job, 4, rf_matmul_out_wide(p));
    rf_job_spec(&job, 5, p->k % (4 * step) != 0);
    rf_job_spec(&job, 6, rf_matmul_type(p->a.dtype));
    rf_job_spec(&job, 7, rf_matmul_type(p->out.dtype));
    rf_job_spec(&job, 8, p->act != RF_ACT_NONE);
    rf_job_spec(&job, 9, step);
    rf_quantized_spec(&job, p->quantized);
    return rf_job_run(stream, &job);
}

/* The operand from row or column `k` on. */
static struct rf_tensor from_k(struct rf_tensor tensor, int64_t k, bool rows,
                               struct rf_layout layout)
{
    int64_t elements = k * (rows ? layout.row : 1);
    tensor.offset += (uint64_t)elements * rf_dtype_bytes(tensor.dtype);
    tensor.shape = rf_shape1(rf_tensor_count(tensor) - elements);
    return tensor;
}

int rf_matmul_subgroup_run(struct rf_stream *stream, const struct rf_product *p)
{
    if (p->k < 2 * SUBGROUP_K || p->act || p->part || p->out.dtype != RF_F32 || p->quantized)
        return run_part(stream, p);
    for (int64_t k = 0; k < p->k; k += SUBGROUP_K) { /* each launch adds to the sum */
        struct rf_product part = *p;
        part.k = p->k - k < SUBGROUP_K ? p->k - k : SUBGROUP_K;
        part.a = from_k(p->a, k, p->transpose_a, p->a_layout);
        part.b = from_k(p->b, k, !p->transpose_b, p->b_layout);
        if (k > 0) {
            part.accumulate = true;
            part.bias = part.residual = (struct rf_tensor){0};
        }
        RETURN_IF_ERROR(run_part(stream, &part));
    }
    return 0;
}

/* ---- tiled: shared memory, for GPUs ---------------------------------------------------------- */

struct tile {
    uint32_t m, n, share_m, share_n;
    uint32_t unroll; /* length of k per round of the inner loop: with more, loop overhead falls, and
                      * more operands wait in registers */
};
/* Large tiles read less; small ones use more of the device. */
static const struct tile tiles[] = {
    {128, 128, 8, 8, 4}, {128, 128, 8, 8, 1}, {64, 64, 4, 4, 4}, {64, 64, 4, 4, 1}};
#define TILES (sizeof(tiles) / sizeof(tiles[0]))

static bool tile_fits(void *user, size_t i)
{
    const struct rf_product *p = user;
    const struct rf_device_info *info = rf_device_get_info(p->device);
    const struct tile *t = &tiles[i];
    const uint32_t tables = p->quantized == RF_NF4                                 ? 4 * (16 + 256)
                            : p->quantized == RF_MXFP4 || p->quantized == RF_NVFP4 ? 4 * 16
                                                                                   : 0;
    const uint32_t shared = 4 * 16 * (t->m + 4 + t->n + 4) + tables;
    if (info->kind == RF_DEVICE_CPU && t->unroll > 1)
        return false;
    return t->share_m < 8 || (info->max_shared_bytes >= shared &&
                              tiles_along(p->m, t->m) * tiles_along(p->n, t->n) * p->batch >= 128);
}

static void set_tile(const struct rf_product *p, const struct tile *t, struct rf_job *job)
{
    static const struct rf_build shaders[2][2] = {
        {RF_BUILD(matmul_tiled_nn), RF_BUILD(matmul_tiled_nt)},
        {RF_BUILD(matmul_tiled_tn), RF_BUILD(matmul_tiled_tt)}};
    static const struct rf_build quantized[RF_QUANTIZATION_COUNT][2] = {
        [RF_NF4] = {RF_BUILD(matmul_tiled_nf4_nn), RF_BUILD(matmul_tiled_nf4_nt)},
        [RF_INT8] = {RF_BUILD(matmul_tiled_int8_nn), RF_BUILD(matmul_tiled_int8_nt)},
        [RF_FP8] = {RF_BUILD(matmul_tiled_fp8_nn), RF_BUILD(matmul_tiled_fp8_nt)},
        [RF_MXFP4] = {RF_BUILD(matmul_tiled_fp4_nn), RF_BUILD(matmul_tiled_fp4_nt)},
        [RF_NVFP4] = {RF_BUILD(matmul_tiled_fp4_nn), RF_BUILD(matmul_tiled_fp4_nt)}};
    job->op = "matmul";
    job->shader = p->quantized ? quantized[p->quantized][p->transpose_b]
                               : shaders[p->transpose_a][p->transpose_b];
    job->push_bytes = RF_PUSH_BYTES(struct rf_push_matmul);
    rf_job_spec(job, 0, t->m / t->share_m * (t->n / t->share_n));
    rf_job_spec(job, 1, t->m);
    rf_job_spec(job, 2, t->n);
    rf_job_spec(job, 3, t->share_m);
    rf_job_spec(job, 4, t->share_n);
    rf_job_spec(job, 8, rf_matmul_type(p->a.dtype));
    rf_job_spec(job, 9, rf_matmul_type(p->out.dtype));
    rf_job_spec(job, 11, t->unroll);
    rf_quantized_spec(job, p->quantized);
}

/* With whole quads, with and without an activation, and unaligned: which one needs the most
 * registers depends on the compiler. */
static void describe_tile(void *user, size_t i, struct rf_form *form)
{
    const struct rf_product *p = user;
    const struct tile *t = &tiles[i];
    const uint32_t lanes = rf_register_lanes(rf_device_get_info(p->device));
    set_tile(p, t, &form->job);
    form->other[0] = form->other[1] = form->job;
    form->other_count = 2;
    for (uint32_t id = 5; id < 8; id++) {
        rf_job_spec(&form->job, id, 1);
        rf_job_spec(&form->other[0], id, 1);
        rf_job_spec(&form->other[1], id, 0);
    }
    rf_job_spec(&form->job, 10, 1);
    rf_job_spec(&form->other[0], 10, 0);
    rf_job_spec(&form->other[1], 10, 1);
    form->registers = rf_register_bytes(
        &(struct rf_register_need){.lanes = lanes,
                                   .sums = lanes * t->share_m * t->share_n,
                                   .operands = 2 * lanes * t->unroll * (t->share_m + t->share_n)});
    snprintf(form->text, sizeof(form->text), "%ux%u tile, %ux%u of it each, %u of k", t->m, t->n,
             t->share_m, t->share_n, t->unroll);
}

static const struct tile *pick_tile(const struct rf_product *p)
{
    struct rf_forms forms = {.count = TILES, .fits = tile_fits, .describe = describe_tile};
    snprintf(forms.family, sizeof(forms.family), "matmul_tiled/%s/%c%c/%s%s%s",
             rf_dtype_name(p->a.dtype), p->transpose_a ? 't' : 'n', p->transpose_b ? 't' : 'n',
             rf_dtype_name(p->out.dtype), p->quantized ? "/" : "",
             p->quantized ? rf_quantization_name(p->quantized) : "");
    return &tiles[rf_pick_form(p->device, &forms, (void *)p)];
}

const char *rf_matmul_tiled_why_not(const struct rf_device_info *info, const struct rf_product *p)
{
    if (info->max_workgroup_invocations < 256 || info->max_workgroup_size[0] < 256)
        return "it needs workgroups of 256 invocations";
    if (info->kind == RF_DEVICE_CPU && longest_k(p) / 16 * 17 > MOST_ROUNDS)
        return "k is over 60000, and CPU drivers end loops early";
    return NULL;
}

bool rf_matmul_tiled_suits(const struct rf_device_info *info, const struct rf_product *p)
{
    return true;
}

int64_t rf_matmul_tiled_tiles(const struct rf_device_info *info, const struct rf_product *p)
{
    const struct tile *tile = pick_tile(p);
    return tiles_along(p->m, tile->m) * tiles_along(p->n, tile->n);
}

int rf_matmul_tiled_run(struct rf_stream *stream, const struct rf_product *p)
{
    const struct tile *tile = pick_tile(p);
    struct rf_push_matmul push;
    struct rf_job job = {.op = "matmul"};
    set_tile(p, tile, &job);
    rf_matmul_fill(p, tile->m, tile->n, &push, &job);
    rf_job_spec(&job, 5, rf_matmul_a_wide(p));
    rf_job_spec(&job, 6, rf_matmul_b_wide(p));
    rf_job_spec(&job, 7, rf_matmul_out_wide(p));
    rf_job_spec(&job, 10, p->act != RF_ACT_NONE);
    return rf_job_run(stream, &job);
}
