/* SPDX-License-Identifier: MIT
 *
 * Phases and exchanges of layers; see steps.h.
 */
#include "steps.h"

#include <stdio.h>

void model_layer_init(struct model_layer *m, struct rf_ctx *ctx, const struct rf_tensor_part *part,
                      int64_t rows)
{
    m->ctx = ctx;
    m->part = (struct rf_tensor_part){.ranks = 1};
    if (part && part->ranks > 1)
        m->part = *part;
    m->rows = rows;
    m->own_rows = rows / model_row_parts(m);
    if (ctx)
        m->context = ctx->context;
}

struct rf_exchange model_exchange_of(const struct model_layer *m, enum model_exchange kind)
{
    const struct rf_exchange none = {.kind = RF_EXCHANGE_NONE};
    const struct rf_shape all = rf_shape2(m->rows, m->channels);
    if (kind == MODEL_KEYS || kind == MODEL_KEY_GRADS)
        return m->context.ranks > 1
                   ? (struct rf_exchange){kind == MODEL_KEYS ? RF_EXCHANGE_GATHER
                                                             : RF_EXCHANGE_SCATTER,
                                          rf_shape2(m->context.ranks * m->rows, m->key_columns),
                                          m->dtype}
                   : none;
    if (kind == MODEL_NOTHING || model_alone(m))
        return none;
    if (kind == MODEL_COPIES && m->copied + m->shared == 0)
        return none;
    if (kind == MODEL_COPIES)
        return (struct rf_exchange){RF_EXCHANGE_SUM,
                                    m->shared ? rf_shape1(m->copied * m->channels + m->shared)
                                              : rf_shape2(m->copied, m->channels),
                                    RF_F32};
    if (kind == MODEL_SUM)
        return (struct rf_exchange){m->part.sequence ? RF_EXCHANGE_SCATTER : RF_EXCHANGE_SUM, all,
                                    m->residual};
    if (!m->part.sequence)
        return none;
    return (struct rf_exchange){RF_EXCHANGE_GATHER, all, m->dtype};
}

int model_own(const struct model_layer *m, struct rf_tensor all, struct rf_tensor *own)
{
    if (!m->part.sequence) {
        *own = all;
        return 0;
    }
    return rf_tensor_rows(all, m->part.rank * m->own_rows, m->own_rows, own);
}

/* ---- sums ------------------------------------------------------------------------------------ */

int model_add_sum(const struct model_layer *m, struct rf_tensor out, const struct rf_tensor *bias,
                  struct rf_tensor residual)
{
    struct rf_tensor sum;
    if (model_alone(m))
        return 0;
    RETURN_IF_FAILED(model_own(m, m->ctx->exchanged, &sum));
    return bias ? rf_add_bias(m->ctx->stream, out, sum, *bias, residual)
                : rf_add(m->ctx->stream, out, sum, residual);
}

int model_copy_sum(const struct model_layer *m, struct rf_tensor out)
{
    struct rf_tensor sum;
    if (model_alone(m))
        return 0;
    RETURN_IF_FAILED(model_own(m, m->ctx->exchanged, &sum));
    return rf_cast(m->ctx->stream, out, sum);
}

/* ---- rows ------------------------------------------------------------------------------------ */

int model_rows_place(const struct model_layer *m, struct rf_tensor place, struct rf_tensor *out)
{
    if (m->part.sequence)
        return model_own(m, m->ctx->exchange, out);
    *out = place;
    return 0;
}

int model_write_rows(const struct model_layer *m, struct rf_tensor own)
{
    struct rf_tensor given;
    if (!m->part.sequence)
        return 0;
    RETURN_IF_FAILED(model_own(m, m->ctx->exchange, &given));
    return rf_cast(m->ctx->stream, given, own);
}

struct rf_tensor model_all_rows(const struct model_layer *m, struct rf_tensor own)
{
    return m->part.sequence ? m->ctx->exchanged : own;
}

/* ---- divisions ------------------------------------------------------------------------------- */

static const struct model_division *refused(const struct model_division *d, int count,
                                            int64_t ranks)
{
    for (int i = 0; i < count; i++)
        if (d[i].count % ranks != 0 && !(d[i].copies && ranks % d[i].count == 0))
            return &d[i];
    return NULL;
}

int model_divide(const struct rf_tensor_part *part, const struct model_division *divisions,
                 int count)
{
    const struct model_division *bad = refused(divisions, count, part->ranks);
    int64_t less = part->ranks - 1, more = part->ranks + 1;
    char or_more[32] = "";
    if (!bad)
        return 0;
    while (less > 1 && refused(divisions, count, less))
        less--;
    while (more <= divisions[0].count && refused(divisions, count, more))
        more++;
    if (more <= divisions[0].count)
        snprintf(or_more, sizeof(or_more), " or %lld", (long long)more);
    return rf_fail(RF_EINVAL, "%d tensor ranks do not divide %lld %s; use %lld%s", part->ranks,
                   (long long)bad->count, bad->what, (long long)less, or_more);
}
