/* SPDX-License-Identifier: MIT
 *
 * Layers that tensor ranks may share (Shoeybi et al. 2019; Korthikanti et al. 2022). A call is a
 * list of steps; behind some of them ranks exchange a tensor, each kind of exchange only in some
 * ways of sharing. What lies between two exchanges is a phase, so that a layer of one rank, which
 * exchanges nothing, is one phase of the same steps.
 */
#ifndef RF_MODELS_STEPS_H
#define RF_MODELS_STEPS_H

#include "parts.h"

enum model_exchange {
    MODEL_NOTHING = 0,
    /* Terms of a sum, (n,C) of the type of the residual stream: added over the ranks. With sequence
     * parallelism each gets its own rows of that. */
    MODEL_SUM,
    /* Operands of products, (n,C): own rows become all, with sequence parallelism only. */
    MODEL_ROWS,
    MODEL_ROWS_AGAIN, /* the same, where the MLP is computed again */
    /* With shared sequences only: own keys and values become all, (c n,W); and gradients of all are
     * added, and each rank gets those of its own (context.h). */
    MODEL_KEYS,
    MODEL_KEY_GRADS,
    /* Terms of gradients of the rows of parameters of which ranks have copies, (copied,C) f32:
     * added. */
    MODEL_COPIES
};

/* What a layer is, whose part of it this rank has, and the call it is in. */
struct model_layer {
    struct rf_ctx *ctx;
    struct rf_tensor_part part;
    int64_t rows, own_rows; /* n, and those of what passes between blocks */
    int64_t channels;       /* C */
    enum rf_dtype dtype, residual;
    unsigned recompute;
    int64_t copied; /* rows of parameters that several ranks have, all of them; 0: none */
    struct rf_context_part context;
    int64_t key_columns; /* W: of keys and values together */
};

struct layer; /* each model's own */
struct model_step {
    int (*run)(struct layer *l);
    enum model_exchange then;
};
struct model_steps {
    const struct model_step *step;
    int count;
};
#define MODEL_STEPS(steps) steps, (int)(sizeof(steps) / sizeof((steps)[0]))
/* The steps of phase ctx->phase. m is the one of l. */
int model_run_steps(struct layer *l, const struct model_layer *m, struct model_steps steps);
void model_exchanges(const struct model_layer *m, struct model_steps steps,
                     struct rf_exchange out[RF_MAX_EXCHANGES]);

static inline bool model_alone(const struct model_layer *m)
{
    return m->part.ranks == 1;
}
static inline bool model_drops(const struct model_layer *m, enum model_recompute_part part)
{
    return (m->recompute & part) != 0;
}
/* How many times own_rows are in rows: for model_cut. */
static inline int model_row_parts(const struct model_layer *m)
{
    return m->part.sequence ? m->part.ranks : 1;
}

/* part NULL: one rank. ctx may be NULL; else sequences are shared as it says. */
void model_layer_init(struct model_layer *m, struct rf_ctx *ctx, const struct rf_tensor_part *part,
                      int64_t rows);

/* This rank's rows of (n,C). */
int model_own(const struct model_layer *m, struct rf_tensor all, struct rf_tensor *own);

/* out = in w^T + bias + residual, bias may be NULL. Where ranks have parts of the sum, it goes to
 * MODEL_SUM, and bias and residual are added to out behind that, by model_arrive, once. */
int model_project(const struct model_layer *m, struct rf_tensor out, struct rf_tensor in,
                  struct rf_tensor w, const struct rf_tensor *bias, struct rf_tensor residual);
int model_arrive(const struct model_layer *m, struct rf_tensor out, const struct rf_tensor *bias,
                 struct rf_tensor residual);
/* The same back: out = dout w. */
int model_project_back(const struct model_layer *m, struct rf_tensor out, struct rf_tensor dout,
                       struct rf_tensor w);
int model_arrive_back(const struct model_layer *m, struct rf_tensor out);

/* For MODEL_ROWS: where to write own rows so that they are given, else `place`; giving those that
 * lie elsewhere, in any type; and, behind it, all rows: of `own` where nothing was exchanged. */
int model_rows_place(const struct model_layer *m, struct rf_tensor place, struct rf_tensor *out);
int model_give_rows(const struct model_layer *m, struct rf_tensor own);
struct rf_tensor model_all_rows(const struct model_layer *m, struct rf_tensor own);

/* What the ranks must divide. */
struct model_division {
    int64_t count;
    const char *what; /* "heads" */
    bool copies;      /* or a multiple of it divides them */
};
/* RF_EINVAL, with a sentence in fault, where a number of ranks does not go. */
int model_divide(const struct rf_tensor_part *part, const struct model_division *divisions,
                 int count, char fault[120]);

#endif
