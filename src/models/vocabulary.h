/* SPDX-License-Identifier: MIT
 *
 * What the blocks with a vocabulary share: the embedding of either model, and how tensor ranks cut
 * tables and rows. The table is cut by rows, in parts that need not be equal; rank k of t has the
 * rows from k V / t to (k + 1) V / t, rounded down, as RF_SPLIT_ROWS says.
 */
#ifndef RF_MODELS_VOCABULARY_H
#define RF_MODELS_VOCABULARY_H

#include "parts.h"

struct model_span {
    int64_t first, count;
};
/* Rows of the table that this rank has. */
struct model_span model_table_rows(const struct rf_tensor_part *part, int64_t vocab);
/* Rows of a micro-batch's inputs and outputs that this rank has: with sequence parallelism a part.
 */
struct model_span model_own_rows(const struct rf_tensor_part *part, int64_t rows);
/* Rows of a tensor with as many dimensions; the first is the one that is cut. */
struct rf_tensor model_rows_of(struct rf_tensor tensor, struct model_span rows);
/* RF_EINVAL, with the reason in out->fault, where the ranks cannot share the block. */
int model_check_part(const struct rf_tensor_part *part, int64_t vocab, int64_t rows,
                     struct rf_block_sizes *out);

/* Parameters: the table of tokens (vocab, channels), then, with positions, theirs. */
struct model_embedding {
    int64_t vocab, channels;
    enum rf_dtype dtype; /* of tables and output */
    bool positions;
};
int model_embed(const struct rf_ctx *ctx, const struct model_embedding *e, struct rf_tensor tokens,
                struct rf_tensor out);
/* Gradients of the tables. */
int model_embed_backward(const struct rf_ctx *ctx, const struct model_embedding *e,
                         struct rf_tensor tokens, struct rf_tensor dout);
/* What these need of scratch, behind the rest, where ranks share sequences of which this one has
 * `seq` tokens: their positions. */
uint64_t model_embed_context_scratch(const struct model_embedding *e, int64_t seq);
/* part NULL: not shared. */
int model_embed_sizes(const struct model_embedding *e, const struct rf_tensor_part *part,
                      int64_t rows, struct rf_block_sizes *out);

#endif
