/* SPDX-License-Identifier: MIT
 *
 * The path of rf_matmul on matrix units: chooses the device's fragment size and the tiles for a
 * product. Called through the table in matmul.c.
 */
#include <assert.h>

#include "../base/base.h"
#include "budget.h"
#include "forms.h"
#include "matmul.h"

/* The work of a workgroup and of each of its subgroups, and the length of k that is staged at once.
 */
struct geometry {
    uint32_t tile_m, tile_n, sub_m, sub_n, depth;
    uint32_t most_parts; /* of split operands, on subgroups of 64: more would spill on RDNA 3 */
    int64_t least_tiles; /* with fewer, parts of a large device would be idle */
    bool lean;           /* for subgroups with few registers; LEAN of the shader */
};

/* The first that fits is used. The order is that of an H100, on which the first is the fastest for
 * all forms of a product (bench/results/h100.json). CPU devices use CPU_GEOMETRY, the fastest to
 * compile. Each row makes two forms: slices staged in memory order, and turned. Lean ones are
 * always turned. */
static const struct geometry geometries[] = {
    {128, 128, 64, 32, 16, 2, 128},  {128, 256, 64, 64, 32, 1, 256},
    {128, 256, 64, 64, 16, 1, 256},  {128, 128, 64, 64, 32, 1, 128},
    {128, 128, 64, 64, 16, 1, 128},  {64, 64, 32, 32, 32, 2, 32},
    {64, 64, 32, 32, 16, 2, 32},     {32, 32, 16, 16, 32, 3, 0},
    {32, 32, 16, 16, 16, 3, 0},      {16, 16, 8, 8, 8, 3, 0},
    {64, 128, 16, 32, 32, 3, 32, 1}, {64, 128, 16, 32, 16, 3, 32, 1},
    {64, 64, 16, 16, 16, 3, 16, 1},  {32, 64, 8, 16, 16, 3, 0, 1},
};
#define CPU_GEOMETRY 9
#define GEOMETRIES (sizeof(geometries) / sizeof(geometries[0]))
#define FORMS (2 * GEOMETRIES)

enum { ELEMENTS, CHUNKS, SLICES }; /* how the shader reads an operand */

struct choice {
    struct geometry g;
    struct rf_matrix_shape fragment;
    uint32_t lanes, parts;
    bool turn; /* slices lie along k in shared memory; TURN of the shader */
};

static enum rf_dtype part_type(const struct rf_product *p)
{
    return p->split ? p->split_type : p->a.dtype;
}

/* Lean tiles read single elements in shorter slices, because their addresses need registers. */
static struct choice by_elements(struct choice c)
{
    const uint32_t least = c.fragment.k > 16 ? c.fragment.k : 16;
    if (c.g.lean && c.g.depth > least)
        c.g.depth = least;
    return c;
}

/* Shared memory of the shader: two stages, or the patches that replace them at the end. */
static uint32_t shared_bytes(const struct choice *c, const struct rf_product *p, uint32_t subgroups)
{
    const struct geometry *g = &c->g;
    bool a_across = p->transpose_a && !c->turn, b_across = !p->transpose_b && !c->turn;
    uint32_t a = a_across ? (g->tile_m / 8 + 1) * g->depth : (g->depth / 8 + 1) * g->tile_m;
    uint32_t b = b_across ? (g->tile_n / 8 + 1) * g->depth : (g->depth / 8 + 1) * g->tile_n;
    uint32_t stages = 2 * c->parts * (a + b);
    uint32_t patches = subgroups * c->fragment.m * (g->sub_n / 4 + 1);
    uint32_t tables = p->quantized == RF_NF4                                 ? 256 * (4 + 8)
                      : p->quantized == RF_MXFP4 || p->quantized == RF_NVFP4 ? 256 * 8
                                                                             : 0;
    return 16 * (stages > patches ? stages : patches) + tables;
}

