/* SPDX-License-Identifier: MIT
 *
 * One call of a layer, and the rows of the kinds of operations. A call is a list of steps. Ranks
 * that share the layer exchange a tensor after some of them (steps.h).
 *
 * Sizes: n rows, of which this rank has n' (fewer with sequence parallelism); C channels; H heads
 * of size D, K heads of keys and values, F hidden channels. Each of t tensor ranks has h = H/t, f =
 * F/t, and k = K/t, or k = 1 if several ranks have a copy of a key head.
 *
 * The gradient of the stream is `dout`, which backward_weight needs unchanged, until the first
 * operation adds to it; then it is `din`.
 */
#ifndef RF_MODELS_LAYER_CALL_H
#define RF_MODELS_LAYER_CALL_H

#include "context.h"
#include "decode.h"
#include "layer.h"

/* The tensors of an operation. */
struct layer_state {
    struct rf_tensor out;             /* its result, kept, in scratch, or recomputed */
    struct rf_tensor mean, rstd, lse; /* of a norm (n') (n'); of attention (n,h) */
    struct rf_tensor dout;      /* the gradient of the result, of the operand type of products, for
                                   backward_weight */
    struct rf_tensor held;      /* the result, recomputed for both halves of backward */
    struct rf_tensor dact;      /* (n,f), in scratch: the gradient of a gate */
    struct rf_tensor own[2][3]; /* meaning: the row of the kind */
};

/* Scratch of a phase. Each group begins at the start of the scratch. */
struct layer_work {
    /* Operands: (n,C), (n',C) of a post-norm, (n') (n') (n,2f) (n,f). */
    struct rf_tensor norm, post, mean, rstd, wide, act;
    struct rf_tensor mixed, delta, lse; /* attention: (n,hD), or its gradient; (n,h) */
    struct model_sequences sequences;
};

struct layer_row;
struct layer {
    const struct layer_row *const *rows; /* by kind */
    struct model_layer m;
    const struct layer_block *b;
    const struct layer_config *g;
    int64_t heads, keys, size; /* h, k, D */
    struct rf_tensor x, out, dout, din;
    struct rf_tensor taken[2]; /* (n',C), of a reversible layer: the inputs of its branches */
    bool inverts;
    struct layer_state op[LAYER_MOST];
    struct layer_work w;
};

/* ---- memory (layer_memory.c) ----------------------------------------------------------------- */

#define LAYER_MOST_CUTS (4 * LAYER_MOST)
struct layer_cuts {
    struct model_cut cut[LAYER_MOST_CUTS];
    int count;
};
void layer_cut(struct layer_cuts *cuts, struct model_cut cut);
struct layer_regions {
    struct layer_cuts saved, for_weight;
    struct layer_cuts operands, attention, gradients; /* of scratch */
};

enum layer_half { LAYER_FORWARD, LAYER_INPUT, LAYER_WEIGHT };
/* ctx may be NULL: for sizes. */
void layer_setup(struct layer *l, const struct layer_row *const *kinds, struct rf_ctx *ctx,
                 const struct layer_block *block, const struct rf_tensor_part *part, int64_t rows);
/* The tensors of a phase. */
int layer_open(struct layer *l, enum layer_half half);
void layer_fill_sizes(struct layer *l, struct rf_block_sizes *out);

/* ---- kinds ----------------------------------------------------------------------------------- */

/* A call of text generation. Results that are in use one at a time share memory: norms; sums with
 * the stream. */
struct layer_decode {
    const struct rf_decode *call;
    const struct layer_block *b;
    const struct layer_config *g;
    struct model_decode_attention attention;
    struct rf_tensor in, out; /* of the layer */
    struct rf_tensor norm, post, mean, rstd, sums, middle, angles;
    struct rf_tensor result[LAYER_MOST];  /* of the operations */
    struct rf_tensor work[LAYER_MOST][2]; /* of their own */
};

typedef int (*layer_function)(struct layer *l, int op);
struct layer_step {
    layer_function run;
    enum model_exchange then;
};
#define LAYER_MOST_STEPS 2

/* Any of the functions may be NULL. The lists end with a NULL function. */
struct layer_row {
    /* Adds the tensors of the operation to the regions. */
    void (*cut)(struct layer *l, int op, struct layer_regions *regions);
    struct layer_step forward[LAYER_MOST_STEPS];
    /* Backward, the half for the input. `begin` gets the gradient of the result. Before a row
     * linear continues, the operations between the stream and it are prepared: by `ready`, and by
     * `repeat`, which recomputes a result that is not kept. `back` computes the gradient of the
     * operation's input. */
    struct layer_step begin[LAYER_MOST_STEPS], ready[LAYER_MOST_STEPS], repeat[1],
        back[LAYER_MOST_STEPS];
    /* The half for the weights. `again` makes the result an operand again, for the next operation;
     * `weight` adds to the gradients of the parameters. */
    struct layer_step again[1], weight[LAYER_MOST_STEPS];
    /* Whether the gradient of a parameter of the operation is needed. */
    bool (*trains)(const struct layer *l, int op);
    /* Elements of f32 scratch for gradients of vectors. */
    int64_t (*scratch)(const struct layer *l, int op);

