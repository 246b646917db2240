/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the blocks with a vocabulary: the embedding, and the split
 * of tables and rows over tensor ranks. The table is split by rows into parts that may differ in
 * size. Rank k of t has rows k V / t to (k + 1) V / t, rounded down, like RF_SPLIT_ROWS.
 */
#ifndef RF_MODELS_VOCABULARY_H
#define RF_MODELS_VOCABULARY_H

#include "parts.h"

struct model_span {
    int64_t first, count;
};
/* The rows of the table that this rank has. */
struct model_span model_table_rows(const struct rf_tensor_part *part, int64_t vocab);
/* The rows of a micro-batch's inputs and outputs that this rank has: a part of them with sequence
 * parallelism, otherwise all. */
struct model_span model_own_rows(const struct rf_tensor_part *part, int64_t rows);
/* Some rows of a tensor. The number of dimensions stays the same; only the first one changes. */
struct rf_tensor model_rows_of(struct rf_tensor tensor, struct model_span rows);
/* RF_EINVAL: the ranks cannot share the block. */
int model_check_part(const struct rf_tensor_part *part, int64_t vocab, int64_t rows);

/* The first block of a model; it is the block's self. Parameters: the table of tokens (vocab,
 * channels), then, if `positions`, the table of positions. */
struct model_embedding {
    int64_t vocab, channels;
    enum rf_dtype dtype; /* of the tables and the output */
    int64_t positions;   /* rows of the table of positions; 0: none */
};
extern const struct rf_block_ops model_embedding_ops;
/* RF_EINVAL: sequences are longer than the table of positions. */
int model_embed_check(const struct model_embedding *e, int64_t seq);

#endif
