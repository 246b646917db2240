/* SPDX-License-Identifier: MIT
 *
 * Reductions of a flat buffer by a fixed tree: chunks of at most 1024 elements (reduce.comp), then
 * pairwise over the chunk index, 64 to 1 per level (reduce_fold.comp). On GPUs four lanes share a
 * chunk (reduce_team.comp), with the same bits.
 */
#include "pick.h"

#include <math.h>

#include "../base/base.h"
#include "shaders/push/reduce.h"
#include "shaders/push/reduce_fold.h"

#define CHUNK 1024 /* of reduce.comp */
#define TEAM 4     /* lanes per chunk in reduce_team.comp */
#define FOLD 64    /* of reduce_fold.comp */

/* A new kind is a row, and a case of reduce.comp. */
struct kind {
    const char *op;
    struct rf_builds builds, team;
    struct rf_build fold;
    float empty;
    bool multiplies; /* multiplies elements before adding them */
};
static const struct kind sum = {
    "sum",
    {.any = RF_BUILD_TYPES(reduce_sum), .any_views = RF_BUILD(reduce_sum_views)},
    {.any = RF_BUILD_TYPES(reduce_sum_team)},
    RF_BUILD(reduce_fold),
    0};
static const struct kind squares = {/* squares.c adds them */
                                    .op = "square_chunks",
                                    .builds = {.any = RF_BUILD_TYPES(reduce_squares),
                                               .any_views = RF_BUILD(reduce_squares_views)},
                                    .team = {.any = RF_BUILD_TYPES(reduce_squares_team)},
                                    .multiplies = true};
static const struct kind most = {
    "max",
    {.any = RF_BUILD_TYPES(reduce_max), .any_views = RF_BUILD(reduce_max_views)},
    {.any = RF_BUILD_TYPES(reduce_max_team)},
    RF_BUILD(reduce_fold_most),
    -INFINITY};
static const struct kind nonfinite = {
    "any_nonfinite",
    {.any = RF_BUILD_TYPES(reduce_nonfinite), .any_views = RF_BUILD(reduce_nonfinite_views)},
    {.any = RF_BUILD_TYPES(reduce_nonfinite_team)},
    RF_BUILD(reduce_fold_most),
    0};

