/* SPDX-License-Identifier: MIT
 *
 * The paths of attention: "rows" for CPU drivers (attention_rows.glsl), "tiled" for GPUs
 * (attention_tiled.glsl), "units" for the same on matrix units. All run the same passes, with the
 * same operands; called by attention.c after all checks.
 */
#include <math.h>

#include "../base/base.h"
#include "attention.h"
#include "attention_forms.h"
#include "budget.h"
#include "shaders/push/attention.h"

/* Operands in the order of shaders/push/attention.h. FIRST, SECOND: PUSH_FIRST, PUSH_SECOND. */
enum { Q, K, V, DOUT, LSE, DELTA, FIRST, SECOND, OPERANDS };

#define SOFTMAX_FLOPS 4 /* per pair: scale, difference, exp, sum; or the gradient's */

struct pass {
    const char *name;
    struct rf_builds rows;
    struct rf_build tiled[2], units[2]; /* any rows, aligned ones */
    uint8_t sources, source[6];         /* operands that have views */
    bool writes[OPERANDS];              /* the others are read */
    bool over_keys;                     /* a lane or workgroup owns keys instead of queries */
    uint32_t rows_per_lane;             /* for path "rows", with heads of at most 32 elements */
    uint32_t dots, mixes;               /* products of head length per query and key */
    uint32_t repeats; /* of these, the products that another pass has already computed */
};
static const struct pass forward_pass = {
    .name = "attention_tiled",
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
    .name = "attention_tiled_query",
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
    .name = "attention_tiled_key",
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

/* The operands of a pass; unused ones have no buffer. */
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

/* The arithmetic of a pass: for each pair of a query and a key that it may see, products of head
 * length, and the softmax or its gradient. */
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

/* The number of an operand's elements that a pass touches: heads may be interleaved with other
 * data. */
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
        .scale = rf_option(a->scale, (float)(1.0 / sqrt((double)a->q.size)))};
    rf_heads_strides(&a->q, push->q_strides);
    rf_heads_strides(&a->k, push->k_strides);
    rf_heads_strides(&a->v, push->v_strides);
    rf_heads_strides(&a->out, push->out_strides); /* also for their gradients */
    *job = (struct rf_job){.op = call->op,
                           .type = a->q.tensor.dtype,
                           .push = push,
                           .push_bytes = RF_PUSH_BYTES(*push),
                           .groups = {(uint32_t)((own->rows + rows_per_group - 1) / rows_per_group),
                                      (uint32_t)own->heads, (uint32_t)own->batch}};
    for (int i = 0; i < OPERANDS; i++) {
        push->at[i] = rf_address_of(operands[i]);
        rf_job_touches(job, operands[i], touched(call, pass, i),
                       pass->writes[i] ? RF_TOUCH_WRITE : RF_TOUCH_READ);
    }
    if (a->starts.buffer) {
        const uint64_t address = rf_tensor_address(a->starts);
        push->keys = (uint32_t)address;
        push->group = (uint32_t)(address >> 32);
        rf_job_reads(job, a->starts);
    }
    declare_work(call, pass, job);
}

/* The constant PACKED of the shaders. */
static uint32_t packed(const struct rf_attention_args *a)
{
    return a->starts.buffer ? (uint32_t)(a->q.heads / a->k.heads) : 0;
}

/* ---- rows: a lane owns rows, for CPU drivers ------------------------------------------------- */

#define BLOCK 8       /* rows of the other side per round, as in attention_rows.glsl */
#define ROWS_HEAD 128 /* head elements, which lanes keep in registers */