static bool fits(const struct rf_device_info *info, const struct rf_product *p, struct choice *c)
{
    const struct geometry *g = &c->g;
    const struct rf_matrix_shape *f = &c->fragment;
    uint32_t subgroups = g->tile_m / g->sub_m * (g->tile_n / g->sub_n);
    c->lanes = subgroups * rf_register_lanes(info);
    return (c->parts <= g->most_parts || info->subgroup_size < 64) && g->sub_m % f->m == 0 &&
           g->sub_n % f->n == 0 && g->depth % f->k == 0 &&
           c->lanes <= info->max_workgroup_invocations && c->lanes <= info->max_workgroup_size[0] &&
           shared_bytes(c, p, subgroups) <= info->max_shared_bytes;
}

/* The largest fragments of the units that suit this geometry; chunks of memory have eight elements.
 */
static bool find_fragment(const struct rf_device_info *info, const struct rf_product *p,
                          struct choice *c)
{
    struct choice best = {0};
    uint32_t best_size = 0;
    for (uint32_t i = 0; i < info->matrix_shape_count; i++) {
        const struct rf_matrix_shape *f = &info->matrix_shapes[i];
        uint32_t size = (uint32_t)f->m * f->n * f->k;
        if (f->invocations || f->operand != part_type(p) || f->m % 8 || f->n % 8 || f->k % 8)
            continue;
        c->fragment = *f;
        if (size > best_size && fits(info, p, c)) {
            best = *c;
            best_size = size;
        }
    }
    if (best_size)
        *c = best;
    return best_size > 0;
}

static int64_t tiles_of(const struct rf_product *p, const struct geometry *g)
{
    return (p->m + g->tile_m - 1) / g->tile_m * ((p->n + g->tile_n - 1) / g->tile_n);
}

/* ---- forms ----------------------------------------------------------------------------------- */

/* By the number of parts of a split; and for results of the operands' type. */
static const struct rf_build shaders[] = {RF_BUILD_16(matmul_cooperative),
                                          RF_BUILD_16(matmul_cooperative_split1),
                                          RF_BUILD_16(matmul_cooperative_split2),
                                          RF_BUILD_16(matmul_cooperative_split3)},
                             same_type = RF_BUILD_16(matmul_cooperative_same);
static const struct rf_build quantized[RF_QUANTIZATION_COUNT][2] = {
    [RF_NF4] = {RF_BUILD_16(matmul_cooperative_nf4), RF_BUILD_16(matmul_cooperative_same_nf4)},
    [RF_INT8] = {RF_BUILD_16(matmul_cooperative_int8), RF_BUILD_16(matmul_cooperative_same_int8)},
    [RF_FP8] = {RF_BUILD_16(matmul_cooperative_fp8), RF_BUILD_16(matmul_cooperative_same_fp8)},
    [RF_MXFP4] = {RF_BUILD_16(matmul_cooperative_fp4), RF_BUILD_16(matmul_cooperative_same_fp4)},
    [RF_NVFP4] = {RF_BUILD_16(matmul_cooperative_fp4), RF_BUILD_16(matmul_cooperative_same_fp4)}};

