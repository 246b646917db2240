/* SPDX-License-Identifier: MIT
 *
 * The embedding block of a GPT-2: the tables of tokens and positions.
 */
#include <stdio.h>

#include "gpt2_internal.h"
#include "vocabulary.h"

static struct model_embedding embedding_of(const struct gpt2_config *g)
{
    return (struct model_embedding){
        .vocab = g->vocab, .channels = g->channels, .dtype = g->residual, .positions = g->seq};
}

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    const struct model_embedding e = embedding_of(self);
    return model_embed(ctx, &e, in, out);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    return 0; /* tokens have no gradient */
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    const struct model_embedding e = embedding_of(self);
    return model_embed_backward(ctx, &e, in, dout);
}

static int tensor_sizes(const void *self, const struct rf_tensor_part *part, int64_t rows,
                        int64_t seq, struct rf_block_sizes *out)
{
    const struct gpt2_config *g = self;
    const struct model_embedding e = embedding_of(g);
    if (seq <= g->seq)
        return model_embed_sizes(&e, part, rows, out);
    *out = (struct rf_block_sizes){0};
    snprintf(out->fault, sizeof(out->fault),
             "sequences of %lld tokens are longer than the model's %d positions; use shorter ones",
             (long long)seq, g->seq);
    return RF_EINVAL;
}

static int context_sizes(const void *self, const struct rf_context_part *part, int64_t rows,
                         int64_t seq, struct rf_block_sizes *out)
{
    const struct model_embedding e = embedding_of(self);
    RETURN_IF_FAILED(tensor_sizes(self, NULL, rows, seq * part->ranks, out));
    out->scratch += model_embed_context_scratch(&e, seq);
    return 0;
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    return tensor_sizes(self, NULL, rows, seq, out);
}

const struct rf_block_ops gpt2_embedding_ops = {
    forward,      backward_input, backward_weight,       sizes,
    tensor_sizes, context_sizes,  &gpt2_embedding_decode};
