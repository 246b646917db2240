/* SPDX-License-Identifier: MIT
 *
 * The training kernels. Every call records its launches on `stream` and does not block. Arguments
 * are checked before anything is recorded: RF_EINVAL names the tensor, its shape and the expected
 * one. Results are deterministic: reductions are fixed trees, and no kernel uses float atomics.
 *
 * Types: activations and parameters (T in the comments) are f32, f16 or bf16. All tensors of one
 * call have the same T unless its comment says otherwise. Token ids are i32. Statistics, losses and
 * scratch are f32. Arithmetic and sums are f32 whatever the storage, and each result is rounded
 * once, to nearest even, when it is stored. NaN and infinity are kept. f16 overflows to infinity
 * from 65520 on, and keeps its subnormals. The device may flush f32 and bf16 subnormals to zero.
 * 16-bit tensors also work on devices without 16-bit types, and may start at any element.
 *
 * Gradients of parameters accumulate (+=). Gradients of activations overwrite (=). An output must
 * not alias an input unless the comment allows it.
 *
 * Shapes: n is the number of rows, (B,T) flattened (batch, sequence). C channels, V vocabulary, H
 * heads, D = C/H. (n,C) is a tensor with these dimensions.
 *
 * This header has products, attention and reductions, and includes ops_decode.h,
 * ops_elementwise.h, ops_norm.h, ops_operand.h, ops_optimizer.h and ops_vocabulary.h.
 */
#ifndef RINGFORGE_OPS_H
#define RINGFORGE_OPS_H

#include "ops_decode.h"
#include "ops_elementwise.h"
#include "ops_norm.h"
#include "ops_operand.h"
#include "ops_optimizer.h"
#include "ops_vocabulary.h"
#include "quantize.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- matrix product -------------------------------------------------------------------------- */

/* Strides of a matrix in a tensor, in elements. */
struct rf_layout {
    int64_t row; /* from one row to the next; 0: rows have no gaps */
    /* From one matrix of the batch to the next. 0: all products share the matrix; for out: the
     * matrices have no gaps. */
    int64_t step;
};

/* Zero is the default of every field. T is the type of a and b, R that of out. */
struct rf_matmul_opts {
    bool transpose_a;             /* a is (K,M), as for the gradient of a weight */
    bool transpose_b;             /* b is (N,K), as a weight (out,in) in the forward pass */
    bool accumulate;              /* out += instead of out =; not with bias, act or residual */
    float alpha;                  /* factor of the product a b; 0 = 1, RF_ZERO = 0 */
    const struct rf_tensor *bias; /* (N) of T, added to every row */
    enum rf_activation act;       /* NONE, RELU, GELU or SILU */
    /* (M,N) of R. With act it receives alpha a b + bias. The backward pass reads it. */
    const struct rf_tensor *pre;
    bool act_backward;                /* out = alpha a b * act'(pre) */
    const struct rf_tensor *residual; /* (M,N) of R, added last; may be out itself */

    /* Batches, and matrices inside larger tensors. With m, n and k set, the shapes of the tensors
     * are ignored, and only their sizes are checked. Otherwise the sizes come from the shapes; a
     * tensor with a step then has the matrices of the batch stacked as rows. bias is common to all
     * products; pre and residual have the layout of out. */
    int64_t batch; /* number of products, up to 65535; 0 = 1 */
    int64_t m, n, k;
    struct rf_layout a_layout, b_layout, out_layout;

    /* f32, rf_matmul_scratch() elements: allows a product with few tiles and a long k to be split
     * along k, for more parallel work. A smaller scratch allows as many parts as fit. NULL: no
     * split. */
    const struct rf_tensor *scratch;

    /* f32 operands on matrix units, as sums of this many 16-bit parts, 1 to 3; 0: plain f32.
     * Devices without matrix units, and CPU devices, always take plain f32. Sums are f32.
     *   RF_BF16 parts have the range of f32, and 24 (3 parts), 16 (2) or 8 (1) bits.
     *   RF_F16 parts have 22 bits (2 parts), need |x| < 65504, and have an absolute step of 2^-24.
     *   A product with an infinity is NaN.
     * Measured errors: bench/results/split.json. Henry, Tang, Heinecke 2019; Ootomo, Yokota
     * 2022. */
    uint32_t split;
    enum rf_dtype split_type; /* RF_F16 or RF_BF16; 0 = RF_BF16 */

    /* b is RF_U8: k n elements in rf_quantized_bytes() of this kind, from a multiple of 4 bytes on.
     * They are unpacked during the product, in f32; on matrix units they are then rounded to the
     * 16-bit type of a. Sizes are m, n and k, or come from the shapes of a and out. b has no
     * layout; not with transpose_a or a batch. With b_part, b is this part of such a matrix, up to
     * the end of the numbers of its blocks. */
    enum rf_quantization b_quantized;
    struct rf_quantized_part b_part;

