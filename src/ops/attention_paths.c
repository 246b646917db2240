/* SPDX-License-Identifier: MIT
 *
 * The paths of attention: "rows" for CPU drivers (attention_rows.glsl), "tiled" for GPUs
 * (attention_tiled.glsl). Both run the same passes, with the same operands; called by attention.c
 * after all checks.
 */
#include <math.h>

#include "../base/base.h"
#include "attention.h"
#include "shaders/push/attention.h"

/* Operands in the order of shaders/push/attention.h. FIRST, SECOND: PUSH_FIRST, PUSH_SECOND. */
enum { Q, K, V, DOUT, LSE, DELTA, FIRST, SECOND, OPERANDS };

#define SOFTMAX_FLOPS 4 /* of a pair: scale, difference, exp, sum; or its gradient's */

struct pass {
    struct rf_builds rows;
    struct rf_build tiled[2], units[2]; /* any rows, aligned ones */
    uint8_t sources, source[6];         /* operands that have views */
    bool writes[OPERANDS];              /* the others are read */
    bool over_keys;                     /* a lane or workgroup owns keys, not queries */
    uint32_t rows_per_lane;             /* of path "rows", for heads of at most 32 elements */
    uint32_t dots, mixes; /* products for each query and key, of the length of a head */
    uint32_t repeats;     /* of these, those that another pass has computed before */
};
static const struct pass forward_pass = {
    .rows = RF_BUILDS(attention),
    .tiled = {RF_BUILD_TYPES(attention_tiled_s), RF_BUILD_TYPES(attention_tiled_v)},
    .units = {RF_BUILD_16(attention_tiled_units_s), RF_BUILD_16(attention_tiled_units_v)},
    .sources = 3,
    .source = {Q, K, V},
    .writes = {[LSE] = true, [FIRST] = true},
    .rows_per_lane = 4,
    .dots = 1,
    .mixes = 1};
static const struct pass query_pass = {
    .rows = RF_BUILDS(attention_backward_query),
    .tiled = {RF_BUILD_TYPES(attention_tiled_query_s), RF_BUILD_TYPES(attention_tiled_query_v)},
    .units = {RF_BUILD_16(attention_tiled_query_units_s),
              RF_BUILD_16(attention_tiled_query_units_v)},
    .sources = 5,
    .source = {Q, K, V, DOUT, FIRST},
    .writes = {[DELTA] = true, [SECOND] = true},
    .rows_per_lane = 2,
    .dots = 2,
    .mixes = 1,
    .repeats = 1};
static const struct pass key_pass = {
    .rows = RF_BUILDS(attention_backward_key),
    .tiled = {RF_BUILD_TYPES(attention_tiled_key_s), RF_BUILD_TYPES(attention_tiled_key_v)},
    .units = {RF_BUILD_16(attention_tiled_key_units_s), RF_BUILD_16(attention_tiled_key_units_v)},
    .sources = 6,
    .source = {Q, K, V, DOUT, LSE, DELTA},
    .writes = {[FIRST] = true, [SECOND] = true},
    .over_keys = true,
    .rows_per_lane = 2,
    .dots = 2,
    .mixes = 2,
    .repeats = 2};

/* What the pass reads and writes; unused ones have no buffer. */
static void list_operands(const struct rf_attention_call *call, const struct pass *pass,
                          struct rf_tensor operands[OPERANDS])
{
    const struct rf_attention_args *a = call->args;
    const struct rf_attention_grads *g = call->grads;
    memset(operands, 0, OPERANDS * sizeof(*operands));
    operands[Q] = rf_heads_extent(&a->q);
    operands[K] = rf_heads_extent(&a->k);
    operands[V] = rf_heads_extent(&a->v);
    operands[LSE] = a->lse;
    operands[FIRST] = rf_heads_extent(pass->over_keys ? &g->dk : &a->out);
    if (!g)
        return;
    operands[DOUT] = rf_heads_extent(&g->dout);
    operands[DELTA] = g->delta;
    operands[SECOND] = rf_heads_extent(pass->over_keys ? &g->dv : &g->dq);
}

static bool is_vector(const struct rf_attention_call *call)
{
    const struct rf_attention_args *a = call->args;
    const struct rf_attention_grads *g = call->grads;
    bool vector = rf_heads_vector(&a->q) && rf_heads_vector(&a->k) && rf_heads_vector(&a->v) &&
                  rf_heads_vector(&a->out);
    if (!g)
        return vector;
    return vector && rf_heads_vector(&g->dout) && rf_heads_vector(&g->dq) &&
           rf_heads_vector(&g->dk) && rf_heads_vector(&g->dv);
}

