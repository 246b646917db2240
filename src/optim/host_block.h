/* SPDX-License-Identifier: MIT
 *
 * Updates blocks of 64 elements with the same order of operations as shaders/optimizer.comp, as
 * loops that vectorise. A block with fewer elements is filled up with zeros, so every element is
 * computed in the same way. Included by host_step.c, which compiles it for each instruction set.
 */
#ifndef RF_OPTIM_HOST_BLOCK_H
#define RF_OPTIM_HOST_BLOCK_H

#include "codes.h"
#include "host_half.h"

#include "../base/base.h"

/* Values that all elements of an update share. */
struct terms {
    float prescale, factor, lr, weight_decay;
    float beta1, beta2, rest1, rest2, eps;
    float bias1, bias2;
    double inverse1, inverse2; /* 1 / bias1, 1 / bias2 */
    float momentum, rest;      /* rest: 1 - dampening */
    float extra[RF_OPTIMIZER_EXTRA];
    bool first; /* the first of all updates */
};
struct update {
    struct rf_host_part part; /* states that the rule lacks are NULL */
    struct terms terms;
    enum rf_optimizer kind;
    bool decoupled, eps_inside, stochastic;
    uint64_t seed;
    uint32_t updates;
    const struct rf_codes *codes[RF_STATE_COUNT]; /* of states in 8 bits */
    const struct rf_code_loops *loops;            /* the same */
};

/* Blocks of 64 elements that all have weight decay, or all have none. States that the rule lacks
 * are NULL. */
struct span {
    int blocks;
    bool decays;
    f32_place *p, *g, *m, *v, *a, *u;
};
/* A rule with its states and options, which are constant in a loop. */
struct form {
    enum rf_optimizer kind; /* RF_ADAM represents RF_ADAMW, too */
    bool decoupled;         /* weight decay */
    bool m, v, a, u, inside;
    bool by_bias1, by_bias2; /* whether Adam divides by them: after enough steps they are 1 */
};
struct state {
    float m, v, a, u;
};

RF_LOOPS float root_of(float x, float eps, bool inside)
{
    return inside ? sqrtf(x + eps) : sqrtf(x) + eps;
}

