/* SPDX-License-Identifier: MIT
 *
 * What the two files of the head share: the norm, and the head on tensor ranks.
 */
#ifndef RF_MODELS_HEAD_H
#define RF_MODELS_HEAD_H

#include "parts.h"

struct model_head_norm {
    struct rf_tensor norm, mean, rstd; /* (n,C) (n) (n); no mean with RMSNorm */
};
int model_head_forward_norm(struct rf_ctx *ctx, const struct model_head *h,
                            const struct model_head_norm *s, struct rf_tensor in);
int model_head_norm_input(struct rf_ctx *ctx, const struct model_head *h,
                          const struct model_head_norm *s, struct rf_tensor din,
                          struct rf_tensor dnorm, struct rf_tensor in);
/* From the start of ctx->scratch. */
int model_head_norm_weight(struct rf_ctx *ctx, const struct model_head *h,
                           const struct model_head_norm *s, struct rf_tensor in,
                           struct rf_tensor dnorm);
/* Index of the table among the parameters. */
int model_head_table(const struct model_head *h);
struct rf_cross_entropy_opts model_head_loss(const struct rf_ctx *ctx);

/* As in struct rf_block_ops, whole or in chunks, on more than one tensor rank. */
int model_head_shared_forward(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor in,
                              struct rf_tensor out);
int model_head_shared_input(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor in,
                            struct rf_tensor dout, struct rf_tensor din);
int model_head_shared_weight(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor in,
                             struct rf_tensor dout);
int model_head_shared_sizes(const struct model_head *h, const struct rf_tensor_part *part,
                            int64_t rows, struct rf_block_sizes *out);

#endif
