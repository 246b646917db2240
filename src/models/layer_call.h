/* SPDX-License-Identifier: MIT
 *
 * One call of a layer, and the rows of the kinds of operations that it consists of. A call is a
 * list of steps. Ranks that share the layer exchange a tensor after some of them (steps.h).
 *
 * Sizes: n rows, of which this rank has n' (fewer with sequence parallelism); C channels; H heads
 * of size D, K heads of keys and values, F hidden channels. Each of t tensor ranks has h = H/t, f =
 * F/t, and k = K/t, or k = 1 where several ranks have a copy of a key head.
 *
 * The gradient of the stream is `dout`, which backward_weight needs unchanged, until the first
 * operation adds to it; then it is `din`.
 */
#ifndef RF_MODELS_LAYER_CALL_H
#define RF_MODELS_LAYER_CALL_H

#include "context.h"
#include "layer.h"

/* The queries or the keys before their norm (n,hD) (n,kD), the norm's statistic (n,h) (n,k), and
 * the gradient of its result. */
struct layer_normed_heads {
    struct rf_tensor x, rstd, dout;
};

/* The tensors of an operation. */
struct layer_state {
    struct rf_tensor out;             /* its result, kept, in scratch, or to be computed again */
    struct rf_tensor mean, rstd, lse; /* of a norm (n') (n'); of attention (n,h) */
    struct rf_tensor dout; /* the gradient of the result, of the operand type of products, for
                              backward_weight */
    struct rf_tensor held; /* the result, computed again for both halves of backward */
    struct rf_tensor dact; /* (n,f), in scratch: the gradient of a gate */
    struct layer_normed_heads heads[2];
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
    const struct layer_row *const *rows; /* of the kinds */
    struct model_layer m;
    const struct layer_block *b;
    const struct layer_config *g;
    int64_t heads, keys, size; /* h, k, D */
    struct rf_tensor x, out, dout, din;
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
/* ctx may be NULL: for sizes. l->rows is left to the caller. */
void layer_setup(struct layer *l, struct rf_ctx *ctx, const struct layer_block *block,
                 const struct rf_tensor_part *part, int64_t rows);
/* The tensors of a phase. */
int layer_open(struct layer *l, enum layer_half half);
void layer_fill_sizes(struct layer *l, struct rf_block_sizes *out);

/* ---- kinds ----------------------------------------------------------------------------------- */

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
     * linear goes on, the operations between the stream and it get what they need: by `ready`, and
     * by `repeat`, which computes the result again, if it is not kept. `back` computes the gradient
     * of what the operation takes. */
    struct layer_step begin[LAYER_MOST_STEPS], ready[LAYER_MOST_STEPS], repeat[1],
        back[LAYER_MOST_STEPS];
    /* The half for the weights. `again` makes the result an operand again, for the operation after
     * it; `weight` adds to the gradients of the parameters. */
    struct layer_step again[1], weight[LAYER_MOST_STEPS];
    /* Whether the gradient of a parameter of the operation is needed. */
    bool (*trains)(const struct layer *l, int op);
    /* Elements of f32 scratch for gradients of vectors. */
    int64_t (*scratch)(const struct layer *l, int op);
};
extern const struct layer_row layer_norm_row, layer_identity_row, layer_add_row; /* layer_norm.c */
extern const struct layer_row layer_column_linear_row, layer_row_linear_row; /* layer_linear.c */
extern const struct layer_row layer_act_row, layer_gate_row;
extern const struct layer_row layer_heads_row, layer_attend_row; /* layer_attend.c */

/* ---- the list (layer_list.c) ----------------------------------------------------------------- */

static inline enum layer_kind layer_kind_at(const struct layer *l, int op)
{
    return op < 0 || op >= l->b->count ? LAYER_END : l->g->ops[op].kind;
}
static inline const struct layer_row *layer_row_of(const struct layer *l, int op)
{
    return l->rows[layer_kind_at(l, op)];
}
/* Whether the result of the operation is not kept. */
static inline bool layer_drops(const struct layer *l, int op)
{
    return (l->m.recompute & l->g->ops[op].drop) != 0;
}
/* Whether the group of the operation is computed again. */
static inline bool layer_repeats(const struct layer *l, int op)
{
    return (l->m.recompute & l->g->ops[op].with) != 0;
}
/* Columns of the operation's result on this rank. */
int64_t layer_columns(const struct layer *l, int op);
/* Whether the operation takes the stream, and the stream that it takes. */
bool layer_takes_stream(const struct layer *l, int op);
struct rf_tensor layer_stream(const struct layer *l, int op);
/* The stream after the operation, which adds to it. */
struct rf_tensor layer_stream_after(const struct layer *l, int op);
/* The gradient of the stream after the operation; and a start for one that adds to it, din. */
struct rf_tensor layer_stream_grad(const struct layer *l, int op);
int layer_begin_din(const struct layer *l, int op);
/* Whether the half for the input has to compute the gradient of the operation's result, or of what
 * it takes. Ranks that share the layer take part in all exchanges, so they compute all but the
 * gradient of the layer's input. */
bool layer_needs(const struct layer *l, int op);
bool layer_needs_input(const struct layer *l, int op);

/* ---- operations that know each other --------------------------------------------------------- */

/* The result of a norm as the operand of a product, with all rows. */
struct rf_tensor layer_operand(const struct layer *l, int op);

/* Whether the gradient of an identity is added to that of the stream by the product that computes
 * it: on one rank, if the sum is rounded as it would be by itself. */
bool layer_joins_stream(const struct layer *l, int op);

/* layer_shared.c. Gradients that tensor ranks add: of rows of weights and elements of biases that
 * several ranks have copies of, and of the norms of heads. */
int layer_shared_begin(struct layer *l, int op);
int layer_shared_take(struct layer *l, int op);
int layer_split_linear(struct layer *l, int op, struct rf_tensor in);
/* Where the gradient of a norm of heads goes. */
struct rf_tensor layer_head_norm_grad(const struct layer *l, int which);

extern const struct rf_decode_ops layer_decode_ops; /* layer_decode.c */

#endif
