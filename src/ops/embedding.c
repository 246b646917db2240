/* SPDX-License-Identifier: MIT
 *
 * Token and position embedding. The backward pass is a deterministic scatter: a radix sort of the
 * rows by token, which is stable (embedding_sort.comp), then the first row of each token adds up
 * all of them, in row order (embedding_backward.comp). Both take time proportional to the number of
 * rows.
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/embedding.h"
#include "shaders/push/embedding_backward.h"
#include "shaders/push/embedding_sort.h"

#define SORT_LANES 128 /* of the middle stage of embedding_sort.comp: all devices support it */

/* ---- checks ---------------------------------------------------------------------------------- */

enum { FORWARD = 1, BACKWARD = 2 };

/* What a call looks up, or adds to: table and places are wte and wpe, or dwte and dwpe, and out is
 * out or dout. */
struct call {
    const struct rf_embedding_args *args;
    const char *op;
    bool forward;
    struct rf_named_tensor table, places, out;
    int64_t rows, channels, table_rows; /* table_rows 1: there is no dwte */
    bool words;                         /* there is a table of tokens */
    bool part;                          /* it is a part of a larger one */
};

static int check_uses(const struct call *c)
{
    const struct rf_embedding_args *a = c->args;
    const struct rf_use uses[] = {
        {"wte", a->wte.buffer, FORWARD},
        {"wpe", a->wpe.buffer, FORWARD},
        {"positions", a->positions.buffer, a->wpe.buffer ? FORWARD : 0},
        {"out", a->out.buffer, FORWARD},
        {"dout", a->dout.buffer, BACKWARD},
        {"dwte", a->dwte.buffer, BACKWARD},
        {"dwpe", a->dwpe.buffer, BACKWARD},
        {"scratch", a->scratch.buffer, c->words ? BACKWARD : 0},
        {"first", a->first != 0, c->part ? FORWARD | BACKWARD : 0},
        {"first_row", a->first_row != 0, BACKWARD},
        {"rows", a->rows != 0, BACKWARD},
    };
    return rf_check_uses(c->op, c->forward ? FORWARD : BACKWARD, uses,
                         sizeof(uses) / sizeof(uses[0]));
}

static int check_tables(const struct call *c, enum rf_dtype dtype)
{
    const int64_t T = c->args->T;
    const struct rf_named_tensor table = c->words ? c->table : c->places;
    const struct rf_tensor places = c->places.tensor;
    if (T < 1 || c->rows % T != 0)
        return rf_fail(RF_EINVAL, "%s: %lld tokens are not a multiple of T = %lld", c->op,
                       (long long)c->rows, (long long)T);
    RETURN_IF_ERROR(rf_check_rows(c->op, table.name, table.tensor, dtype, -1, c->channels));
    if (rf_tensor_count(table.tensor) == 0)
        return rf_fail(RF_EINVAL, "%s: %s is empty", c->op, table.name);
    if (!places.buffer)
        return 0;
    RETURN_IF_ERROR(rf_check_rows(c->op, c->places.name, places, dtype, -1, c->channels));
    if (rf_tensor_count(places) < T * c->channels)
        return rf_fail(RF_EINVAL, "%s: %s has %lld rows, expected at least T = %lld", c->op,
                       c->places.name, (long long)(rf_tensor_count(places) / c->channels),
                       (long long)T);
    return 0;
}

static int64_t last_dim(struct rf_tensor tensor)
{
    return tensor.shape.ndim > 0 ? tensor.shape.dim[tensor.shape.ndim - 1] : 1;
}

static int check_part(const struct call *c)
{
    const struct rf_embedding_args *a = c->args;
    const int64_t end = a->first + c->table_rows;
    if (c->part && (a->first < 0 || a->vocabulary > INT32_MAX || end > a->vocabulary))
        return rf_fail(RF_EINVAL, "%s: rows %lld to %lld are no part of a vocabulary of %lld",
                       c->op, (long long)a->first, (long long)(end - 1), (long long)a->vocabulary);
    if (a->first_row < 0 || a->rows < 0 || a->first_row + a->rows > c->rows)
        return rf_fail(RF_EINVAL,
                       "%s: first_row %lld and rows %lld go beyond the %lld rows of tokens", c->op,
                       (long long)a->first_row, (long long)a->rows, (long long)c->rows);
    return 0;
}

