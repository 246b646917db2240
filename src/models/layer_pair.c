/* SPDX-License-Identifier: MIT
 *
 * Reversible layers (Gomez et al. 2017): the stream is a pair (x1, x2), as rows of one tensor, x1
 * first. With the two branches F and G of a layer, y1 = x1 + F(x2) and y2 = x2 + G(y1). The inverse
 * is x2 = y2 - G(y1) and x1 = y1 - F(x2). In fixed point (rf_fixed_add) sums are exact, so the
 * inverse has the bits of x1 and x2. Two further blocks make the pair, and its mean.
 */
#include "layer_call.h"

static bool is_fixed(const struct layer *l)
{
    return l->g->reversible == RF_REVERSIBLE_FIXED;
}

static struct rf_tensor half_of(struct rf_tensor pair, int half, bool fixed)
{
    struct rf_tensor out = pair;
    out.shape.dim[0] /= 2;
    out.offset += (uint64_t)half * rf_tensor_bytes(out);
    out.dtype = fixed ? RF_I32 : pair.dtype;
    return out;
}

/* Gradients are f32, also those of streams in fixed point. */
struct rf_tensor layer_pair_grad(struct rf_tensor pair, int half)
{
    return half_of(pair, half, false);
}

int layer_branch(const struct layer *l, int op)
{
    int branch = 0;
    for (int k = 0; k < op; k++)
        branch += layer_kind_at(l, k) == LAYER_ADD;
    return branch;
}

static int read(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor half)
{
    return half.dtype == RF_I32 ? rf_fixed_read(stream, out, half) : rf_copy(stream, out, half);
}

int layer_pair_take(struct layer *l, int op)
{
    const int branch = layer_branch(l, op);
    return read(l->m.ctx->stream, l->taken[branch],
                branch == 0 ? half_of(l->x, 1, is_fixed(l)) : half_of(l->out, 0, is_fixed(l)));
}

int layer_pair_add(struct layer *l, int op)
{
    struct rf_stream *stream = l->m.ctx->stream;
    const int half = layer_branch(l, op);
    const bool row = layer_kind_at(l, op - 1) == LAYER_ROW_LINEAR;
    const struct rf_tensor term = row ? l->op[op - 1].out : l->w.post;
    const struct rf_tensor in = half_of(l->x, half, is_fixed(l));
    const struct rf_tensor out = half_of(l->out, half, is_fixed(l));
    if (is_fixed(l))
        return l->inverts ? rf_fixed_add(stream, in, out, term, true)
                          : rf_fixed_add(stream, out, in, term, false);
    if (!l->inverts)
        return rf_add(stream, out, in, term);
    RETURN_IF_FAILED(rf_scale(stream, in, term, -1));
    return rf_add(stream, in, in, out);
}

/* In generation a pair is (n,2C) for its blocks' caller, and has the same elements. */
static struct rf_tensor decode_half(struct rf_tensor pair, int half, bool fixed)
{
    pair.shape.dim[0] *= 2;
    pair.shape.dim[1] /= 2;
    return half_of(pair, half, fixed);
}

int layer_pair_decode_take(const struct layer_decode *d, int branch, struct rf_tensor out)
{
    const bool fixed = d->g->reversible == RF_REVERSIBLE_FIXED;
    return read(d->call->stream, out,
                branch == 0 ? decode_half(d->in, 1, fixed) : decode_half(d->out, 0, fixed));
}

int layer_pair_decode_add(const struct layer_decode *d, int branch, struct rf_tensor term)
{
    const bool fixed = d->g->reversible == RF_REVERSIBLE_FIXED;
    const struct rf_tensor in = decode_half(d->in, branch, fixed);
    const struct rf_tensor out = decode_half(d->out, branch, fixed);
    return fixed ? rf_fixed_add(d->call->stream, out, in, term, false)
                 : rf_add(d->call->stream, out, in, term);
}

int layer_pair_begin(const struct layer *l, int op)
{
    const int half = 1 - layer_branch(l, op);
    return rf_copy(l->m.ctx->stream, layer_pair_grad(l->din, half), layer_pair_grad(l->dout, half));
}

const char *layer_pair_text(enum rf_reversible kind)
{
    static const char *const texts[] = {"", " reversible=f32", " reversible=fixed"};
    return texts[kind];
}

int layer_pair_check(const struct layer_config *g)
{
    int branches = 0;
    if ((unsigned)g->reversible > RF_REVERSIBLE_FIXED)
        return rf_fail(RF_EINVAL, "reversible %d: use one of enum rf_reversible",
                       (int)g->reversible);
    for (const struct layer_op *op = g->ops; op->kind; op++)
        branches += op->kind == LAYER_ADD;
    if (branches != 2)
        return rf_fail(RF_EINVAL,
                       "a reversible layer has two sums with the stream, and this one has %d; use "
                       "a layer of two branches",
                       branches);
    if (g->residual != RF_F32)
        return rf_fail(RF_EINVAL, "a reversible layer needs a residual stream of f32, because "
                                  "16 bits lose what the inverse needs; use f32");
    return 0;
}

/* ---- the ends of the pair -------------------------------------------------------------------- */

/* The blocks' self is a struct layer_config. */
static struct rf_tensor half_at(const void *self, struct rf_tensor pair, int half)
{
    return half_of(pair, half,
                   ((const struct layer_config *)self)->reversible == RF_REVERSIBLE_FIXED);
}

