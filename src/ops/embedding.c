/* SPDX-License-Identifier: MIT
 *
 * Token and position embedding. The backward pass is a deterministic scatter: rows with the same
 * token are chained in row order (embedding_links.comp), then the first of each chain adds them up
 * (embedding_backward.comp). Finding the links costs n*n/2 comparisons at worst, n up to some
 * ten thousand.
 */
#include "pick.h"

#include "../base/base.h"

static int check_tables(const char *op, const char *const names[2], struct rf_tensor wte,
                        struct rf_tensor wpe, int64_t rows, int64_t T, int64_t channels)
{
    if (T < 1 || rows % T != 0)
        return rf_fail(RF_EINVAL, "%s: %lld tokens are not a multiple of T = %lld", op,
                       (long long)rows, (long long)T);
    RETURN_IF_ERROR(rf_check_rows(op, names[0], wte, RF_F32, -1, channels));
    if (rf_tensor_count(wte) == 0)
        return rf_fail(RF_EINVAL, "%s: %s is empty", op, names[0]);
    if (!wpe.buffer)
        return 0;
    RETURN_IF_ERROR(rf_check_rows(op, names[1], wpe, RF_F32, -1, channels));
    if (rf_tensor_count(wpe) < T * channels)
        return rf_fail(RF_EINVAL, "%s: %s has %lld rows, expected at least T = %lld", op, names[1],
                       (long long)(rf_tensor_count(wpe) / channels), (long long)T);
    return 0;
}

static int64_t last_dim(struct rf_tensor tensor)
{
    return tensor.shape.ndim > 0 ? tensor.shape.dim[tensor.shape.ndim - 1] : 1;
}

int rf_embedding(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor tokens,
                 struct rf_tensor wte, struct rf_tensor wpe, int64_t T)
{
    static const char op[] = "embedding";
    static const struct rf_builds builds = {"embedding_v", "embedding_s", "embedding_views", NULL};
    static const char *const names[2] = {"wte", "wpe"};
    int64_t channels = last_dim(wte);
    RETURN_IF_ERROR(rf_check_operand(op, "tokens", tokens, RF_I32, -1));
    int64_t rows = rf_tensor_count(tokens);
    RETURN_IF_ERROR(check_tables(op, names, wte, wpe, rows, T, channels));
    RETURN_IF_ERROR(rf_check_rows(op, "out", out, RF_F32, rows, channels));
    RETURN_IF_ERROR(
        rf_check_apart(op, (struct rf_operand[]){{"out", out}}, 1,
                       (struct rf_operand[]){{"tokens", tokens}, {"wte", wte}, {"wpe", wpe}}, 3));
    if (rows == 0)
        return 0;

    bool vector = rf_pick_vector(channels, (struct rf_tensor[]){out, wte, wpe}, 3);
    uint32_t row_items = (uint32_t)(vector ? channels / 4 : channels);
    struct {
        uint64_t out, tokens, wte, wpe;
        uint32_t rows, row_items, T, vocabulary, positions, first[2];
    } push = {.out = rf_address_of(out),
              .tokens = rf_address_of(tokens),
              .wte = rf_address_of(wte),
              .wpe = rf_address_of(wpe),
              .rows = (uint32_t)rows,
              .row_items = row_items,
              .T = (uint32_t)T,
              .vocabulary = (uint32_t)(rf_tensor_count(wte) / channels),
              .positions = wpe.buffer ? 1 : 0};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {.op = op, .push = &push, .push_bytes = sizeof(push)};
    rf_job_build(&job, device, &builds, vector, (struct rf_source[]){{wte}, {wpe}}, 2, push.first);
    rf_job_flat(&job, device, (uint64_t)rows * row_items, RF_FLAT_LANES, 1);
    rf_job_reads(&job, tokens);
    rf_job_reads(&job, wte);
    rf_job_reads(&job, wpe);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}