/* Fills in the rest of *c, and *dtype, the type of the tables. */
static int check_call(struct call *c, enum rf_dtype *dtype)
{
    const struct rf_embedding_args *a = c->args;
    const struct rf_tensor rows = c->out.tensor;
    c->words = c->table.tensor.buffer || !c->places.tensor.buffer || c->forward;
    c->part = a->vocabulary != 0;
    const struct rf_tensor table = (c->words ? c->table : c->places).tensor;
    RETURN_IF_ERROR(check_uses(c));
    RETURN_IF_ERROR(rf_check_operand(c->op, "tokens", a->tokens, RF_I32, -1));
    c->rows = rf_tensor_count(a->tokens);
    c->channels = last_dim(table);
    if (c->forward)
        RETURN_IF_ERROR(rf_check_typed(c->op, c->table.name, table, -1));
    else
        RETURN_IF_ERROR(rf_check_typed(c->op, c->out.name, rows, -1));
    *dtype = c->forward || table.dtype == RF_F32 ? table.dtype : rows.dtype;
    RETURN_IF_ERROR(check_tables(c, *dtype));
    c->table_rows = c->words ? rf_tensor_count(table) / c->channels : 1;
    RETURN_IF_ERROR(check_part(c));
    return rf_check_rows(c->op, c->out.name, rows, c->forward ? *dtype : rows.dtype, c->rows,
                         c->channels);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* A table of which some rows are read: at most as many elements as those rows have. */
static void touch_rows(struct rf_job *job, struct rf_tensor table, int64_t rows, int64_t channels,
                       enum rf_touch touch)
{
    const int64_t all = rf_tensor_count(table), most = rows * channels;
    if (table.buffer)
        rf_job_touches(job, table, most < all ? most : all, touch);
}

static uint32_t vocabulary_of(const struct call *c)
{
    return (uint32_t)(c->part ? c->args->vocabulary : c->table_rows);
}

int rf_embedding(struct rf_stream *stream, const struct rf_embedding_args *a)
{
    static const struct rf_builds builds = RF_BUILDS(embedding);
    struct call c = {.args = a,
                     .op = "embedding",
                     .forward = true,
                     .table = {"wte", a->wte},
                     .places = {"wpe", a->wpe},
                     .out = {"out", a->out}};
    enum rf_dtype dtype;
    RETURN_IF_ERROR(check_call(&c, &dtype));
    if (a->positions.buffer)
        RETURN_IF_ERROR(rf_check_operand(c.op, "positions", a->positions, RF_I32, c.rows));
    RETURN_IF_ERROR(
        rf_check_apart(c.op, &c.out, 1,
                       (struct rf_named_tensor[]){
                           {"tokens", a->tokens}, c.table, c.places, {"positions", a->positions}},
                       4));
    if (c.rows == 0)
        return 0;

    bool vector = rf_pick_vector(c.channels, (struct rf_tensor[]){a->out, a->wte, a->wpe}, 3);
    uint32_t row_items = (uint32_t)(vector ? c.channels / 4 : c.channels);
    struct rf_push_embedding push = {.out_ = rf_address_of(a->out),
                                     .tokens = rf_address_of(a->tokens),
                                     .wte = rf_address_of(a->wte),
                                     .wpe = rf_address_of(a->wpe),
                                     .places = rf_address_of(a->positions),
                                     .rows = (uint32_t)c.rows,
                                     .row_items = row_items,
                                     .T = (uint32_t)a->T,
                                     .table_rows = (uint32_t)c.table_rows,
                                     .vocabulary = vocabulary_of(&c),
                                     .first_token = (uint32_t)a->first,
                                     .positions = a->wpe.buffer ? 1 : 0};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = c.op, .type = dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, &builds, vector, (struct rf_source[]){{a->wte}, {a->wpe}}, 2,
                 push.first);
    rf_job_flat(&job, device, (uint64_t)c.rows * row_items, RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, c.part);
    if (a->positions.buffer) {
        rf_job_spec(&job, 2, 1);
        rf_job_reads(&job, a->positions);
    }
    rf_job_reads(&job, a->tokens);
    touch_rows(&job, a->wte, c.rows, c.channels, RF_TOUCH_READ);
    touch_rows(&job, a->wpe, a->T, c.channels, RF_TOUCH_READ);
    rf_job_writes(&job, a->out);
    return rf_job_run(stream, &job);
}

