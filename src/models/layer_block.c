/* SPDX-License-Identifier: MIT
 *
 * Blocks of users, made from rows (ringforge/layer.h). Named values become the chain of layer.h:
 * first the values are checked, then that each row reads the result of the one before it, then the
 * chain like any other.
 */
#include <ringforge/layer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

#define MOST_NAME 40

/* The block comes first: it is rf_block.self. */
struct user_block {
    struct layer_block block;
    struct layer_config config;
    struct layer_op ops[LAYER_MOST];
    struct model_part part;
    char text[1536];
};

struct value {
    const char *name;
    int64_t columns;
    int writer; /* the row; -1: the block's input */
    int uses;
};

struct reader {
    const struct rf_layer_op *rows;
    int count;
    const struct rf_layer_opts *opts;
    struct value value[RF_LAYER_MOST_OPS + 1];
    int values;
    struct layer_op *ops;
    int ops_count;
};

static const char *const kinds[RF_LAYER_KINDS] = {
    [RF_LAYER_NORM] = "norm", [RF_LAYER_LINEAR] = "linear", [RF_LAYER_ACT] = "activation",
    [RF_LAYER_GATE] = "gate", [RF_LAYER_ATTEND] = "attend", [RF_LAYER_ADD] = "add"};

/* "row 2 (linear)" for error messages. */
#define ROW "row %d (%s)"
#define OF(r, row) (row), kinds[(r)->rows[row].kind]

/* ---- values ---------------------------------------------------------------------------------- */

static struct value *find(struct reader *r, const char *name)
{
    for (int k = 0; k < r->values; k++)
        if (strcmp(r->value[k].name, name) == 0)
            return &r->value[k];
    return NULL;
}

static int take(struct reader *r, int row, const char *name, int64_t *columns)
{
    struct value *v = name ? find(r, name) : NULL;
    if (!name)
        return rf_fail(RF_EINVAL, ROW " lacks the name of a value that it takes", OF(r, row));
    if (!v)
        return rf_fail(RF_EINVAL,
                       ROW " takes %.40s, which no row before it writes; the block's input is "
                           "called in",
                       OF(r, row), name);
    v->uses++;
    *columns = v->columns;
    return 0;
}

static int64_t packed_columns(const struct rf_layer_opts *o)
{
    return (o->heads + 2 * (o->kv_heads ? o->kv_heads : o->heads)) * o->head_size;
}

/* *columns: of the row's input on entry, of its result on return. */
static int compute_columns(struct reader *r, int row, int64_t *columns)
{
    const struct rf_layer_op *op = &r->rows[row];
    const int64_t in = *columns;
    int64_t with = 0;
    switch (op->kind) {
    case RF_LAYER_LINEAR:
        *columns = op->columns;
        return op->columns >= 1 && op->columns <= 1 << 24
                   ? 0
                   : rf_fail(RF_EINVAL, ROW " has %lld columns; use 1 to 2^24", OF(r, row),
                             (long long)op->columns);
    case RF_LAYER_GATE:
        *columns = in / 2;
        return in % 2 == 0 ? 0
                           : rf_fail(RF_EINVAL,
                                     ROW " takes %.40s of %lld columns; their number must be even",
                                     OF(r, row), op->in, (long long)in);
    case RF_LAYER_ATTEND:
        *columns = r->opts->heads * r->opts->head_size;
        return in == packed_columns(r->opts)
                   ? 0
                   : rf_fail(RF_EINVAL,
                             ROW " takes %.40s of %lld columns; its queries, keys and values have "
                                 "%lld",
                             OF(r, row), op->in, (long long)in, (long long)packed_columns(r->opts));
    case RF_LAYER_ADD:
        RETURN_IF_FAILED(take(r, row, op->with, &with));
        return in == with ? 0
                          : rf_fail(RF_EINVAL,
                                    ROW " adds %.40s of %lld columns to %.40s of %lld; the numbers "
                                        "must be equal",
                                    OF(r, row), op->in, (long long)in, op->with, (long long)with);
    default:
        return 0;
    }
}

