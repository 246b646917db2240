/* SPDX-License-Identifier: MIT
 *
 * The update of optimizer.comp with states in 8 bits: blocks of 256 codes and their largest
 * magnitude (enum rf_optimizer_state in ringforge/ops_optimizer.h). A workgroup of 64 lanes updates
 * a block, a quad of elements a lane, then the next one. Elements past the end are states of 0.
 */
const uint STATE_BLOCK = 256, BLOCK_WORDS = 65, QUAD_ITEMS = 4 / ITEM_ELEMENTS;
const bool UNSIGNED_V = (FLAGS & 65536) != 0;
const uint SIGNED = 0, UNSIGNED = 1;

/* Levels by code. Numbers count levels from 0 upwards: code - 127 with signs. borders[i]: the middle
 * of those with numbers i and i + 1. */
shared float levels[2][256], borders[2][256];
shared uint largest[3][4]; /* of a block and state, as bits; blocks take turns */

#define LEVEL_FUNCTION
#define EXACT precise
#include "dynamic_level.h"

void fill_levels(uint id, uint lanes)
{
    for (uint i = id; i < 256; i += lanes) {
        const float x = dynamic_level(1.0, abs(float(i) - 127.0));
        levels[SIGNED][i] = i < 127 ? -x : x;
        if (UNSIGNED_V)
            levels[UNSIGNED][i] = dynamic_level(2.0, float(i));
    }
    if (id < 12)
        largest[id / 4][id % 4] = 0;
    barrier();
    for (uint map = SIGNED; map <= uint(UNSIGNED_V); map++)
        for (uint i = id; i < 255; i += lanes) {
            const uint code = map == SIGNED ? min(i + 127, 254) : i;
            precise const float middle = (levels[map][code] + levels[map][code + 1]) / 2;
            borders[map][i] = middle;
        }
    barrier();
}

vec4 decode(uint map, uvec2 base, uint block, uint lane)
{
    const uint word = Uints(base).at[block * BLOCK_WORDS + lane];
    const float scale = uintBitsToFloat(Uints(base).at[block * BLOCK_WORDS + 64]);
    const uvec4 code = uvec4(word, word >> 8, word >> 16, word >> 24) & 255u;
    precise const vec4 x = vec4(levels[map][code.x], levels[map][code.y], levels[map][code.z],
                                levels[map][code.w]) * scale;
    return x;
}

/* The codes of the levels nearest to x, the lower ones if two are equally near. A decade has equal
 * parts with a level in the middle of each; the first border is a fifth of a part behind its begin.
 * So a part's number less a quarter, rounded down, is that of the level or of the one before, and
 * one comparison decides. */
uvec4 codes_of(uint map, vec4 x)
{
    const float first = map == SIGNED ? 1.0 : 2.0;
    const vec4 size = abs(x);
    vec4 parts = vec4(first), scale = vec4(first * (1e6 / 0.9));
    float edge = 1e-6;
    [[unroll]] for (uint decade = 1; decade < 7; decade++, edge *= 10.0) {
        const bvec4 above = greaterThanEqual(size, vec4(edge));
        parts = mix(parts, 2.0 * parts, above);
        scale = mix(scale, 0.2 * scale, above);
    }
    const vec4 part = floor(size * scale - parts * (1.0 / 9.0) - 0.25);
    const ivec4 least = clamp(ivec4(parts - first + 1.0 + part), 0, map == SIGNED ? 127 : 254);
    const vec4 border = vec4(borders[map][least.x], borders[map][least.y], borders[map][least.z],
                             borders[map][least.w]);
    const bvec4 below = lessThan(x, vec4(0.0));
    const ivec4 number =
        least + mix(ivec4(greaterThan(size, border)), ivec4(greaterThanEqual(size, border)), below);
    if (map == UNSIGNED)
        return uvec4(number);
    return uvec4(mix(127 + number, max(127 - number, 0), below));
}

void encode(uint map, uvec2 base, uint block, uint lane, vec4 x, uint bits)
{
    const float scale = uintBitsToFloat(bits);
    precise const float inverse = 1.0 / max(scale, 1.17549435e-38);
    precise const vec4 part = clamp(x * inverse, -1.0, 1.0);
    const uvec4 code = codes_of(map, part) << uvec4(0, 8, 16, 24);
    Uints(base).at[block * BLOCK_WORDS + lane] = code.x | code.y | code.z | code.w;
    if (lane == 0)
        Uints(base).at[block * BLOCK_WORDS + 64] = bits;
}

