/* SPDX-License-Identifier: MIT
 *
 * The products of adapters; see lora.h. A map has one A for all of its segments, so x and dx are
 * read once. Nothing is kept from forward to backward: u = dropout(x) A' and v = scale dy B are
 * recomputed when needed, which costs little for a small rank.
 */
#include "lora.h"

/* Tensors of a call, at the end of the scratch. */
struct work {
    struct rf_tensor low; /* (n,R): u or v */
    /* (n,K) with dropout: dropout(x), or its gradient; or the gradient before an activation. In the
     * type of dx. */
    struct rf_tensor wide;
    int64_t rank, all, in, out; /* r, R, K and N of this rank */
};

static int64_t parts_of(const struct model_layer *m, bool split)
{
    return split ? m->part.ranks : 1;
}

static uint64_t low_bytes(const struct model_layer *m, const struct lora *lora)
{
    return rf_suballocate_bytes(rf_shape2(m->rows, (int64_t)lora->count * lora->rank), m->dtype);
}

static bool has_wide(const struct lora *lora)
{
    return lora->dropout > 0 || lora->activated;
}

static uint64_t wide_bytes(const struct model_layer *m, const struct lora *lora)
{
    const int64_t in = lora->in / parts_of(m, lora->summed);
    return has_wide(lora) ? rf_suballocate_bytes(rf_shape2(m->rows, in), RF_F32) : 0;
}

uint64_t lora_scratch(const struct model_layer *m, const struct lora *lora)
{
    return lora->rank ? low_bytes(m, lora) + wide_bytes(m, lora) : 0;
}

