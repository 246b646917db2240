/* SPDX-License-Identifier: MIT
 *
 * Derives the calls of a layer from the list of its operations; see layer.h and layer_call.h.
 */
#include "layer_call.h"

static void init(struct layer *l, struct rf_ctx *ctx, const struct layer_block *block,
                 const struct rf_tensor_part *part, int64_t count)
{
    layer_setup(l, layer_rows, ctx, block, part, count);
}

/* ---- steps of a call ------------------------------------------------------------------------- */

#define MOST_STEPS (8 * LAYER_MOST) /* each list of each operation once, and the last one twice */
struct call_step {
    struct layer_step step;
    int op;
};
struct call {
    struct call_step step[MOST_STEPS];
    int count;
};

static void add(struct call *call, const struct layer_step *steps, int most, int op)
{
    for (int k = 0; k < most && steps[k].run; k++)
        call->step[call->count++] = (struct call_step){steps[k], op};
}
#define ADD(call, steps, op) add(call, steps, (int)(sizeof(steps) / sizeof((steps)[0])), op)

static void list_branch(const struct layer *l, struct call *call, int branch)
{
    static const struct layer_step take[] = {{layer_pair_take}};
    for (int k = 0; k < l->b->count; k++) {
        if (layer_branch(l, k) != branch)
            continue;
        if (layer_is_pair(l) && layer_takes_stream(l, k))
            ADD(call, take, k);
        ADD(call, layer_row_of(l, k)->forward, k);
    }
}

static void list_forward(const struct layer *l, struct call *call)
{
    for (int branch = 0; branch <= layer_branch(l, l->b->count); branch++)
        list_branch(l, call, branch);
}

static void list_invert(const struct layer *l, struct call *call)
{
    for (int branch = 1; branch >= 0; branch--)
        list_branch(l, call, branch);
}

/* The operations that lead from the stream to this one. */
static int branch_of(const struct layer *l, int op)
{
    while (!layer_takes_stream(l, op))
        op--;
    return op;
}

static void list_input(const struct layer *l, struct call *call)
{
    for (int k = l->b->count - 1; k >= 0; k--) {
        const struct layer_row *row = layer_row_of(l, k);
        const int end = layer_kind_at(l, k) == LAYER_ROW_LINEAR ? k : 0;
        ADD(call, row->begin, k);
        for (int j = branch_of(l, k); j < end; j++) {
            ADD(call, layer_row_of(l, j)->ready, j);
            if (layer_repeats(l, j))
                ADD(call, layer_row_of(l, j)->repeat, j);
        }
        ADD(call, row->back, k);
    }
}

static int nothing(struct layer *l, int op)
{
    (void)l, (void)op;
    return 0;
}

/* Gradients that ranks add are written in the last phase. With sequence parallelism it begins after
 * the first product's operand, which comes last, has been recomputed; without, it is the only one.
 */
static void list_weight(const struct layer *l, struct call *call)
{
    static const struct layer_step begin[] = {{layer_shared_begin}},
                                   end[] = {{nothing, MODEL_COPIES}, {layer_shared_take}};
    int first = 0;
    while (layer_kind_at(l, first) != LAYER_COLUMN_LINEAR && first < l->b->count)
        first++;
    if (!l->m.part.sequence)
        ADD(call, begin, 0);
    for (int k = l->b->count - 1; k >= 0; k--) {
        if (layer_row_of(l, k)->trains && k > 0)
            ADD(call, layer_row_of(l, k - 1)->again, k - 1);
        if (k == first && l->m.part.sequence)
            ADD(call, begin, k);
        if (!layer_row_of(l, k)->late)
            ADD(call, layer_row_of(l, k)->weight, k);
        if (layer_row_of(l, k + 1)->late)
            ADD(call, layer_row_of(l, k + 1)->weight, k + 1);
    }
    ADD(call, end, 0);
}

static int run(struct layer *l, const struct call *call)
{
    int phase = 0;
    for (int i = 0; i < call->count && phase <= l->m.ctx->phase; i++) {
        const struct call_step *s = &call->step[i];
        if (phase == l->m.ctx->phase)
            RETURN_IF_FAILED(s->step.run(l, s->op));
        phase += model_exchange_of(&l->m, s->step.then).kind != RF_EXCHANGE_NONE;
    }
    return 0;
}

static void list_exchanges(const struct layer *l, const struct call *call,
                           struct rf_exchange out[RF_MAX_EXCHANGES])
{
    int count = 0;
    for (int i = 0; i < call->count; i++) {
        const struct rf_exchange e = model_exchange_of(&l->m, call->step[i].step.then);
        if (e.kind != RF_EXCHANGE_NONE && count < RF_MAX_EXCHANGES)
            out[count++] = e;
    }
}

/* ---- the block ------------------------------------------------------------------------------- */

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    struct layer l;
    struct call call = {.count = 0};
    init(&l, ctx, self, &ctx->tensor, ctx->rows);
    l.x = in;
    l.out = out;
    RETURN_IF_FAILED(layer_open(&l, LAYER_FORWARD));
    list_forward(&l, &call);
    return run(&l, &call);
}