void enlarge(uint turn, uint state, vec4 x)
{
    const uvec4 bits = floatBitsToUint(x) & 0x7fffffffu;
    atomicMax(largest[turn][state], max(max(bits.x, bits.y), max(bits.z, bits.w)));
}

#if VEC
#define PUT_ITEM(x, k, value) x = value
#define ITEM_OF(x, k) x
#else
#define PUT_ITEM(x, k, value) x[k] = value
#define ITEM_OF(x, k) x[k]
#endif

struct Quad {
    vec4 m, v, a, u;
};

/* Updates a lane's parameters and the states of them. */
void update_quad(uint first, StepScalars s, inout Quad quad)
{
    const float prescale = s.prescale == 0.0 ? 1.0 : s.prescale;
    const uvec2 seed = uvec2(s.seed0, s.seed1);
    for (uint k = 0; k < QUAD_ITEMS; k++) {
        const uint item = min(first + k, pc.items - 1);
        const bool there = first + k < pc.items;
        const float decays = Ints(pc.decay).at[item / (64 / ITEM_ELEMENTS)] != 0 ? 1.0 : 0.0;
        precise const float decay = pc.weight_decay * decays;
        precise const float shrink = s.lr * pc.weight_decay * decays;
        precise ITEM g = load_as(GRAD_TYPE, pc.grad, item) * prescale * s.factor;
        precise ITEM p = load_as(PARAM_TYPE, pc.param, item);
        State state = State(ITEM_OF(quad.m, k), ITEM_OF(quad.v, k), ITEM_OF(quad.a, k),
                            ITEM_OF(quad.u, k));
        if (DECOUPLED)
            p = p - shrink * p;
        else
            g = g + decay * p;
        precise const ITEM d = direction(g, s.updates <= 1, s.bias1, s.bias2, state);
        p = p - s.lr * d;
        const uvec4 random = random_of(seed, s.updates, item);
        PUT_ITEM(quad.m, k, there ? state.m : ITEM(0.0));
        PUT_ITEM(quad.v, k, there ? state.v : ITEM(0.0));
        PUT_ITEM(quad.a, k, there ? state.a : ITEM(0.0));
        PUT_ITEM(quad.u, k, there ? state.u : ITEM(0.0));
        if (there) {
            store_as(PARAM_TYPE, pc.param, item, p, random, false);
            if (COPY_TYPE != TYPE_F32)
                store_as(COPY_TYPE, pc.copy, item, p, random, false);
        }
    }
}

void main()
{
    const uint lane = gl_LocalInvocationID.x, step = gl_NumWorkGroups.x * gl_NumWorkGroups.y;
    const uint blocks = (pc.items * ITEM_ELEMENTS + STATE_BLOCK - 1) / STATE_BLOCK;
    const uint map_v = UNSIGNED_V ? UNSIGNED : SIGNED;
    StepScalars s = StepScalars(pc.scalars);
    if (s.skipped != 0)
        return;
    fill_levels(lane, gl_WorkGroupSize.x);
    uint turn = 0;
    for (uint block = flat_group(); block < blocks; block += step) {
        Quad x = Quad(vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
        if (HAS_M)
            x.m = decode(SIGNED, pc.m, block, lane);
        if (HAS_V)
            x.v = decode(map_v, pc.v, block, lane);
        if (HAS_A)
            x.a = decode(SIGNED, pc.a, block, lane);
        if (HAS_U)
            x.u = decode(SIGNED, pc.u, block, lane);
        update_quad((block * STATE_BLOCK + 4 * lane) / ITEM_ELEMENTS, s, x);
        if (HAS_M)
            enlarge(turn, 0, x.m);
        if (HAS_V)
            enlarge(turn, 1, x.v);
        if (HAS_A)
            enlarge(turn, 2, x.a);
        if (HAS_U)
            enlarge(turn, 3, x.u);
        barrier();
        if (HAS_M)
            encode(SIGNED, pc.m, block, lane, x.m, largest[turn][0]);
        if (HAS_V)
            encode(map_v, pc.v, block, lane, x.v, largest[turn][1]);
        if (HAS_A)
            encode(SIGNED, pc.a, block, lane, x.a, largest[turn][2]);
        if (HAS_U)
            encode(SIGNED, pc.u, block, lane, x.u, largest[turn][3]);
        /* No lane reads those of the block before any more, nor writes them before the next
         * barrier. */
        if (lane < 4)
            largest[(turn + 2) % 3][lane] = 0;
        turn = (turn + 1) % 3;
    }
}
