/* SPDX-License-Identifier: MIT
 *
 * Layers that tensor ranks may share (Shoeybi et al. 2019; Korthikanti et al. 2022). A call is a
 * list of steps. The ranks exchange a tensor after some of the steps, depending on the kind of
 * parallelism. The steps between two exchanges form a phase. On one rank there are no exchanges,
 * and the same steps form a single phase.
 */
#ifndef RF_MODELS_STEPS_H
#define RF_MODELS_STEPS_H

#include "parts.h"

enum model_exchange {
    MODEL_NOTHING = 0,
    /* Partial sums, (n,C) in the type of the residual stream, are added over the ranks. With
     * sequence parallelism each rank gets its own rows of the sum. */
    MODEL_SUM,
    /* Operands of products, (n,C), are gathered from each rank's rows. Only with sequence
     * parallelism. */
    MODEL_ROWS,
    /* Only if sequences are split: keys and values of all ranks are gathered, (c n,W); their
     * gradients are added, and each rank gets those of its own (context.h). */
    MODEL_KEYS,
    MODEL_KEY_GRADS,
    /* Partial gradients of parameter rows that several ranks have copies of, (copied,C) f32, and of
     * `shared` further elements are added. */
    MODEL_COPIES
};

/* A layer, this rank's part of it, and the current call. */
struct model_layer {
    struct rf_ctx *ctx;
    struct rf_tensor_part part;
    int64_t rows, own_rows; /* n, and this rank's rows of a block's input and output */
    int64_t channels;       /* C */
    enum rf_dtype dtype, residual;
    unsigned recompute;
    int64_t copied; /* number of parameter rows that several ranks have copies of */
    int64_t shared; /* number of elements of vectors with partial gradients */
    struct rf_context_part context;
    int64_t key_columns; /* W: columns of keys and values together */
};

/* The tensor that the ranks of the layer exchange; RF_EXCHANGE_NONE: none. */
struct rf_exchange model_exchange_of(const struct model_layer *m, enum model_exchange kind);

static inline bool model_alone(const struct model_layer *m)
{
    return m->part.ranks == 1;
}
/* rows / own_rows, for model_cut. */
static inline int model_row_parts(const struct model_layer *m)
{
    return m->part.sequence ? m->part.ranks : 1;
}

/* part may be NULL: one rank. ctx may be NULL; otherwise it has the split of sequences. */
void model_layer_init(struct model_layer *m, struct rf_ctx *ctx, const struct rf_tensor_part *part,
                      int64_t rows);

/* This rank's rows of an (n,C) tensor. */
int model_own(const struct model_layer *m, struct rf_tensor all, struct rf_tensor *own);

/* After the exchange MODEL_SUM, on several ranks: out = the sum + bias + residual, or out = the
 * sum, of this rank's rows. bias may be NULL. linear.h has the products. */
int model_add_sum(const struct model_layer *m, struct rf_tensor out, const struct rf_tensor *bias,
                  struct rf_tensor residual);
int model_copy_sum(const struct model_layer *m, struct rf_tensor out);

/* For the exchange MODEL_ROWS. model_rows_place: where to write this rank's rows so that they need
 * no copy; `place` if there is no exchange. model_write_rows: copies rows of any type that were
 * written elsewhere. model_all_rows: all rows after the exchange, or `own` if there was none. */
int model_rows_place(const struct model_layer *m, struct rf_tensor place, struct rf_tensor *out);
int model_write_rows(const struct model_layer *m, struct rf_tensor own);
struct rf_tensor model_all_rows(const struct model_layer *m, struct rf_tensor own);

/* A count that must be a multiple of the number of ranks. */
struct model_division {
    int64_t count;
    const char *what; /* "heads" */
    bool copies;      /* also allowed: the number of ranks is a multiple of count */
};
/* RF_EINVAL: the number of ranks is not possible. */
int model_divide(const struct rf_tensor_part *part, const struct model_division *divisions,
                 int count);

#endif