    /* Adds parameters that follow those of all linear maps and norms, and fills b->param. */
    void (*declare_last)(struct layer_block *b, struct model_part *part, const char *prefix,
                         int op);
    /* RF_EINVAL: tensor ranks cannot divide the operation. */
    int (*check_part)(const struct layer_config *g, int op, const struct rf_tensor_part *part);
    /* The fault of the operation by itself; NULL: none. */
    const char *(*fault)(const struct layer_op *op);
    /* The text of the operation in a config, after the kind's name. */
    const char *(*text)(const struct layer_op *op);
    /* Elements of gradients that tensor ranks compute in parts and add in the exchange MODEL_COPIES
     * (layer_shared.c): `weight` writes them to layer_shared_of, and take_shared adds the sums to
     * the gradients. late: `weight` comes after that of the operation before. */
    int64_t (*shared)(const struct layer *l, int op);
    layer_function take_shared;
    bool late;

    /* Text generation, for operations that change the previous result in place: tensors in scratch
     * (returns the number of cuts, at most 2), and the operation. */
    int (*decode_cut)(struct layer_decode *d, int op, struct model_cut *cuts);
    int (*decode)(const struct layer_decode *d, int op, struct rf_tensor value);
};
extern const struct layer_row *const layer_rows[LAYER_KINDS];                    /* layer_kinds.c */
extern const struct layer_row layer_norm_row, layer_identity_row, layer_add_row; /* layer_norm.c */
extern const struct layer_row layer_column_linear_row, layer_row_linear_row; /* layer_linear.c */
extern const struct layer_row layer_act_row, layer_gate_row;
extern const struct layer_row layer_heads_row;  /* layer_heads.c */
extern const struct layer_row layer_attend_row; /* layer_attend.c */

/* ---- the list (layer_list.c) ----------------------------------------------------------------- */

static inline enum layer_kind layer_kind_at(const struct layer *l, int op)
{
    return op < 0 || op >= l->b->count ? LAYER_END : l->g->ops[op].kind;
}
static inline const struct layer_row *layer_row_of(const struct layer *l, int op)
{
    return l->rows[layer_kind_at(l, op)];
}
/* Whether the result of the operation is not kept for the backward pass. */
bool layer_drops(const struct layer *l, int op);
/* Whether the backward pass recomputes it together with its group of operations, each from the one
 * before: attention; from the stream to an activation. */
bool layer_repeats(const struct layer *l, int op);
/* Columns of the operation's result on this rank. */
int64_t layer_columns(const struct layer *l, int op);
/* Whether the operation's input is the stream, and that stream. */
bool layer_takes_stream(const struct layer *l, int op);
struct rf_tensor layer_stream(const struct layer *l, int op);
/* The stream after the operation, which adds to it. */
struct rf_tensor layer_stream_after(const struct layer *l, int op);
/* The gradient of the stream after the operation; and the initial value for an operation that adds
 * to it, din. */
struct rf_tensor layer_stream_grad(const struct layer *l, int op);
int layer_begin_din(const struct layer *l, int op);
/* The gradient to which an operation adds whose input is the stream. */
struct rf_tensor layer_din(const struct layer *l, int op);
/* Whether the half for the input must compute the gradient of the operation's result, or of its
 * input. Ranks that share the layer take part in all exchanges, so they compute all except the
 * gradient of the layer's input. */
bool layer_needs(const struct layer *l, int op);
bool layer_needs_input(const struct layer *l, int op);

/* ---- operations that know each other --------------------------------------------------------- */

/* The result of a norm as the operand of a product, with all rows. */
struct rf_tensor layer_operand(const struct layer *l, int op);

/* Whether the gradient of an identity is added to that of the stream by the product that computes
 * it: on one rank, if the sum is rounded as it would be by itself. */
bool layer_joins_stream(const struct layer *l, int op);

/* A rank's heads of a packed tensor, or of an (n,hD) tensor. Queries and keys are adjacent, and so
 * are keys and values. */
int layer_heads_of(const struct layer *l, struct rf_tensor t, int64_t first, int64_t heads,
                   struct rf_heads *out);
struct model_context layer_context(const struct layer *l);

/* layer_pair.c. The steps of a branch of a reversible layer: reads the branch's stream into
 * `taken`; adds the branch's result to the other stream, or subtracts it; and copies the gradient
 * of the branch's stream, to which the branch's is added. */
static inline bool layer_is_pair(const struct layer *l)
{
    return l->g->reversible != RF_NOT_REVERSIBLE;
}
int layer_pair_take(struct layer *l, int op);
int layer_pair_add(struct layer *l, int op);
int layer_pair_begin(const struct layer *l, int op);
/* The same in text generation: the stream that a branch reads; the sum, in place. */
int layer_pair_decode_take(const struct layer_decode *d, int branch, struct rf_tensor out);
int layer_pair_decode_add(const struct layer_decode *d, int branch, struct rf_tensor term);
/* The number of sums before the operation. */
int layer_branch(const struct layer *l, int op);
struct rf_tensor layer_pair_grad(struct rf_tensor pair, int half);

/* layer_shared.c. Gradients that tensor ranks add: of rows of weights and elements of biases that
 * several ranks have copies of, and what rows of kinds have. */
int layer_shared_begin(struct layer *l, int op);
int layer_shared_take(struct layer *l, int op);
int layer_split_linear(struct layer *l, int op, struct rf_tensor in);
/* The operation's elements of ctx->exchange or ctx->exchanged. */
struct rf_tensor layer_shared_of(const struct layer *l, int op, struct rf_tensor all);

extern const struct rf_decode_ops layer_decode_ops; /* layer_decode.c */

#endif