static int invert(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    struct layer l;
    struct call call = {.count = 0};
    init(&l, ctx, self, &ctx->tensor, ctx->rows);
    l.x = in;
    l.out = out;
    l.inverts = true;
    RETURN_IF_FAILED(layer_open(&l, LAYER_FORWARD));
    list_invert(&l, &call);
    return run(&l, &call);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    struct layer l;
    struct call call = {.count = 0};
    init(&l, ctx, self, &ctx->tensor, ctx->rows);
    l.x = in;
    l.dout = dout;
    l.din = din;
    RETURN_IF_FAILED(layer_open(&l, LAYER_INPUT));
    list_input(&l, &call);
    return run(&l, &call);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    struct layer l;
    struct call call = {.count = 0};
    init(&l, ctx, self, &ctx->tensor, ctx->rows);
    l.x = in;
    l.dout = dout;
    RETURN_IF_FAILED(layer_open(&l, LAYER_WEIGHT));
    list_weight(&l, &call);
    return run(&l, &call);
}

static void fill(struct layer *l, struct rf_block_sizes *out)
{
    struct call forward = {.count = 0}, input = {.count = 0}, weight = {.count = 0},
                inverse = {.count = 0};
    layer_fill_sizes(l, out);
    list_forward(l, &forward);
    list_input(l, &input);
    list_weight(l, &weight);
    list_exchanges(l, &forward, out->forward);
    list_exchanges(l, &input, out->backward_input);
    list_exchanges(l, &weight, out->backward_weight);
    if (!layer_is_pair(l))
        return;
    list_invert(l, &inverse);
    list_exchanges(l, &inverse, out->invert);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    struct layer l;
    (void)seq;
    init(&l, NULL, self, NULL, rows);
    layer_fill_sizes(&l, out);
    return 0;
}

/* With divisions at multiples of its block, a recipe has the scales of one rank. */
static int check_recipe(const struct layer_block *block, const struct rf_tensor_part *part)
{
    const struct layer_config *g = block->config;
    const int unit = rf_recipe_block(g->recipe);
    if (!unit)
        return model_recipe_check_ranks(g->recipe, "tp", part->ranks);
    if (g->heads && g->kv_heads < part->ranks)
        return rf_fail(
            RF_EINVAL,
            "products of %s are not for more tensor ranks than heads of keys; use tp=%lld",
            rf_recipe_name(g->recipe), (long long)g->kv_heads);
    for (int k = 0; part->ranks > 1 && k < block->count; k++)
        for (int i = 0; g->ops[k].kind == LAYER_COLUMN_LINEAR && i < LORA_MODULES; i++) {
            const enum layer_columns columns = g->ops[k].columns[i];
            const int64_t whole = columns ? layer_whole(g, k, columns) : 0;
            if (whole % ((int64_t)unit * part->ranks))
                return rf_fail(
                    RF_EINVAL,
                    "products of %s have a scale for each %d numbers: %lld columns of "
                    "%.40s cannot be divided so among %d tensor ranks; use fewer of them",
                    rf_recipe_name(g->recipe), unit, (long long)whole, g->ops[k].name, part->ranks);
        }
    return 0;
}

static int tensor_sizes(const void *self, const struct rf_tensor_part *part, int64_t rows,
                        int64_t seq, struct rf_block_sizes *out)
{
    const struct layer_block *block = self;
    const struct layer_config *g = block->config;
    struct model_division divisions[3 + LAYER_MOST];
    struct layer l;
    int count = 0;
    (void)seq;
    if (g->heads) {
        divisions[count++] = (struct model_division){g->heads, "heads"};
        divisions[count++] = (struct model_division){g->kv_heads, "heads of keys", .copies = true};
    }
    for (int k = 0; k < block->count; k++)
        if (g->ops[k].columns[0] == LAYER_HIDDEN)
            divisions[count++] = (struct model_division){layer_hidden(g, k), "hidden channels"};
    if (part->sequence)
        divisions[count++] = (struct model_division){rows, "rows of a micro-batch"};
    RETURN_IF_FAILED(model_divide(part, divisions, count));
    RETURN_IF_FAILED(check_recipe(block, part));
    RETURN_IF_FAILED(layer_check_quantized(block, part));
    for (int k = 0; k < block->count; k++)
        if (layer_rows[g->ops[k].kind]->check_part)
            RETURN_IF_FAILED(layer_rows[g->ops[k].kind]->check_part(g, k, part));
    RETURN_IF_FAILED(lora_check_part(g->adapter, g->kv_heads < part->ranks));
    init(&l, NULL, block, part, rows);
    fill(&l, out);
    return 0;
}

static int context_sizes(const void *self, const struct rf_context_part *part, int64_t rows,
                         int64_t seq, struct rf_block_sizes *out)
{
    const struct layer_block *block = self;
    struct layer l;
    (void)seq;
    RETURN_IF_FAILED(model_recipe_check_ranks(block->config->recipe, "cp", part->ranks));
    init(&l, NULL, block, NULL, rows);
    l.m.context = *part;
    fill(&l, out);
    return 0;
}

const struct rf_block_ops layer_block_ops = {forward,      backward_input, backward_weight,   sizes,
                                             tensor_sizes, context_sizes,  &layer_decode_ops, NULL};
const struct rf_block_ops layer_pair_ops = {
    forward,      backward_input, backward_weight,   sizes,
    tensor_sizes, context_sizes,  &layer_decode_ops, invert};