static int read_row(struct reader *r, int row)
{
    const struct rf_layer_op *op = &r->rows[row];
    int64_t columns = 0;
    if ((int)op->kind < 1 || op->kind >= RF_LAYER_KINDS)
        return rf_fail(RF_EINVAL, "row %d has the kind %d, which is none of enum rf_layer_kind",
                       row, (int)op->kind);
    RETURN_IF_FAILED(take(r, row, op->in, &columns));
    RETURN_IF_FAILED(compute_columns(r, row, &columns));
    if (!op->out)
        return rf_fail(RF_EINVAL, ROW " lacks the name of its result", OF(r, row));
    const struct value *other = find(r, op->out);
    if (other && other->writer < 0)
        return rf_fail(RF_EINVAL, ROW " writes in, which is the block's input; use another name",
                       OF(r, row));
    if (other)
        return rf_fail(RF_EINVAL,
                       ROW " writes %.40s, which row %d has written; give each result a name of "
                           "its own",
                       OF(r, row), op->out, other->writer);
    r->value[r->values++] = (struct value){op->out, columns, row, 0};
    return 0;
}

static int read_values(struct reader *r)
{
    r->value[r->values++] = (struct value){"in", r->opts->channels, -1, 0};
    for (int row = 0; row < r->count; row++)
        RETURN_IF_FAILED(read_row(r, row));
    for (int k = 1; k + 1 < r->values; k++) /* the first row reads "in": there is nothing else */
        if (r->value[k].uses == 0)
            return rf_fail(RF_EINVAL,
                           ROW " writes %.40s, which no row takes; only the result of the last row "
                               "is the block's output",
                           OF(r, r->value[k].writer), r->value[k].name);
    return 0;
}

/* ---- the chain ------------------------------------------------------------------------------- */

static int add_op(struct reader *r, struct layer_op op)
{
    if (r->ops_count + 1 >= LAYER_MOST)
        return rf_fail(RF_EINVAL,
                       "a block has at most %d operations, and one more for each branch "
                       "without a norm in front",
                       RF_LAYER_MOST_OPS);
    r->ops[r->ops_count++] = op;
    return 0;
}

/* Columns by the operation that reads them. */
static struct layer_op linear_of(const struct reader *r, int row, bool first)
{
    const struct rf_layer_op *op = &r->rows[row];
    const enum rf_layer_kind then = row + 1 < r->count ? r->rows[row + 1].kind : 0;
    struct layer_op out = {.kind = first ? LAYER_COLUMN_LINEAR : LAYER_ROW_LINEAR,
                           .name = op->param,
                           .columns = {first ? LAYER_HIDDEN : LAYER_CHANNELS},
                           .bias = op->bias ? LAYER_BIAS : LAYER_NO_BIAS};
    if (!first)
        return out;
    out.hidden = then == RF_LAYER_GATE ? op->columns / 2 : op->columns;
    if (then == RF_LAYER_GATE)
        out.columns[1] = LAYER_HIDDEN;
    if (then == RF_LAYER_ATTEND)
        memcpy(out.columns, (enum layer_columns[])LAYER_PACKED, sizeof(out.columns));
    return out;
}

/* first: the row is the first of its branch, or follows its norm. */
static struct layer_op op_of(const struct reader *r, int row, bool first)
{
    const struct rf_layer_op *op = &r->rows[row];
    static const enum layer_kind to[RF_LAYER_KINDS] = {[RF_LAYER_NORM] = LAYER_NORM,
                                                       [RF_LAYER_ACT] = LAYER_ACT,
                                                       [RF_LAYER_GATE] = LAYER_GATE,
                                                       [RF_LAYER_ATTEND] = LAYER_ATTEND,
                                                       [RF_LAYER_ADD] = LAYER_ADD};
    if (op->kind == RF_LAYER_LINEAR)
        return linear_of(r, row, first);
    return (struct layer_op){.kind = to[op->kind], .name = op->param, .act = op->act};
}

static int follow(const struct reader *r, int row, const char *stream, const char *last)
{
    const struct rf_layer_op *op = &r->rows[row];
    if (op->kind != RF_LAYER_ADD)
        return strcmp(op->in, last) == 0
                   ? 0
                   : rf_fail(RF_EINVAL,
                             ROW " takes %.40s; a branch begins with the stream, and each of its "
                                 "rows takes the result of the row before it: here %.40s",
                             OF(r, row), op->in, last);
    const bool adds = (strcmp(op->in, stream) == 0 && strcmp(op->with, last) == 0) ||
                      (strcmp(op->in, last) == 0 && strcmp(op->with, stream) == 0);
    return adds && strcmp(stream, last) != 0
               ? 0
               : rf_fail(RF_EINVAL,
                         ROW " adds %.40s to %.40s; it must add the result of the row before it to "
                             "the stream, %.40s",
                         OF(r, row), op->in, op->with, stream);
}