/* What a pass computes: for each pair of a query and a key that it may see some products of the
 * length of a head, and the softmax or its gradient. */
static void declare_work(const struct rf_attention_call *call, const struct pass *pass,
                         struct rf_job *job)
{
    const struct rf_heads *q = &call->args->q, *k = &call->args->k;
    const int64_t earlier = k->rows - q->rows, own = q->rows * (q->rows + 1) / 2;
    const int64_t seen = call->args->full ? q->rows * k->rows : q->rows * earlier + own;
    const uint64_t pairs = (uint64_t)(seen * q->heads * q->batch);
    const uint64_t product = 2 * (uint64_t)q->size;
    job->work.flops = pairs * (product * (pass->dots + pass->mixes) + SOFTMAX_FLOPS);
    job->work.repeated = pairs * product * pass->repeats;
}

/* Elements of an operand that a pass touches: heads may lie among others. */
static int64_t touched(const struct rf_attention_call *call, const struct pass *pass, int operand)
{
    const struct rf_heads *q = &call->args->q, *k = &call->args->k;
    const int64_t rows = q->batch * q->heads * q->rows;
    const bool of_keys = operand == K || operand == V ||
                         (pass->over_keys && (operand == FIRST || operand == SECOND));
    if (operand == LSE || operand == DELTA)
        return rows;
    return of_keys ? k->batch * k->heads * k->rows * k->size : rows * q->size;
}

static void fill(const struct rf_attention_call *call, const struct pass *pass,
                 const struct rf_tensor operands[OPERANDS], uint32_t rows_per_group,
                 struct rf_push_attention *push, struct rf_job *job)
{
    const struct rf_attention_args *a = call->args;
    const struct rf_heads *own = pass->over_keys ? &a->k : &a->q;
    *push = (struct rf_push_attention){
        .queries = (uint32_t)a->q.rows,
        .keys = (uint32_t)a->k.rows,
        .group = (uint32_t)(a->q.heads / a->k.heads),
        .scale = a->scale != 0 ? a->scale : (float)(1.0 / sqrt((double)a->q.size))};
    rf_heads_strides(&a->q, push->q_strides);
    rf_heads_strides(&a->k, push->k_strides);
    rf_heads_strides(&a->v, push->v_strides);
    rf_heads_strides(&a->out, push->out_strides); /* and of their gradients */
    *job = (struct rf_job){.op = call->op,
                           .type = a->q.tensor.dtype,
                           .push = push,
                           .push_bytes = sizeof(*push),
                           .groups = {(uint32_t)((own->rows + rows_per_group - 1) / rows_per_group),
                                      (uint32_t)own->heads, (uint32_t)own->batch}};
    for (int i = 0; i < OPERANDS; i++) {
        push->at[i] = rf_address_of(operands[i]);
        rf_job_touches(job, operands[i], touched(call, pass, i),
                       pass->writes[i] ? RF_TOUCH_WRITE : RF_TOUCH_READ);
    }
    declare_work(call, pass, job);
}

/* ---- rows: a lane owns rows, for CPU drivers ------------------------------------------------- */

#define BLOCK 8 /* rows of the other side in a round; of attention_rows.glsl */

static int rows_can(const struct rf_attention_call *call)
{
    const struct rf_device_info *info = rf_device_get_info(call->device);
    const struct rf_attention_args *a = call->args;
    if (!info->subgroup_shuffle || info->subgroup_size < BLOCK / 2 || info->subgroup_size > 64)
        return rf_fail(RF_ENOTSUP,
                       "%s: path \"rows\" needs shuffles in subgroups of 4 to 64; %s has subgroups "
                       "of %u",
                       call->op, info->name, info->subgroup_size);
    int64_t longest = a->k.rows / BLOCK + 1;
    if (call->grads && (a->q.rows / BLOCK + 1) * (a->q.heads / a->k.heads) > longest)
        longest = (a->q.rows / BLOCK + 1) * (a->q.heads / a->k.heads);
    return rf_check_rounds(call->device, call->op, longest);
}

static bool rows_suits(const struct rf_device_info *info)
{
    return info->kind == RF_DEVICE_CPU && info->subgroup_shuffle &&
           info->subgroup_size >= BLOCK / 2 && info->subgroup_size <= 64;
}

