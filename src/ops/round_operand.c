/* SPDX-License-Identifier: MIT
 *
 * Recipes of operands, and the launches of round_operand.comp. A further recipe is a row here, and
 * a number in enum rf_recipe.
 */
#include <strings.h>

#include "pick.h"

#include "../base/base.h"
#include "../base/small_float.h"
#include "shaders/push/round_operand.h"

enum { MOST_STRIP = 256, TRANSFORMED = 16, ALIASES = 4 };
#define KEPT_PART 8 /* of the layers of a model, the last ones */

/* A block: `lines` lines of the operand, `along` elements of each; 0: all. */
struct extent {
    int lines, along;
};
static const struct recipe {
    const char *name;
    const char *aliases[ALIASES];
    enum rf_small_float format, gradient_format;
    struct extent block, weight_block;
    bool two_level; /* scales of E4M3, and one for the operand; otherwise powers of two */
    bool four_bits; /* dy is rounded at random, dy and x are transformed for dy' x; last layers are
                     * kept as they are */
} recipes[RF_RECIPE_COUNT] = {
    [RF_RECIPE_NONE] = {"none", {NULL}},
    [RF_RECIPE_FP8] = {"fp8",
                       {"Float8CurrentScaling", "tensorwise", "transformer-engine", "hybrid"},
                       RF_E4M3,
                       RF_E5M2,
                       {0, 0},
                       {0, 0}},
    [RF_RECIPE_FP8_E4M3] = {"fp8-e4m3", {"e4m3"}, RF_E4M3, RF_E4M3, {0, 0}, {0, 0}},
    [RF_RECIPE_FP8_ROWS] = {"fp8-rows", {"rowwise"}, RF_E4M3, RF_E4M3, {1, 0}, {1, 0}},
    [RF_RECIPE_FP8_BLOCKS] =
        {"fp8-blocks", {"Float8BlockScaling", "blockwise"}, RF_E4M3, RF_E4M3, {1, 128}, {128, 128}},
    [RF_RECIPE_MXFP8] =
        {"mxfp8", {"MXFP8BlockScaling", "mxfp8_cublas_rceil"}, RF_E4M3, RF_E4M3, {1, 32}, {1, 32}},
    [RF_RECIPE_MXFP4] = {"mxfp4", {NULL}, RF_E2M1, RF_E2M1, {1, 32}, {1, 32}, .four_bits = true},
    [RF_RECIPE_NVFP4] = {"nvfp4",
                         {"NVFP4BlockScaling"},
                         RF_E2M1,
                         RF_E2M1,
                         {1, 16},
                         {16, 16},
                         .two_level = true,
                         .four_bits = true},
};

const char *rf_recipe_name(enum rf_recipe recipe)
{
    return (unsigned)recipe < RF_RECIPE_COUNT ? recipes[recipe].name : NULL;
}

int rf_recipe_find(const char *text)
{
    for (int r = 0; text && r < RF_RECIPE_COUNT; r++) {
        if (strcasecmp(text, recipes[r].name) == 0)
            return r;
        for (int k = 0; k < ALIASES && recipes[r].aliases[k]; k++)
            if (strcasecmp(text, recipes[r].aliases[k]) == 0)
                return r;
    }
    return -1;
}

int rf_recipe_block(enum rf_recipe recipe)
{
    return (unsigned)recipe < RF_RECIPE_COUNT && !recipes[recipe].two_level
               ? recipes[recipe].block.along
               : 0;
}

bool rf_recipe_is_random(enum rf_recipe recipe)
{
    return (unsigned)recipe < RF_RECIPE_COUNT && recipes[recipe].four_bits;
}