    /* NULL = the best. "cooperative", "workgroup", "subgroup" or "tiled" forces that path;
     * "cooperative:N" also its tile N, "subgroup:1" tiles of 32 rows, "subgroup:2" of 8 (the bits
     * are the same). RF_ENOTSUP: that path cannot run the product; the message has the reason. */
    const char *path;
};

/* out (M,N) = act(alpha a (M,K) b (K,N) + bias) + residual. All dimensions but the last are
 * flattened into M. M, N and K may be any numbers from 1 on. out is of T or f32, or, if T is f32,
 * f16 or bf16. */
RF_API int rf_matmul(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                     struct rf_tensor b, const struct rf_matmul_opts *opts);

/* The path that rf_matmul takes on this device for a product of this type, with the sizes m, n and
 * k of opts; "none" if no path can run it, or a size is not 1 or more. */
RF_EXPORT const char *rf_matmul_path(struct rf_device *device, enum rf_dtype type,
                                     const struct rf_matmul_opts *opts);

/* The number of elements that opts->scratch may use for this product; 0: it is not split. The
 * number depends on the arguments and the device only. So do the bits of the result; the size of
 * the scratch is one of the arguments. */
RF_EXPORT int64_t rf_matmul_scratch(struct rf_device *device, enum rf_dtype type,
                                    const struct rf_matmul_opts *opts);

/* One row of the table of measured paths (`ringforge tune`): products of this type and form, with
 * sizes of these classes, use this path. The first product on a device reads the table of this
 * device and driver from the cache folder; a damaged file is logged and ignored. Paths add in
 * different orders, so another table may give other bits. */
struct rf_matmul_choice {
    enum rf_dtype type;
    bool transpose_a, transpose_b;
    int m_class, n_class, k_class; /* rf_matmul_class of m, n and k */
    char path[24];                 /* "tiled", "cooperative:3" */
};

/* The class of a size: its logarithm to base 2, rounded up. */
RF_EXPORT int rf_matmul_class(int64_t size);

/* Uses a copy of these choices in this process instead of those of the file. count 0: the built-in
 * rules. No other thread may be recording on the device. */
RF_API int rf_matmul_table_use(struct rf_device *device, const struct rf_matmul_choice *choices,
                               uint32_t count);

/* Writes the file that later processes read. path (NULL: unused) receives its name, at most
 * `bytes`. */
RF_API int rf_matmul_table_save(struct rf_device *device, const struct rf_matmul_choice *choices,
                                uint32_t count, char *path, size_t bytes);

/* A path with one type of operands: whether it runs on a device, or the reason why not. */
struct rf_matmul_path_info {
    const char *name;
    enum rf_dtype type;
    bool built; /* false: the shader compiler of the build was too old for it */
    bool usable;
    bool split_only;    /* f32 only with the option split */
    const char *reason; /* the reason why it is not usable, a sentence; else empty */
};

/* Fills at most `capacity` records; *count is the number of all. The strings live as long as the
 * device. */
RF_API int rf_matmul_paths(struct rf_device *device, struct rf_matmul_path_info *infos,
                           uint32_t capacity, uint32_t *count);

/* The form (tiles, parts of a subgroup) of a kernel on a device, and the reason. */
enum { RF_KERNEL_FAMILY_BYTES = 48, RF_KERNEL_FORM_BYTES = 48 };
struct rf_kernel_form {
    char family[RF_KERNEL_FAMILY_BYTES]; /* "matmul_cooperative/f16/nt" */
    char form[RF_KERNEL_FORM_BYTES];     /* "128x128 tile, 32x32 per subgroup" */
    bool asked;           /* the driver's compiler was asked; else registers were estimated */
    int64_t spills;       /* as the compiler reports, in its units; -1: it was not asked */
    uint32_t spilling;    /* larger forms that spill, as the compiler reports */
    uint32_t over_budget; /* larger forms that need more registers than the device is assumed to
                           * have */
    char why[144];        /* the same in words: "2 larger forms spill" */
};

/* Whether kernels of this device treat subnormal f32 numbers as 0, as operands or as results:
 * Vulkan leaves that to drivers. The first call for a driver in a process runs a kernel. The
 * environment variable RF_FLUSH_SUBNORMALS may give the answer instead; a counting device does not
 * flush. Thread-safe; blocking. Errors: those of a launch, RF_EINVAL for the variable. */
RF_API int rf_device_flushes_subnormals(struct rf_device *device, bool *out);

/* Fills at most `capacity` records, for the kernels chosen on this device so far in this process;
 * *count is the total number. Some sizes may use a smaller form than the one shown. None on CPU
 * devices, where no choice depends on registers. */