static int rows_pass(struct rf_stream *stream, const struct rf_attention_call *call,
                     const struct pass *pass)
{
    const struct rf_heads *own = pass->over_keys ? &call->args->k : &call->args->q;
    uint32_t lanes = rf_device_get_info(call->device)->subgroup_size, each = pass->rows_per_lane;
    /* The rows live in registers. */
    for (int64_t size = 32; size < own->size && each > 1; size *= 2)
        each /= 2;
    while (each > 1 && lanes * (each / 2) >= own->rows)
        each /= 2;
    struct rf_tensor operands[OPERANDS];
    struct rf_source sources[6];
    uint32_t texels[6];
    struct rf_push_attention push;
    struct rf_job job;
    list_operands(call, pass, operands);
    fill(call, pass, operands, lanes * each, &push, &job);
    for (uint32_t i = 0; i < pass->sources; i++) {
        uint8_t at = pass->source[i];
        sources[i] = (struct rf_source){operands[at], at == LSE || at == DELTA};
    }
    rf_job_build(&job, call->device, &pass->rows, is_vector(call), sources, pass->sources, texels);
    for (uint32_t i = 0; i < job.view_count; i++)
        push.at[pass->source[i]] = texels[i];
    job.subgroup_size = lanes;
    rf_job_spec(&job, 0, lanes);
    rf_job_spec(&job, 1, (uint32_t)own->size);
    rf_job_spec(&job, 2, each);
    rf_job_spec(&job, 3, lanes >= BLOCK ? 1 : 2);
    rf_job_spec(&job, 4, call->args->full);
    return rf_job_run(stream, &job);
}

static int rows_run(struct rf_stream *stream, const struct rf_attention_call *call)
{
    if (!call->grads)
        return rows_pass(stream, call, &forward_pass);
    RETURN_IF_ERROR(rows_pass(stream, call, &query_pass));
    return rows_pass(stream, call, &key_pass);
}

/* ---- tiled: shared memory, for GPUs ---------------------------------------------------------- */

#define DEPTH 16 /* of attention_tiled.glsl */

/* Depends on the device and on nothing else, so that a row's bits do not depend on how many there
 * are. Shared memory as in attention_tiled.glsl; 0: neither fits. */
static uint32_t tile_of(const struct rf_device_info *info)
{
    for (uint32_t tile = 64; tile >= 32; tile /= 2) {
        uint32_t lanes = tile / 4 * (tile / 4), dots = 2 * DEPTH * (tile + 4), mixes = DEPTH * 128;
        uint32_t shared = 4 * ((dots > mixes ? dots : mixes) + tile * tile);
        if (shared <= info->max_shared_bytes && lanes <= info->max_workgroup_invocations &&
            lanes <= info->max_workgroup_size[0])
            return tile;
    }
    return 0;
}

static int64_t tiled_rounds(const struct rf_attention_call *call, const struct pass *pass,
                            uint32_t tile)
{
    const struct rf_attention_args *a = call->args;
    int64_t others = pass->over_keys ? a->q.rows : a->k.rows;
    int64_t heads = pass->over_keys ? a->q.heads / a->k.heads : 1;
    int64_t dots = (a->q.size / DEPTH + 1) * (DEPTH + 1), mixes = tile / DEPTH * (DEPTH + 1);
    return heads * (others / tile + 1) * (1 + pass->dots * dots + pass->mixes * mixes) + 4 * DEPTH;
}

static int tiled_can(const struct rf_attention_call *call)
{
    const struct rf_device_info *info = rf_device_get_info(call->device);
    uint32_t tile = tile_of(info);
    if (tile == 0)
        return rf_fail(RF_ENOTSUP,
                       "%s: path \"tiled\" needs workgroups of 64 and 13 KiB of shared "
                       "memory; %s has too little",
                       call->op, info->name);
    if (!call->grads)
        return rf_check_rounds(call->device, call->op, tiled_rounds(call, &forward_pass, tile));
    RETURN_IF_ERROR(rf_check_rounds(call->device, call->op, tiled_rounds(call, &query_pass, tile)));
    return rf_check_rounds(call->device, call->op, tiled_rounds(call, &key_pass, tile));
}

static bool tiled_suits(const struct rf_device_info *info)
{
    return true;
}

static int tile_job(struct rf_stream *stream, const struct rf_attention_call *call,
                    const struct pass *pass, uint32_t tile, const struct rf_matrix_shape *units)
{
    const struct rf_device_info *info = rf_device_get_info(call->device);
    uint32_t lanes = tile / 4 * (tile / 4);
    struct rf_tensor operands[OPERANDS];
    struct rf_push_attention push;
    struct rf_job job;
    list_operands(call, pass, operands);
    fill(call, pass, operands, tile, &push, &job);
    job.shader = (units ? pass->units : pass->tiled)[is_vector(call)];
    rf_job_spec(&job, 0, lanes);
    rf_job_spec(&job, 1, (uint32_t)call->args->q.size);
    rf_job_spec(&job, 2, tile);
    rf_job_spec(&job, 4, call->args->full);
    rf_job_spec(&job, 5, units ? units->m : info->kind == RF_DEVICE_CPU);
    if (units) {
        job.subgroup_size = info->subgroup_size;
        rf_job_spec(&job, 6, units->n);
        rf_job_spec(&job, 7, units->k);
        rf_job_spec(&job, 8, lanes / info->subgroup_size);
    }
    return rf_job_run(stream, &job);
}