int rf_recipe_kept_layers(enum rf_recipe recipe, int layers)
{
    return rf_recipe_is_random(recipe) && layers > 1 ? (layers + KEPT_PART - 1) / KEPT_PART : 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The blocks of a matrix, and the strips that lanes have: parts of rows, or with `down` of
 * columns. */
struct grid {
    int64_t rows, columns, block_rows, block_columns;
    bool down;
    int64_t strip; /* elements of a whole strip */
    bool single;   /* each block is one strip */
};

static bool is_valid(const struct rf_operand_opts *o)
{
    return o && o->recipe > RF_RECIPE_NONE && o->recipe < RF_RECIPE_COUNT &&
           (unsigned)o->role <= RF_OPERAND_GRADIENT;
}

static struct grid grid_of(int64_t rows, int64_t columns, const struct rf_operand_opts *o)
{
    const struct recipe *r = &recipes[o->recipe];
    const struct extent e = o->role == RF_OPERAND_WEIGHT ? r->weight_block : r->block;
    const int64_t lines = o->columns ? columns : rows, length = o->columns ? rows : columns;
    const int64_t block_lines = e.lines ? e.lines : lines, along = e.along ? e.along : length;
    struct grid g = {.rows = rows,
                     .columns = columns,
                     .block_rows = o->columns ? along : block_lines,
                     .block_columns = o->columns ? block_lines : along,
                     .down = o->columns && e.lines == 1};
    const int64_t run = g.down ? g.block_rows : g.block_columns;
    g.strip = run < MOST_STRIP ? run : MOST_STRIP;
    g.single = e.lines == 1 && run == g.strip;
    return g;
}

static int64_t over(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

static int64_t cells_of(const struct grid *g)
{
    return over(g->rows, g->block_rows) * over(g->columns, g->block_columns);
}

int64_t rf_round_operand_scratch(int64_t rows, int64_t columns, const struct rf_operand_opts *opts)
{
    if (rows < 1 || columns < 1 || !is_valid(opts))
        return 0;
    const struct grid g = grid_of(rows, columns, opts);
    return recipes[opts->recipe].two_level + (g.single ? 0 : cells_of(&g));
}

/* ---- launches -------------------------------------------------------------------------------- */

static const char op[] = "round_operand";

struct operand {
    const struct rf_operand_opts *opts;
    struct rf_tensor out, x, most, whole, scalars;
    struct grid grid;
    bool random;
};

/* What a launch does: see the shader. */
enum { FINDS = 1, WRITES = 2, WHOLE = 4, TRANSFORMS = 8 };

static int launch(struct rf_stream *stream, const struct operand *o, unsigned does)
{
    static const struct rf_builds builds = {.aligned = RF_BUILD_TYPES(round_operand_v),
                                            .any = RF_BUILD_TYPES(round_operand_s)};
    const struct grid *g = &o->grid;
    const struct recipe *r = &recipes[o->opts->recipe];
    const bool finds = does & FINDS, writes = does & WRITES, whole = does & WHOLE;
    const bool transforms = does & TRANSFORMS;
    const struct rf_tensor most = whole ? o->whole : o->most;
    struct rf_device *device = rf_stream_device(stream);
    const bool vector = rf_pick_vector(g->columns, (struct rf_tensor[]){o->out, o->x}, 2) &&
                        (g->down || (g->strip % 4 == 0 && g->block_columns % 4 == 0));
    const int64_t per_item = vector ? 4 : 1, items = g->columns / per_item;
    const int64_t strip = g->down ? g->strip : g->strip / per_item;
    const int64_t strips = g->down ? items * over(g->rows, strip) : g->rows * over(items, strip);
    const struct rf_push_round_operand push = {
        .out_ = rf_address_of(o->out),
        .x = rf_address_of(o->x),
        .most = rf_address_of(most),
        .whole = rf_address_of(o->whole),
        .scalars = rf_address_of(o->scalars),
        .rows = (uint32_t)g->rows,
        .items = (uint32_t)items,
        .block_rows = (uint32_t)g->block_rows,
        .block_items = (uint32_t)(g->down ? 1 : g->block_columns / per_item),
        .cells = (uint32_t)over(g->columns, g->block_columns),
        .strip = (uint32_t)strip,
        .strips = (uint32_t)strips,
        .site = o->opts->site,
        .turn = 2 * o->opts->micro_batch + o->opts->columns};
    struct rf_job job = {
        .op = op, .type = o->x.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, &builds, vector, NULL, 0, NULL);
    rf_job_flat(&job, device, (uint64_t)strips, RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, o->opts->role == RF_OPERAND_GRADIENT ? r->gradient_format : r->format);
    rf_job_spec(&job, 2, g->down);
    rf_job_spec(&job, 3, finds);
    rf_job_spec(&job, 4, writes);
    rf_job_spec(&job, 5, whole);
    rf_job_spec(&job, 6, r->two_level);
    rf_job_spec(&job, 7, o->random);
    rf_job_spec(&job, 8, transforms);
    rf_job_reads(&job, o->x);
    if (writes || transforms)
        rf_job_writes(&job, o->out);
    if (writes) {
        rf_job_reads(&job, o->whole);
        rf_job_reads(&job, o->scalars);
    }
    if (finds && !writes)
        rf_job_updates(&job, most);
    else if (!finds)
        rf_job_reads(&job, most);
    return rf_job_run(stream, &job);
}

/* x becomes out, which has its transform. */
static int transform(struct rf_stream *stream, struct operand *o)
{
    struct operand all = *o;
    all.grid.down = true;
    all.grid.strip = TRANSFORMED;
    RETURN_IF_ERROR(launch(stream, &all, TRANSFORMS));
    o->x = o->out;
    return 0;
}

/* The places of the largest magnitudes in the scratch, which begin as 0. */
static int open_scratch(struct rf_stream *stream, struct operand *o,
                        const struct rf_tensor *scratch)
{
    const int64_t first = recipes[o->opts->recipe].two_level;
    const int64_t count = first + (o->grid.single ? 0 : cells_of(&o->grid));
    if (count == 0)
        return 0;
    if (!scratch || rf_tensor_count(*scratch) < count)
        return rf_fail(RF_EINVAL, "%s: needs %lld elements of scratch", op, (long long)count);
    const struct rf_tensor all = rf_elements(*scratch, 0, count);
    RETURN_IF_ERROR(rf_check_tensor(op, "scratch", all, RF_F32, count));
    RETURN_IF_ERROR(rf_check_alias(op, "scratch", all, "x", o->x));
    RETURN_IF_ERROR(rf_check_alias(op, "scratch", all, "out", o->out));
    if (first)
        o->whole = rf_elements(all, 0, first);
    if (count > first)
        o->most = rf_elements(all, first, count - first);
    return rf_fill(stream, all, 0);
}

static int open_random(struct operand *o)
{
    o->random = o->opts->role == RF_OPERAND_GRADIENT && rf_recipe_is_random(o->opts->recipe);
    if (!o->random)
        return 0;
    if (!o->opts->scalars)
        return rf_fail(RF_EINVAL, "%s: gradients are rounded at random, by scalars", op);
    o->scalars = *o->opts->scalars;
    RETURN_IF_ERROR(rf_check_tensor(op, "scalars", o->scalars, RF_F32, RF_SCALAR_WORDS));
    return rf_check_alias(op, "scalars", o->scalars, "out", o->out);
}

int rf_round_operand(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                     const struct rf_operand_opts *opts, const struct rf_tensor *scratch)
{
    if (!is_valid(opts))
        return rf_fail(RF_EINVAL, "%s: needs a recipe and a role of their enums", op);
    RETURN_IF_ERROR(rf_check_typed(op, "out", out, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "x", x, out.dtype, rf_tensor_count(out)));
    RETURN_IF_ERROR(rf_check_in_place(op, "out", out, "x", x));
    const int64_t columns = x.shape.ndim ? x.shape.dim[x.shape.ndim - 1] : 1;
    const int64_t count = rf_tensor_count(x);
    if (count == 0)
        return 0;
    struct operand o = {
        .opts = opts, .out = out, .x = x, .grid = grid_of(count / columns, columns, opts)};
    RETURN_IF_ERROR(open_random(&o));
    RETURN_IF_ERROR(open_scratch(stream, &o, scratch));
    if (recipes[opts->recipe].four_bits && opts->columns && opts->role != RF_OPERAND_WEIGHT)
        RETURN_IF_ERROR(transform(stream, &o));
    if (o.whole.buffer)
        RETURN_IF_ERROR(launch(stream, &o, FINDS | WHOLE));
    if (o.grid.single)
        return launch(stream, &o, FINDS | WRITES);
    RETURN_IF_ERROR(launch(stream, &o, FINDS));
    return launch(stream, &o, WRITES);
}
