/* SPDX-License-Identifier: MIT
 *
 * Exact sums of sums of squares: rows of words, one per workgroup (squares_add.comp), which are
 * added to one row and rounded to f32 (squares_round.comp).
 */
#include "pick.h"

#include "../base/base.h"
#include "shaders/push/squares_add.h"
#include "shaders/push/squares_round.h"

#define LANES 64   /* minimum of squares_add.comp: more than the words of a row */
#define COPIES 8   /* of a workgroup's row on GPUs */
#define AT_ONCE 8  /* reads of a lane on GPUs */
#define EACH 4096  /* sums per workgroup: all of them fit in a word */
#define ROWS 65000 /* rows that one workgroup adds: iterations of a loop on Mesa's CPU driver */

static const struct rf_build add = RF_BUILD(squares_add), add_rows = RF_BUILD(squares_add_rows);

static int64_t row_count(int64_t count)
{
    return count > EACH ? (count + EACH - 1) / EACH : 1;
}

int64_t rf_add_squares_scratch(int64_t count)
{
    return RF_EXACT_WORDS * row_count(count);
}

int64_t rf_sum_squares_scratch(int64_t chunks)
{
    return chunks + RF_EXACT_WORDS + rf_add_squares_scratch(chunks);
}

/* Adds `count` sums, or rows, to `results` rows. */
static int run_add(struct rf_stream *stream, bool from_rows, struct rf_tensor out,
                   struct rf_tensor x, int64_t count, int64_t each, int64_t results)
{
    struct rf_push_squares_add push = {.out_ = rf_address_of(out),
                                       .x = rf_address_of(x),
                                       .count = (uint32_t)count,
                                       .each = (uint32_t)each,
                                       .results = (uint32_t)results};
    struct rf_job job = {.op = "add_squares",
                         .shader = from_rows ? add_rows : add,
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    struct rf_device *device = rf_stream_device(stream);
    const uint32_t lanes = rf_device_teams(device) ? RF_TEAM_LANES : LANES;
    rf_job_flat(&job, device, (uint64_t)results * lanes, lanes, 1);
    if (lanes > LANES) {
        rf_job_spec(&job, 1, from_rows ? lanes / LANES : COPIES);
        rf_job_spec(&job, 2, AT_ONCE);
    }
    rf_job_reads(&job, x);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}

int rf_add_squares(struct rf_stream *stream, struct rf_tensor exact, struct rf_tensor sums,
                   struct rf_tensor scratch)
{
    static const char op[] = "add_squares";
    const int64_t count = rf_tensor_count(sums), rows = row_count(count);
    RETURN_IF_ERROR(rf_check_operand(op, "exact", exact, RF_I32, RF_EXACT_WORDS));
    RETURN_IF_ERROR(rf_check_operand(op, "sums", sums, RF_F32, -1));
    RETURN_IF_ERROR(
        rf_check_operand(op, "scratch", scratch, RF_I32, rf_add_squares_scratch(count)));
    RETURN_IF_ERROR(
        rf_check_apart(op, (struct rf_named_tensor[]){{"exact", exact}, {"scratch", scratch}}, 2,
                       (struct rf_named_tensor[]){{"sums", sums}}, 1));
    if (count == 0)
        return rf_stream_fill(stream, exact.buffer, exact.offset, rf_tensor_bytes(exact), 0);
    if (rows == 1)
        return run_add(stream, false, exact, sums, count, EACH, 1);
    if (rows > ROWS)
        return rf_fail(RF_ENOTSUP, "%s: %lld sums are too many; add at most %lld", op,
                       (long long)count, (long long)EACH * ROWS);
    RETURN_IF_ERROR(run_add(stream, false, scratch, sums, count, EACH, rows));
    return run_add(stream, true, exact, scratch, rows, rows, 1);
}

int rf_round_squares(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor exact)
{
    static const char op[] = "round_squares";
    RETURN_IF_ERROR(rf_check_operand(op, "out", out, RF_F32, 1));
    RETURN_IF_ERROR(rf_check_operand(op, "exact", exact, RF_I32, RF_EXACT_WORDS));
    RETURN_IF_ERROR(rf_check_apart(op, (struct rf_named_tensor[]){{"out", out}}, 1,
                                   (struct rf_named_tensor[]){{"exact", exact}}, 1));
    struct rf_push_squares_round push = {.out_ = rf_address_of(out), .x = rf_address_of(exact)};
    struct rf_job job = {.op = op,
                         .shader = RF_BUILD(squares_round),
                         .push = &push,
                         .push_bytes = RF_PUSH_BYTES(push)};
    rf_job_flat(&job, rf_stream_device(stream), 1, 1, 1);
    rf_job_reads(&job, exact);
    rf_job_writes(&job, out);
    return rf_job_run(stream, &job);
}

static struct rf_tensor words_of(struct rf_tensor scratch, int64_t first, int64_t count)
{
    scratch = rf_elements(scratch, first, count);
    scratch.dtype = RF_I32;
    return scratch;
}

int rf_sum_squares(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor flat,
                   struct rf_tensor chunks, struct rf_tensor scratch)
{
    static const char op[] = "sum_squares";
    RETURN_IF_ERROR(rf_check_typed(op, "flat", flat, -1));
    RETURN_IF_ERROR(rf_check_operand(op, "out", out, RF_F32, 1));
    RETURN_IF_ERROR(rf_check_rows(op, "chunks", chunks, RF_I32, -1, 2));
    const int64_t count = rf_tensor_count(chunks) / 2;
    RETURN_IF_ERROR(
        rf_check_operand(op, "scratch", scratch, RF_F32, rf_sum_squares_scratch(count)));
    RETURN_IF_ERROR(
        rf_check_apart(op, (struct rf_named_tensor[]){{"out", out}, {"scratch", scratch}}, 2,
                       (struct rf_named_tensor[]){{"flat", flat}, {"chunks", chunks}}, 2));
    const struct rf_tensor sums = rf_elements(scratch, 0, count);
    const struct rf_tensor exact = words_of(scratch, count, RF_EXACT_WORDS);
    const struct rf_tensor rows =
        words_of(scratch, count + RF_EXACT_WORDS, rf_add_squares_scratch(count));
    RETURN_IF_ERROR(rf_square_chunks(stream, sums, flat, chunks));
    RETURN_IF_ERROR(rf_add_squares(stream, exact, sums, rows));
    return rf_round_squares(stream, out, exact);
}