static int64_t chunk_count(int64_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

/* First level: one value per chunk to out[0..chunks). table may have no buffer. */
static int run_chunks(struct rf_stream *stream, const struct kind *kind, struct rf_tensor out,
                      struct rf_tensor x, struct rf_tensor table, int64_t chunks)
{
    struct rf_push_reduce push = {.out_ = rf_address_of(out),
                                  .x = rf_address_of(x),
                                  .table = rf_address_of(table),
                                  .chunks = (uint32_t)chunks,
                                  .count = (uint32_t)rf_tensor_count(x)};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = kind->op, .type = x.dtype, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    const bool team = rf_device_teams(device);
    rf_job_build(&job, device, team ? &kind->team : &kind->builds, false, (struct rf_source[]){{x}},
                 1, push.first);
    if (team)
        rf_job_flat(&job, device, TEAM * (uint64_t)chunks, RF_TEAM_LANES, 1);
    else
        rf_job_flat(&job, device, (uint64_t)chunks, rf_pick_row_lanes(device), 1);
    job.work.flops = (uint64_t)rf_tensor_count(x) * (kind->multiplies ? 2 : 1);
    rf_job_reads(&job, x);
    rf_job_reads(&job, table);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}

static int run_fold(struct rf_stream *stream, const struct kind *kind, struct rf_tensor out,
                    struct rf_tensor x, int64_t count, int64_t results)
{
    struct rf_push_reduce_fold push = {.out_ = rf_address_of(out),
                                       .x = rf_address_of(x),
                                       .count = (uint32_t)count,
                                       .results = (uint32_t)results};
    struct rf_device *device = rf_stream_device(stream);
    struct rf_job job = {
        .op = kind->op, .shader = kind->fold, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_flat(&job, device, (uint64_t)results, rf_pick_row_lanes(device), 1);
    rf_job_reads(&job, x);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}

static struct rf_tensor part_of(struct rf_tensor scratch, int64_t first, int64_t count)
{
    scratch.offset += (uint64_t)first * sizeof(float);
    scratch.shape = rf_shape1(count);
    return scratch;
}

/* Folds the first `count` values of the scratch until one is left, which is written to out. Each
 * level has its own part of the scratch. */
static int run_levels(struct rf_stream *stream, const struct kind *kind, struct rf_tensor out,
                      int64_t count, struct rf_tensor scratch)
{
    struct rf_tensor level = part_of(scratch, 0, count);
    int64_t used = count;
    do {
        int64_t results = (count + FOLD - 1) / FOLD;
        struct rf_tensor next = results == 1 ? out : part_of(scratch, used, results);
        RETURN_IF_ERROR(run_fold(stream, kind, next, level, count, results));
        level = next;
        used += results;
        count = results;
    } while (count > 1);
    return 0;
}

/* Chunks, then levels. */
static int run_tree(struct rf_stream *stream, const struct kind *kind, struct rf_tensor out,
                    struct rf_tensor x, int64_t chunks, struct rf_tensor scratch)
{
    const struct rf_tensor whole = {0};
    if (chunks == 1)
        return run_chunks(stream, kind, out, x, whole, 1);
    RETURN_IF_ERROR(run_chunks(stream, kind, part_of(scratch, 0, chunks), x, whole, chunks));
    return run_levels(stream, kind, out, chunks, scratch);
}

int64_t rf_sum_scratch(int64_t count)
{
    return 2 * chunk_count(count > 0 ? count : 1);
}

/* Reduces a whole buffer. */
static int run_whole(struct rf_stream *stream, const struct kind *kind, struct rf_tensor out,
                     struct rf_tensor x, struct rf_tensor scratch)
{
    const char *op = kind->op;
    const int64_t count = rf_tensor_count(x);
    RETURN_IF_ERROR(rf_check_typed(op, "x", x, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "out", out, RF_F32, 1));
    RETURN_IF_ERROR(rf_check_operand(op, "scratch", scratch, RF_F32, rf_sum_scratch(count)));
    RETURN_IF_ERROR(rf_check_apart(op,
                                   (struct rf_named_tensor[]){{"out", out}, {"scratch", scratch}},
                                   2, (struct rf_named_tensor[]){{"x", x}}, 1));
    if (count == 0)
        return rf_fill(stream, out, kind->empty);
    return run_tree(stream, kind, out, x, chunk_count(count), scratch);
}

int rf_sum(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
           struct rf_tensor scratch)
{
    return run_whole(stream, &sum, out, x, scratch);
}

int rf_max(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
           struct rf_tensor scratch)
{
    return run_whole(stream, &most, out, x, scratch);
}

int rf_any_nonfinite(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                     struct rf_tensor scratch)
{
    return run_whole(stream, &nonfinite, out, x, scratch);
}

int rf_square_chunks(struct rf_stream *stream, struct rf_tensor sums, struct rf_tensor flat,
                     struct rf_tensor chunks)
{
    static const char op[] = "square_chunks";
    RETURN_IF_ERROR(rf_check_typed(op, "flat", flat, -1));
    RETURN_IF_ERROR(rf_check_rows(op, "chunks", chunks, RF_I32, -1, 2));
    const int64_t count = rf_tensor_count(chunks) / 2;
    RETURN_IF_ERROR(rf_check_operand(op, "sums", sums, RF_F32, count));
    RETURN_IF_ERROR(rf_check_apart(op, (struct rf_named_tensor[]){{"sums", sums}}, 1,
                                   (struct rf_named_tensor[]){{"flat", flat}, {"chunks", chunks}},
                                   2));
    return count == 0 ? 0 : run_chunks(stream, &squares, sums, flat, chunks, count);
}