/* The part of a branch that has been read. */
enum state { BEGIN, NORMED, FIRST, MIDDLE, SECOND, RENORMED, STATES };
#define KIND(kind) (1u << RF_LAYER_##kind)
static const struct {
    unsigned then; /* kinds that may follow */
    const char *rule;
} grammar[STATES] = {
    [BEGIN] = {KIND(NORM) | KIND(LINEAR), "a branch begins with a norm or a linear map"},
    [NORMED] = {KIND(LINEAR), "the norm in front of a branch is followed by a linear map"},
    [FIRST] =
        {KIND(ACT) | KIND(GATE) | KIND(ATTEND),
         "the first linear map of a branch is followed by an activation, a gate or attention"},
    [MIDDLE] = {KIND(LINEAR), "it is followed by the second linear map of the branch"},
    [SECOND] = {KIND(NORM) | KIND(ADD),
                "the second linear map of a branch is followed by an add, or a norm and an add"},
    [RENORMED] = {KIND(ADD), "the norm behind a branch is followed by an add"}};

static enum state step(enum state state, enum rf_layer_kind kind)
{
    if (kind == RF_LAYER_ADD)
        return BEGIN;
    if (kind == RF_LAYER_NORM)
        return state == BEGIN ? NORMED : RENORMED;
    return state == BEGIN ? FIRST : state + 1;
}

static int read_chain(struct reader *r)
{
    const char *stream = "in", *last = "in"; /* the value that the next row must read */
    enum state state = BEGIN;
    for (int row = 0; row < r->count; row++) {
        const struct rf_layer_op *op = &r->rows[row];
        if (!(grammar[state].then & 1u << op->kind))
            return rf_fail(RF_EINVAL, ROW " cannot be here: %s", OF(r, row), grammar[state].rule);
        RETURN_IF_FAILED(follow(r, row, stream, last));
        if (state == BEGIN && op->kind == RF_LAYER_LINEAR)
            RETURN_IF_FAILED(add_op(r, (struct layer_op){.kind = LAYER_IDENTITY}));
        RETURN_IF_FAILED(add_op(r, op_of(r, row, state <= NORMED)));
        state = step(state, op->kind);
        last = op->out;
        stream = state == BEGIN ? last : stream;
    }
    if (state != BEGIN)
        return rf_fail(RF_EINVAL, ROW " cannot be the last: %s", OF(r, r->count - 1),
                       grammar[state].rule);
    if (layer_check(r->ops) < 0)
        return rf_fail(RF_EINVAL, "the rows make no block: %s", rf_last_error()->message);
    return 0;
}

/* ---- the block ------------------------------------------------------------------------------- */

static bool attends(const struct reader *r)
{
    for (int row = 0; row < r->count; row++)
        if (r->rows[row].kind == RF_LAYER_ATTEND)
            return true;
    return false;
}

static int check_names(const struct reader *r)
{
    const size_t prefix = r->opts->prefix ? strlen(r->opts->prefix) : 0;
    for (int row = 0; row < r->count; row++) {
        const struct rf_layer_op *op = &r->rows[row];
        if (op->kind != RF_LAYER_NORM && op->kind != RF_LAYER_LINEAR)
            continue;
        if (!op->param || !*op->param || strlen(op->param) > MOST_NAME || prefix > 15)
            return rf_fail(RF_EINVAL,
                           ROW " needs a name of its parameters, of 1 to %d characters behind a "
                               "prefix of at most 15",
                           OF(r, row), MOST_NAME);
        for (int k = 0; k < row; k++)
            if (r->rows[k].param && strcmp(r->rows[k].param, op->param) == 0)
                return rf_fail(RF_EINVAL,
                               ROW " has the parameters %s, as row %d; each row has its own",
                               OF(r, row), op->param, k);
    }
    return 0;
}

static int check_opts(const struct reader *r)
{
    const struct rf_layer_opts *o = r->opts;
    if (!r->rows || r->count < 1 || r->count > RF_LAYER_MOST_OPS || !o || !o->name)
        return rf_fail(RF_EINVAL, "rf_layer_block needs 1 to %d rows, and options with a name",
                       RF_LAYER_MOST_OPS);
    if (o->channels < 1 || o->channels > 1 << 20 || !(o->eps >= 0))
        return rf_fail(RF_EINVAL, "block %.60s: channels must be 1 to 2^20, and eps not negative",
                       o->name);
    const int64_t keys = o->kv_heads ? o->kv_heads : o->heads;
    if (attends(r) && (o->heads < 1 || o->heads > 1 << 20 || keys < 1 || o->heads % keys != 0 ||
                       o->head_size < 1 || o->head_size > 256))
        return rf_fail(RF_EINVAL,
                       "block %.60s: attention needs heads, kv_heads that divide them, and a "
                       "head_size of 1 to 256",
                       o->name);
    RETURN_IF_FAILED(model_recipe_check(o->recipe));
    return model_check_types(o->dtype, o->residual);
}

