/* SPDX-License-Identifier: MIT
 *
 * One update of 64 elements in the order of operations of shaders/optimizer.comp, as loops that
 * vectorise. A block with fewer elements is filled up with zeros, so every element is computed
 * alike. Included by host_step.c, which compiles it for each instruction set.
 */
#ifndef RF_OPTIM_HOST_BLOCK_H
#define RF_OPTIM_HOST_BLOCK_H

#include "host_half.h"

#include "../base/base.h"

/* What all elements of an update share. */
struct terms {
    float prescale, factor, lr, weight_decay;
    float beta1, beta2, rest1, rest2, bias1, bias2, eps;
    float momentum, rest; /* rest: 1 - dampening */
    bool decoupled;
    bool first; /* of all updates */
};
struct update {
    struct rf_host_part part; /* states that the rule has not are NULL */
    struct terms terms;
    enum rf_optimizer kind;
    bool eps_inside, stochastic;
    uint64_t seed;
    uint32_t updates;
};

/* 64 elements; states that the rule has not are NULL. */
struct block {
    f32_place *p, *g, *m, *v, *a;
};
/* A rule with its states and options: constants of a loop. */
struct form {
    enum rf_optimizer kind; /* RF_ADAM stands for RF_ADAMW, too */
    bool m, v, a, inside;
    bool divides; /* Adam's m by bias1, which is 1 after the first hundreds of updates */
};
struct state {
    float m, v, a;
};

RF_LOOPS float root_of(float x, float eps, bool inside)
{
    return inside ? sqrtf(x + eps) : sqrtf(x) + eps;
}

/* What the learning rate is multiplied with; moves the state. */
RF_LOOPS float direction(const struct terms *t, struct form f, float g, struct state *s)
{
    if (f.kind == RF_ADAM) {
        s->m = t->beta1 * s->m + t->rest1 * g;
        s->v = t->beta2 * s->v + t->rest2 * (g * g);
        const float m = f.divides ? s->m / t->bias1 : s->m;
        return m / root_of(s->v / t->bias2, t->eps, f.inside);
    }
    if (f.kind == RF_MOMENTUM || f.kind == RF_NESTEROV) {
        const float next = t->momentum * s->m + t->rest * g;
        s->m = t->first ? g : next;
        return f.kind == RF_NESTEROV ? g + t->momentum * s->m : s->m;
    }
    if (f.kind == RF_ADAGRAD) {
        s->v = s->v + g * g;
        return g / root_of(s->v, t->eps, f.inside);
    }
    if (f.kind == RF_RMSPROP) {
        s->v = t->beta2 * s->v + t->rest2 * (g * g);
        float spread = s->v;
        if (f.a) {
            s->a = s->a + t->rest2 * (g - s->a);
            spread = s->v - s->a * s->a;
            spread = spread > 0 ? spread : 0;
        }
        const float d = g / root_of(spread, t->eps, f.inside);
        s->m = f.m ? t->momentum * s->m + d : d;
        return s->m;
    }
    if (f.kind == RF_LION) {
        const float c = t->beta1 * s->m + t->rest1 * g;
        s->m = t->beta2 * s->m + t->rest2 * g;
        return (c > 0 ? 1.0f : 0.0f) - (c < 0 ? 1.0f : 0.0f);
    }
    return g; /* RF_SGD */
}

/* The arrays do not overlap: restrict. */
RF_LOOPS void loop(const struct update *u, struct form f, bool decays, f32_place *restrict p,
                   const f32_place *restrict g, f32_place *restrict m, f32_place *restrict v,
                   f32_place *restrict a)
{
    const struct terms t = u->terms;
    const float decay = t.weight_decay * (decays ? 1.0f : 0.0f);
    const float shrink = t.lr * t.weight_decay * (decays ? 1.0f : 0.0f);
    for (int e = 0; e < GRAIN; e++) {
        const float old = p[e], raw = g[e] * t.prescale * t.factor;
        const float gradient = t.decoupled ? raw : raw + decay * old;
        const float begin = t.decoupled ? old - shrink * old : old;
        struct state s = {f.m ? m[e] : 0, f.v ? v[e] : 0, f.a ? a[e] : 0};
        const float d = direction(&t, f, gradient, &s);
        if (f.m)
            m[e] = s.m;
        if (f.v)
            v[e] = s.v;
        if (f.a)
            a[e] = s.a;
        p[e] = begin - t.lr * d;
    }
}