static int rows_can(const struct rf_attention_call *call)
{
    const struct rf_device_info *info = rf_device_get_info(call->device);
    const struct rf_attention_args *a = call->args;
    if (a->q.size > ROWS_HEAD)
        return rf_fail(RF_ENOTSUP, "%s: path \"rows\" takes heads of up to %d elements", call->op,
                       ROWS_HEAD);
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

static bool rows_suits(const struct rf_attention_call *call)
{
    const struct rf_device_info *info = rf_device_get_info(call->device);
    return call->args->q.size <= ROWS_HEAD && info->kind == RF_DEVICE_CPU &&
           info->subgroup_shuffle && info->subgroup_size >= BLOCK / 2 && info->subgroup_size <= 64;
}

static int rows_pass(struct rf_stream *stream, const struct rf_attention_call *call,
                     const struct pass *pass)
{
    const struct rf_heads *own = pass->over_keys ? &call->args->k : &call->args->q;
    uint32_t lanes = rf_device_get_info(call->device)->subgroup_size, each = pass->rows_per_lane;
    /* The rows are held in registers. */
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
    if (call->args->starts.buffer)
        rf_job_spec(&job, 12, packed(call->args));
    return rf_job_run(stream, &job);
}

static int rows_run(struct rf_stream *stream, const struct rf_attention_call *call)
{
    if (!call->grads)
        return rows_pass(stream, call, &forward_pass);
    RETURN_IF_ERROR(rows_pass(stream, call, &query_pass));
    return rows_pass(stream, call, &key_pass);
}

/* ---- tiled: shared memory, for GPUs; forms of attention_forms.c ------------------------------ */

#define DEPTH 16 /* of attention_shares.glsl */

/* A pass, and the choices for it. */
struct tiling {
    const struct rf_attention_call *call;
    const struct pass *pass;
    struct rf_matrix_shape fragments[RF_MAX_MATRIX_SHAPES]; /* the largest first */
    uint32_t fragment_count;                                /* 0: no matrix units */
    uint32_t choices;                                       /* forms, times fragments */
};
static const struct rf_attention_form *form_of(const struct tiling *t, size_t choice)
{
    return &rf_attention_forms[t->fragment_count ? choice / t->fragment_count : choice];
}

static void set_kernel(const struct tiling *t, size_t choice, bool vector, struct rf_job *job)
{
    const struct rf_attention_form *form = form_of(t, choice);
    const struct rf_attention_call *call = t->call;
    const struct rf_device_info *info = rf_device_get_info(call->device);
    const uint32_t lanes = rf_attention_form_lanes(form);
    job->type = call->args->q.tensor.dtype;
    job->shader = (t->fragment_count ? t->pass->units : t->pass->tiled)[vector];
    job->push_bytes = RF_PUSH_BYTES(struct rf_push_attention);
    rf_job_spec(job, 0, lanes);
    rf_job_spec(job, 1, (uint32_t)call->args->q.size);
    rf_job_spec(job, 2, form->tile);
    rf_job_spec(job, 3, form->each_m);
    rf_job_spec(job, 4, call->args->full);
    rf_job_spec(job, 9, form->each_n);
    rf_job_spec(job, 10, form->split);
    if (call->args->starts.buffer)
        rf_job_spec(job, 12, packed(call->args));
    if (t->fragment_count == 0) {
        /* CPU drivers need seconds to compile long unrolled loops. */
        const bool roll =
            info->kind == RF_DEVICE_CPU && rf_attention_form_named(call->args->path) < 0;
        rf_job_spec(job, 5, roll ? 1 : form->step);
        return;
    }
    const struct rf_matrix_shape *fragment = &t->fragments[choice % t->fragment_count];
    job->subgroup_size = rf_register_lanes(info);
    rf_job_spec(job, 5, fragment->m);
    rf_job_spec(job, 6, fragment->n);
    rf_job_spec(job, 7, fragment->k);
    rf_job_spec(job, 8, lanes / job->subgroup_size);
    rf_job_spec(job, 11, form->step < DEPTH);
}

/* The shared memory of attention_units.glsl. */
static bool fragment_fits(const struct rf_device_info *info, const struct rf_attention_form *form,
                          const struct rf_matrix_shape *f)
{
    const uint32_t tile = form->tile, lanes = rf_attention_form_lanes(form);
    const uint32_t width = rf_register_lanes(info), subgroups = lanes / width;
    const uint32_t shared =
        2 * tile * (tile / 8 + 1) * 16 + 4 * tile * tile + 4 * tile * (tile / form->each_n);
    return shared <= info->max_shared_bytes && tile % f->m == 0 && tile % f->n == 0 &&
           tile % f->k == 0 && lanes % width == 0 && tile / f->m * (tile / f->n) % subgroups == 0 &&
           form->step > 1;
}

static bool choice_fits(void *user, size_t choice)
{
    const struct tiling *t = user;
    const struct rf_device_info *info = rf_device_get_info(t->call->device);
    const struct rf_attention_form *form = form_of(t, choice);
    const int named = rf_attention_form_named(t->call->args->path);
    if (named >= 0 ? form != &rf_attention_forms[named] : form->split && !t->pass->over_keys)
        return false;
    return rf_attention_form_fits(info, form, t->call->args->q.size) &&
           (t->fragment_count == 0 ||
            fragment_fits(info, form, &t->fragments[choice % t->fragment_count]));
}

static void describe_choice(void *user, size_t choice, struct rf_form *out)
{
    const struct tiling *t = user;
    const struct rf_attention_form *form = form_of(t, choice);
    *out = (struct rf_form){.job = {.op = t->call->op}};
    set_kernel(t, choice, false, &out->job);
    /* Aligned and unaligned calls use the same form, so that the bits do not depend on alignment.
     */
    if (t->call->args->q.size % 4 == 0) {
        out->other[out->other_count] = out->job;
        set_kernel(t, choice, true, &out->other[out->other_count++]);
    }
    out->registers = rf_attention_form_registers(rf_device_get_info(t->call->device), form,
                                                 t->call->args->q.size, t->pass->over_keys ? 2 : 1);
    rf_attention_form_text(form, out->text);
}

static int64_t tiled_rounds(const struct tiling *t, const struct rf_attention_form *form)
{
    const struct rf_attention_args *a = t->call->args;
    int64_t tile = form->tile, parts = t->pass->over_keys && form->split ? 2 : 1;
    int64_t others = t->pass->over_keys ? a->q.rows : a->k.rows;
    int64_t heads = t->pass->over_keys ? a->q.heads / a->k.heads : 1;
    int64_t dots = (a->q.size / DEPTH + 1) * (DEPTH + 1), mixes = tile / DEPTH * (DEPTH + 1);
    return parts * heads * (others / tile + 1) *
               (1 + t->pass->dots * dots + t->pass->mixes * mixes) +
           4 * DEPTH;
}

/* The choice depends on the device, the type and the head size, never on the number of rows, so
 * that the bits of a row do not depend on it either. RF_ENOTSUP: no form fits. */
static int choose(struct tiling *t, size_t *choice)
{
    const struct rf_attention_args *a = t->call->args;
    struct rf_forms forms = {.count = t->choices, .fits = choice_fits, .describe = describe_choice};
    char mask[16];
    snprintf(mask, sizeof(mask),
             a->starts.buffer ? "packed%u"
             : a->full        ? "full"
                              : "causal",
             packed(a));
    snprintf(forms.family, sizeof(forms.family), "%s%s/%s/%lld/%s", t->pass->name,
             t->fragment_count ? "_units" : "", rf_dtype_name(a->q.tensor.dtype),
             (long long)a->q.size, mask);
    *choice = 0;
    if (rf_attention_form_named(a->path) < 0) {
        *choice = rf_pick_form(t->call->device, &forms, t);
    } else {
        while (*choice < t->choices && !choice_fits(t, *choice))
            ++*choice;
    }
    if (*choice == t->choices)
        return rf_fail(
            RF_ENOTSUP,
            "%s: path \"%s\" needs workgroups of 64 or more, and shared memory or matrix "
            "units, that %s does not have",
            t->call->op, a->path ? a->path : "tiled", rf_device_get_info(t->call->device)->name);
    return rf_check_rounds(t->call->device, t->call->op, tiled_rounds(t, form_of(t, *choice)));
}

static int tile_pass(struct rf_stream *stream, const struct tiling *t, size_t choice)
{
    struct rf_tensor operands[OPERANDS];
    struct rf_push_attention push;
    struct rf_job job;
    list_operands(t->call, t->pass, operands);
    fill(t->call, t->pass, operands, form_of(t, choice)->tile, &push, &job);
    set_kernel(t, choice, is_vector(t->call), &job);
    return rf_job_run(stream, &job);
}

/* Launches nothing unless all passes can be launched. */
static int tile_passes(struct rf_stream *stream, const struct rf_attention_call *call,
                       struct tiling *t)
{
    const struct pass *const backward[] = {&query_pass, &key_pass}, *const forward = &forward_pass;
    const struct pass *const *passes = call->grads ? backward : &forward;
    const int count = call->grads ? 2 : 1;
    size_t choices[2];
    t->call = call;
    t->choices = (uint32_t)rf_attention_form_count * (t->fragment_count ? t->fragment_count : 1);
    for (int i = 0; i < count; i++) {
        t->pass = passes[i];
        RETURN_IF_ERROR(choose(t, &choices[i]));
    }
    for (int i = 0; i < count && stream; i++) {
        t->pass = passes[i];
        RETURN_IF_ERROR(tile_pass(stream, t, choices[i]));
    }
    return 0;
}

static bool tiled_suits(const struct rf_attention_call *call)
{
    return true;
}

static int tiled_run(struct rf_stream *stream, const struct rf_attention_call *call)
{
    struct tiling tiling = {0};
    return tile_passes(stream, call, &tiling);
}

/* ---- units: the same on matrix units, with 16-bit operands ----------------------------------- */

static uint32_t size_of(const struct rf_matrix_shape *f)
{
    return (uint32_t)f->m * f->n * f->k;
}

/* Lists the fragments that the shader supports, largest first. */
static void list_fragments(const struct rf_device_info *info, enum rf_dtype type, struct tiling *t)
{
    t->fragment_count = 0;
    for (uint32_t i = 0; i < info->matrix_shape_count && info->cooperative_matrix; i++) {
        const struct rf_matrix_shape *f = &info->matrix_shapes[i];
        if (f->invocations || f->operand != type || f->m % 8 || f->n % 8 || f->k % 8)
            continue;
        uint32_t at = t->fragment_count++;
        for (; at > 0 && size_of(&t->fragments[at - 1]) < size_of(f); at--)
            t->fragments[at] = t->fragments[at - 1];
        t->fragments[at] = *f;
    }
}

/* NULL: the path supports the call. */
static const char *units_why_not(const struct rf_attention_call *call)
{
    const struct rf_device_info *info = rf_device_get_info(call->device);
    enum rf_dtype type = call->args->q.tensor.dtype;
    struct tiling t;
    list_fragments(info, type, &t);
    if (!info->cooperative_matrix)
        return info->matrix_reason;
    if (type == RF_F32)
        return "matrix units take f16 or bf16";
    if (!rf_is_built(&forward_pass.units[0], type))
        return "the shader compiler of this build does not know GL_EXT_spirv_intrinsics";
    if (type == RF_BF16 && !info->bfloat16)
        return info->bfloat16_reason;
    if (type == RF_F16 && !info->float16)
        return "the driver lacks shaderFloat16";
    return t.fragment_count == 0 ? "no tile suits the sizes of its matrix units" : NULL;
}

static int units_can(const struct rf_attention_call *call)
{
    const char *why = units_why_not(call);
    if (why)
        return rf_fail(RF_ENOTSUP, "%s: path \"units\" does not run on %s: %s", call->op,
                       rf_device_get_info(call->device)->name, why);
    return 0;
}

static int units_run(struct rf_stream *stream, const struct rf_attention_call *call)
{
    struct tiling tiling;
    list_fragments(rf_device_get_info(call->device), call->args->q.tensor.dtype, &tiling);
    return tile_passes(stream, call, &tiling);
}

/* On an H100 it takes half the time of "tiled". On devices with few registers per subgroup (Intel),
 * some of its kernels spill in every form. */
static bool units_suits(const struct rf_attention_call *call)
{
    const struct rf_device_info *info = rf_device_get_info(call->device);
    return info->kind != RF_DEVICE_CPU && !rf_register_narrow(info) && !units_why_not(call) &&
           units_run(NULL, call) == 0;
}

const struct rf_attention_path rf_attention_paths[] = {
    {"rows", false, rows_can, rows_suits, rows_run},
    {"units", true, units_can, units_suits, units_run},
    {"tiled", true, NULL, tiled_suits, tiled_run},
};
const size_t rf_attention_path_count = sizeof(rf_attention_paths) / sizeof(rf_attention_paths[0]);