static int open_work(const struct model_layer *m, const struct lora *lora, enum rf_dtype wide,
                     struct work *w)
{
    const struct rf_tensor scratch = m->ctx->scratch;
    uint64_t at = ((uint64_t)rf_tensor_count(scratch) - lora_scratch(m, lora)) / 256 * 256;
    *w = (struct work){.rank = lora->rank,
                       .all = (int64_t)lora->count * lora->rank,
                       .in = lora->in / parts_of(m, lora->summed),
                       .out = lora->out / parts_of(m, !lora->summed)};
    RETURN_IF_FAILED(rf_suballocate(scratch, &at, rf_shape2(m->rows, w->all), m->dtype, &w->low));
    return has_wide(lora) ? rf_suballocate(scratch, &at, rf_shape2(m->rows, w->in), wide, &w->wide)
                          : 0;
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* An element's random number depends on its index in the whole batch, so the mask does not depend
 * on the division of the batch. Ranks that share a sequence, or the columns of x, have their own
 * masks. */
static int drop(const struct model_layer *m, const struct lora *lora, struct rf_tensor out,
                struct rf_tensor x, int64_t columns)
{
    const struct rf_ctx *ctx = m->ctx;
    const uint64_t rank = (uint64_t)ctx->context.rank + (lora->summed ? (uint64_t)m->part.rank : 0);
    const struct rf_random random = {
        .seed = ctx->seed + 0x9e3779b97f4a7c15u * ((uint64_t)ctx->step + 1),
        .site = (uint64_t)lora->site << 32 | rank,
        .first = (uint64_t)ctx->micro_batch * (uint64_t)m->rows * (uint64_t)columns};
    return rf_dropout(ctx->stream, out, x, lora->dropout, &random);
}

static bool drops(const struct model_layer *m, const struct lora *lora)
{
    return lora->dropout > 0 && !m->ctx->evaluate;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Elements of t from `first` on. */
static struct rf_tensor from(struct rf_tensor t, int64_t first)
{
    const int64_t count = rf_tensor_count(t);
    t.offset += (uint64_t)first * rf_dtype_bytes(t.dtype);
    t.shape = rf_shape1(count - first);
    return t;
}

/* Segment k: its first column of dy and first row of B, and the number of both. */
struct columns {
    int64_t first, b_first, count;
};
static struct columns segment_of(const struct model_layer *m, const struct lora *lora, int k)
{
    const int64_t parts = parts_of(m, !lora->summed);
    struct columns c = {lora->segment[k].first / parts, 0, lora->segment[k].rows / parts};
    for (int i = 0; i < k; i++)
        c.b_first += lora->segment[i].rows / parts;
    return c;
}

/* u = dropout(x) A'. *x becomes dropout(x). */
static int reduce(const struct model_layer *m, const struct lora *lora, const struct work *w,
                  struct rf_tensor *x)
{
    if (drops(m, lora)) {
        RETURN_IF_FAILED(drop(m, lora, w->wide, *x, w->in));
        *x = w->wide;
    }
    return model_matmul(m->ctx, w->low, *x, m->ctx->params[lora->a],
                        &(struct rf_matmul_opts){.transpose_b = true});
}

int lora_forward(const struct model_layer *m, const struct lora *lora, struct rf_tensor out,
                 struct rf_tensor in)
{
    const struct rf_tensor *p = m->ctx->params;
    struct work w;
    if (!lora->rank)
        return 0;
    RETURN_IF_FAILED(open_work(m, lora, m->dtype, &w));
    RETURN_IF_FAILED(reduce(m, lora, &w, &in));
    for (int k = 0; k < lora->count; k++) {
        const struct columns c = segment_of(m, lora, k);
        RETURN_IF_FAILED(model_matmul(m->ctx, from(out, c.first), from(w.low, k * w.rank),
                                      from(p[lora->b], c.b_first * w.rank),
                                      &(struct rf_matmul_opts){.transpose_b = true,
                                                               .accumulate = true,
                                                               .alpha = lora->scale,
                                                               .m = m->rows,
                                                               .n = c.count,
                                                               .k = w.rank,
                                                               .a_layout = {.row = w.all},
                                                               .out_layout = {.row = w.out}}));
    }
    return 0;
}

/* v = scale dy B. */
static int reduce_back(const struct model_layer *m, const struct lora *lora, const struct work *w,
                       struct rf_tensor dout)
{
    const struct rf_tensor b = m->ctx->params[lora->b];
    for (int k = 0; k < lora->count; k++) {
        const struct columns c = segment_of(m, lora, k);
        RETURN_IF_FAILED(model_matmul(m->ctx, from(w->low, k * w->rank), from(dout, c.first),
                                      from(b, c.b_first * w->rank),
                                      &(struct rf_matmul_opts){.alpha = lora->scale,
                                                               .m = m->rows,
                                                               .n = w->rank,
                                                               .k = c.count,
                                                               .a_layout = {.row = w->out},
                                                               .out_layout = {.row = w->all}}));
    }
    return 0;
}

/* w->wide = the gradient of x. */
static int widen_back(const struct model_layer *m, const struct lora *lora, const struct work *w,
                      struct rf_tensor dout)
{
    RETURN_IF_FAILED(reduce_back(m, lora, w, dout));
    RETURN_IF_FAILED(model_matmul(m->ctx, w->wide, w->low, m->ctx->params[lora->a], NULL));
    return drops(m, lora) ? drop(m, lora, w->wide, w->wide, w->in) : 0;
}

int lora_back(const struct model_layer *m, const struct lora *lora, struct rf_tensor din,
              struct rf_tensor dout)
{
    struct work w;
    if (!lora->rank)
        return 0;
    RETURN_IF_FAILED(open_work(m, lora, din.dtype, &w));
    if (drops(m, lora)) {
        RETURN_IF_FAILED(widen_back(m, lora, &w, dout));
        return rf_add(m->ctx->stream, din, din, w.wide);
    }
    RETURN_IF_FAILED(reduce_back(m, lora, &w, dout));
    return model_matmul(m->ctx, din, w.low, m->ctx->params[lora->a],
                        &(struct rf_matmul_opts){.accumulate = true});
}

int lora_back_apart(const struct model_layer *m, const struct lora *lora, struct rf_tensor dout,
                    struct rf_tensor *out)
{
    struct work w;
    RETURN_IF_FAILED(open_work(m, lora, m->dtype, &w));
    *out = w.wide;
    return widen_back(m, lora, &w, dout);
}

/* ---- gradients of the parameters ------------------------------------------------------------- */

bool lora_wants(const struct model_layer *m, const struct lora *lora)
{
    return lora->rank && (model_wants(m->ctx, lora->a) || model_wants(m->ctx, lora->b));
}

static int shared_param(const struct lora *lora)
{
    return lora->summed ? lora->b : lora->a;
}

int64_t lora_shared(const struct model_layer *m, const struct lora *lora)
{
    int64_t rows = 0;
    if (!lora->rank || model_alone(m) || m->part.sequence)
        return 0;
    for (int k = 0; k < lora->count; k++)
        rows += lora->segment[k].rows;
    return lora->summed ? rows * lora->rank : (int64_t)lora->count * lora->rank * lora->in;
}

/* Where this rank's part of the gradient of a parameter goes. */
struct target {
    struct rf_tensor grad;
    bool accumulate;
};
static struct target target_of(const struct model_layer *m, const struct lora *lora, int param,
                               struct rf_tensor sums)
{
    const bool shared = param == shared_param(lora) && lora_shared(m, lora) > 0;
    if (!shared)
        return (struct target){m->ctx->grads[param], !m->ctx->overwrite_grad[param]};
    sums.shape = m->ctx->grads[param].shape;
    return (struct target){sums, false};
}

int lora_take_shared(const struct model_layer *m, const struct lora *lora, struct rf_tensor sums)
{
    const int param = shared_param(lora);
    const struct rf_tensor grad = m->ctx->grads[param];
    if (!model_wants(m->ctx, param))
        return 0;
    sums.shape = grad.shape;
    return m->ctx->overwrite_grad[param] ? rf_copy(m->ctx->stream, grad, sums)
                                         : rf_add(m->ctx->stream, grad, grad, sums);
}

/* dB += scale dy' u, for each segment. */
static int b_grads(const struct model_layer *m, const struct lora *lora, const struct work *w,
                   struct rf_tensor dout, struct rf_tensor sums)
{
    const struct rf_ctx *ctx = m->ctx;
    const struct target to = target_of(m, lora, lora->b, sums);
    for (int k = 0; k < lora->count; k++) {
        const struct columns c = segment_of(m, lora, k);
        RETURN_IF_FAILED(model_matmul(ctx, from(to.grad, c.b_first * w->rank), from(dout, c.first),
                                      from(w->low, k * w->rank),
                                      &(struct rf_matmul_opts){.transpose_a = true,
                                                               .accumulate = to.accumulate,
                                                               .alpha = lora->scale,
                                                               .m = c.count,
                                                               .n = w->rank,
                                                               .k = m->rows,
                                                               .a_layout = {.row = w->out},
                                                               .b_layout = {.row = w->all}}));
    }
    return 0;
}

int lora_grads(const struct model_layer *m, const struct lora *lora, struct rf_tensor dout,
               struct rf_tensor in, struct rf_tensor sums)
{
    const struct rf_ctx *ctx = m->ctx;
    struct work w;
    if (!lora_wants(m, lora))
        return 0;
    RETURN_IF_FAILED(open_work(m, lora, m->dtype, &w));
    RETURN_IF_FAILED(MODEL_RECOMPUTED(ctx, reduce(m, lora, &w, &in)));
    if (model_wants(ctx, lora->b))
        RETURN_IF_FAILED(b_grads(m, lora, &w, dout, sums));
    if (!model_wants(ctx, lora->a))
        return 0;
    RETURN_IF_FAILED(MODEL_RECOMPUTED(ctx, reduce_back(m, lora, &w, dout)));
    const struct target to = target_of(m, lora, lora->a, sums);
    return model_matmul(ctx, to.grad, w.low, in,
                        &(struct rf_matmul_opts){.transpose_a = true, .accumulate = to.accumulate});
}
