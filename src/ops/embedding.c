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

static int check_tables(const char *op, const char *const names[2], struct rf_tensor wte,
                        struct rf_tensor wpe, enum rf_dtype dtype, int64_t rows, int64_t T,
                        int64_t channels)
{
    if (T < 1 || rows % T != 0)
        return rf_fail(RF_EINVAL, "%s: %lld tokens are not a multiple of T = %lld", op,
                       (long long)rows, (long long)T);
    RETURN_IF_ERROR(rf_check_rows(op, names[0], wte, dtype, -1, channels));
    if (rf_tensor_count(wte) == 0)
        return rf_fail(RF_EINVAL, "%s: %s is empty", op, names[0]);
    if (!wpe.buffer)
        return 0;
    RETURN_IF_ERROR(rf_check_rows(op, names[1], wpe, dtype, -1, channels));
    if (rf_tensor_count(wpe) < T * channels)
        return rf_fail(RF_EINVAL, "%s: %s has %lld rows, expected at least T = %lld", op, names[1],
                       (long long)(rf_tensor_count(wpe) / channels), (long long)T);
    return 0;
}

/* A table of which some rows are read: at most as many elements as those rows have. */
static void touch_rows(struct rf_job *job, struct rf_tensor table, int64_t rows, int64_t channels,
                       enum rf_touch touch)
{
    const int64_t all = rf_tensor_count(table), most = rows * channels;
    if (table.buffer)
        rf_job_touches(job, table, most < all ? most : all, touch);
}

static int64_t last_dim(struct rf_tensor tensor)
{
    return tensor.shape.ndim > 0 ? tensor.shape.dim[tensor.shape.ndim - 1] : 1;
}

/* Checks a part of a table with `table_rows` rows for n rows of tokens; `part` is NULL for a whole
 * table. */
static int check_part(const char *op, const struct rf_embedding_part *part, int64_t table_rows,
                      int64_t rows)
{
    if (!part)
        return 0;
    if (part->first < 0 || part->vocabulary > INT32_MAX ||
        part->first + table_rows > part->vocabulary)
        return rf_fail(RF_EINVAL, "%s: rows %lld to %lld are no part of a vocabulary of %lld", op,
                       (long long)part->first, (long long)(part->first + table_rows - 1),
                       (long long)part->vocabulary);
    if (part->first_row < 0 || part->rows < 0 || part->first_row + part->rows > rows)
        return rf_fail(RF_EINVAL,
                       "%s: first_row %lld and rows %lld go beyond the %lld rows of tokens", op,
                       (long long)part->first_row, (long long)part->rows, (long long)rows);
    return 0;
}

int rf_embedding(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor tokens,
                 struct rf_tensor wte, struct rf_tensor wpe, int64_t T)
{
    return rf_embedding_of_part(stream, out, tokens, wte, wpe, T, NULL);
}

