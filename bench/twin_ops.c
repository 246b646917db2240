/* SPDX-License-Identifier: MIT
 *
 * The loops of the C twin. As in llm.c, four of them run on all threads (products, attention
 * forward, softmax) and the rest on one. row_loop.h has the inner loop of a product.
 */
#include "twin.h"

#include <math.h>

#include "row_loop.h"

static void one_row(float *out, const float *in, const float *weight, const float *bias, int c,
                    int oc)
{
    for (int o = 0; o < oc; o++) {
        float sum = bias ? bias[o] : 0;
        for (int i = 0; i < c; i++)
            sum += in[i] * weight[(size_t)o * c + i];
        out[o] = sum;
    }
}

void twin_matmul(float *out, const float *in, const float *weight, const float *bias, int n, int c,
                 int oc)
{
    int whole = n / ROW_LOOP_ROWS * ROW_LOOP_ROWS;
#pragma omp parallel for
    for (int r = 0; r < whole; r += ROW_LOOP_ROWS)
        row_loop(out + (size_t)r * oc, in + (size_t)r * c, weight, bias, c, oc);
    for (int r = whole; r < n; r++)
        one_row(out + (size_t)r * oc, in + (size_t)r * c, weight, bias, c, oc);
}

void twin_matmul_backward(float *din, float *dweight, float *dbias, const float *dout,
                          const float *in, const float *weight, int n, int c, int oc)
{
#pragma omp parallel for
    for (int r = 0; r < n; r++) {
        float *to = din + (size_t)r * c;
        for (int o = 0; o < oc; o++) {
            const float *w = weight + (size_t)o * c;
            float d = dout[(size_t)r * oc + o];
            for (int i = 0; i < c; i++)
                to[i] += w[i] * d;
        }
    }
#pragma omp parallel for
    for (int o = 0; o < oc; o++) {
        float *to = dweight + (size_t)o * c;
        for (int r = 0; r < n; r++) {
            const float *from = in + (size_t)r * c;
            float d = dout[(size_t)r * oc + o];
            if (dbias)
                dbias[o] += d;
            for (int i = 0; i < c; i++)
                to[i] += from[i] * d;
        }
    }
}

void twin_norm(float *out, float *mean, float *rstd, const float *x, const float *gamma,
               const float *beta, int n, int c)
{
    for (int r = 0; r < n; r++, x += c, out += c) {
        float m = 0, v = 0;
        for (int i = 0; i < c; i++)
            m += x[i];
        m /= (float)c;
        for (int i = 0; i < c; i++)
            v += (x[i] - m) * (x[i] - m);
        float s = 1 / sqrtf(v / (float)c + 1e-5f);
        for (int i = 0; i < c; i++)
            out[i] = (x[i] - m) * s * gamma[i] + beta[i];
        mean[r] = m;
        rstd[r] = s;
    }
}

void twin_norm_backward(float *dx, float *dgamma, float *dbeta, const float *dout, const float *x,
                        const float *gamma, const float *mean, const float *rstd, int n, int c)
{
    for (int r = 0; r < n; r++, x += c, dx += c, dout += c) {
        float sum = 0, dot = 0, m = mean[r], s = rstd[r];
        for (int i = 0; i < c; i++) {
            float normal = (x[i] - m) * s, d = gamma[i] * dout[i];
            sum += d;
            dot += d * normal;
        }
        sum /= (float)c;
        dot /= (float)c;
        for (int i = 0; i < c; i++) {
            float normal = (x[i] - m) * s;
            dbeta[i] += dout[i];
            dgamma[i] += normal * dout[i];
            dx[i] += (gamma[i] * dout[i] - sum - normal * dot) * s;
        }
    }
}

