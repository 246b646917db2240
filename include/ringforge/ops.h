/* SPDX-License-Identifier: MIT
 *
 * The training kernels. Every call records on `stream` and does not block; arguments are checked
 * before anything is recorded (RF_EINVAL names the tensor, its shape and what was expected).
 * All results are deterministic: fixed reduction trees, no float atomics. Token ids are i32.
 *
 * Types: activations and parameters (T in the comments) are f32, f16 or bf16, all of one call the
 * same unless a comment says otherwise; statistics, losses and scratch are f32. Arithmetic and sums
 * are f32 whatever the storage, rounded once at the store, to the nearest, ties to even. NaN and
 * infinity survive; f16 overflows to infinity (from 65520 up) and keeps its subnormals; f32 and
 * bf16 subnormals may be flushed to zero by the device's arithmetic. 16-bit tensors work on devices
 * without 16-bit types, and may start at any element.
 *
 * House rule: gradients of parameters accumulate (+=), gradients of activations overwrite (=).
 * An output must not alias an input unless the comment allows it.
 *
 * Here: products, attention, reductions, optimizers. The others are in ops_elementwise.h,
 * ops_norm.h and ops_vocabulary.h.
 *
 * "n" is the number of rows: batch times sequence, (B,T) flattened. C channels, V vocabulary,
 * H heads, D = C/H.
 */
#ifndef RINGFORGE_OPS_H
#define RINGFORGE_OPS_H

#include "ops_elementwise.h"
#include "ops_norm.h"
#include "ops_optimizer.h"
#include "ops_vocabulary.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- matmul ---------------------------------------------------------------------------------- */

/* How matrices lie in a tensor, in elements. */
struct rf_layout {
    int64_t row;  /* from a row to the next; 0: rows have no gaps */
    int64_t step; /* from a product of the batch to the next; 0: all share the matrix, or, of out,
                     products have no gaps */
};
/* Zero is the default of each. T is the type of a and b, R that of out. */
struct rf_matmul_opts {
    bool transpose_a;             /* a is (K,M): the weight gradient's form */
    bool transpose_b;             /* b is (N,K): the forward form of a (out,in) weight */
    bool accumulate;              /* out += instead of out = */
    float alpha;                  /* a factor of a b; 0 stands for 1 */
    const struct rf_tensor *bias; /* (N) of T: added to every row */
    enum rf_activation act;       /* one of the first four */
    const struct rf_tensor *pre; /* (M,N) of R: with act, receives alpha a b + bias for the backward
                                    pass, which gives it back */
    bool act_backward;           /* out = alpha a b * act'(pre) */
    const struct rf_tensor *residual; /* (M,N) of R: added last; may be out itself */
    /* Batches, and matrices that are parts of others. With m, n and k the shapes of the tensors do
     * not matter, only where they begin and that they are long enough. Without them the sizes come
     * from the shapes, a tensor with a step holding `batch` matrices below each other. bias serves
     * all products; pre and residual lie like out. */
    int64_t batch; /* products; 0 is 1; up to 65535 */
    int64_t m, n, k;
    struct rf_layout a_layout, b_layout, out_layout;
    /* f32, for the sums of parts of k where the device wants more work to do at once than out has
     * tiles; rf_matmul_scratch() elements, or with fewer as many parts as they hold. NULL: k is not
     * split. */
    const struct rf_tensor *scratch;
    /* f32 operands on matrix units: as sums of this many 16-bit parts, 1 to 3; 0: never. Where
     * there are no such units, and on CPU devices, plain f32 is taken instead. bf16 parts (3: f32's
     * own accuracy, 2: 16 bits, 1: 8 bits) have f32's range; f16 parts (2: 22 bits) need |x| <
     * 65504 and keep steps of 2^-24 only. A product of an infinity is NaN. Sums are f32. The errors
     * that were measured: docs/performance.md. After Henry, Tang, Heinecke 2019; Ootomo, Yokota
     * 2022. */
    uint32_t split;
    enum rf_dtype split_type; /* RF_F16, or RF_BF16, which 0 means, too */
    const char
        *path; /* NULL = best; "cooperative", "workgroup", "subgroup", "tiled": force (RF_ENOTSUP if
                  it cannot, and why). "cooperative:N" forces its Nth tile, too */
};
/* out (M,N) = act(alpha a (M,K) b (K,N) + bias) + residual; dimensions before the last are
 * flattened into M. Any size from 1. a and b are both of type T; out is of T, f32, or, where T is
 * f32, f16 or bf16. All is computed in f32 and rounded once. accumulate goes with none of bias, act
 * and residual. */
RF_API int rf_matmul(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                     struct rf_tensor b, const struct rf_matmul_opts *opts);
/* The name of the path rf_matmul would take on this device for a product of this type, "none" where
 * none can run it. */