RF_API int rf_kernel_forms(struct rf_device *device, struct rf_kernel_form *forms,
                           uint32_t capacity, uint32_t *count);

/* The number of elements of the scratch of rf_bias_grad. */
RF_EXPORT int64_t rf_bias_grad_scratch(int64_t rows, int64_t columns);

/* dbias (N) += sums of the columns of dout (n,N) of T. dbias is f32 or of T. */
RF_API int rf_bias_grad(struct rf_stream *stream, struct rf_tensor dbias, struct rf_tensor dout,
                        struct rf_tensor scratch);

/* ---- attention ------------------------------------------------------------------------------- */

/* A view (B,T,H,D) of heads in a tensor. Element (b,t,h,d) is element first + b batch_stride + t
 * row_stride + h head_stride + d of `tensor`, whose shape is ignored. */
struct rf_heads {
    struct rf_tensor tensor;
    int64_t first;
    int64_t batch, rows, heads, size; /* B, T, H, D */
    int64_t batch_stride, row_stride, head_stride;
};

/* Heads first to first + heads - 1 of every row of a (B,T,C) or (T,C) tensor, each of `size`
 * elements. For rows (H+2K)D with H heads of queries, then K of keys and K of values:
 *     q = rf_heads_in(qkv, D, 0, H), k = rf_heads_in(qkv, D, H, K), v = rf_heads_in(qkv, D, H+K, K)
 * Heads outside the rows are not checked here; the operation that uses the view refuses them. */
RF_EXPORT struct rf_heads rf_heads_in(struct rf_tensor tensor, int64_t size, int64_t first,
                                      int64_t heads);

/* q, k, v and out have the same type T. */
struct rf_attention_args {
    struct rf_heads q;    /* (B,Tq,H,D), D up to 256; multiples of 8 from 32 to 128 are fastest */
    struct rf_heads k, v; /* (B,Tk,K,D); K divides H: query head h uses head h / (H/K) */
    struct rf_heads out;  /* (B,Tq,H,D) */
    struct rf_tensor lse; /* (B,H,Tq) f32: log of the sum of exp of the scores */
    /* true: every query sees all keys. false: causal, aligned at the end: query i sees keys up to
     * i + Tk - Tq; needs Tk >= Tq. */
    bool full;
    /* NULL buffer: none. (B,T) i32, for rows that hold several documents: the index in its row of
     * the first token of each token's document. Query i sees keys starts[i] to i. Not with `full`;
     * needs Tq = Tk. Starts must not decrease along a row, and starts[i] <= i; other values are
     * treated as i, or hide further keys. Blocks of keys that no query of a block sees take no
     * time. */
    struct rf_tensor starts;
    float scale; /* of the scores; 0 = 1/sqrt(D), RF_ZERO = 0 */
    /* NULL = the best. "rows" (CPU drivers), "tiled" (GPUs) or "units" (matrix units; f16 and bf16;
     * attention weights and their gradients are rounded to T) forces that path; "tiled:2" one of
     * its forms (src/ops/attention_forms.c). RF_ENOTSUP: the path cannot run here. For f16 and bf16
     * the best is "units" on GPUs with matrix units and subgroups of 32 or more. */
    const char *path;
};

/* out = softmax(scale q k' + mask) v by online softmax, without a T*T tensor (Dao 2023,
 * FlashAttention-2). Writes out and lse, which must not overlap anything. */
RF_API int rf_attend(struct rf_stream *stream, const struct rf_attention_args *args);

/* All of type T. Outputs must not overlap anything, but may be parts of the same rows. */
struct rf_attention_grads {
    struct rf_heads dout;       /* as out */
    struct rf_heads dq, dk, dv; /* =; with the strides of q, k and v */
    struct rf_tensor delta;     /* scratch (B,H,Tq) f32 */
};

/* args: as in the forward pass, with its out and lse. dk and dv are sums over the H/K query heads
 * that share them, in order. */
RF_API int rf_attend_backward(struct rf_stream *stream, const struct rf_attention_args *args,
                              const struct rf_attention_grads *grads);

/* Chooses the forms of causal attention, forward and backward, for this type and aligned heads of
 * this size, and launches nothing: rf_kernel_forms then lists them. No effect on CPU devices. On a
 * GPU the first call compiles kernels, and blocks meanwhile. Thread-safe. RF_ENOTSUP: no form for
 * such heads. */
RF_API int rf_attention_choose(struct rf_device *device, enum rf_dtype type, int64_t head_size);

/* out (B,T,H,D) = x; with accumulate out += x, in f32, rounded once. Both have the same type T;
 * each has its own strides; D is any. out must not overlap x. */