int rf_embedding_of_part(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor tokens,
                         struct rf_tensor wte, struct rf_tensor wpe, int64_t T,
                         const struct rf_embedding_part *part)
{
    static const char op[] = "embedding";
    static const struct rf_builds builds = RF_BUILDS(embedding);
    static const char *const names[2] = {"wte", "wpe"};
    int64_t channels = last_dim(wte);
    RETURN_IF_ERROR(rf_check_operand(op, "tokens", tokens, RF_I32, -1));
    int64_t rows = rf_tensor_count(tokens);
    RETURN_IF_ERROR(rf_check_typed(op, "wte", wte, -1));
    RETURN_IF_ERROR(check_tables(op, names, wte, wpe, wte.dtype, rows, T, channels));
    const int64_t table_rows = rf_tensor_count(wte) / channels;
    RETURN_IF_ERROR(check_part(op, part, table_rows, rows));
    RETURN_IF_ERROR(rf_check_rows(op, "out", out, wte.dtype, rows, channels));
    const struct rf_tensor places = part && wpe.buffer ? part->positions : (struct rf_tensor){0};
    if (places.buffer)
        RETURN_IF_ERROR(rf_check_operand(op, "positions", places, RF_I32, rows));
    RETURN_IF_ERROR(
        rf_check_apart(op, (struct rf_named_tensor[]){{"out", out}}, 1,
                       (struct rf_named_tensor[]){
                           {"tokens", tokens}, {"wte", wte}, {"wpe", wpe}, {"positions", places}},
                       4));
    if (rows == 0)
        return 0;

    bool vector = rf_pick_vector(channels, (struct rf_tensor[]){out, wte, wpe}, 3);
    uint32_t row_items = (uint32_t)(vector ? channels / 4 : channels);
    struct rf_push_embedding push = {.out_ = rf_address_of(out),
                                     .tokens = rf_address_of(tokens),
                                     .wte = rf_address_of(wte),
                                     .wpe = rf_address_of(wpe),
                                     .places = rf_address_of(places),
                                     .rows = (uint32_t)rows,
                                     .row_items = row_items,
                                     .T = (uint32_t)T,
                                     .table_rows = (uint32_t)table_rows,
                                     .vocabulary = (uint32_t)(part ? part->vocabulary : table_rows),
                                     .first_token = (uint32_t)(part ? part->first : 0),
                                     .positions = wpe.buffer ? 1 : 0};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = wte.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, &builds, vector, (struct rf_source[]){{wte}, {wpe}}, 2, push.first);
    rf_job_flat(&job, device, (uint64_t)rows * row_items, RF_FLAT_LANES, 1);
    rf_job_spec(&job, 1, part != NULL);
    if (places.buffer) {
        rf_job_spec(&job, 2, 1);
        rf_job_reads(&job, places);
    }
    rf_job_reads(&job, tokens);
    touch_rows(&job, wte, rows, channels, RF_TOUCH_READ);
    touch_rows(&job, wpe, T, channels, RF_TOUCH_READ);
    rf_job_writes(&job, out);
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
static int run_sort(struct rf_stream *stream, struct rf_tensor tokens, struct rf_tensor scratch,
                    int64_t rows, int64_t table_rows, const struct rf_embedding_part *part,
                    struct rf_tensor *order)
{
    static const struct rf_build shaders[] = {
        RF_BUILD(embedding_sort_0), RF_BUILD(embedding_sort_1), RF_BUILD(embedding_sort_2)};
    const struct sort s = plan_sort(rows, table_rows + (part != NULL));
    struct rf_device *device = rf_stream_device(stream);
    struct rf_tensor from = {0}, to = part_of(scratch, 0, rows),
                     next = part_of(scratch, rows, rows);
    struct rf_tensor counts = part_of(scratch, 2 * rows, s.blocks * s.digits);
    for (uint32_t pass = 0; pass < s.passes; pass++) {
        struct rf_push_embedding_sort push = {.tokens = rf_address_of(tokens),
                                              .from = rf_address_of(from),
                                              .to = rf_address_of(to),
                                              .counts = rf_address_of(counts),
                                              .rows = (uint32_t)rows,
                                              .table_rows = (uint32_t)table_rows,
                                              .vocabulary =
                                                  (uint32_t)(part ? part->vocabulary : table_rows),
                                              .first_token = (uint32_t)(part ? part->first : 0),
                                              .block_rows = (uint32_t)s.block_rows,
                                              .blocks = (uint32_t)s.blocks,
                                              .shift = pass * s.bits,
                                              .digits = s.digits};
        RETURN_IF_ERROR(
            rf_stream_fill(stream, counts.buffer, counts.offset, rf_tensor_bytes(counts), 0));
        for (int stage = 0; stage < 3; stage++) {
            struct rf_job job = {.op = "embedding_backward",
                                 .shader = shaders[stage],
                                 .push = &push,
                                 .push_bytes = RF_PUSH_BYTES(push)};
            rf_job_flat(&job, device, stage == 1 ? 1 : (uint64_t)s.blocks,
                        stage == 1 ? SORT_LANES : rf_pick_row_lanes(device), 1);
            rf_job_spec(&job, 1, part != NULL);
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

int rf_embedding_backward(struct rf_stream *stream, struct rf_tensor dwte, struct rf_tensor dwpe,
                          struct rf_tensor dout, struct rf_tensor tokens, int64_t T,
                          struct rf_tensor scratch)
{
    return rf_embedding_of_part_backward(stream, dwte, dwpe, dout, tokens, T, scratch, NULL);
}

int rf_embedding_of_part_backward(struct rf_stream *stream, struct rf_tensor dwte,
                                  struct rf_tensor dwpe, struct rf_tensor dout,
                                  struct rf_tensor tokens, int64_t T, struct rf_tensor scratch,
                                  const struct rf_embedding_part *part)
{
    static const char op[] = "embedding_backward";
    static const struct rf_builds same = RF_BUILDS(embedding_backward);
    static const struct rf_builds wide = {.aligned = RF_BUILD_16(embedding_backward_wide_v),
                                          .any = RF_BUILD_16(embedding_backward_wide_s)};
    static const char *const names[2] = {"dwte", "dwpe"};
    const bool words = dwte.buffer != NULL || !dwpe.buffer;
    int64_t channels = last_dim(words ? dwte : dwpe);
    RETURN_IF_ERROR(rf_check_operand(op, "tokens", tokens, RF_I32, -1));
    int64_t rows = rf_tensor_count(tokens);
    RETURN_IF_ERROR(rf_check_typed(op, "dout", dout, -1));
    RETURN_IF_ERROR(rf_check_rows(op, "dout", dout, dout.dtype, rows, channels));
    enum rf_dtype grad = (words ? dwte : dwpe).dtype == RF_F32 ? RF_F32 : dout.dtype;
    RETURN_IF_ERROR(check_tables(op, names, words ? dwte : dwpe, dwpe, grad, rows, T, channels));
    const int64_t table_rows = words ? rf_tensor_count(dwte) / channels : 1;
    RETURN_IF_ERROR(check_part(op, part, table_rows, rows));
    if (words)
        RETURN_IF_ERROR(rf_check_operand(op, "scratch", scratch, RF_I32,
                                         rf_embedding_scratch(rows, table_rows + (part != NULL))));
    /* All rows may have the same token. */
    RETURN_IF_ERROR(rf_check_rounds(rf_stream_device(stream), op, rows));
    RETURN_IF_ERROR(rf_check_apart(
        op, (struct rf_named_tensor[]){{"dwte", dwte}, {"dwpe", dwpe}, {"scratch", scratch}}, 3,
        (struct rf_named_tensor[]){{"dout", dout}, {"tokens", tokens}}, 2));
    if (rows == 0)
        return 0;

    bool vector = rf_pick_vector(channels, (struct rf_tensor[]){dwte, dwpe, dout}, 3);
    uint32_t row_items = (uint32_t)(vector ? channels / 4 : channels);
    uint32_t positions = dwpe.buffer ? (uint32_t)T : 0;
    struct rf_tensor order = {0};
    if (words)
        RETURN_IF_ERROR(run_sort(stream, tokens, scratch, rows, table_rows, part, &order));
    struct rf_push_embedding_backward push = {
        .dwte = rf_address_of(dwte),
        .dwpe = rf_address_of(dwpe),
        .dout = rf_address_of(dout),
        .tokens = rf_address_of(tokens),
        .order = rf_address_of(order),
        .rows = (uint32_t)rows,
        .row_items = row_items,
        .T = (uint32_t)T,
        .table_rows = (uint32_t)table_rows,
        .vocabulary = (uint32_t)(part ? part->vocabulary : table_rows),
        .first_token = (uint32_t)(part ? part->first : 0),
        .positions = positions,
        .words = words,
        .first_row = (uint32_t)(part ? part->first_row : 0),
        .some_rows = (uint32_t)(part && part->rows ? part->rows : rows)};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = op, .type = dout.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_build(&job, device, grad == dout.dtype ? &same : &wide, vector,
                 (struct rf_source[]){{dout}}, 1, push.first);
    rf_job_flat(&job, device, ((words ? (uint64_t)rows : 0) + positions) * row_items, RF_FLAT_LANES,
                1);
    rf_job_spec(&job, 1, part != NULL);
    rf_job_reads(&job, dout);
    if (words)
        rf_job_reads(&job, tokens);
    rf_job_reads(&job, order);
    touch_rows(&job, dwte, rows, channels, RF_TOUCH_UPDATE);
    touch_rows(&job, dwpe, T, channels, RF_TOUCH_UPDATE);
    return rf_job_run(stream, &job);
}