/* Shader and constants, without those that depend on the operands' addresses and the epilogue. */
static void describe_job(const struct rf_device_info *info, const struct rf_product *p,
                         const struct choice *c, struct rf_job *job)
{
    job->op = "matmul";
    job->shader = p->quantized             ? quantized[p->quantized][p->out.dtype != RF_F32]
                  : p->out.dtype != RF_F32 ? same_type
                                           : shaders[p->split];
    job->type = part_type(p);
    job->subgroup_size = rf_register_lanes(info);
    job->push_bytes = RF_PUSH_BYTES(struct rf_push_matmul);
    const uint32_t specs[] = {c->lanes,   c->g.tile_m,    c->g.tile_n,   c->g.sub_m,
                              c->g.sub_n, c->fragment.m,  c->fragment.n, c->fragment.k,
                              c->g.depth, p->transpose_a, p->transpose_b};
    for (uint32_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
        rf_job_spec(job, i, specs[i]);
    rf_job_spec(job, 15, c->g.lean);
    rf_job_spec(job, 16, c->turn);
    rf_quantized_spec(job, p->quantized);
}

/* Form 2 g is row g of the geometries, 2 g + 1 the same turned, if that makes a difference. */
static bool find_choice(const struct rf_device_info *info, const struct rf_product *p, size_t i,
                        struct choice *c)
{
    const struct geometry *g = &geometries[i / 2];
    const bool can_turn = !g->lean && (p->transpose_a || !p->transpose_b);
    *c = (struct choice){.g = *g, .parts = p->split ? p->split : 1, .turn = g->lean || i % 2};
    return (i % 2 == 0 || can_turn) && find_fragment(info, p, c);
}

/* The form of the path's tile option: 1 to GEOMETRIES, then the same rows turned. */
static size_t form_of_tile(uint32_t tile)
{
    return 2 * ((tile - 1) % GEOMETRIES) + (tile - 1) / GEOMETRIES;
}

static bool fits_product(void *user, size_t i)
{
    const struct rf_product *p = user;
    const struct rf_device_info *info = rf_device_get_info(p->device);
    struct choice c;
    const struct geometry *g = &geometries[i / 2];
    const bool wanted = info->kind == RF_DEVICE_CPU ? i == 2 * CPU_GEOMETRY
                                                    : tiles_of(p, g) >= g->least_tiles &&
                                                          g->lean == rf_register_narrow(info);
    return wanted && find_choice(info, p, i, &c);
}

/* The values that a subgroup holds in the innermost loop: sums, fragments of both operands, and the
 * next slices between memory and shared memory. */
static uint32_t registers_of(const struct rf_device_info *info, const struct rf_product *p,
                             const struct choice *c)
{
    const struct geometry *g = &c->g;
    const uint32_t slice = (g->tile_m + g->tile_n) * g->depth;
    return rf_register_bytes(&(struct rf_register_need){
        .lanes = rf_register_lanes(info),
        .sums = g->sub_m * g->sub_n,
        .operands = c->parts * (g->sub_m + (g->lean ? c->fragment.n : g->sub_n)) * c->fragment.k,
        .staged = g->lean ? 0 : slice * (uint32_t)rf_dtype_bytes(p->a.dtype) / c->lanes});
}

/* With an activation; two builds, all operands aligned and none. Which one needs more registers
 * depends on the compiler. */
static void describe_form(void *user, size_t i, struct rf_form *form)
{
    const struct rf_product *p = user;
    const struct rf_device_info *info = rf_device_get_info(p->device);
    struct choice c;
    find_choice(info, p, i, &c);
    const struct choice elements = by_elements(c);
    describe_job(info, p, &c, &form->job);
    describe_job(info, p, &elements, &form->other[0]);
    form->other_count = 1;
    for (uint32_t id = 11; id < 15; id++) {
        rf_job_spec(&form->job, id, id < 13 ? CHUNKS : 1);
        rf_job_spec(&form->other[0], id, id == 14);
    }
    form->registers = registers_of(info, p, &c);
    snprintf(form->text, sizeof(form->text), "%ux%u tile, %ux%u per subgroup%s", c.g.tile_m,
             c.g.tile_n, c.g.sub_m, c.g.sub_n, i % 2 ? ", turned" : "");
}

static bool choose(const struct rf_device_info *info, const struct rf_product *p, struct choice *c)
{
    struct rf_forms forms = {
        .count = FORMS, .variants = 2, .fits = fits_product, .describe = describe_form};
    if (p->tile)
        return p->tile <= FORMS && find_choice(info, p, form_of_tile(p->tile), c);
    snprintf(forms.family, sizeof(forms.family), "matmul_cooperative/%s/%c%c%s%.0u%s%s",
             rf_dtype_name(part_type(p)), p->transpose_a ? 't' : 'n', p->transpose_b ? 't' : 'n',
             p->split                 ? "/split"
             : p->out.dtype != RF_F32 ? "/same"
                                      : "",
             p->split, p->quantized ? "/" : "",
             p->quantized ? rf_quantization_name(p->quantized) : "");
    const size_t i = rf_pick_form(p->device, &forms, (void *)p);
    return i < FORMS && find_choice(info, p, i, c);
}

static bool has_operand(const struct rf_device_info *info, enum rf_dtype type)
{
    for (uint32_t i = 0; i < info->matrix_shape_count; i++)
        if (info->matrix_shapes[i].operand == type && !info->matrix_shapes[i].invocations)
            return true;
    return false;
}

bool rf_matmul_cooperative_built(enum rf_dtype type)
{
    return rf_is_built(&same_type, type == RF_F32 ? RF_F16 : type); /* f32: as parts in f16 */
}

const char *rf_matmul_cooperative_why_not(const struct rf_device_info *info,
                                          const struct rf_product *p)
{
    struct choice choice;
    enum rf_dtype type = part_type(p);
    if (!info->cooperative_matrix)
        return info->matrix_reason;
    if (p->quantized && p->split)
        return "a quantised b is unpacked to 16 bits, and not to parts of f32";
    if (p->quantized && (p->transpose_b ? p->k : p->n) % 8)
        return "rows of the quantised b are not whole groups of 8";
    if (p->a.dtype == RF_F32 && !p->split)
        return "matrix units take 16-bit operands; the option split lets them take f32";
    if (!rf_matmul_cooperative_built(type))
        return "not built in: the shader compiler of this build does not support "
               "GL_EXT_spirv_intrinsics; glslang 11.7 does";
    if (p->a.dtype != RF_F32 && p->split)
        return "only f32 operands can be split";
    if (p->split && p->out.dtype != RF_F32)
        return "of split operands it makes f32 only";
    if (type == RF_BF16 && !info->bfloat16)
        return info->bfloat16_reason;
    if (!has_operand(info, type))
        return type == RF_F16 ? "its matrix units offer no f16 operands with f32 sums"
                              : "its matrix units offer no bf16 operands with f32 sums";
    if (type == RF_F16 && !info->float16)
        return "the driver lacks shaderFloat16";
    if (!info->storage16)
        return "the driver lacks storageBuffer16BitAccess";
    if (!choose(info, p, &choice))
        return "no tile of this library suits the sizes of its matrix units and its shared memory";
    /* Mesa's CPU driver ends a loop after 65535 iterations. */
    if (info->kind == RF_DEVICE_CPU && (p->part ? p->part : p->k) > choice.g.depth * 64000ll)
        return "on CPU devices loops end after 65535 rounds, which k exceeds";
    return NULL;
}

bool rf_matmul_cooperative_suits(const struct rf_device_info *info, const struct rf_product *p)
{
    return info->kind != RF_DEVICE_CPU;
}

int64_t rf_matmul_cooperative_tiles(const struct rf_device_info *info, const struct rf_product *p)
{
    struct choice c;
    return choose(info, p, &c) ? tiles_of(p, &c.g) : 1;
}

/* Whether rows of `columns` elements are whole 16 bytes. */
static bool wide(struct rf_tensor tensor, struct rf_layout layout, int64_t columns)
{
    int64_t all = columns | layout.row | layout.step;
    return all * (int64_t)rf_dtype_bytes(tensor.dtype) % 16 == 0 && rf_address_of(tensor) % 16 == 0;
}

static uint32_t reads(const struct rf_product *p, const struct choice *c, bool is_wide)
{
    const int64_t k = p->k | p->part;
    return is_wide ? k % c->g.depth ? CHUNKS : SLICES : ELEMENTS;
}

int rf_matmul_cooperative_run(struct rf_stream *stream, const struct rf_product *p)
{
    const struct rf_device_info *info = rf_device_get_info(p->device);
    struct rf_push_matmul push;
    struct choice c;
    bool chosen = choose(info, p, &c);
    assert(chosen); /* ensured by why_not */
    (void)chosen;
    struct rf_job job = {.op = "matmul"};
    const bool wide_a = wide(p->a, p->a_layout, p->transpose_a ? p->m : p->k);
    const bool wide_b = p->quantized || wide(p->b, p->b_layout, p->transpose_b ? p->k : p->n);
    if (!wide_a || !wide_b)
        c = by_elements(c);
    describe_job(info, p, &c, &job);
    rf_matmul_fill(p, c.g.tile_m, c.g.tile_n, &push, &job);
    rf_job_spec(&job, 11, reads(p, &c, wide_a));
    rf_job_spec(&job, 12, p->quantized ? CHUNKS : reads(p, &c, wide_b));
    rf_job_spec(&job, 13, rf_matmul_out_wide(p));
    rf_job_spec(&job, 14, p->act != RF_ACT_NONE);
    return rf_job_run(stream, &job);
}
