/* SPDX-License-Identifier: MIT
 *
 * The files of the head. head.c has the block, and calls the other two. head_shared.c has the head
 * split over tensor ranks. head_norm.c has the functions that both use, and calls neither.
 */
#ifndef RF_MODELS_HEAD_H
#define RF_MODELS_HEAD_H

#include "parts.h"

/* ---- head_norm.c ----------------------------------------------------------------------------- */

struct model_head_norm {
    struct rf_tensor norm, mean, rstd; /* (n,C) (n) (n); RMSNorm has no mean */
};
int model_head_forward_norm(struct rf_ctx *ctx, const struct model_head *h,
                            const struct model_head_norm *s, struct rf_tensor in);
int model_head_norm_input(struct rf_ctx *ctx, const struct model_head *h,
                          const struct model_head_norm *s, struct rf_tensor din,
                          struct rf_tensor dnorm, struct rf_tensor in);
/* Uses scratch from the begin of ctx->scratch. */
int model_head_norm_weight(struct rf_ctx *ctx, const struct model_head *h,
                           const struct model_head_norm *s, struct rf_tensor in,
                           struct rf_tensor dnorm);
/* Whether a gradient before the table is needed: the norm's, or that of an earlier block. */
bool model_head_passes_back(const struct rf_ctx *ctx, const struct model_head *h);
/* The gradient of the table, if it is needed, from the gradients of all logits. */
int model_head_table_grad(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor dlogits,
                          struct rf_tensor norm);
/* The index of the table among the parameters. */
int model_head_table(const struct model_head *h);
struct rf_cross_entropy_opts model_head_loss(const struct rf_ctx *ctx);

/* ---- head_shared.c --------------------------------------------------------------------------- */

/* Like the functions of struct rf_block_ops, for both forms of the head, on several tensor ranks.
 */
int model_head_shared_forward(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor in,
                              struct rf_tensor out);
int model_head_shared_input(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor in,
                            struct rf_tensor dout, struct rf_tensor din);
int model_head_shared_weight(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor in,
                             struct rf_tensor dout);
int model_head_shared_sizes(const struct model_head *h, const struct rf_tensor_part *part,
                            int64_t rows, struct rf_block_sizes *out);

#endif
