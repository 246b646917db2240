/* SPDX-License-Identifier: MIT
 *
 * The head in text generation: norm and logits. Its self is a struct model_head.
 */
#include "decode.h"
#include "head.h"

static int cut(const struct model_head *h, struct model_head_norm *s, struct model_cut cuts[3])
{
    cuts[0] = (struct model_cut){&s->norm, h->channels, h->dtype};
    cuts[1] = (struct model_cut){.tensor = &s->mean, .absent = h->rms};
    cuts[2] = (struct model_cut){.tensor = &s->rstd};
    return 3;
}

static int sizes(const void *self, const struct rf_decode_shape *shape, struct rf_decode_sizes *out)
{
    const struct model_head *h = self;
    struct model_head_norm s;
    struct model_cut cuts[3];
    *out = (struct rf_decode_sizes){.scratch = model_cut_bytes(shape->rows, cuts, cut(h, &s, cuts)),
                                    .out = rf_shape2(shape->rows, h->vocab),
                                    .dtype = RF_F32};
    return 0;
}

static int decode(const struct rf_decode *call, void *self, struct rf_tensor in,
                  struct rf_tensor out)
{
    const struct model_head *h = self;
    struct model_head_norm s = {0};
    struct model_cut cuts[3];
    struct rf_ctx ctx = {.stream = call->stream, .params = call->params};
    RETURN_IF_FAILED(model_suballocate(call->scratch, call->shape.rows, cuts, cut(h, &s, cuts)));
    RETURN_IF_FAILED(model_head_forward_norm(&ctx, h, &s, in));
    return rf_gemv(call->stream, out, s.norm, call->params[model_head_table(h)], NULL);
}

const struct rf_decode_ops model_head_decode = {.sizes = sizes, .decode = decode};
