/* SPDX-License-Identifier: MIT
 *
 * Chooses the next token from the logits of a text. The processors are those of transformers, in
 * the same order: repetition penalty, temperature, top-k, top-p. Sums are f64, so the choice is the
 * same on every host up to its exp and log.
 */
#include <math.h>

#include "../base/base.h"
#include "generator.h"

int rf_sampling_check(const struct rf_sampling *s)
{
    if (s->max_new < 1 || s->max_new > INT32_MAX / 4)
        return rf_fail(RF_EINVAL, "sampling: max_new is %lld; it must be at least 1",
                       (long long)s->max_new);
    if (!(s->temperature >= 0) || isinf(s->temperature))
        return rf_fail(RF_EINVAL, "sampling: temperature is %g; it must be 0 or more",
                       (double)s->temperature);
    if (s->top_k < 0 || !(s->top_p >= 0 && s->top_p <= 1))
        return rf_fail(RF_EINVAL,
                       "sampling: top_k is %d and top_p %g; top_k must be 0 or more, and top_p "
                       "0 to 1",
                       s->top_k, (double)s->top_p);
    if (!(s->repetition_penalty >= 0) || isinf(s->repetition_penalty))
        return rf_fail(RF_EINVAL, "sampling: repetition_penalty is %g; it must be more than 0",
                       (double)s->repetition_penalty);
    return 0;
}

/* The index of the largest value; the lowest id if several are equal. */
static int64_t largest(const float *x, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static double log_sum(const float *x, int64_t count)
{
    const double most = x[largest(x, count)];
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)x[i] - most);
    return most + log(sum);
}

static void penalize(struct rf_generator *g, float penalty, const int32_t *ids, int64_t known)
{
    if (penalty == 0 || penalty == 1)
        return;
    for (int64_t i = 0; i < known; i++) {
        float *score = &g->scores[ids[i]];
        if (!g->seen[ids[i]])
            *score = *score < 0 ? *score * penalty : *score / penalty;
        g->seen[ids[i]] = 1;
    }
    for (int64_t i = 0; i < known; i++)
        g->seen[ids[i]] = 0;
}

/* The k-th largest score: selection by thirds around a pivot (Hoare 1961), on a copy of `order`. */
static float kth_largest(struct rf_generator *g, int64_t k)
{
    int64_t first = 0, last = g->layout.classes - 1;
    for (int64_t i = 0; i <= last; i++)
        g->order[i] = (int32_t)i;
    for (;;) {
        const float pivot = g->scores[g->order[first + (last - first) / 2]];
        int64_t i = first, j = last;
        while (i <= j) {
            while (g->scores[g->order[i]] > pivot)
                i++;
            while (g->scores[g->order[j]] < pivot)
                j--;
            if (i <= j) {
                const int32_t t = g->order[i];
                g->order[i++] = g->order[j];
                g->order[j--] = t;
            }
        }
        if (k - 1 <= j)
            last = j;
        else if (k - 1 >= i)
            first = i;
        else
            return pivot;
    }
}

/* Keeps all scores that equal the k-th largest. */
static void keep_top_k(struct rf_generator *g, int64_t k)
{
    if (k == 0 || k >= g->layout.classes)
        return;
    const float least = kth_largest(g, k);
    for (int64_t i = 0; i < g->layout.classes; i++)
        g->scores[i] = g->scores[i] < least ? -INFINITY : g->scores[i];
}

/* Whether a comes after b in ascending order of scores; equal scores by ascending id, as a stable
 * sort leaves them. */
static bool behind(const struct rf_generator *g, int32_t a, int32_t b)
{
    return g->scores[a] > g->scores[b] || (g->scores[a] == g->scores[b] && a > b);
}

static void sift(struct rf_generator *g, int64_t at, int64_t count)
{
    for (int64_t child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
        if (child + 1 < count && behind(g, g->order[child + 1], g->order[child]))
            child++;
        if (!behind(g, g->order[child], g->order[at]))
            return;
        const int32_t t = g->order[at];
        g->order[at] = g->order[child];
        g->order[child] = t;
    }
}

/* Removes the lowest scores whose probabilities add up to at most 1 - p; at least one stays. The
 * scores to keep are found from the largest on (a heap), so few are sorted. */
static void keep_top_p(struct rf_generator *g, double p)
{
    int64_t count = 0;
    if (p <= 0 || p >= 1)
        return;
    const double all = log_sum(g->scores, g->layout.classes);
    for (int64_t i = 0; i < g->layout.classes; i++)
        if (g->scores[i] != -INFINITY)
            g->order[count++] = (int32_t)i;
    for (int64_t i = count / 2; i-- > 0;)
        sift(g, i, count);
    /* The probabilities below a score add up to 1 minus the sum of the others. */
    double above = 0;
    bool first = true;
    while (count > 0) {
        const int32_t id = g->order[0];
        if (!first && above >= p)
            break;
        above += exp((double)g->scores[id] - all);
        first = false;
        g->order[0] = g->order[--count];
        sift(g, 0, count);
    }
    for (int64_t i = 0; i < count; i++)
        g->scores[g->order[i]] = -INFINITY;
}

static int64_t draw(const struct rf_generator *g, uint64_t seed, uint64_t prompt, uint64_t position)
{
    const int64_t count = g->layout.classes;
    const double all = log_sum(g->scores, count);
    uint32_t r[4];
    rf_philox(seed, position, prompt, r);
    double at = (double)(((uint64_t)r[0] << 32 | r[1]) >> 11) * 0x1p-53;
    int64_t last = largest(g->scores, count);
    for (int64_t i = 0; i < count; i++) {
        const double p = exp((double)g->scores[i] - all);
        if (p <= 0)
            continue;
        last = i;
        at -= p;
        if (at < 0)
            break;
    }
    return last;
}

void rf_generator_process(struct rf_generator *g, const struct rf_sampling *s, const int32_t *ids,
                          int64_t known, const float *logits)
{
    const int64_t count = g->layout.classes;
    memcpy(g->scores, logits, (size_t)count * sizeof(*logits));
    penalize(g, s->repetition_penalty, ids, known);
    if (s->temperature == 0)
        return;
    for (int64_t i = 0; i < count; i++)
        g->scores[i] /= s->temperature;
    keep_top_k(g, s->top_k);
    keep_top_p(g, (double)s->top_p);
}

int rf_generator_sample(struct rf_generator *g, const struct rf_sampling *s, int64_t prompt,
                        const int32_t *ids, int64_t known, const float *logits, int32_t *id,
                        float *logprob)
{
    const int64_t count = g->layout.classes;
    for (int64_t i = 0; i < count; i++)
        if (isnan(logits[i]))
            return rf_fail(RF_ECORRUPT,
                           "prompt %lld: logit %lld after %lld tokens is NaN; the parameters may "
                           "be damaged, or their type too narrow",
                           (long long)prompt, (long long)i, (long long)known);
    rf_generator_process(g, s, ids, known, logits);
    const int64_t chosen = s->temperature == 0
                               ? largest(g->scores, count)
                               : draw(g, s->seed, (uint64_t)prompt, (uint64_t)known);
    *id = (int32_t)chosen;
    *logprob = (float)((double)logits[chosen] - log_sum(logits, count));
    return 0;
}
