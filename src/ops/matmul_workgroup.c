/* SPDX-License-Identifier: MIT
 *
 * The path of rf_matmul on matrix units by whole workgroups (VK_NV_cooperative_matrix2), whose
 * shaders only newer compilers can build. Called through the table in matmul.c. On an H100 it is
 * not faster than subgroups, so it is used only if it is named, or if `tune` finds it fastest.
 */
#include <assert.h>

#include "../base/base.h"
#include "matmul.h"

struct geometry {
    uint32_t tile_m, tile_n, depth;
    int64_t least_tiles; /* with fewer, parts of a large device would be idle */
};

/* The first that fits is used. */
static const struct geometry geometries[] = {
    {128, 256, 64, 256}, {128, 256, 32, 256}, {128, 128, 64, 128}, {128, 128, 32, 128},
    {64, 64, 64, 32},    {64, 64, 32, 0},     {32, 32, 16, 0},
};
#define GEOMETRIES (sizeof(geometries) / sizeof(geometries[0]))

struct choice {
    struct geometry g;
    uint32_t lanes;
};

static int64_t tiles_of(const struct rf_product *p, const struct geometry *g)
{
    return (p->m + g->tile_m - 1) / g->tile_m * ((p->n + g->tile_n - 1) / g->tile_n);
}

/* The largest workgroup that the device offers for the operands and that divides the tile; 0: none.
 */
static uint32_t lanes_for(const struct rf_device_info *info, const struct rf_product *p,
                          const struct geometry *g)
{
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < info->matrix_shape_count; i++) {
        const struct rf_matrix_shape *s = &info->matrix_shapes[i];
        if (s->operand == p->a.dtype && s->invocations > lanes && g->tile_m % s->m == 0 &&
            g->tile_n % s->n == 0 && g->depth % s->k == 0)
            lanes = s->invocations;
    }
    return lanes;
}

static bool choose(const struct rf_device_info *info, const struct rf_product *p, struct choice *c)
{
    for (size_t i = 0; i < GEOMETRIES; i++) {
        c->g = geometries[i];
        c->lanes = lanes_for(info, p, &c->g);
        bool wanted = p->tile ? p->tile == i + 1 : tiles_of(p, &c->g) >= c->g.least_tiles;
        if (wanted && c->lanes)
            return true;
    }
    return false;
}

/* For results in f32, and in the type of the operands. */
static const struct rf_build builds[2] = {RF_BUILD_16(matmul_workgroup),
                                          RF_BUILD_16(matmul_workgroup_same)};

static struct rf_job job_of(const struct rf_product *p)
{
    return (struct rf_job){
        .op = "matmul", .shader = builds[p->out.dtype != RF_F32], .type = p->a.dtype};
}

bool rf_matmul_workgroup_built(enum rf_dtype type)
{
    return rf_is_built(&builds[0], type);
}

const char *rf_matmul_workgroup_why_not(const struct rf_device_info *info,
                                        const struct rf_product *p)
{
    struct choice choice;
    if (p->a.dtype == RF_F32)
        return "matrix units take 16-bit operands";
    if (!rf_is_built(&builds[p->out.dtype != RF_F32], p->a.dtype))
        return "not built in: the shader compiler of this build does not know "
               "GL_NV_cooperative_matrix2 for this type; glslang 16 does";
    if (!info->cooperative_matrix)
        return info->matrix_reason;
    if (!info->workgroup_matrix)
        return info->workgroup_reason;
    if (info->api_version < (1u << 22 | 3u << 12))
        return "it needs Vulkan 1.3";
    if (p->a.dtype == RF_BF16 && !info->bfloat16)
        return info->bfloat16_reason;
    if (!info->float16 || !info->storage16)
        return "the driver lacks shaderFloat16 or storageBuffer16BitAccess";
    if (info->kind == RF_DEVICE_CPU)
        return "CPU drivers end its loops early";
    return choose(info, p, &choice) ? NULL : "no tile of this library suits its matrix units";
}

bool rf_matmul_workgroup_suits(const struct rf_device_info *info, const struct rf_product *p)
{
    return false;
}

int64_t rf_matmul_workgroup_tiles(const struct rf_device_info *info, const struct rf_product *p)
{
    struct choice c;
    return choose(info, p, &c) ? tiles_of(p, &c.g) : 1;
}

/* Whether rows of `columns` elements are whole 16 bytes. */
static bool aligned(struct rf_tensor tensor, struct rf_layout layout, int64_t columns)
{
    return (columns | layout.row | layout.step) % 8 == 0 && rf_address_of(tensor) % 16 == 0;
}

/* Whether every tile lies within the operands; WHOLE of the shader. */
static bool whole(const struct rf_product *p, const struct geometry *g)
{
    return p->m % g->tile_m == 0 && p->n % g->tile_n == 0 && (p->k | p->part) % g->depth == 0 &&
           aligned(p->a, p->a_layout, p->transpose_a ? p->m : p->k) &&
           aligned(p->b, p->b_layout, p->transpose_b ? p->k : p->n);
}

int rf_matmul_workgroup_run(struct rf_stream *stream, const struct rf_product *p)
{
    struct rf_push_matmul push;
    struct choice c;
    bool chosen = choose(rf_device_get_info(p->device), p, &c);
    assert(chosen); /* ensured by why_not */
    (void)chosen;
    struct rf_job job = job_of(p);
    rf_matmul_fill(p, c.g.tile_m, c.g.tile_n, &push, &job);
    const uint32_t specs[] = {c.lanes,
                              c.g.tile_m,
                              c.g.tile_n,
                              c.g.depth,
                              p->transpose_a,
                              p->transpose_b,
                              p->act != RF_ACT_NONE,
                              whole(p, &c.g)};
    for (uint32_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
        rf_job_spec(&job, i, specs[i]);
    return rf_job_run(stream, &job);
}