/* The sort: tokens as `passes` digits of `bits` bits, rows in `blocks` blocks, one per lane. */
struct sort {
    uint32_t passes, bits, digits;
    int64_t block_rows, blocks;
};

static struct sort plan_sort(int64_t rows, int64_t vocabulary)
{
    struct sort s = {.block_rows = 64};
    uint32_t width = 1;
    while (width < 31 && INT64_C(1) << width < vocabulary)
        width++;
    s.passes = (width + 8) / 9;
    s.bits = (width + s.passes - 1) / s.passes;
    if (s.bits < 7)
        s.bits = 7; /* a digit for each of SORT_LANES */
    s.digits = 1u << s.bits;
    while (s.block_rows * s.block_rows < rows)
        s.block_rows *= 2;
    s.blocks = (rows + s.block_rows - 1) / s.block_rows;
    return s;
}

int64_t rf_embedding_scratch(int64_t rows, int64_t vocabulary)
{
    struct sort s = plan_sort(rows, vocabulary);
    return 2 * rows + s.blocks * s.digits;
}

static struct rf_tensor part_of(struct rf_tensor scratch, int64_t first, int64_t count)
{
    scratch.offset += (uint64_t)first * sizeof(int32_t);
    scratch.shape = rf_shape1(count);
    return scratch;
}

/* Sorts rows by the table row that they read; with a part, rows without one come last. */
static int run_sort(struct rf_stream *stream, const struct call *c, struct rf_tensor *order)
{
    static const struct rf_build shaders[] = {
        RF_BUILD(embedding_sort_0), RF_BUILD(embedding_sort_1), RF_BUILD(embedding_sort_2)};
    const struct rf_tensor tokens = c->args->tokens, scratch = c->args->scratch;
    const struct sort s = plan_sort(c->rows, c->table_rows + c->part);
    struct rf_device *device = rf_stream_device(stream);
    struct rf_tensor from = {0}, to = part_of(scratch, 0, c->rows),
                     next = part_of(scratch, c->rows, c->rows);
    struct rf_tensor counts = part_of(scratch, 2 * c->rows, s.blocks * s.digits);
    for (uint32_t pass = 0; pass < s.passes; pass++) {
        struct rf_push_embedding_sort push = {.tokens = rf_address_of(tokens),
                                              .from = rf_address_of(from),
                                              .to = rf_address_of(to),
                                              .counts = rf_address_of(counts),
                                              .rows = (uint32_t)c->rows,
                                              .table_rows = (uint32_t)c->table_rows,
                                              .vocabulary = vocabulary_of(c),
                                              .first_token = (uint32_t)c->args->first,
                                              .block_rows = (uint32_t)s.block_rows,
                                              .blocks = (uint32_t)s.blocks,
                                              .shift = pass * s.bits,
                                              .digits = s.digits};
        RETURN_IF_ERROR(
            rf_stream_fill(stream, counts.buffer, counts.offset, rf_tensor_bytes(counts), 0));
        for (int stage = 0; stage < 3; stage++) {
            struct rf_job job = {.op = c->op,
                                 .shader = shaders[stage],
                                 .push = &push,
                                 .push_bytes = RF_PUSH_BYTES(push)};
            rf_job_flat(&job, device, stage == 1 ? 1 : (uint64_t)s.blocks,
                        stage == 1 ? SORT_LANES : rf_pick_row_lanes(device), 1);
            rf_job_spec(&job, 1, c->part);
            if (stage != 1) {
                rf_job_reads(&job, tokens);
                rf_job_reads(&job, from);
            }
            rf_job_writes(&job, counts);
            if (stage == 2)
                rf_job_writes(&job, to);
            RETURN_IF_ERROR(rf_job_run(stream, &job));
        }
        from = to;
        to = next;
        next = from;
    }
    *order = from;
    return 0;
}