static struct layer_config config_of(const struct reader *r)
{
    const struct rf_layer_opts *o = r->opts;
    struct layer_config c = {.ops = r->ops,
                             .channels = o->channels,
                             .dtype = o->dtype,
                             .residual = o->residual,
                             .rms = o->rms,
                             .eps = rf_option(o->eps, 1e-5f),
                             .reversible = o->reversible,
                             .recipe = o->recipe};
    if (!attends(r))
        return c;
    c.heads = o->heads;
    c.kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    c.head_size = o->head_size;
    return c;
}

static void say_config(struct user_block *b)
{
    char list[1024] = "", eps[24];
    const struct layer_config *c = &b->config;
    layer_text(c->ops, list, sizeof(list));
    const int n = snprintf(b->text, sizeof(b->text), "%s norm=%s eps=%s%s", list + 1,
                           c->rms ? "rms" : "layer", model_real_text(c->eps, eps),
                           layer_pair_text(c->reversible));
    if (c->heads)
        snprintf(b->text + n, sizeof(b->text) - (size_t)n, " heads=%lld kv-heads=%lld",
                 (long long)c->heads, (long long)c->kv_heads);
}

int rf_layer_block(const struct rf_layer_op *ops, int count, const struct rf_layer_opts *opts,
                   struct rf_block *out)
{
    struct layer_op chain[LAYER_MOST] = {{LAYER_END}};
    struct reader r = {.rows = ops, .count = count, .opts = opts, .ops = chain};
    RETURN_IF_FAILED(check_opts(&r));
    RETURN_IF_FAILED(read_values(&r));
    RETURN_IF_FAILED(check_names(&r));
    RETURN_IF_FAILED(read_chain(&r));
    struct user_block *b = calloc(1, sizeof(*b));
    if (!b)
        return rf_fail(RF_ENOMEM, "out of memory for block %.60s", opts->name);
    b->config = config_of(&r);
    memcpy(b->ops, chain, sizeof(chain));
    b->config.ops = b->ops;
    if (b->config.reversible && layer_pair_check(&b->config) < 0) {
        free(b);
        return RF_EINVAL;
    }
    say_config(b);
    const float std = rf_option(opts->init_std, 0.02f);
    layer_declare(&b->block, &b->part, &b->config,
                  &(struct layer_initial){.std = std,
                                          .residual_std = rf_option(opts->residual_std, std),
                                          .name = opts->name,
                                          .prefix = opts->prefix ? opts->prefix : ""});
    for (int k = 0; k < b->block.count; k++)
        b->ops[k].name = NULL; /* the caller's */
    *out = (struct rf_block){.name = b->part.name,
                             .ops = opts->reversible ? &layer_pair_ops : &layer_block_ops,
                             .self = b,
                             .params = b->part.params,
                             .param_count = b->part.param_count,
                             .config = b->text,
                             .rounding = opts->recipe ? rf_recipe_name(opts->recipe) : NULL};
    return 0;
}

static int make_end(const struct rf_layer_opts *opts, const char *name,
                    const struct rf_block_ops *ops, struct rf_block *out)
{
    if (!opts || opts->channels < 1 || opts->channels > 1 << 20 || !opts->reversible ||
        (unsigned)opts->reversible > RF_REVERSIBLE_FIXED)
        return rf_fail(RF_EINVAL, "a %s needs options with 1 to 2^20 channels, and reversible",
                       name);
    struct layer_config *config = calloc(1, sizeof(*config));
    if (!config)
        return rf_fail(RF_ENOMEM, "out of memory for a %s", name);
    config->channels = opts->channels;
    config->reversible = opts->reversible;
    *out = (struct rf_block){.name = name, .ops = ops, .self = config};
    return 0;
}

int rf_layer_split(const struct rf_layer_opts *opts, struct rf_block *out)
{
    return make_end(opts, "split", &layer_split_ops, out);
}

int rf_layer_join(const struct rf_layer_opts *opts, struct rf_block *out)
{
    return make_end(opts, "join", &layer_join_ops, out);
}

void rf_layer_block_free(struct rf_block *block)
{
    free(block->self);
    *block = (struct rf_block){0};
}
