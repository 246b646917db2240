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

/* Computes the columns of out that belong to each piece. opts has at most a bias. */
static int products(const struct model_layer *m, const struct model_linear *linear,
                    struct rf_tensor out, struct rf_tensor in, struct rf_matmul_opts opts)
{
    const struct rf_tensor *bias = opts.bias;
    const int64_t channels = in.shape.dim[1];
    for (int k = 0; k < model_linear_pieces(linear, &m->part); k++) {
        const struct model_piece x =
            model_linear_piece(linear, k, weight_of(m, linear), channels, &m->part);
        const struct rf_tensor part =
            bias ? model_elements(*bias, x.first, x.rows) : (struct rf_tensor){0};
        opts.bias = bias ? &part : NULL;
        opts.m = m->rows;
        opts.n = x.rows;
        opts.k = channels;
        opts.out_layout = (struct rf_layout){.row = x.all};
        opts.b_part = x.part;
        RETURN_IF_FAILED(model_matmul(
            m->ctx, model_elements(out, x.first, m->rows * x.all - x.first), in, x.weight, &opts));
    }
    return 0;
}

/* The weight, which is one piece at most. */
static struct rf_tensor take_only(const struct model_layer *m, const struct model_linear *linear,
                                  int64_t channels, struct rf_matmul_opts *opts)
{
    const struct rf_tensor weight = weight_of(m, linear);
    if (!linear->quantized)
        return weight;
    const struct model_piece x = model_linear_piece(linear, 0, weight, channels, &m->part);
    opts->b_part = x.part;
    return x.weight;
}

/* out = in W', plus the terms in opts. */
static int product(const struct model_layer *m, const struct model_linear *linear,
                   struct rf_tensor out, struct rf_tensor in, struct rf_matmul_opts opts)
{
    opts.transpose_b = true;
    opts.b_quantized = linear->quantized;
    if (model_linear_pieces(linear, &m->part) > 1)
        return products(m, linear, out, in, opts);
    struct rf_tensor weight = take_only(m, linear, in.shape.dim[1], &opts);
    RETURN_IF_FAILED(model_operands(
        m, linear->recipe, linear->site,
        (struct model_operand[]){{&in, RF_OPERAND_INPUT}, {&weight, RF_OPERAND_WEIGHT}}));
    return model_matmul(m->ctx, out, in, weight, &opts);
}

/* The activation is applied after the adapter's sum. In 16 bits its input is rounded, whether it is
 * kept or not. */
static int adapted(const struct model_layer *m, const struct model_linear *linear,
                   struct rf_tensor out, struct rf_tensor in, const struct model_act *act)
{
    const struct rf_tensor sum = act && act->pre.buffer ? act->pre : out;
    RETURN_IF_FAILED(
        product(m, linear, sum, in, (struct rf_matmul_opts){.bias = bias_of(m, linear)}));
    RETURN_IF_FAILED(lora_forward(m, &linear->lora, sum, in));
    return act ? rf_activate(m->ctx->stream, act->kind, out, sum) : 0;
}

int model_linear_forward(const struct model_layer *m, const struct model_linear *linear,
                         struct rf_tensor out, struct rf_tensor in, const struct model_act *act)
{
    struct rf_matmul_opts opts = {.bias = bias_of(m, linear)};
    if (linear->lora.rank)
        return adapted(m, linear, out, in, act);
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
    if (!model_alone(m))
        out = m->ctx->exchange;
    RETURN_IF_FAILED(product(m, linear, out, in, model_alone(m) ? alone : part));
    return lora_forward(m, &linear->lora, out, in);
}

int model_linear_part(const struct model_layer *m, const struct model_linear *linear,
                      struct rf_tensor out, struct rf_tensor in)
{
    /* The ranks' results are added, so one of them has the bias. */
    const struct rf_matmul_opts opts = {.bias = m->part.rank == 0 ? bias_of(m, linear) : NULL};
    if (!model_alone(m))
        out = m->ctx->exchange;
    RETURN_IF_FAILED(product(m, linear, out, in, opts));
    return lora_forward(m, &linear->lora, out, in);
}

int model_linear_end(const struct model_layer *m, const struct model_linear *linear,
                     struct rf_tensor out, struct rf_tensor residual)
{
    return model_add_sum(m, out, bias_of(m, linear), residual);
}

/* ---- gradient of the input ------------------------------------------------------------------- */

/* The sum of the pieces' parts. opts must have no other terms. */
static int products_back(const struct model_layer *m, const struct model_linear *linear,
                         struct rf_tensor din, struct rf_tensor dout, struct rf_matmul_opts opts)
{
    for (int k = 0; k < model_linear_pieces(linear, &m->part); k++) {
        const struct model_piece x =
            model_linear_piece(linear, k, weight_of(m, linear), din.shape.dim[1], &m->part);
        opts.accumulate = k > 0;
        opts.m = m->rows;
        opts.n = din.shape.dim[1];
        opts.k = x.rows;
        opts.a_layout = (struct rf_layout){.row = x.all};
        opts.b_part = x.part;
        RETURN_IF_FAILED(model_matmul(m->ctx, din,
                                      model_elements(dout, x.first, m->rows * x.all - x.first),
                                      x.weight, &opts));
    }
    return 0;
}

