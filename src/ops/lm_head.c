/* SPDX-License-Identifier: MIT
 *
 * The head of a language model in chunks of rows, so that logits never exist for all rows at once.
 * Consists of rf_matmul and rf_cross_entropy; has no shader of its own.
 */
#include "pick.h"

#include "../base/base.h"

#define ALIGNMENT 256 /* of the parts of the scratch */

static int64_t align_up(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int64_t rf_lm_head_scratch(int64_t chunk_rows, int64_t vocabulary, enum rf_dtype dtype)
{
    return align_up(chunk_rows * vocabulary * (int64_t)rf_dtype_bytes(dtype)) +
           align_up(chunk_rows * (int64_t)sizeof(float));
}

struct head {
    const struct rf_lm_head_args *args;
    int64_t rows, channels, vocabulary;
};

/* Rows [first, first + count) of (rows, columns); columns 0: a vector. */
static struct rf_tensor rows_of(struct rf_tensor t, int64_t first, int64_t count, int64_t columns)
{
    t.offset += (uint64_t)(first * (columns ? columns : 1)) * rf_dtype_bytes(t.dtype);
    t.shape = columns ? rf_shape2(count, columns) : rf_shape1(count);
    return t;
}

static int check_head(const char *op, struct head *h)
{
    const struct rf_lm_head_args *a = h->args;
    char text[96];
    RETURN_IF_ERROR(rf_check_typed(op, "w", a->w, -1));
    if (a->w.shape.ndim != 2 || rf_tensor_count(a->w) == 0)
        return rf_fail(RF_EINVAL, "%s: w is %s, expected (V, C)", op,
                       rf_tensor_text(a->w, text, sizeof(text)));
    h->vocabulary = a->w.shape.dim[0];
    h->channels = a->w.shape.dim[1];
    RETURN_IF_ERROR(rf_check_operand(op, "targets", a->targets, RF_I32, -1));
    h->rows = rf_tensor_count(a->targets);
    RETURN_IF_ERROR(rf_check_rows(op, "x", a->x, a->w.dtype, h->rows, h->channels));
    RETURN_IF_ERROR(rf_check_operand(op, "losses", a->losses, RF_F32, h->rows));
    RETURN_IF_ERROR(rf_check_tensor(op, "scratch", a->scratch, RF_U8, -1));
    if (a->dx.buffer) {
        RETURN_IF_ERROR(rf_check_rows(op, "dx", a->dx, a->x.dtype, h->rows, h->channels));
        RETURN_IF_ERROR(rf_check_in_place(op, "dx", a->dx, "x", a->x));
        RETURN_IF_ERROR(
            rf_check_apart(op, (struct rf_named_tensor[]){{"dx", a->dx}}, 1,
                           (struct rf_named_tensor[]){{"w", a->w}, {"targets", a->targets}}, 2));
    }
    if (a->dw.buffer)
        RETURN_IF_ERROR(rf_check_rows(op, "dw", a->dw, a->dw.dtype == RF_F32 ? RF_F32 : a->w.dtype,
                                      h->vocabulary, h->channels));
    return rf_check_apart(
        op,
        (struct rf_named_tensor[]){{"losses", a->losses}, {"scratch", a->scratch}, {"dw", a->dw}},
        3,
        (struct rf_named_tensor[]){
            {"x", a->x}, {"w", a->w}, {"targets", a->targets}, {"dx", a->dx}},
        4);
}

/* The maximum number of rows whose logits fit in the scratch. */
static int chunk_of(const char *op, const struct head *h, int64_t *out)
{
    const struct rf_lm_head_args *a = h->args;
    int64_t bytes = rf_tensor_count(a->scratch), low = 0, high = h->rows;
    if (a->scratch.offset % 4 != 0)
        return rf_fail(RF_EINVAL, "%s: scratch must start at a multiple of 4 bytes", op);
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        bool fits = middle * h->vocabulary <= INT32_MAX &&
                    rf_lm_head_scratch(middle, h->vocabulary, a->w.dtype) <= bytes;
        low = fits ? middle : low;
        high = fits ? high : middle - 1;
    }
    if (low == 0)
        return rf_fail(RF_EINVAL, "%s: scratch has %lld bytes; one row needs %lld", op,
                       (long long)bytes,
                       (long long)rf_lm_head_scratch(1, h->vocabulary, a->w.dtype));
    *out = low;
    return 0;
}

static int run_chunk(struct rf_stream *stream, const struct head *h, int64_t first, int64_t count)
{
    const struct rf_lm_head_args *a = h->args;
    const struct rf_tensor none = {0}, x = rows_of(a->x, first, count, h->channels);
    struct rf_tensor logits = a->scratch, lse = a->scratch;
    logits.dtype = a->w.dtype;
    logits.shape = rf_shape2(count, h->vocabulary);
    lse.offset += (uint64_t)align_up((int64_t)rf_tensor_bytes(logits));
    lse.dtype = RF_F32;
    lse.shape = rf_shape1(count);
    const struct rf_cross_entropy_args loss = {.logits = logits,
                                               .targets = rows_of(a->targets, first, count, 0),
                                               .losses = rows_of(a->losses, first, count, 0),
                                               .lse = lse,
                                               .dlogits =
                                                   a->dx.buffer || a->dw.buffer ? logits : none,
                                               .opts = a->opts};
    RETURN_IF_ERROR(
        rf_matmul(stream, logits, x, a->w, &(struct rf_matmul_opts){.transpose_b = true}));
    RETURN_IF_ERROR(rf_cross_entropy(stream, &loss));
    if (a->dw.buffer) /* before dx, which may overwrite x */
        RETURN_IF_ERROR(
            rf_matmul(stream, a->dw, logits, x,
                      &(struct rf_matmul_opts){.transpose_a = true, .accumulate = true}));
    if (!a->dx.buffer)
        return 0;
    return rf_matmul(stream, rows_of(a->dx, first, count, h->channels), logits, a->w, NULL);
}

int rf_lm_head(struct rf_stream *stream, const struct rf_lm_head_args *args)
{
    static const char op[] = "lm_head";
    struct head h = {.args = args};
    int64_t chunk = 0;
    RETURN_IF_ERROR(check_head(op, &h));
    if (h.rows == 0)
        return 0;
    RETURN_IF_ERROR(chunk_of(op, &h, &chunk));
    for (int64_t first = 0; first < h.rows; first += chunk)
        RETURN_IF_ERROR(
            run_chunk(stream, &h, first, h.rows - first < chunk ? h.rows - first : chunk));
    return 0;
}