static int tile_run(struct rf_stream *stream, const struct rf_attention_call *call, uint32_t tile,
                    const struct rf_matrix_shape *units)
{
    if (!call->grads)
        return tile_job(stream, call, &forward_pass, tile, units);
    RETURN_IF_ERROR(tile_job(stream, call, &query_pass, tile, units));
    return tile_job(stream, call, &key_pass, tile, units);
}

static int tiled_run(struct rf_stream *stream, const struct rf_attention_call *call)
{
    return tile_run(stream, call, tile_of(rf_device_get_info(call->device)), NULL);
}

/* ---- units: the same on matrix units, with 16-bit operands ----------------------------------- */

static bool fragment_fits(const struct rf_device_info *info, enum rf_dtype type, uint32_t tile,
                          const struct rf_matrix_shape *f)
{
    uint32_t lanes = tile / 4 * (tile / 4);
    if (f->invocations || f->operand != type || f->m % 8 || f->n % 8 || f->k % 8 || tile % f->m ||
        tile % f->n || tile % f->k || lanes % info->subgroup_size)
        return false;
    return tile / f->m * (tile / f->n) % (lanes / info->subgroup_size) == 0;
}

/* The largest tile and fragment that fit; 0: none. Shared memory as in attention_units.glsl. */
static uint32_t units_of(const struct rf_device_info *info, enum rf_dtype type,
                         struct rf_matrix_shape *best)
{
    for (uint32_t tile = 64; tile >= 32 && info->cooperative_matrix; tile /= 2) {
        uint32_t lanes = tile / 4 * (tile / 4), size = 0;
        uint32_t shared = 2 * tile * (tile / 8 + 1) * 16 + 4 * tile * tile + tile * tile;
        if (shared > info->max_shared_bytes || lanes > info->max_workgroup_invocations ||
            lanes > info->max_workgroup_size[0])
            continue;
        for (uint32_t i = 0; i < info->matrix_shape_count; i++) {
            const struct rf_matrix_shape *f = &info->matrix_shapes[i];
            if (fragment_fits(info, type, tile, f) && (uint32_t)f->m * f->n * f->k > size) {
                *best = *f;
                size = (uint32_t)f->m * f->n * f->k;
            }
        }
        if (size)
            return tile;
    }
    return 0;
}

static int units_can(const struct rf_attention_call *call)
{
    const struct rf_device_info *info = rf_device_get_info(call->device);
    enum rf_dtype type = call->args->q.tensor.dtype;
    struct rf_matrix_shape f;
    const char *why = NULL;
    if (!info->cooperative_matrix)
        why = info->matrix_reason;
    else if (type == RF_F32)
        why = "matrix units take f16 or bf16";
    else if (!rf_is_built(&forward_pass.units[0], type))
        why = "the shader compiler of this build does not know GL_EXT_spirv_intrinsics";
    else if (type == RF_BF16 ? !info->bfloat16 : !info->float16)
        why = "the driver does not offer arithmetic in this type";
    else if (!units_of(info, type, &f))
        why = "no tile suits the sizes of its matrix units and its shared memory";
    if (why)
        return rf_fail(RF_ENOTSUP, "%s: path \"units\" does not run on %s: %s", call->op,
                       info->name, why);
    return tiled_can(call);
}

/* Not measured on any GPU yet, so it is taken on request only. */
static bool units_suits(const struct rf_device_info *info)
{
    return false;
}

static int units_run(struct rf_stream *stream, const struct rf_attention_call *call)
{
    struct rf_matrix_shape fragment;
    uint32_t tile =
        units_of(rf_device_get_info(call->device), call->args->q.tensor.dtype, &fragment);
    return tile_run(stream, call, tile, &fragment);
}

const struct rf_attention_path rf_attention_paths[] = {
    {"rows", rows_can, rows_suits, rows_run},
    {"tiled", tiled_can, tiled_suits, tiled_run},
    {"units", units_can, units_suits, units_run},
};
const size_t rf_attention_path_count = sizeof(rf_attention_paths) / sizeof(rf_attention_paths[0]);
