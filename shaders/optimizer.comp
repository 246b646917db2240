#version 450
/* SPDX-License-Identifier: MIT
 *
 * One optimizer update of a flat buffer, in place. Every operation is rounded on its own (precise),
 * so the result for an element does not depend on its index. The rule, its options and the types of
 * parameters, gradients and copy are specialization constants, so unused code is removed.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "convert.glsl"
#include "words.glsl"
#include "philox.glsl"
#include "round.glsl"
#include "step_scalars.glsl"

/* How states are stored: 0 as f32, 1 as bf16, 2 in 8 bits (optimizer_8bit.glsl). */
#ifndef STATES
#define STATES 0
#endif

layout(constant_id = 1) const uint KIND = 0;
/* The same as in src/ops/optimizer.c. */
const uint COPY_ALONE = 255; /* a KIND: only the copy after an update */
layout(constant_id = 2) const uint FLAGS = 0;
const bool HAS_M = (FLAGS & 1) != 0, HAS_V = (FLAGS & 2) != 0, HAS_A = (FLAGS & 4) != 0;
const bool HAS_U = (FLAGS & 8) != 0;
const bool DECOUPLED = (FLAGS & 256) != 0, EPS_INSIDE = (FLAGS & 512) != 0;
const bool STOCHASTIC = (FLAGS & 1024) != 0, PLACED = (FLAGS & 2048) != 0;
const bool BEFORE = (FLAGS & 4096) != 0;
layout(constant_id = 3) const uint PARAM_TYPE = TYPE_F32;
layout(constant_id = 4) const uint GRAD_TYPE = TYPE_F32;
layout(constant_id = 5) const uint COPY_TYPE = TYPE_F32; /* f32: no copy */
/* Values that do not fit in the push constants; see rf_optimizer_opts. */
layout(constant_id = 6) const float EXTRA0 = 0.0;
layout(constant_id = 7) const float EXTRA1 = 0.0;

#include "push/optimizer.h"
VIEW(0, param)
VIEW(1, grad)
VIEW(2, m)
VIEW(3, v)
WRITTEN(0, param)
WRITTEN(1, m)
WRITTEN(2, v)

/* Items per invocation. With views they are adjacent, and share a decay word; otherwise adjacent
 * invocations have adjacent items. */
#if VIEWS
const uint PER_LANE = 4;
#define LOAD_AS(type, t, item) load_item(FROM(t), item)
#else
const uint PER_LANE = 1;
#define LOAD_AS(type, t, item) load_as(type, pc.t, item)
#endif
#if STATES == 1
#define LOAD_STATE(t, item) load_as(TYPE_BF16, pc.t, item)
#define LOAD_MORE(t, item) load_as(TYPE_BF16, pc.t, item)
#define STORE_STATE(t, item, x) store_as(TYPE_BF16, pc.t, item, x, uvec4(0), true)
#else
#define LOAD_STATE(t, item) load_item(FROM(t), item)
#define LOAD_MORE(t, item) load_item(pc.t, item)
#define STORE_STATE(t, item, x) store_item(pc.t, item, x)
#endif

vec2 widen(uint type, uint word)
{
    return type == TYPE_F16 ? from_f16(word) : from_bf16(word);
}
/* nearest: nothing is drawn before the first update. */
uint narrow(uint type, vec2 v, uvec2 random, bool nearest)
{
    if (STOCHASTIC && !nearest)
        return type == TYPE_F16 ? to_f16_random(v, random) : to_bf16_random(v, random);
    return type == TYPE_F16 ? to_f16(v) : to_bf16(v);
}