/* din = dout W, with the terms in opts. */
static int product_back(const struct model_layer *m, const struct model_linear *linear,
                        struct rf_tensor din, struct rf_tensor dout, struct rf_matmul_opts opts)
{
    opts.b_quantized = linear->quantized;
    if (model_linear_pieces(linear, &m->part) > 1)
        return products_back(m, linear, din, dout, opts);
    struct rf_tensor weight = take_only(m, linear, din.shape.dim[1], &opts);
    RETURN_IF_FAILED(model_operands(m, linear->recipe, linear->site,
                                    (struct model_operand[]){{&dout, RF_OPERAND_GRADIENT},
                                                             {&weight, RF_OPERAND_WEIGHT, true}}));
    return model_matmul(m->ctx, din, dout, weight, &opts);
}

/* pre may be in the memory of din, so the adapter's part is multiplied by the slope first. */
static int adapted_back(const struct model_layer *m, const struct model_linear *linear,
                        struct rf_tensor din, struct rf_tensor dout, const struct model_act *act)
{
    struct rf_stream *stream = m->ctx->stream;
    struct rf_tensor part;
    RETURN_IF_FAILED(lora_back_apart(m, &linear->lora, dout, &part));
    RETURN_IF_FAILED(rf_activate_backward(stream, act->kind, part, part, act->pre));
    RETURN_IF_FAILED(product_back(
        m, linear, din, dout,
        (struct rf_matmul_opts){.act = act->kind, .act_backward = true, .pre = &act->pre}));
    return rf_add(stream, din, din, part);
}

int model_linear_back(const struct model_layer *m, const struct model_linear *linear,
                      struct rf_tensor din, struct rf_tensor dout, const struct model_act *act)
{
    struct rf_matmul_opts opts = {0};
    if (act && linear->lora.rank)
        return adapted_back(m, linear, din, dout, act);
    if (act)
        opts = (struct rf_matmul_opts){.act = act->kind, .act_backward = true, .pre = &act->pre};
    RETURN_IF_FAILED(product_back(m, linear, din, dout, opts));
    return lora_back(m, &linear->lora, din, dout);
}

int model_linear_sum_back(const struct model_layer *m, const struct model_linear *linear,
                          struct rf_tensor din, struct rf_tensor dout)
{
    if (!model_alone(m))
        din = m->ctx->exchange;
    RETURN_IF_FAILED(product_back(m, linear, din, dout, (struct rf_matmul_opts){0}));
    return lora_back(m, &linear->lora, din, dout);
}

int model_linear_join_back(const struct model_layer *m, const struct model_linear *linear,
                           struct rf_tensor din, struct rf_tensor dout, struct rf_tensor grad)
{
    const bool same = din.buffer == grad.buffer && din.offset == grad.offset;
    return product_back(
        m, linear, din, dout,
        (struct rf_matmul_opts){.accumulate = same, .residual = same ? NULL : &grad});
}

/* ---- gradients of the parameters ------------------------------------------------------------- */

bool model_linear_wants(const struct model_layer *m, const struct model_linear *linear)
{
    return model_wants(m->ctx, linear->weight) || lora_wants(m, &linear->lora);
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

static int weight_grad(const struct model_layer *m, const struct model_linear *linear,
                       struct rf_tensor dout, struct rf_tensor in)
{
    const struct rf_ctx *ctx = m->ctx;
    RETURN_IF_FAILED(model_operands(m, linear->recipe, linear->site,
                                    (struct model_operand[]){{&dout, RF_OPERAND_GRADIENT, true},
                                                             {&in, RF_OPERAND_INPUT, true}}));
    return model_matmul(
        ctx, ctx->grads[linear->weight], dout, in,
        &(struct rf_matmul_opts){.transpose_a = true,
                                 .accumulate = !ctx->overwrite_grad[linear->weight]});
}

int model_linear_grads(const struct model_layer *m, const struct model_linear *linear,
                       struct rf_tensor dout, struct rf_tensor in, struct rf_tensor sums)
{
    const struct rf_ctx *ctx = m->ctx;
    const int weight = linear->weight;
    if (model_wants(ctx, weight))
        RETURN_IF_FAILED(weight_grad(m, linear, dout, in));
    RETURN_IF_FAILED(lora_grads(m, &linear->lora, dout, in, sums));
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

uint64_t model_linear_own_bytes(const struct model_layer *m,
                                const struct model_linear *const *linears, int count)
{
    uint64_t most = 0;
    for (int i = 0; i < count; i++) {
        const struct model_linear *l = linears[i];
        const uint64_t bytes =
            lora_scratch(m, &l->lora) +
            model_operand_bytes(m, l->recipe, l->in / (l->summed ? m->part.ranks : 1),
                                l->out / (l->summed ? 1 : m->part.ranks));
        most = bytes > most ? bytes : most;
    }
    return most;
}

int model_linear_modules(const struct model_linear *linear, const struct model_part *part,
                         struct model_adapter_module *out, int capacity)
{
    struct model_adapter_module modules[LORA_MODULES];
    const int count = lora_list(&linear->lora, part, linear->weight, modules);
    for (int k = 0; k < count && k < capacity; k++)
        out[k] = modules[k];
    return count;
}