RF_EXPORT const char *rf_matmul_path(struct rf_device *device, enum rf_dtype type, int64_t m,
                                     int64_t n, int64_t k, const struct rf_matmul_opts *opts);
/* What was measured (`ringforge tune`): for products of this type and form whose sizes have these
 * classes, take this path. A class is the logarithm to base 2, rounded up. The table of a device
 * and driver is read from the cache folder when its first product is picked; a damaged one is
 * ignored with a line in the log. Other paths add in another order, so bits may change with the
 * table. */
struct rf_matmul_choice {
    enum rf_dtype type;
    bool transpose_a, transpose_b;
    int m_class, n_class, k_class;
    char path[24]; /* "tiled", "cooperative:3" */
};
RF_EXPORT int rf_matmul_class(int64_t size);
/* Takes these choices (a copy) in this process from now on, in place of those of the file; count 0:
 * the built-in rules. Not while another thread records on the device. */
RF_API int rf_matmul_table_use(struct rf_device *device, const struct rf_matmul_choice *choices,
                               uint32_t count);
/* Writes the file that later processes read; path, if not NULL, receives its name. */
RF_API int rf_matmul_table_save(struct rf_device *device, const struct rf_matmul_choice *choices,
                                uint32_t count, char *path, size_t bytes);
/* Every path with every type of operands: whether it runs here, and why not. */
struct rf_matmul_path_info {
    const char *name;
    enum rf_dtype type;
    bool built; /* false: the shader compiler was too old for it */
    bool usable;
    bool split_only;    /* f32 with the option split only */
    const char *reason; /* why not usable: a sentence; else empty */
};
/* Fills up to `capacity` records and the number there is. The texts live as long as the device. */
RF_API int rf_matmul_paths(struct rf_device *device, struct rf_matmul_path_info *infos,
                           uint32_t capacity, uint32_t *count);
/* Elements that opts->scratch may need for this product; 0: it is not split. Depends on nothing but
 * the arguments and the device; so do the bits of the result, of whose arguments the scratch's size
 * is one. */
RF_EXPORT int64_t rf_matmul_scratch(struct rf_device *device, enum rf_dtype type, int64_t m,
                                    int64_t n, int64_t k, const struct rf_matmul_opts *opts);
/* dbias (N) += column sums of dout (n,N) of T; dbias is f32 or of T. scratch: f32,
 * rf_bias_grad_scratch(n, N) elements. */
RF_EXPORT int64_t rf_bias_grad_scratch(int64_t rows, int64_t columns);
RF_API int rf_bias_grad(struct rf_stream *stream, struct rf_tensor dbias, struct rf_tensor dout,
                        struct rf_tensor scratch);

/* ---- attention ------------------------------------------------------------------------------- */

/* Heads in a tensor, (B,T,H,D): element (b,t,h,d) is element first + b batch_stride + t row_stride
 * + h head_stride + d of `tensor`, whose own shape does not matter. */
struct rf_heads {
    struct rf_tensor tensor;
    int64_t first;
    int64_t batch, rows, heads, size; /* B, T, H, D */
    int64_t batch_stride, row_stride, head_stride;
};
/* Heads first .. first + heads - 1, of `size` elements each, of every row of a (B,T,C) or (T,C)
 * tensor. With (B,T,(H+2K)D) packed for H heads of queries and K of keys and values:
 * q = rf_heads_in(qkv, D, 0, H), k = rf_heads_in(qkv, D, H, K), v = rf_heads_in(qkv, D, H+K, K).
 * What does not lie in the rows is refused by the operation that gets it. */
RF_EXPORT struct rf_heads rf_heads_in(struct rf_tensor tensor, int64_t size, int64_t first,
                                      int64_t heads);

struct rf_attention_args {
    struct rf_heads q;    /* (B,Tq,H,D), D up to 128 (multiples of 8 from 32 on are fastest) */
    struct rf_heads k, v; /* (B,Tk,K,D); K divides H: query head h uses head h / (H/K) */
    struct rf_heads out;  /* (B,Tq,H,D) */
    struct rf_tensor lse; /* (B,H,Tq) f32: log of the sum of exp of the scores, for the backward */
    bool full;            /* all keys; else causal, aligned at the end: query i sees keys up to
                             i + Tk - Tq, which needs Tk >= Tq */
    float scale;          /* of the scores; 0 = 1/sqrt(D) */
    /* NULL = best; "rows" (CPU drivers), "tiled" (GPUs), "units" (matrix units, f16 and bf16;
     * weights and their gradients are rounded to T, too): force (RF_ENOTSUP if it cannot). */
    const char *path;
};
/* out = softmax(scale q k' + mask) v by online softmax, without a T*T tensor (Dao 2023,
 * FlashAttention-2). q, k, v, out are of one type T. out and lse overlap nothing. */
