/* SPDX-License-Identifier: MIT
 *
 * The C twin's model: the layout of parameters and activations, and the order of a step.
 * Parameters, gradients and the two moments are one flat array each; gradients are cleared at the
 * start of a backward pass and everything accumulates, as in llm.c. The vocabulary is padded to a
 * multiple of 128 rows.
 */
#include "twin.h"

#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAYER_PARAMS 12
#define LAYER_ACTS 16
#define NAME_BYTES 48

enum layer_param {
    LN1_W,
    LN1_B,
    QKV_W,
    QKV_B,
    PROJ_W,
    PROJ_B,
    LN2_W,
    LN2_B,
    FC_W,
    FC_B,
    FC2_W,
    FC2_B
};
enum layer_act {
    NORM1,
    MEAN1,
    RSTD1,
    QKV,
    SCORES,
    WEIGHTS,
    MIXED,
    PROJ,
    MIDDLE,
    NORM2,
    MEAN2,
    RSTD2,
    PRE,
    ACT,
    FC2,
    OUT
};

struct layer {
    float *p[LAYER_PARAMS], *dp[LAYER_PARAMS], *a[LAYER_ACTS], *da[LAYER_ACTS];
};

struct param {
    char name[NAME_BYTES];
    size_t at, count;
    int matrix;
};

struct twin {
    struct twin_config config;
    int padded, param_count, steps;
    size_t param_floats, act_floats;
    float *params, *grads, *first, *second, *acts, *dacts;
    struct param *list;
    struct layer *layers;
    size_t embedded, norm, mean, rstd, logits, probabilities; /* in acts */
};

static void declare(struct twin *t, const char *prefix, const char *name, size_t rows,
                    size_t columns, size_t padded_rows)
{
    struct param *p = &t->list[t->param_count++];
    snprintf(p->name, sizeof(p->name), "%s%s", prefix, name);
    p->at = t->param_floats;
    p->count = rows * columns;
    p->matrix = rows > 1;
    t->param_floats += padded_rows * columns;
}

static void declare_all(struct twin *t)
{
    static const struct {
        const char *name;
        int rows, columns; /* in channels; 0 = one row */
    } layer[LAYER_PARAMS] = {
        {"ln1.weight", 0, 1},
        {"ln1.bias", 0, 1},
        {"attention.qkv.weight", 3, 1},
        {"attention.qkv.bias", 0, 3},
        {"attention.proj.weight", 1, 1},
        {"attention.proj.bias", 0, 1},
        {"ln2.weight", 0, 1},
        {"ln2.bias", 0, 1},
        {"mlp.fc.weight", 4, 1},
        {"mlp.fc.bias", 0, 4},
        {"mlp.proj.weight", 1, 4},
        {"mlp.proj.bias", 0, 1},
    };
    const size_t c = (size_t)t->config.channels;
    declare(t, "", "wte.weight", (size_t)t->config.vocab, c, (size_t)t->padded);
    declare(t, "", "wpe.weight", (size_t)t->config.seq, c, (size_t)t->config.seq);
    for (int l = 0; l < t->config.layers; l++) {
        char prefix[24];
        snprintf(prefix, sizeof(prefix), "blocks.%d.", l);
        for (int i = 0; i < LAYER_PARAMS; i++) {
            size_t rows = layer[i].rows ? (size_t)layer[i].rows * c : 1;
            declare(t, prefix, layer[i].name, rows, (size_t)layer[i].columns * c, rows);
        }
    }
    declare(t, "", "ln_f.weight", 1, c, 1);
    declare(t, "", "ln_f.bias", 1, c, 1);
}

static size_t cut(struct twin *t, size_t floats)
{
    size_t at = t->act_floats;
    t->act_floats += floats;
    return at;
}

/* Offsets first (into `at`), since the arrays do not exist yet. */
static void place_acts(struct twin *t, size_t (*at)[LAYER_ACTS])
{
    const size_t n = (size_t)t->config.batch * t->config.seq, c = (size_t)t->config.channels;
    const size_t table = n * t->config.heads * t->config.seq;
    const size_t sizes[LAYER_ACTS] = {n * c, n, n, 3 * n * c, table,     table, n * c, n * c, n * c,
                                      n * c, n, n, 4 * n * c, 4 * n * c, n * c, n * c};
    t->embedded = cut(t, n * c);
    for (int l = 0; l < t->config.layers; l++)
        for (int i = 0; i < LAYER_ACTS; i++)
            at[l][i] = cut(t, sizes[i]);
    t->norm = cut(t, n * c);
    t->mean = cut(t, n);
    t->rstd = cut(t, n);
    t->logits = cut(t, n * (size_t)t->padded);
    t->probabilities = cut(t, n * (size_t)t->padded);
}

static float *floats(size_t count)
{
    return calloc(count, sizeof(float));
}