/* scratch <- next, has_previous (rows each). */
static int run_links(struct rf_stream *stream, struct rf_tensor tokens, struct rf_tensor scratch,
                     uint32_t rows, uint32_t vocabulary)
{
    RETURN_IF_ERROR(
        rf_stream_fill(stream, scratch.buffer, scratch.offset + 4ull * rows, 4ull * rows, 0));
    struct {
        uint64_t tokens, next, has_previous;
        uint32_t rows, vocabulary;
    } push = {.tokens = rf_address_of(tokens),
              .next = rf_address_of(scratch),
              .has_previous = rf_address_of(scratch) + 4ull * rows,
              .rows = rows,
              .vocabulary = vocabulary};
    struct rf_job job = {.op = "embedding_backward",
                         .shader = "embedding_links",
                         .push = &push,
                         .push_bytes = sizeof(push)};
    struct rf_device *device = rf_stream_device(stream);
    rf_job_flat(&job, device, rows, rf_pick_row_lanes(device), 1);
    rf_job_reads(&job, tokens);
    rf_job_writes(&job, scratch);
    return rf_job_run(stream, &job);
}

int rf_embedding_backward(struct rf_stream *stream, struct rf_tensor dwte, struct rf_tensor dwpe,
                          struct rf_tensor dout, struct rf_tensor tokens, int64_t T,
                          struct rf_tensor scratch)
{
    static const char op[] = "embedding_backward";
    static const struct rf_builds builds = {"embedding_backward_v", "embedding_backward_s",
                                            "embedding_backward_views", NULL};
    static const char *const names[2] = {"dwte", "dwpe"};
    int64_t channels = last_dim(dwte);
    RETURN_IF_ERROR(rf_check_operand(op, "tokens", tokens, RF_I32, -1));
    int64_t rows = rf_tensor_count(tokens);
    RETURN_IF_ERROR(check_tables(op, names, dwte, dwpe, rows, T, channels));
    RETURN_IF_ERROR(rf_check_rows(op, "dout", dout, RF_F32, rows, channels));
    RETURN_IF_ERROR(rf_check_operand(op, "scratch", scratch, RF_I32, 2 * rows));
    /* All rows may hold the same token. */
    RETURN_IF_ERROR(rf_check_rounds(rf_stream_device(stream), op, rows));
    RETURN_IF_ERROR(rf_check_apart(
        op, (struct rf_operand[]){{"dwte", dwte}, {"dwpe", dwpe}, {"scratch", scratch}}, 3,
        (struct rf_operand[]){{"dout", dout}, {"tokens", tokens}}, 2));
    if (rows == 0)
        return 0;

    bool vector = rf_pick_vector(channels, (struct rf_tensor[]){dwte, dwpe, dout}, 3);
    uint32_t row_items = (uint32_t)(vector ? channels / 4 : channels);
    uint32_t positions = dwpe.buffer ? (uint32_t)T : 0;
    uint32_t vocabulary = (uint32_t)(rf_tensor_count(dwte) / channels);
    RETURN_IF_ERROR(run_links(stream, tokens, scratch, (uint32_t)rows, vocabulary));
    struct {
        uint64_t dwte, dwpe, dout, tokens, next, has_previous;
        uint32_t rows, row_items, T, vocabulary, positions, first[1];
    } push = {.dwte = rf_address_of(dwte),
              .dwpe = rf_address_of(dwpe),
              .dout = rf_address_of(dout),
              .tokens = rf_address_of(tokens),
              .next = rf_address_of(scratch),
              .has_previous = rf_address_of(scratch) + 4ull * (uint64_t)rows,
              .rows = (uint32_t)rows,
              .row_items = row_items,
              .T = (uint32_t)T,
              .vocabulary = vocabulary,
              .positions = positions};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {.op = op, .push = &push, .push_bytes = sizeof(push)};
    rf_job_build(&job, device, &builds, vector, (struct rf_source[]){{dout}}, 1, push.first);
    rf_job_flat(&job, device, ((uint64_t)rows + positions) * row_items, RF_FLAT_LANES, 1);
    rf_job_reads(&job, dout);
    rf_job_reads(&job, tokens);
    rf_job_reads(&job, scratch);
    rf_job_writes(&job, dwte);
    rf_job_writes(&job, dwpe);
    return rf_job_run(stream, &job);
}
