/* SPDX-License-Identifier: MIT
 *
 * A program to compare our training step with: the same GPT-2 step in plain C loops with OpenMP,
 * organized like Karpathy's llm.c (train_gpt2.c) and rewritten, to show that program's speed. It
 * contains no code of ringforge. Used only by step.c.
 */
#ifndef RF_BENCH_TWIN_H
#define RF_BENCH_TWIN_H

#include <stddef.h>
#include <stdint.h>

struct twin_config {
    int layers, channels, heads, seq, batch, vocab;
};
struct twin_times {
    double forward, backward, update; /* seconds */
};

struct twin;
/* NULL if memory runs out. Parameters are zero. */
struct twin *twin_create(const struct twin_config *config);
void twin_destroy(struct twin *twin);
/* A parameter by its name in ringforge's GPT-2 ("blocks.0.ln1.weight"), and its number of elements;
 * NULL: unknown. Only the `vocab` rows of the token table are counted. */
float *twin_param(struct twin *twin, const char *name, size_t *count);
/* The name of parameter i, NULL behind the last. */
const char *twin_param_name(struct twin *twin, int i);
/* One step of AdamW (betas 0.9 and 0.999, eps 1e-8, decay 0 or `decay` for matrices) on a batch of
 * batch*seq tokens. Returns the mean loss. */
float twin_step(struct twin *twin, const int32_t *tokens, const int32_t *targets, float lr,
                float decay, struct twin_times *times);

/* The loops, in twin_ops.c. n rows of c channels; weights are (out, in). */
void twin_matmul(float *out, const float *in, const float *weight, const float *bias, int n, int c,
                 int oc);
void twin_matmul_backward(float *din, float *dweight, float *dbias, const float *dout,
                          const float *in, const float *weight, int n, int c, int oc);
void twin_norm(float *out, float *mean, float *rstd, const float *x, const float *gamma,
               const float *beta, int n, int c);
void twin_norm_backward(float *dx, float *dgamma, float *dbeta, const float *dout, const float *x,
                        const float *gamma, const float *mean, const float *rstd, int n, int c);
void twin_attention(float *out, float *scores, float *weights, const float *qkv, int b, int t,
                    int c, int heads);
void twin_attention_backward(float *dqkv, float *dscores, float *dweights, const float *dout,
                             const float *qkv, const float *weights, int b, int t, int c,
                             int heads);
void twin_gelu(float *out, const float *x, size_t count);
void twin_gelu_backward(float *dx, const float *x, const float *dout, size_t count);
/* probabilities (n, padded) of logits; columns from `vocab` become zero. */
void twin_softmax(float *probabilities, const float *logits, int n, int vocab, int padded);
/* dlogits += (probabilities - onehot) / n; returns the mean loss. */
float twin_loss(float *dlogits, const float *probabilities, const int32_t *targets, int n,
                int vocab, int padded);

#endif