struct twin *twin_create(const struct twin_config *config)
{
    struct twin *t = calloc(1, sizeof(*t));
    size_t(*at)[LAYER_ACTS] = calloc((size_t)config->layers, sizeof(*at));
    if (!t || !at) {
        free(at);
        free(t);
        return NULL;
    }
    t->config = *config;
    t->padded = (config->vocab + 127) / 128 * 128;
    t->list = calloc((size_t)config->layers * LAYER_PARAMS + 4, sizeof(*t->list));
    t->layers = calloc((size_t)config->layers, sizeof(*t->layers));
    if (t->list && t->layers) {
        declare_all(t);
        place_acts(t, at);
        t->params = floats(t->param_floats);
        t->grads = floats(t->param_floats);
        t->first = floats(t->param_floats);
        t->second = floats(t->param_floats);
        t->acts = floats(t->act_floats);
        t->dacts = floats(t->act_floats);
    }
    if (!t->params || !t->grads || !t->first || !t->second || !t->acts || !t->dacts) {
        twin_destroy(t);
        t = NULL;
    }
    for (int l = 0; t && l < config->layers; l++) {
        struct layer *layer = &t->layers[l];
        for (int i = 0; i < LAYER_PARAMS; i++) {
            layer->p[i] = t->params + t->list[2 + l * LAYER_PARAMS + i].at;
            layer->dp[i] = t->grads + t->list[2 + l * LAYER_PARAMS + i].at;
        }
        for (int i = 0; i < LAYER_ACTS; i++) {
            layer->a[i] = t->acts + at[l][i];
            layer->da[i] = t->dacts + at[l][i];
        }
    }
    free(at);
    return t;
}

void twin_destroy(struct twin *t)
{
    if (!t)
        return;
    free(t->params);
    free(t->grads);
    free(t->first);
    free(t->second);
    free(t->acts);
    free(t->dacts);
    free(t->list);
    free(t->layers);
    free(t);
}

const char *twin_param_name(struct twin *t, int i)
{
    return i < t->param_count ? t->list[i].name : NULL;
}

float *twin_param(struct twin *t, const char *name, size_t *count)
{
    for (int i = 0; i < t->param_count; i++)
        if (strcmp(t->list[i].name, name) == 0) {
            *count = t->list[i].count;
            return t->params + t->list[i].at;
        }
    return NULL;
}