RF_API int rf_copy_heads(struct rf_stream *stream, struct rf_heads out, struct rf_heads x,
                         bool accumulate);

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* Longer periods for longer sequences, as in Llama 3.1 ("llama3" of transformers). A pair that
 * turns less than `low` times in `original` tokens turns by 1/factor of its angle; one that turns
 * more than `high` times is unchanged; between them the two are interpolated linearly in the number
 * of turns. */
struct rf_rotary_scaling {
    double factor;    /* at least 1; 0 = none, and the rest is ignored */
    double low, high; /* 0 < low < high <= original */
    int64_t original; /* 1 to 2^31 - 1 */
};

struct rf_rotary_opts {
    double theta;     /* at least 1; 0 = 10000 */
    int64_t position; /* of every sequence's first row; the last row's must be at most 2^31 - 1 */
    bool halves; /* true: pairs (i, i + D/2) (GPT-NeoX, most Llama files); false: (2i, 2i + 1) */
    struct rf_rotary_scaling scaling;
};

/* out (B,T,H,D) = x with pair i of row t rotated by (position + t) theta^(-2i/D) (Su et al. 2021).
 * D is even, up to 256. out and x have the same type T. out may be exactly x; otherwise they must
 * not overlap. opts may be NULL. To rotate a part of each head, pass views with a smaller size.
 * Angles are accurate to 1e-7 of a turn at any position. */
RF_API int rf_rotary(struct rf_stream *stream, struct rf_heads out, struct rf_heads x,
                     const struct rf_rotary_opts *opts);

/* dx = dout rotated back. dx may be exactly dout. */
RF_API int rf_rotary_backward(struct rf_stream *stream, struct rf_heads dx, struct rf_heads dout,
                              const struct rf_rotary_opts *opts);

/* ---- reductions ------------------------------------------------------------------------------ */

/* The number of elements of the scratch of the three reductions below. */
RF_EXPORT int64_t rf_sum_scratch(int64_t count);

/* out (1) f32 = the sum of x (T), by a fixed tree: within chunks of 1024 elements, then pairwise by
 * the index of the chunk. scratch: f32. */
RF_API int rf_sum(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                  struct rf_tensor scratch);

/* out (1) f32 = the largest element; NaN if any element is NaN; minus infinity if x is empty. */
RF_API int rf_max(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                  struct rf_tensor scratch);

/* out (1) f32 = 1 if any element is infinite or NaN, else 0. For several buffers, take rf_max of
 * the results. */
RF_API int rf_any_nonfinite(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                            struct rf_tensor scratch);

/* Elements first to first + count - 1 of a flat buffer; count <= 1024. */
struct rf_norm_chunk {
    uint32_t first, count;
};

/* out (1) = the sum of squares of the elements of `flat` that are in chunks: each chunk's by a
 * fixed tree in f32, and the sum of these exactly, rounded once. So the result depends neither on
 * the order of chunks nor on the division of a buffer into chunks. flat: f32, f16 or bf16. chunks:
 * device i32 (chunks,2), as struct rf_norm_chunk. scratch: f32, rf_sum_squares_scratch(chunks)
 * elements. If the sum overflows f32, out is minus the sum divided by 2^192, which rf_step_begin
 * accepts. out is infinite or NaN only if an element is. */
RF_EXPORT int64_t rf_sum_squares_scratch(int64_t chunks);

RF_API int rf_sum_squares(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor flat,
                          struct rf_tensor chunks, struct rf_tensor scratch);

/* rf_sum_squares in three calls, for ranks that each hold a part of the gradients. The first: sums
 * (chunks) f32 = the sum of squares of each chunk, in the form above; 0 if its count is 0. */
RF_API int rf_square_chunks(struct rf_stream *stream, struct rf_tensor sums, struct rf_tensor flat,
                            struct rf_tensor chunks);

/* The second: exact (RF_EXACT_WORDS) i32 = the sum of sums, f32 numbers in that form: an integer in
 * units of 2^-149 as 43 words of 12 bits, the lowest first, and two flags, 0 or 1: any is infinite,
 * any is NaN. Every word is below 2^14, so up to 2^17 ranks may add theirs word by word, as
 * integers, in any order.
 *   scratch: i32, rf_add_squares_scratch(number of sums) elements.
 * RF_ENOTSUP: more than 2.6e8 sums. */
#define RF_EXACT_WORDS 45
RF_EXPORT int64_t rf_add_squares_scratch(int64_t sums);

RF_API int rf_add_squares(struct rf_stream *stream, struct rf_tensor exact, struct rf_tensor sums,
                          struct rf_tensor scratch);

/* The third: out (1) f32 = exact, which may be added up over ranks, rounded to the nearest;
 * infinite from 2^320 on. */
RF_API int rf_round_squares(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor exact);

#ifdef __cplusplus
}
#endif
#endif
