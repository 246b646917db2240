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

/* ---- quantised weights ----------------------------------------------------------------------- */

void model_linear_quantize(struct model_linear *linear, struct model_part *part,
                           const struct lora_modules *modules, enum rf_quantization kind)
{
    struct rf_param_desc *param = &part->params[linear->weight];
    struct rf_split rows = {.segments = modules->count};
    uint64_t bytes = 0;
    linear->quantized = kind;
    if (!kind)
        return;
    linear->modules = modules->count;
    for (int k = 0; k < modules->count; k++) {
        rows.sizes[k] = linear->module_rows[k] = modules->module[k].rows;
        bytes += rf_quantized_bytes(kind, modules->module[k].rows * modules->in);
    }
    *param = (struct rf_param_desc){.name = param->name,
                                    .shape = rf_shape1((int64_t)bytes),
                                    .dtype = RF_U8,
                                    .flags = RF_PARAM_FROZEN,
                                    .split = rows};
}

int model_quantize_check(enum rf_quantization kind, int64_t elements)
{
    if (!kind)
        return 0;
    if ((int)kind < 0 || kind >= RF_QUANTIZATION_COUNT)
        return rf_fail(RF_EINVAL, "weights are quantised to nf4 or int8");
    /* A limit of rf_matmul. */
    return elements > INT32_MAX
               ? rf_fail(RF_EINVAL, "quantised weights must have fewer than 2^31 elements each")
               : 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

struct rf_tensor model_elements(struct rf_tensor t, int64_t first, int64_t count)
{
    t.offset += (uint64_t)first * rf_dtype_bytes(t.dtype);
    t.shape = rf_shape1(count);
    return t;
}

struct model_module model_linear_module(const struct model_linear *linear, int index,
                                        struct rf_tensor weight, int64_t in)
{
    struct model_module out = {.rows = linear->module_rows[index]};
    int64_t at = 0;
    for (int k = 0; k < linear->modules; k++) {
        const int64_t rows = linear->module_rows[k];
        out.first += k < index ? rows : 0;
        at += k < index ? (int64_t)rf_quantized_bytes(linear->quantized, rows * in) : 0;
        out.all += rows;
    }
    out.weight =
        model_elements(weight, at, (int64_t)rf_quantized_bytes(linear->quantized, out.rows * in));
    return out;
}

/* Computes the columns of out that belong to each module. opts has at most a bias. */
static int products(const struct model_layer *m, const struct model_linear *linear,
                    struct rf_tensor out, struct rf_tensor in, struct rf_matmul_opts opts)
{
    const struct rf_tensor *bias = opts.bias;
    const int64_t channels = in.shape.dim[1];
    for (int k = 0; k < linear->modules; k++) {
        const struct model_module x =
            model_linear_module(linear, k, weight_of(m, linear), channels);
        const struct rf_tensor part =
            bias ? model_elements(*bias, x.first, x.rows) : (struct rf_tensor){0};
        opts.bias = bias ? &part : NULL;
        opts.m = m->rows;
        opts.n = x.rows;
        opts.k = channels;
        opts.out_layout = (struct rf_layout){.row = x.all};
        RETURN_IF_FAILED(model_matmul(
            m->ctx, model_elements(out, x.first, m->rows * x.all - x.first), in, x.weight, &opts));
    }
    return 0;
}

/* out = in W', plus the terms in opts. */
static int product(const struct model_layer *m, const struct model_linear *linear,
                   struct rf_tensor out, struct rf_tensor in, struct rf_matmul_opts opts)
{
    struct rf_tensor weight = weight_of(m, linear);
    opts.transpose_b = true;
    opts.b_quantized = linear->quantized;
    if (linear->modules > 1)
        return products(m, linear, out, in, opts);
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

/* The sum of the modules' parts. opts must have no other terms. */
static int products_back(const struct model_layer *m, const struct model_linear *linear,
                         struct rf_tensor din, struct rf_tensor dout, struct rf_matmul_opts opts)
{
    for (int k = 0; k < linear->modules; k++) {
        const struct model_module x =
            model_linear_module(linear, k, weight_of(m, linear), din.shape.dim[1]);
        opts.accumulate = k > 0;
        opts.m = m->rows;
        opts.n = din.shape.dim[1];
        opts.k = x.rows;
        opts.a_layout = (struct rf_layout){.row = x.all};
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
    struct rf_tensor weight = weight_of(m, linear);
    opts.b_quantized = linear->quantized;
    if (linear->modules > 1)
        return products_back(m, linear, din, dout, opts);
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
            lora_scratch(m, &l->lora) + model_operand_bytes(m, l->recipe, l->in, l->out);
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