int rf_embedding_backward(struct rf_stream *stream, const struct rf_embedding_args *a)
{
    static const struct rf_builds same = RF_BUILDS(embedding_backward);
    static const struct rf_builds wide = {.aligned = RF_BUILD_16(embedding_backward_wide_v),
                                          .any = RF_BUILD_16(embedding_backward_wide_s)};
    struct call c = {.args = a,
                     .op = "embedding_backward",
                     .table = {"dwte", a->dwte},
                     .places = {"dwpe", a->dwpe},
                     .out = {"dout", a->dout}};
    enum rf_dtype grad;
    RETURN_IF_ERROR(check_call(&c, &grad));
    if (c.words)
        RETURN_IF_ERROR(rf_check_operand(c.op, "scratch", a->scratch, RF_I32,
                                         rf_embedding_scratch(c.rows, c.table_rows + c.part)));
    /* All rows may have the same token. */
    RETURN_IF_ERROR(rf_check_rounds(rf_stream_device(stream), c.op, c.rows));
    RETURN_IF_ERROR(
        rf_check_apart(c.op, (struct rf_named_tensor[]){c.table, c.places, {"scratch", a->scratch}},
                       3, (struct rf_named_tensor[]){c.out, {"tokens", a->tokens}}, 2));
    if (c.rows == 0)
        return 0;

    bool vector = rf_pick_vector(c.channels, (struct rf_tensor[]){a->dwte, a->dwpe, a->dout}, 3);
    uint32_t row_items = (uint32_t)(vector ? c.channels / 4 : c.channels);
    uint32_t positions = a->dwpe.buffer ? (uint32_t)a->T : 0;
    struct rf_tensor order = {0};
    if (c.words)
        RETURN_IF_ERROR(run_sort(stream, &c, &order));
    struct rf_push_embedding_backward push = {.dwte = rf_address_of(a->dwte),
                                              .dwpe = rf_address_of(a->dwpe),
                                              .dout = rf_address_of(a->dout),
                                              .tokens = rf_address_of(a->tokens),
                                              .order = rf_address_of(order),
                                              .rows = (uint32_t)c.rows,
                                              .row_items = row_items,
                                              .T = (uint32_t)a->T,
                                              .table_rows = (uint32_t)c.table_rows,
                                              .vocabulary = vocabulary_of(&c),
                                              .first_token = (uint32_t)a->first,
                                              .positions = positions,
                                              .words = c.words,
                                              .first_row = (uint32_t)a->first_row,
                                              .some_rows = (uint32_t)(a->rows ? a->rows : c.rows)};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = c.op, .type = a->dout.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, grad == a->dout.dtype ? &same : &wide, vector,
                 (struct rf_source[]){{a->dout}}, 1, push.first);
    rf_job_flat(&job, device, ((c.words ? (uint64_t)c.rows : 0) + positions) * row_items,
                RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, c.part);
    rf_job_reads(&job, a->dout);
    if (c.words)
        rf_job_reads(&job, a->tokens);
    rf_job_reads(&job, order);
    touch_rows(&job, a->dwte, c.rows, c.channels, RF_TOUCH_UPDATE);
    touch_rows(&job, a->dwpe, a->T, c.channels, RF_TOUCH_UPDATE);
    return rf_job_run(stream, &job);
}