void twin_attention(float *out, float *scores, float *weights, const float *qkv, int b, int t,
                    int c, int heads)
{
    const int size = c / heads;
    const float scale = 1 / sqrtf((float)size);
#pragma omp parallel for collapse(3)
    for (int batch = 0; batch < b; batch++)
        for (int i = 0; i < t; i++)
            for (int h = 0; h < heads; h++) {
                const float *base = qkv + (size_t)batch * t * 3 * c + (size_t)h * size;
                const float *q = base + (size_t)i * 3 * c;
                size_t row = (((size_t)batch * heads + h) * t + i) * t;
                float *score = scores + row, *weight = weights + row;
                float *to = out + ((size_t)batch * t + i) * c + (size_t)h * size;
                float top = -10000, sum = 0;
                for (int j = 0; j <= i; j++) {
                    const float *k = base + (size_t)j * 3 * c + c;
                    float dot = 0;
                    for (int d = 0; d < size; d++)
                        dot += q[d] * k[d];
                    score[j] = dot * scale;
                    top = score[j] > top ? score[j] : top;
                }
                for (int j = 0; j <= i; j++)
                    sum += weight[j] = expf(score[j] - top);
                for (int j = 0; j < t; j++)
                    weight[j] = j <= i ? weight[j] / sum : 0;
                for (int d = 0; d < size; d++)
                    to[d] = 0;
                for (int j = 0; j <= i; j++) {
                    const float *v = base + (size_t)j * 3 * c + 2 * c;
                    for (int d = 0; d < size; d++)
                        to[d] += weight[j] * v[d];
                }
            }
}

/* The gradient of one query's row: through the weighted sum of values, the softmax, and the dot
 * products. */
static void attention_row_backward(float *dbase, float *dscore, float *dweight, const float *dto,
                                   const float *base, const float *weight, int i, int c, int size)
{
    const float scale = 1 / sqrtf((float)size);
    const size_t step = 3 * (size_t)c;
    for (int j = 0; j <= i; j++) {
        const float *v = base + j * step + 2 * c;
        float *dv = dbase + j * step + 2 * c;
        for (int d = 0; d < size; d++) {
            dweight[j] += v[d] * dto[d];
            dv[d] += weight[j] * dto[d];
        }
    }
    for (int j = 0; j <= i; j++)
        for (int k = 0; k <= i; k++)
            dscore[k] += weight[j] * ((j == k ? 1.0f : 0.0f) - weight[k]) * dweight[j];
    for (int j = 0; j <= i; j++) {
        const float *k = base + j * step + c, *q = base + i * step;
        float *dk = dbase + j * step + c, *dq = dbase + i * step;
        for (int d = 0; d < size; d++) {
            dq[d] += k[d] * dscore[j] * scale;
            dk[d] += q[d] * dscore[j] * scale;
        }
    }
}

void twin_attention_backward(float *dqkv, float *dscores, float *dweights, const float *dout,
                             const float *qkv, const float *weights, int b, int t, int c, int heads)
{
    const int size = c / heads;
    for (int batch = 0; batch < b; batch++)
        for (int i = 0; i < t; i++)
            for (int h = 0; h < heads; h++) {
                size_t first = (size_t)batch * t * 3 * c + (size_t)h * size;
                size_t row = (((size_t)batch * heads + h) * t + i) * t;
                attention_row_backward(dqkv + first, dscores + row, dweights + row,
                                       dout + ((size_t)batch * t + i) * c + (size_t)h * size,
                                       qkv + first, weights + row, i, c, size);
            }
}

void twin_gelu(float *out, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = 0.5f * x[i] * (1 + tanhf(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
}

void twin_gelu_backward(float *dx, const float *x, const float *dout, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float u = 0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        float th = tanhf(u), ch = coshf(u), slope = 0.79788456f * (1 + 3 * 0.044715f * x[i] * x[i]);
        dx[i] += (0.5f * (1 + th) + x[i] * 0.5f / (ch * ch) * slope) * dout[i];
    }
}

void twin_softmax(float *probabilities, const float *logits, int n, int vocab, int padded)
{
#pragma omp parallel for
    for (int r = 0; r < n; r++) {
        const float *x = logits + (size_t)r * padded;
        float *p = probabilities + (size_t)r * padded, top = -10000, sum = 0;
        for (int i = 0; i < vocab; i++)
            top = x[i] > top ? x[i] : top;
        for (int i = 0; i < vocab; i++) {
            p[i] = expf(x[i] - top);
            sum += p[i];
        }
        for (int i = 0; i < vocab; i++)
            p[i] /= sum;
        for (int i = vocab; i < padded; i++)
            p[i] = 0;
    }
}

float twin_loss(float *dlogits, const float *probabilities, const int32_t *targets, int n,
                int vocab, int padded)
{
    double loss = 0;
    for (int r = 0; r < n; r++) {
        const float *p = probabilities + (size_t)r * padded;
        float *d = dlogits + (size_t)r * padded;
        loss -= log((double)p[targets[r]]);
        for (int i = 0; i < vocab; i++)
            d[i] += (p[i] - (i == targets[r] ? 1.0f : 0.0f)) / (float)n;
    }
    return (float)(loss / n);
}