RF_LOOPS void run(const struct update *u, struct form f, bool decays, const struct block *b)
{
    loop(u, f, decays, b->p, b->g, b->m, b->v, b->a);
}

/* Of a rule that takes a root. */
RF_LOOPS void run_root(const struct update *u, struct form f, bool decays, const struct block *b)
{
    f.inside = true;
    if (u->eps_inside) {
        run(u, f, decays, b);
        return;
    }
    f.inside = false;
    run(u, f, decays, b);
}

RF_LOOPS void run_adam(const struct update *u, bool decays, const struct block *b)
{
    if (u->terms.bias1 == 1)
        run_root(u, (struct form){RF_ADAM, .m = true, .v = true}, decays, b);
    else
        run_root(u, (struct form){RF_ADAM, .m = true, .v = true, .divides = true}, decays, b);
}

RF_LOOPS void run_rmsprop(const struct update *u, bool decays, const struct block *b)
{
    if (b->m && b->a)
        run_root(u, (struct form){RF_RMSPROP, .m = true, .v = true, .a = true}, decays, b);
    else if (b->m)
        run_root(u, (struct form){RF_RMSPROP, .m = true, .v = true}, decays, b);
    else if (b->a)
        run_root(u, (struct form){RF_RMSPROP, .v = true, .a = true}, decays, b);
    else
        run_root(u, (struct form){RF_RMSPROP, .v = true}, decays, b);
}

/* Each rule has a loop of its own. */
RF_LOOPS void run_rule(const struct update *u, bool decays, const struct block *b)
{
    switch (u->kind) {
    case RF_ADAMW:
    case RF_ADAM:
        run_adam(u, decays, b);
        break;
    case RF_MOMENTUM:
        run(u, (struct form){RF_MOMENTUM, .m = true}, decays, b);
        break;
    case RF_NESTEROV:
        run(u, (struct form){RF_NESTEROV, .m = true}, decays, b);
        break;
    case RF_ADAGRAD:
        run_root(u, (struct form){RF_ADAGRAD, .v = true}, decays, b);
        break;
    case RF_RMSPROP:
        run_rmsprop(u, decays, b);
        break;
    case RF_LION:
        run(u, (struct form){RF_LION, .m = true}, decays, b);
        break;
    default:
        run(u, (struct form){RF_SGD}, decays, b);
    }
}

/* Words for 64 elements from element `first` of the whole buffer on, as optimizer.comp has them. */
RF_LOOPS const uint32_t *draw(uint32_t *words, const struct update *u, uint64_t first)
{
    if (!u->stochastic)
        return NULL;
    for (uint64_t quad = 0; quad < GRAIN / 4; quad++)
        rf_philox(u->seed, first / 4 + quad, (uint64_t)0x726f756eu << 32 | u->updates,
                  words + 4 * quad);
    return words;
}

/* Elements from..end-1 of the part; `from` is a multiple of 64. */
RF_LOOPS void update_blocks(const struct update *u, int64_t from, int64_t end)
{
    const struct rf_host_part *part = &u->part;
    float *const *state = part->state;
    for (int64_t i = from; i < end; i += GRAIN) {
        const int64_t n = end - i < GRAIN ? end - i : GRAIN;
        _Alignas(64) float room[2 + RF_STATE_COUNT][GRAIN];
        uint32_t words[GRAIN];
        f32_place *s[RF_STATE_COUNT];
        for (int k = 0; k < RF_STATE_COUNT; k++)
            s[k] = state[k] ? take(state[k], RF_F32, i, n, room[k]) : NULL;
        const struct block b = {.p = take(part->param, part->param_type, i, n, room[3]),
                                .g = take((void *)part->grad, part->grad_type, i, n, room[4]),
                                .m = s[RF_STATE_M],
                                .v = s[RF_STATE_V],
                                .a = s[RF_STATE_A]};
        run_rule(u, part->decay[i / GRAIN] != 0, &b);
        const uint32_t *random = draw(words, u, part->first + (uint64_t)i);
        for (int k = 0; k < RF_STATE_COUNT; k++)
            if (state[k])
                put(state[k], RF_F32, i, n, s[k], NULL);
        put(part->param, part->param_type, i, n, b.p, random);
        if (part->copy)
            put(part->copy, part->copy_type, i, n, b.p, random);
    }
}

#endif