RF_API int rf_attend(struct rf_stream *stream, const struct rf_attention_args *args);
struct rf_attention_grads {
    struct rf_heads dout;       /* as out; all gradients of type T */
    struct rf_heads dq, dk, dv; /* =. With the strides of q, k and v */
    struct rf_tensor delta;     /* scratch (B,H,Tq) f32 */
};
/* dk and dv are summed over the H/K heads that share them, in order. args: as in the forward pass,
 * with its out and lse. What is written overlaps nothing, but may be parts of the same rows. */
RF_API int rf_attend_backward(struct rf_stream *stream, const struct rf_attention_args *args,
                              const struct rf_attention_grads *grads);

/* Causal self-attention, scale 1/sqrt(D): rf_attend for a packed tensor. qkv (B,T,3C) holds q, k,
 * v, each (H,D); out (B,T,C); lse (B,H,T) f32 is written for the backward. */
RF_API int rf_attention(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor lse,
                        struct rf_tensor qkv, int64_t heads);
/* dqkv =. delta: scratch (B,H,T) f32. */
RF_API int rf_attention_backward(struct rf_stream *stream, struct rf_tensor dqkv,
                                 struct rf_tensor dout, struct rf_tensor out, struct rf_tensor lse,
                                 struct rf_tensor qkv, int64_t heads, struct rf_tensor delta);

/* out (B,T,H,D) = x, or, with accumulate, out += x in f32, rounded once. Both are of one type T, and
 * strides are each its own; D is any. What is written overlaps nothing. */
RF_API int rf_copy_heads(struct rf_stream *stream, struct rf_heads out, struct rf_heads x,
                         bool accumulate);

/* ---- rotary embedding ------------------------------------------------------------------------ */

struct rf_rotary_opts {
    double theta;     /* at least 1; 0 = 10000 */
    int64_t position; /* of the first row of every batch; with the rows up to 2^31 - 1 */
    bool halves; /* pairs are (i, i + D/2) (GPT-NeoX, Llama in its usual files), else (2i, 2i+1) */
};
/* out (B,T,H,D) = x with pair i of row t turned by (position + t) theta^(-2i/D) (Su et al. 2021). D
 * even, up to 256. Out and x of one type T; out may be the very elements of x, else it must not
 * overlap. opts may be NULL. To turn only a part of each head, give a view with a smaller size.
 * Angles are good to 1e-7 of a turn at any position. */
RF_API int rf_rotary(struct rf_stream *stream, struct rf_heads out, struct rf_heads x,
                     const struct rf_rotary_opts *opts);
/* dx =: the same turns, back. dx may be dout. */
RF_API int rf_rotary_backward(struct rf_stream *stream, struct rf_heads dx, struct rf_heads dout,
                              const struct rf_rotary_opts *opts);

/* ---- reductions ------------------------------------------------------------------------------ */

/* out (1) f32 = sum of x (T), by a fixed tree: chunks of 1024 elements, then pairwise over the
 * chunk index. scratch: f32, rf_sum_scratch(count) elements. */
RF_EXPORT int64_t rf_sum_scratch(int64_t count);
RF_API int rf_sum(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                  struct rf_tensor scratch);

/* out (1) f32 = the largest element, NaN if any is NaN, minus infinity of none; by the same tree.
 */
RF_API int rf_max(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                  struct rf_tensor scratch);
/* out (1) f32 = 1 if any element is infinite or NaN, else 0; the same way. rf_max of the results
 * of several buffers is that of all. */
RF_API int rf_any_nonfinite(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                            struct rf_tensor scratch);

/* One piece of a flat buffer: `count` <= 1024 elements from element `first`. */
struct rf_norm_chunk {
    uint32_t first, count;
};
/* out (1) = sum of squares of `flat` over chunks (device i32 tensor (chunks,2) of rf_norm_chunk),
 * pairwise over the chunk index. The result depends on the chunk table only, not on how a buffer is
 * cut. Where the sum is too large for f32, out is minus the sum over 2^192, which rf_step_begin
 * takes; infinite or NaN only if an element is. flat: f32, f16 or bf16. scratch: f32, 2*chunks
 * elements. */
RF_API int rf_sum_squares(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor flat,
                          struct rf_tensor chunks, struct rf_tensor scratch);

/* The same in two calls, for ranks that have parts of the gradients: partials (2*chunks) f32, of
 * which the first `chunks` are the sums of the chunks, 0 of those with count 0; then out (1) from
 * them, which uses the rest. Between the two, partials of ranks with other chunks may be added. */
RF_API int rf_square_chunks(struct rf_stream *stream, struct rf_tensor partials,
                            struct rf_tensor flat, struct rf_tensor chunks);
RF_API int rf_fold_squares(struct rf_stream *stream, struct rf_tensor out,
                           struct rf_tensor partials);

#ifdef __cplusplus
}
#endif
#endif