/* The numbers of shaders/optimizer_rules.h. */
#define RULE(number, name)                                                                         \
    _Static_assert(RF_##name == (number), "the number of ops_optimizer.h");                        \
    if (f.kind == RF_##name)
#define RULES_ALIKE(number, name, other_number, other)                                             \
    _Static_assert(RF_##name == (number) && RF_##other == (other_number),                          \
                   "the numbers of ops_optimizer.h");                                              \
    if (f.kind == RF_##name || f.kind == RF_##other)
#define NUMBER float
#define ROOT(x) root_of(x, t->eps, f.inside)
#define POSITIVE(x) ((x) > 0 ? (x) : 0)
#define SIGN(x) (((x) > 0 ? 1.0f : 0.0f) - ((x) < 0 ? 1.0f : 0.0f))
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#define HAS_M f.m
#define HAS_V f.v
#define HAS_A f.a
#define HAS_U f.u

/* The factor of the learning rate. Updates the state. */
RF_LOOPS float direction(const struct terms *t, struct form f, float g, struct state *s)
{
    const float beta1 = t->beta1, beta2 = t->beta2, momentum = t->momentum;
    const float rest1 = t->rest1, rest2 = t->rest2, rest = t->rest;
    const float bias1 = t->bias1, bias2 = t->bias2, extra0 = t->extra[0], extra1 = t->extra[1];
    const bool first = t->first;
    float m = s->m, v = s->v, a = s->a, u = s->u, d = g;
    (void)extra0;
    (void)extra1;
#include "shaders/optimizer_rules.h"
    *s = (struct state){m, v, a, u};
    return d;
}

/* Weight decay of the elements of a loop; 0 if they have none. */
struct decay {
    float of_gradient, of_param;
};
RF_LOOPS struct decay decay_of(const struct terms *t, bool decays)
{
    return (struct decay){.of_gradient = t->weight_decay * (decays ? 1.0f : 0.0f),
                          .of_param = t->lr * t->weight_decay * (decays ? 1.0f : 0.0f)};
}

RF_LOOPS float gradient_of(const struct terms *t, struct form f, struct decay d, float g, float p)
{
    const float raw = g * t->prescale * t->factor;
    return f.decoupled ? raw : raw + d.of_gradient * p;
}

RF_LOOPS float shrunk(struct form f, struct decay d, float p)
{
    return f.decoupled ? p - d.of_param * p : p;
}

/* Updates a block. The arrays do not overlap: restrict. */
RF_LOOPS void loop(const struct terms *t, struct form f, struct decay decay, f32_place *restrict p,
                   const f32_place *restrict g, f32_place *restrict m, f32_place *restrict v,
                   f32_place *restrict a, f32_place *restrict u)
{
    for (int e = 0; e < GRAIN; e++) {
        struct state s = {f.m ? m[e] : 0, f.v ? v[e] : 0, f.a ? a[e] : 0, f.u ? u[e] : 0};
        const float d = direction(t, f, gradient_of(t, f, decay, g[e], p[e]), &s);
        if (f.m)
            m[e] = s.m;
        if (f.v)
            v[e] = s.v;
        if (f.a)
            a[e] = s.a;
        if (f.u)
            u[e] = s.u;
        p[e] = shrunk(f, decay, p[e]) - t->lr * d;
    }
}

RF_LOOPS void run_form(const struct update *u, struct form f, const struct span *s)
{
    const struct terms t = u->terms;
    const struct decay decay = decay_of(&t, s->decays);
    for (int b = 0; b < s->blocks; b++) {
        const int i = b * GRAIN;
        loop(&t, f, decay, s->p + i, s->g + i, f.m ? s->m + i : NULL, f.v ? s->v + i : NULL,
             f.a ? s->a + i : NULL, f.u ? s->u + i : NULL);
    }
}

RF_LOOPS void loop_adam_states(const struct terms *t, struct form f, struct decay decay,
                               const f32_place *restrict p, const f32_place *restrict g,
                               f32_place *restrict m, f32_place *restrict v)
{
    for (int e = 0; e < GRAIN; e++) {
        const float gradient = gradient_of(t, f, decay, g[e], p[e]);
        m[e] = t->beta1 * m[e] + t->rest1 * gradient;
        v[e] = t->beta2 * v[e] + t->rest2 * (gradient * gradient);
    }
}

/* x divided by an f32 number whose inverse is given, in f32: a quotient of such numbers is further
 * from the middle of two others than the product is from the quotient. */
RF_LOOPS float quotient(float x, double inverse)
{
    return (float)((double)x * inverse);
}

/* Adam's parameters, from the updated states. Separate loops: instructions that wait for a square
 * root would otherwise fill the processor's reorder window. */
RF_LOOPS void loop_adam_params(const struct terms *t, struct form f, struct decay decay,
                               f32_place *restrict p, const f32_place *restrict m,
                               const f32_place *restrict v)
{
    float square[GRAIN];
    for (int e = 0; e < GRAIN; e++)
        square[e] = f.by_bias2 ? quotient(v[e], t->inverse2) : v[e];
    for (int e = 0; e < GRAIN; e++) {
        const float mean = f.by_bias1 ? quotient(m[e], t->inverse1) : m[e];
        p[e] = shrunk(f, decay, p[e]) - t->lr * (mean / root_of(square[e], t->eps, f.inside));
    }
}

RF_LOOPS void run_adam_form(const struct update *u, struct form f, const struct span *s)
{
    const struct terms t = u->terms;
    const struct decay decay = decay_of(&t, s->decays);
    for (int b = 0; b < s->blocks; b++) {
        const int i = b * GRAIN;
        loop_adam_states(&t, f, decay, s->p + i, s->g + i, s->m + i, s->v + i);
        loop_adam_params(&t, f, decay, s->p + i, s->m + i, s->v + i);
    }
}

/* A rule with a square root. */
RF_LOOPS void run_root(const struct update *u, struct form f, const struct span *s)
{
    f.inside = true;
    if (u->eps_inside) {
        run_form(u, f, s);
        return;
    }
    f.inside = false;
    run_form(u, f, s);
}

RF_LOOPS void run_adam_root(const struct update *u, struct form f, const struct span *s)
{
    f.inside = true;
    if (u->eps_inside) {
        run_adam_form(u, f, s);
        return;
    }
    f.inside = false;
    run_adam_form(u, f, s);
}

/* Divisions take most of the time, so cases that need none have loops without them. */
RF_LOOPS void run_adam(const struct update *u, bool decoupled, const struct span *s)
{
    struct form f = {RF_ADAM, .decoupled = decoupled};
    if (u->terms.bias1 == 1 && u->terms.bias2 == 1) {
        run_adam_root(u, f, s);
        return;
    }
    f.by_bias2 = true;
    if (u->terms.bias1 == 1) {
        run_adam_root(u, f, s);
        return;
    }
    f.by_bias1 = true;
    run_adam_root(u, f, s);
}

RF_LOOPS void run_rmsprop(const struct update *u, const struct span *s)
{
    if (s->m && s->a)
        run_root(u, (struct form){RF_RMSPROP, .m = true, .v = true, .a = true}, s);
    else if (s->m)
        run_root(u, (struct form){RF_RMSPROP, .m = true, .v = true}, s);
    else if (s->a)
        run_root(u, (struct form){RF_RMSPROP, .v = true, .a = true}, s);
    else
        run_root(u, (struct form){RF_RMSPROP, .v = true}, s);
}

/* A rule without a loop of its own: its form is tested inside the loop. */
RF_LOOPS void run_other(const struct update *u, const struct span *s)
{
    const struct form f = {.kind = u->kind,
                           .decoupled = u->decoupled,
                           .m = s->m != NULL,
                           .v = s->v != NULL,
                           .a = s->a != NULL,
                           .u = s->u != NULL};
    run_root(u, f, s);
}

/* Most rules have a loop of their own, in which the form is a compile-time constant. */
RF_LOOPS void run_rule(const struct update *u, const struct span *s)
{
    switch (u->kind) {
    case RF_ADAMW:
        run_adam(u, true, s);
        break;
    case RF_ADAM:
        run_adam(u, false, s);
        break;
    case RF_MOMENTUM:
        run_form(u, (struct form){RF_MOMENTUM, .m = true}, s);
        break;
    case RF_NESTEROV:
        run_form(u, (struct form){RF_NESTEROV, .m = true}, s);
        break;
    case RF_ADAGRAD:
        run_root(u, (struct form){RF_ADAGRAD, .v = true}, s);
        break;
    case RF_RMSPROP:
        run_rmsprop(u, s);
        break;
    case RF_LION:
        run_form(u, (struct form){RF_LION, .decoupled = true, .m = true}, s);
        break;
    case RF_SGD:
        run_form(u, (struct form){RF_SGD, .decoupled = true}, s);
        break;
    default:
        run_other(u, s);
    }
}

/* Four random words for the quad with this index. */
RF_LOOPS void draw_quad(uint32_t words[4], const struct update *u, uint64_t quad)
{
    rf_philox(u->seed, quad, (uint64_t)0x726f756eu << 32 | u->updates, words);
}

/* The same by a table of places. i: the first element in the part. */
RF_LOOPS void draw_placed(uint32_t *words, const struct update *u, int64_t i, int count)
{
    const int32_t *word = u->part.places + i / GRAIN * 2;
    const int32_t *runs = word + *word;
    struct rf_place_run run;
    uint64_t drawn = UINT64_MAX; /* the quad in `quad` */
    uint32_t quad[4];
    memcpy(&run, runs, sizeof(run));
    for (int e = 0; e < count; e++) {
        const uint64_t at = u->part.first + (uint64_t)i + (uint64_t)e;
        while (at >= run.end) {
            runs += sizeof(run) / sizeof(*runs);
            memcpy(&run, runs, sizeof(run));
        }
        const uint64_t number = at + run.shift;
        if (number / 4 != drawn)
            draw_quad(quad, u, drawn = number / 4);
        words[e] = quad[number % 4];
    }
}

/* Random words for a span from element i of the part on, the same as in optimizer.comp. Elements of
 * the `n` past the end of the part draw nothing. */
RF_LOOPS const uint32_t *draw(uint32_t *words, const struct update *u, int64_t i, int64_t n)
{
    const uint64_t first = u->part.first + (uint64_t)i;
    const int blocks = blocks_of(n);
    if (!u->stochastic)
        return NULL;
    if (u->part.places) {
        memset(words, 0, (size_t)blocks * GRAIN * sizeof(*words));
        draw_placed(words, u, i, (int)n);
        return words;
    }
    for (uint64_t quad = 0; quad < (uint64_t)blocks * GRAIN / 4; quad++)
        draw_quad(words + 4 * quad, u, first / 4 + quad);
    return words;
}

/* The number of elements from i on that form a span: whole blocks with equal weight decay, or the
 * remainder. */
RF_LOOPS int64_t span_of(const struct update *u, int64_t i, int64_t end)
{
    if (end - i < GRAIN)
        return end - i;
    const int32_t *decay = u->part.decay + i / GRAIN;
    const int64_t most = (end - i < SPAN ? end - i : SPAN) / GRAIN;
    int64_t blocks = 1;
    while (blocks < most && (decay[blocks] != 0) == (decay[0] != 0))
        blocks++;
    return blocks * GRAIN;
}

/* States in 8 bits of the block from element i of the part on. */
static inline uint8_t *codes_at(const struct update *u, int k, int64_t i)
{
    return (uint8_t *)u->part.state[k] + i / RF_STATE_BLOCK * RF_STATE_BLOCK_BYTES;
}

static inline void decode_states(const struct update *u, int64_t i, float buffers[][SPAN])
{
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (u->part.state[k])
            u->loops->read(u->codes[k], codes_at(u, k, i), buffers[k]);
}

/* Encodes the block with element i, of which the elements from `end` on are padding. */
static inline void encode_states(const struct update *u, int64_t i, int64_t end,
                                 float buffers[][SPAN])
{
    const int64_t first = i / RF_STATE_BLOCK * RF_STATE_BLOCK;
    for (int k = 0; k < RF_STATE_COUNT; k++) {
        if (!u->part.state[k])
            continue;
        for (int64_t e = end - first; e < RF_STATE_BLOCK; e++)
            buffers[k][e] = 0;
        u->loops->write(u->codes[k], buffers[k], codes_at(u, k, i));
    }
}

/* Updates elements from..end-1 of the part. `from` is a multiple of 64; with states in 8 bits, of
 * RF_STATE_BLOCK. */
RF_LOOPS void update_blocks(const struct update *u, int64_t from, int64_t end)
{
    const struct rf_host_part *part = &u->part;
    const bool coded = part->state_type == RF_U8;
    _Alignas(64) float buffers[2 + RF_STATE_COUNT][SPAN];
    for (int64_t i = from, n; i < end; i += n) {
        const int64_t within = i % RF_STATE_BLOCK, block = i - within + RF_STATE_BLOCK;
        n = span_of(u, i, coded && block < end ? block : end);
        uint32_t words[SPAN];
        f32_place *at[RF_STATE_COUNT];
        if (coded && within == 0)
            decode_states(u, i, buffers);
        for (int k = 0; k < RF_STATE_COUNT; k++)
            at[k] = !part->state[k] ? NULL
                    : coded         ? buffers[k] + within
                                    : take(part->state[k], part->state_type, i, n, buffers[k]);
        const struct span s = {
            .blocks = blocks_of(n),
            .decays = part->decay[i / GRAIN] != 0,
            .p = take(part->param, part->param_type, i, n, buffers[RF_STATE_COUNT]),
            .g = take((void *)part->grad, part->grad_type, i, n, buffers[RF_STATE_COUNT + 1]),
            .m = at[RF_STATE_M],
            .v = at[RF_STATE_V],
            .a = at[RF_STATE_A],
            .u = at[RF_STATE_U]};
        run_rule(u, &s);
        const uint32_t *random = draw(words, u, i, n);
        if (coded && (i + n == end || i + n == block))
            encode_states(u, i, i + n, buffers);
        for (int k = 0; k < RF_STATE_COUNT && !coded; k++)
            if (part->state[k])
                put(part->state[k], part->state_type, i, n, at[k], NULL);
        put(part->param, part->param_type, i, n, s.p, random);
        if (part->copy)
            put(part->copy, part->copy_type, i, n, s.p, random);
    }
}

#endif
