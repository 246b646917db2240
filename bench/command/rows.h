/* SPDX-License-Identifier: MIT
 *
 * The rows of the kernel benchmarks, in the order in which `bench ops` goes through them: each is a
 * struct bench_kernel bench_row_NAME in one of the rows_*.c. Included with BENCH_ROW defined, more
 * than once.
 */
/* clang-format off */
BENCH_ROW(fill)
BENCH_ROW(copy)
BENCH_ROW(cast)
BENCH_ROW(scale)
BENCH_ROW(add)
BENCH_ROW(gelu)
BENCH_ROW(gelu_backward)
BENCH_ROW(sum)
BENCH_ROW(sum_squares)
BENCH_ROW(adamw)
BENCH_ROW(layernorm)
BENCH_ROW(layernorm_backward_input)
BENCH_ROW(layernorm_backward_weight)
BENCH_ROW(bias_grad)
BENCH_ROW(embedding)
BENCH_ROW(embedding_backward)
BENCH_ROW(cross_entropy)
BENCH_ROW(swiglu)
BENCH_ROW(swiglu_backward)
BENCH_ROW(softmax)
BENCH_ROW(rmsnorm)
BENCH_ROW(residual_rmsnorm)
BENCH_ROW(matmul)
BENCH_ROW(matmul_gelu)
BENCH_ROW(matmul_batch)
BENCH_ROW(attention)
BENCH_ROW(attention_backward)
BENCH_ROW(rotary)
BENCH_ROW(rotary_backward)
BENCH_ROW(adam)
BENCH_ROW(sgd)
BENCH_ROW(momentum)
BENCH_ROW(nesterov)
BENCH_ROW(adagrad)
BENCH_ROW(rmsprop)
BENCH_ROW(lion)
/* clang-format on */