ITEM load_as(uint type, uvec2 base, uint item)
{
    if (type == TYPE_F32)
        return load_item(base, item);
#if VEC
    uvec2 words = Pairs(base).at[item];
    return vec4(widen(type, words.x), widen(type, words.y));
#else
    return widen(type, load_bits(base, item)).x;
#endif
}
void store_as(uint type, uvec2 base, uint item, ITEM v, uvec4 random, bool nearest)
{
    if (type == TYPE_F32) {
        store_item(base, item, v);
        return;
    }
#if VEC
    Pairs(base).at[item] =
        uvec2(narrow(type, v.xy, random.xy, nearest), narrow(type, v.zw, random.zw, nearest));
#else
    store_bits(base, item, narrow(type, vec2(v, 0.0), random.xy, nearest));
#endif
}

/* 64-bit numbers are pairs, low word first. */
uvec2 plus(uvec2 a, uvec2 b)
{
    uint carry, low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

/* The number by which an element draws: see struct rf_place_run. Reads only within the table,
 * whatever its content. */
uvec2 place_of(uint element)
{
    uint word = element / 64 * 2, last = pc.first_block - 4;
    uint block = Uints(pc.places).at[word + 1];
    uvec2 at = uvec2((block << 6) + element % 64, block >> 26);
    uint run = min(word + Uints(pc.places).at[word], last);
    for (; run + 4 <= last; run += 4) {
        uint low = Uints(pc.places).at[run], high = Uints(pc.places).at[run + 1];
        if (at.y < high || (at.y == high && at.x < low))
            break;
    }
    return plus(at, uvec2(Uints(pc.places).at[run + 2], Uints(pc.places).at[run + 3]));
}
uvec4 words_at(uvec2 seed, uint updates, uvec2 place)
{
    return philox(seed, uvec4((place.x >> 2) | (place.y << 30), place.y >> 2, updates, 0x726f756eu));
}
uvec4 random_at_places(uvec2 seed, uint updates, uint item)
{
    uvec2 first = place_of(item * ITEM_ELEMENTS);
#if VEC
    uvec2 last = place_of(item * 4 + 3);
    if ((first.x & 3u) == 0 && last.y == first.y && last.x - first.x == 3)
        return words_at(seed, updates, first);
    uvec4 words;
    for (uint k = 0; k < 4; k++) {
        uvec2 place = place_of(item * 4 + k);
        words[k] = words_at(seed, updates, place)[place.x & 3u];
    }
    return words;
#else
    return uvec4(words_at(seed, updates, first)[first.x & 3u]);
#endif
}

/* Four words for the four elements of a quad of the whole buffer. Without VEC the first one is the
 * item's. */
uvec4 random_of(uvec2 seed, uint updates, uint item)
{
    if (!STOCHASTIC)
        return uvec4(0);
    if (PLACED)
        return random_at_places(seed, updates, item);
#if VEC
    uint quad = item;
#else
    uint quad = item >> 2;
#endif
    uint carry, low = uaddCarry(pc.first_block << 4, quad, carry);
    uvec4 words = philox(seed, uvec4(low, (pc.first_block >> 28) + carry, updates, 0x726f756eu));
#if VEC
    return words;
#else
    return uvec4(words[item & 3u]);
#endif
}

ITEM root_of(ITEM x)
{
    precise ITEM root = EPS_INSIDE ? sqrt(x + pc.eps) : sqrt(x) + pc.eps;
    return root;
}

struct State {
    ITEM m, v, a, u;
};

#define RULE(number, name) if (KIND == number)
#define RULES_ALIKE(number, name, other_number, other) if (KIND == number || KIND == other_number)
#define NUMBER precise ITEM
#define ROOT(x) root_of(x)
#define POSITIVE(x) max(x, ITEM(0.0))
#define SIGN(x) sign(x)
#define MAX(x, y) max(x, y)

/* The factor of the learning rate. Updates the state. g: gradient. first: the first of all updates.
 */
ITEM direction(ITEM g, bool first, float bias1, float bias2, inout State s)
{
    precise ITEM m = s.m, v = s.v, a = s.a, u = s.u, d = g;
    precise float rest1 = 1.0 - pc.beta1, rest2 = 1.0 - pc.beta2, rest = 1.0 - pc.dampening;
    float beta1 = pc.beta1, beta2 = pc.beta2, momentum = pc.momentum;
    float extra0 = EXTRA0, extra1 = EXTRA1;
#include "optimizer_rules.h"
    s = State(m, v, a, u);
    return d;
}

void copy_alone(uint first, uvec2 seed, uint updates)
{
    uint number = BEFORE ? max(updates, 1u) - 1 : updates;
    [[unroll]] for (uint k = 0; k < PER_LANE; k++) {
        uint item = min(first + k, pc.items - 1);
        ITEM p = LOAD_AS(TYPE_F32, param, item);
        uvec4 random = random_of(seed, number, item);
        if (first + k < pc.items)
            store_as(COPY_TYPE, pc.copy, item, p, random, number == 0);
    }
}

#if STATES == 2
#include "optimizer_8bit.glsl"
#else
void main()
{
    uint first = flat_index() * PER_LANE;
    StepScalars s = StepScalars(pc.scalars);
    if (KIND == COPY_ALONE) {
        copy_alone(first, uvec2(s.seed0, s.seed1), s.updates);
        return;
    }
    float prescale = s.prescale == 0.0 ? 1.0 : s.prescale;
    float lr = s.lr, factor = s.factor, bias1 = s.bias1, bias2 = s.bias2;
    uint updates = s.updates;
    uvec2 seed = uvec2(s.seed0, s.seed1);
    bool goes = s.skipped == 0;
    uint block = min(first, pc.items - 1) / (64 / ITEM_ELEMENTS);
    float decays = Ints(pc.decay).at[block] != 0 ? 1.0 : 0.0;
    precise float decay = pc.weight_decay * decays;
    precise float shrink = lr * pc.weight_decay * decays;
#if WIDE
    uint from = UNIFORM_GROUP(gl_WorkGroupID.x) * gl_WorkGroupSize.x * PER_LANE;
#endif
    [[unroll]] for (uint k = 0; k < PER_LANE; k++) {
        uint item = min(first + k, pc.items - 1);
        precise ITEM g = LOAD_AS(GRAD_TYPE, grad, item) * prescale * factor;
        precise ITEM p = LOAD_AS(PARAM_TYPE, param, item), old = p;
        State state = State(ITEM(0.0), ITEM(0.0), ITEM(0.0), ITEM(0.0));
        if (HAS_M)
            state.m = LOAD_STATE(m, item);
        if (HAS_V)
            state.v = LOAD_STATE(v, item);
#if !WIDE /* has only m and v */
        if (HAS_A)
            state.a = LOAD_MORE(a, item);
        if (HAS_U)
            state.u = LOAD_MORE(u, item);
#endif
        State before = state;
        if (DECOUPLED)
            p = p - shrink * p;
        else
            g = g + decay * p;
        precise ITEM d = direction(g, updates <= 1, bias1, bias2, state);
        p = p - lr * d;
        uvec4 random = random_of(seed, updates, item);
#if WIDE /* f32 without other states or a copy */
        if (HAS_M)
            PUT(m, from + k, PER_LANE, mix(before.m, state.m, bvec4(goes)))
        if (HAS_V)
            PUT(v, from + k, PER_LANE, mix(before.v, state.v, bvec4(goes)))
        PUT(param, from + k, PER_LANE, mix(old, p, bvec4(goes)))
#else
        if (goes && first + k < pc.items) {
            if (HAS_M)
                STORE_STATE(m, item, state.m);
            if (HAS_V)
                STORE_STATE(v, item, state.v);
            if (HAS_A)
                STORE_STATE(a, item, state.a);
            if (HAS_U)
                STORE_STATE(u, item, state.u);
            store_as(PARAM_TYPE, pc.param, item, p, random, false);
            if (COPY_TYPE != TYPE_F32)
                store_as(COPY_TYPE, pc.copy, item, p, random, false);
        }
#endif
    }
}
#endif
