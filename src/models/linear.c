/* SPDX-License-Identifier: MIT
 *
 * Linear maps of layers; see linear.h.
 */
#include "linear.h"

static struct rf_tensor weight_of(const struct model_layer *m, const struct model_linear *linear)
{
    return m->ctx->params[linear->weight];
}

static const struct rf_tensor *bias_of(const struct model_layer *m,
                                       const struct model_linear *linear)
{
    return linear->bias ? &m->ctx->params[linear->bias] : NULL;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* out = in W', and what opts adds to it. */
static int product(const struct model_layer *m, const struct model_linear *linear,
                   struct rf_tensor out, struct rf_tensor in, struct rf_matmul_opts opts)
{
    opts.transpose_b = true;
    return model_matmul(m->ctx, out, in, weight_of(m, linear), &opts);
}

int model_linear_forward(const struct model_layer *m, const struct model_linear *linear,
                         struct rf_tensor out, struct rf_tensor in, const struct model_act *act)
{
    struct rf_matmul_opts opts = {.bias = bias_of(m, linear)};
    if (act) {
        opts.act = act->kind;
        opts.pre = act->pre.buffer ? &act->pre : NULL;
    }
    return product(m, linear, out, in, opts);
}

int model_linear_sum(const struct model_layer *m, const struct model_linear *linear,
                     struct rf_tensor out, struct rf_tensor in, struct rf_tensor residual)
{
    const struct rf_matmul_opts alone = {.bias = bias_of(m, linear), .residual = &residual},
                                part = {0};
    return model_alone(m) ? product(m, linear, out, in, alone)
                          : product(m, linear, m->ctx->exchange, in, part);
}

int model_linear_end(const struct model_layer *m, const struct model_linear *linear,
                     struct rf_tensor out, struct rf_tensor residual)
{
    return model_add_sum(m, out, bias_of(m, linear), residual);
}

/* ---- gradient of the input ------------------------------------------------------------------- */

/* din = dout W, and what opts does with it. */
static int product_back(const struct model_layer *m, const struct model_linear *linear,
                        struct rf_tensor din, struct rf_tensor dout, struct rf_matmul_opts opts)
{
    return model_matmul(m->ctx, din, dout, weight_of(m, linear), &opts);
}

int model_linear_back(const struct model_layer *m, const struct model_linear *linear,
                      struct rf_tensor din, struct rf_tensor dout, const struct model_act *act)
{
    struct rf_matmul_opts opts = {0};
    if (act)
        opts = (struct rf_matmul_opts){.act = act->kind, .act_backward = true, .pre = &act->pre};
    return product_back(m, linear, din, dout, opts);
}

int model_linear_sum_back(const struct model_layer *m, const struct model_linear *linear,
                          struct rf_tensor din, struct rf_tensor dout)
{
    return product_back(m, linear, model_alone(m) ? din : m->ctx->exchange, dout,
                        (struct rf_matmul_opts){0});
}

/* ---- gradients of the parameters ------------------------------------------------------------- */

bool model_linear_wants(const struct model_layer *m, const struct model_linear *linear)
{
    return model_wants(m->ctx, linear->weight);
}

bool model_linear_trains(const struct model_layer *m, const struct model_linear *linear)
{
    return model_linear_wants(m, linear) || (linear->bias && model_wants(m->ctx, linear->bias));
}

/* db += column sums of dout. */
static int bias_grad(const struct model_layer *m, struct rf_tensor db, struct rf_tensor dout)
{
    struct rf_tensor scratch;
    const int64_t rows = dout.shape.dim[0], columns = dout.shape.dim[1];
    RETURN_IF_FAILED(model_scratch(m->ctx, rf_bias_grad_scratch(rows, columns), &scratch));
    return rf_bias_grad(m->ctx->stream, db, dout, scratch);
}

int model_linear_grads(const struct model_layer *m, const struct model_linear *linear,
                       struct rf_tensor dout, struct rf_tensor in)
{
    const struct rf_ctx *ctx = m->ctx;
    const int weight = linear->weight;
    if (model_wants(ctx, weight))
        RETURN_IF_FAILED(
            model_matmul(ctx, ctx->grads[weight], dout, in,
                         &(struct rf_matmul_opts){.transpose_a = true,
                                                  .accumulate = !ctx->overwrite_grad[weight]}));
    if (!linear->bias || !model_wants(ctx, linear->bias))
        return 0;
    if (linear->summed)
        RETURN_IF_FAILED(model_own(m, dout, &dout));
    return bias_grad(m, ctx->grads[linear->bias], dout);
}

int model_linear_grad_rows(const struct model_layer *m, struct rf_tensor out, struct rf_tensor dout,
                           struct rf_tensor in, int64_t first, int64_t count, bool accumulate)
{
    const int64_t columns = dout.shape.dim[1];
    dout.offset += (uint64_t)first * rf_dtype_bytes(dout.dtype);
    dout.shape = rf_shape1(m->rows * columns - first);
    return model_matmul(m->ctx, out, dout, in,
                        &(struct rf_matmul_opts){.transpose_a = true,
                                                 .accumulate = accumulate,
                                                 .m = count,
                                                 .n = m->channels,
                                                 .k = m->rows,
                                                 .a_layout = {.row = columns}});
}

int64_t model_linear_scratch(const struct model_layer *m, const struct model_linear *linear,
                             int64_t columns)
{
    if (!linear->bias)
        return 0;
    return rf_bias_grad_scratch(linear->summed ? m->own_rows : m->rows, columns);
}