static void add(float *out, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

static void forward(struct twin *t, const int32_t *tokens)
{
    const struct twin_config *g = &t->config;
    const int n = g->batch * g->seq, c = g->channels;
    const size_t nc = (size_t)n * c;
    const float *wte = t->params, *wpe = t->params + t->list[1].at;
    for (int r = 0; r < n; r++)
        add(t->acts + t->embedded + (size_t)r * c, wte + (size_t)tokens[r] * c,
            wpe + (size_t)(r % g->seq) * c, (size_t)c);
    const float *x = t->acts + t->embedded;
    for (int l = 0; l < g->layers; l++) {
        float **p = t->layers[l].p, **a = t->layers[l].a;
        twin_norm(a[NORM1], a[MEAN1], a[RSTD1], x, p[LN1_W], p[LN1_B], n, c);
        twin_matmul(a[QKV], a[NORM1], p[QKV_W], p[QKV_B], n, c, 3 * c);
        twin_attention(a[MIXED], a[SCORES], a[WEIGHTS], a[QKV], g->batch, g->seq, c, g->heads);
        twin_matmul(a[PROJ], a[MIXED], p[PROJ_W], p[PROJ_B], n, c, c);
        add(a[MIDDLE], x, a[PROJ], nc);
        twin_norm(a[NORM2], a[MEAN2], a[RSTD2], a[MIDDLE], p[LN2_W], p[LN2_B], n, c);
        twin_matmul(a[PRE], a[NORM2], p[FC_W], p[FC_B], n, c, 4 * c);
        twin_gelu(a[ACT], a[PRE], 4 * nc);
        twin_matmul(a[FC2], a[ACT], p[FC2_W], p[FC2_B], n, 4 * c, c);
        add(a[OUT], a[MIDDLE], a[FC2], nc);
        x = a[OUT];
    }
    const struct param *last = &t->list[t->param_count - 2];
    twin_norm(t->acts + t->norm, t->acts + t->mean, t->acts + t->rstd, x, t->params + last[0].at,
              t->params + last[1].at, n, c);
    twin_matmul(t->acts + t->logits, t->acts + t->norm, wte, NULL, n, c, t->padded);
    twin_softmax(t->acts + t->probabilities, t->acts + t->logits, n, g->vocab, t->padded);
}

static void layer_backward(struct twin *t, int l, const float *x, float *dx)
{
    const struct twin_config *g = &t->config;
    const int n = g->batch * g->seq, c = g->channels;
    const size_t nc = (size_t)n * c;
    float **p = t->layers[l].p, **dp = t->layers[l].dp;
    float **a = t->layers[l].a, **da = t->layers[l].da;
    add(da[MIDDLE], da[MIDDLE], da[OUT], nc);
    add(da[FC2], da[FC2], da[OUT], nc);
    twin_matmul_backward(da[ACT], dp[FC2_W], dp[FC2_B], da[FC2], a[ACT], p[FC2_W], n, 4 * c, c);
    twin_gelu_backward(da[PRE], a[PRE], da[ACT], 4 * nc);
    twin_matmul_backward(da[NORM2], dp[FC_W], dp[FC_B], da[PRE], a[NORM2], p[FC_W], n, c, 4 * c);
    twin_norm_backward(da[MIDDLE], dp[LN2_W], dp[LN2_B], da[NORM2], a[MIDDLE], p[LN2_W], a[MEAN2],
                       a[RSTD2], n, c);
    add(dx, dx, da[MIDDLE], nc);
    add(da[PROJ], da[PROJ], da[MIDDLE], nc);
    twin_matmul_backward(da[MIXED], dp[PROJ_W], dp[PROJ_B], da[PROJ], a[MIXED], p[PROJ_W], n, c, c);
    twin_attention_backward(da[QKV], da[SCORES], da[WEIGHTS], da[MIXED], a[QKV], a[WEIGHTS],
                            g->batch, g->seq, c, g->heads);
    twin_matmul_backward(da[NORM1], dp[QKV_W], dp[QKV_B], da[QKV], a[NORM1], p[QKV_W], n, c, 3 * c);
    twin_norm_backward(dx, dp[LN1_W], dp[LN1_B], da[NORM1], x, p[LN1_W], a[MEAN1], a[RSTD1], n, c);
}

static float backward(struct twin *t, const int32_t *tokens, const int32_t *targets)
{
    const struct twin_config *g = &t->config;
    const int n = g->batch * g->seq, c = g->channels, last = g->layers - 1;
    const struct param *norm = &t->list[t->param_count - 2];
    memset(t->grads, 0, t->param_floats * sizeof(float));
    memset(t->dacts, 0, t->act_floats * sizeof(float));
    float loss = twin_loss(t->dacts + t->logits, t->acts + t->probabilities, targets, n, g->vocab,
                           t->padded);
    twin_matmul_backward(t->dacts + t->norm, t->grads, NULL, t->dacts + t->logits,
                         t->acts + t->norm, t->params, n, c, t->padded);
    twin_norm_backward(t->layers[last].da[OUT], t->grads + norm[0].at, t->grads + norm[1].at,
                       t->dacts + t->norm, t->layers[last].a[OUT], t->params + norm[0].at,
                       t->acts + t->mean, t->acts + t->rstd, n, c);
    for (int l = last; l >= 0; l--)
        layer_backward(t, l, l ? t->layers[l - 1].a[OUT] : t->acts + t->embedded,
                       l ? t->layers[l - 1].da[OUT] : t->dacts + t->embedded);
    for (int r = 0; r < n; r++) {
        const float *d = t->dacts + t->embedded + (size_t)r * c;
        float *dwte = t->grads + (size_t)tokens[r] * c;
        float *dwpe = t->grads + t->list[1].at + (size_t)(r % g->seq) * c;
        add(dwte, dwte, d, (size_t)c);
        add(dwpe, dwpe, d, (size_t)c);
    }
    return loss;
}

static void update(struct twin *t, const struct param *p, size_t end, float lr, float decay)
{
    const float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
    const float bias1 = 1 - powf(beta1, (float)t->steps), bias2 = 1 - powf(beta2, (float)t->steps);
    for (size_t i = p->at; i < end; i++) {
        float g = t->grads[i];
        float m = beta1 * t->first[i] + (1 - beta1) * g;
        float v = beta2 * t->second[i] + (1 - beta2) * g * g;
        t->first[i] = m;
        t->second[i] = v;
        t->params[i] -=
            lr * (m / bias1 / (sqrtf(v / bias2) + eps) + (p->matrix ? decay : 0) * t->params[i]);
    }
}

float twin_step(struct twin *t, const int32_t *tokens, const int32_t *targets, float lr,
                float decay, struct twin_times *times)
{
    double start = now_s();
    forward(t, tokens);
    double between = now_s();
    float loss = backward(t, tokens, targets);
    double end = now_s();
    t->steps++;
    for (int i = 0; i < t->param_count; i++)
        update(t, &t->list[i], i + 1 < t->param_count ? t->list[i + 1].at : t->param_floats, lr,
               decay);
    *times = (struct twin_times){between - start, end - between, now_s() - end};
    return loss;
}