static int split_forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    for (int k = 0; k < 2; k++) {
        const struct rf_tensor half = half_at(self, out, k);
        RETURN_IF_FAILED(half.dtype == RF_I32 ? rf_fixed_write(ctx->stream, half, in)
                                              : rf_copy(ctx->stream, half, in));
    }
    return 0;
}

static int split_back(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor dout,
                      struct rf_tensor din)
{
    (void)self, (void)in;
    return ctx->din_unused
               ? 0
               : rf_add(ctx->stream, din, layer_pair_grad(dout, 0), layer_pair_grad(dout, 1));
}

static int join_forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    struct rf_tensor other;
    uint64_t at = 0;
    RETURN_IF_FAILED(rf_suballocate(ctx->scratch, &at, out.shape, RF_F32, &other));
    RETURN_IF_FAILED(read(ctx->stream, out, half_at(self, in, 0)));
    RETURN_IF_FAILED(read(ctx->stream, other, half_at(self, in, 1)));
    RETURN_IF_FAILED(rf_add(ctx->stream, out, out, other));
    return rf_scale(ctx->stream, out, out, 0.5f);
}

static int join_back(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor dout,
                     struct rf_tensor din)
{
    (void)self, (void)in;
    for (int k = 0; k < 2 && !ctx->din_unused; k++)
        RETURN_IF_FAILED(rf_scale(ctx->stream, layer_pair_grad(din, k), dout, 0.5f));
    return 0;
}

static int no_weights(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor dout)
{
    (void)ctx, (void)self, (void)in, (void)dout;
    return 0;
}

static int split_sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    (void)seq;
    *out = (struct rf_block_sizes){
        .out = rf_shape2(2 * rows, ((const struct layer_config *)self)->channels)};
    return 0;
}

static int join_sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct rf_shape shape = rf_shape2(rows, ((const struct layer_config *)self)->channels);
    (void)seq;
    *out = (struct rf_block_sizes){.out = shape, .scratch = rf_suballocate_bytes(shape, RF_F32)};
    return 0;
}

static int64_t own_rows(const struct rf_tensor_part *part, int64_t rows)
{
    return part->sequence ? rows / part->ranks : rows;
}

static int split_tensor(const void *self, const struct rf_tensor_part *part, int64_t rows,
                        int64_t seq, struct rf_block_sizes *out)
{
    return split_sizes(self, own_rows(part, rows), seq, out);
}

static int join_tensor(const void *self, const struct rf_tensor_part *part, int64_t rows,
                       int64_t seq, struct rf_block_sizes *out)
{
    return join_sizes(self, own_rows(part, rows), seq, out);
}

static int split_context(const void *self, const struct rf_context_part *part, int64_t rows,
                         int64_t seq, struct rf_block_sizes *out)
{
    (void)part;
    return split_sizes(self, rows, seq, out);
}

static int join_context(const void *self, const struct rf_context_part *part, int64_t rows,
                        int64_t seq, struct rf_block_sizes *out)
{
    (void)part;
    return join_sizes(self, rows, seq, out);
}

static int split_decode_sizes(const void *self, const struct rf_decode_shape *shape,
                              struct rf_decode_sizes *out)
{
    const struct layer_config *g = self;
    *out = (struct rf_decode_sizes){.out = rf_shape2(shape->rows, 2 * g->channels)};
    return 0;
}

static int split_decode(const struct rf_decode *call, void *self, struct rf_tensor in,
                        struct rf_tensor out)
{
    struct rf_ctx ctx = {.stream = call->stream};
    out.shape = rf_shape2(2 * in.shape.dim[0], in.shape.dim[1]);
    return split_forward(&ctx, self, in, out);
}

static int join_decode_sizes(const void *self, const struct rf_decode_shape *shape,
                             struct rf_decode_sizes *out)
{
    struct rf_block_sizes sizes;
    RETURN_IF_FAILED(join_sizes(self, shape->rows, 1, &sizes));
    *out = (struct rf_decode_sizes){.scratch = sizes.scratch, .out = sizes.out};
    return 0;
}

static int join_decode(const struct rf_decode *call, void *self, struct rf_tensor in,
                       struct rf_tensor out)
{
    struct rf_ctx ctx = {.stream = call->stream, .scratch = call->scratch};
    in.shape = rf_shape2(2 * out.shape.dim[0], out.shape.dim[1]);
    return join_forward(&ctx, self, in, out);
}

static const struct rf_decode_ops split_decode_ops = {.sizes = split_decode_sizes,
                                                      .decode = split_decode};
static const struct rf_decode_ops join_decode_ops = {.sizes = join_decode_sizes,
                                                     .decode = join_decode};
const struct rf_block_ops layer_split_ops = {.forward = split_forward,
                                             .backward_input = split_back,
                                             .backward_weight = no_weights,
                                             .sizes = split_sizes,
                                             .tensor_sizes = split_tensor,
                                             .context_sizes = split_context,
                                             .decode = &split_decode_ops};
const struct rf_block_ops layer_join_ops = {.forward = join_forward,
                                            .backward_input = join_back,
                                            .backward_weight = no_weights,
                                            .sizes = join_sizes,
                                            .tensor_sizes = join_tensor,
                                            .context_sizes = join_context,
                                            .decode = &join_decode_ops};
