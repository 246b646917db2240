/* SPDX-License-Identifier: MIT
 *
 * The products of attention_tiled.glsl by f32 multiplications, divided among the invocations.
 */
const uint DEPTH = 16; /* of a slice */
/* The number of products of a slice that are unrolled together: 1 to DEPTH. Compilers without
 * address offsets for shared memory keep an address in a register for each unrolled product. */
layout(constant_id = 5) const uint STEP = 16;
const uint PITCH = TILE + 4; /* shifts each row of a slice to other banks */
const uint PITCH_D = 2 * ACROSS * PAIRS;
const uint QUADS = TILE * DEPTH / 4;                    /* of a slice of rows */
const uint DOT_LOADS = (2 * QUADS + LANES - 1) / LANES; /* of both sides */
const uint MIX_LOADS = (DEPTH * D4 + LANES - 1) / LANES;
const uint DOT_SHARED = 2 * DEPTH * PITCH, MIX_SHARED = DEPTH * PITCH_D;

shared float slices[DOT_SHARED > MIX_SHARED ? DOT_SHARED : MIX_SHARED];
shared float weights[TILE * TILE]; /* by contracted index, then row: see weight_at() */

/* DEPTH. With a smaller STEP, an expression that no compiler can evaluate, so that loops stay
 * loops: CPU drivers would otherwise compile them for a second. */
uint depth()
{
    return STEP < DEPTH ? min(DEPTH, pc.queries | DEPTH) : DEPTH;
}

/* Four rows of the weights are adjacent. Rows are rotated by the index, so that neighbours who
 * write the transposed form do not conflict in a bank. */
uint weight_at(uint index, uint row)
{
    return index * TILE + ((row + (index & ~3u)) & (TILE - 1));
}
/* The weights of an index for four rows. */
void set_weights(uint index, uint row, vec4 w)
{
    uint at = weight_at(index, row);
    [[unroll]] for (uint r = 0; r < EACH_M; r++)
        weights[at + r] = w[r];
}
/* Scores are stored where the invocation will set its weights, while another product needs
 * registers. */
#define SET_ASIDE(s) set_all_weights(s);
#define ASIDE(s, r, c) weights[weight_at(my_n() * EACH_N + (c), my_m()) + (r)]

/* An invocation's load i of two slices of rows: side, row, quad. */
bool dot_side(uint i)
{
    /* If all invocations load from one side, compilers can see it. */
    return LANES <= QUADS ? i >= QUADS / LANES : i * LANES + gl_LocalInvocationID.x >= QUADS;
}
uvec2 dot_place(uint i)
{
    uint at = (LANES <= QUADS ? i % (QUADS / LANES) * LANES : i * LANES) + gl_LocalInvocationID.x;
    at = LANES <= QUADS ? at : at % QUADS;
    return uvec2(at / (DEPTH / 4), at % (DEPTH / 4));
}
vec4 dot_load(Rows a, uint a0, Rows b, uint b0, uint i, uint d)
{
    uvec2 at = dot_place(i);
    if (dot_side(i))
        return row_load(b, b0 + at.x, at.y + d / 4);
    return row_load(a, a0 + at.x, at.y + d / 4);
}
void dot_keep(uint i, vec4 v)
{
    uvec2 at = dot_place(i);
    uint first = dot_side(i) ? DEPTH * PITCH : 0;
    [[unroll]] for (uint c = 0; c < 4; c++)
        slices[first + (at.y * 4 + c) * PITCH + at.x] = v[c];
}

/* s[r][c] = row a0 + m + r of a times row b0 + EACH_N n + c of b. */
void dots(Rows a, uint a0, Rows b, uint b0, out float s[16])
{
    uint m = my_m(), n = DEPTH * PITCH + my_n() * EACH_N;
    vec4 next[DOT_LOADS];
    [[unroll]] for (uint i = 0; i < 16; i++)
        s[i] = 0.0;
    [[unroll]] for (uint i = 0; i < DOT_LOADS; i++)
        next[i] = dot_load(a, a0, b, b0, i, 0);
    for (uint d = 0; d < D; d += DEPTH) {
        barrier();
        [[unroll]] for (uint i = 0; i < DOT_LOADS; i++)
            dot_keep(i, next[i]);
        barrier();
        [[unroll]] for (uint i = 0; i < DOT_LOADS; i++)
            next[i] = dot_load(a, a0, b, b0, i, d + DEPTH);
        for (uint k1 = 0; k1 < depth(); k1 += STEP)
            [[unroll]] for (uint u = 0, k = k1; u < STEP; u++, k++) {
                float x[4], y[4];
                [[unroll]] for (uint i = 0; i < EACH_M; i++)
                    x[i] = slices[k * PITCH + m + i];
                [[unroll]] for (uint i = 0; i < EACH_N; i++)
                    y[i] = slices[k * PITCH + n + i];
                [[unroll]] for (uint r = 0; r < EACH_M; r++)
                    [[unroll]] for (uint c = 0; c < EACH_N; c++)
                        s[r * 4 + c] = fma(x[r], y[c], s[r * 4 + c]);
            }
    }
}

uvec2 mix_place(uint i)
{
    uint at = i * LANES + gl_LocalInvocationID.x;
    return uvec2(at / D4, at % D4);
}

void mix_keep(uint i, vec4 v)
{
    uvec2 at = mix_place(i);
    if (at.x < DEPTH) {
        [[unroll]] for (uint c = 0; c < 4; c++)
            slices[at.x * PITCH_D + at.y * 4 + c] = v[c];
    }
}

/* Row m + r of sum (EACH_M 2 PAIRS floats) += the weights of that row times the rows of b from b0.
 * The weights may have been written just before, and may be in use until the next barrier. A macro,
 * because glslang cannot pass arrays of specialized size. */
#define MIX_ROWS(b, b0, sum)                                                                \
    {                                                                                       \
        uint m_ = my_m(), n_ = my_n() * 2;                                                  \
        vec4 next[MIX_LOADS];                                                               \
        [[unroll]] for (uint i = 0; i < MIX_LOADS; i++)                                     \
            next[i] = row_load(b, (b0) + mix_place(i).x, mix_place(i).y);                   \
        for (uint k0 = 0; k0 < TILE; k0 += DEPTH) {                                         \
            barrier();                                                                      \
            [[unroll]] for (uint i = 0; i < MIX_LOADS; i++)                                 \
                mix_keep(i, next[i]);                                                       \
            barrier();                                                                      \
            [[unroll]] for (uint i = 0; i < MIX_LOADS; i++)                                 \
                next[i] = row_load(b, (b0) + k0 + DEPTH + mix_place(i).x, mix_place(i).y);  \
            for (uint k1 = 0; k1 < depth(); k1 += STEP)                                     \
                [[unroll]] for (uint u = 0, k = k1; u < STEP; u++, k++) {                          \
                    float w[4];                                                             \
                    [[unroll]] for (uint r = 0; r < EACH_M; r++)                            \
                        w[r] = weights[weight_at(k0 + k, m_) + r];                          \
                    [[unroll]] for (uint c = 0; c < 2 * PAIRS; c++) {                       \
                        float x = slices[k * PITCH_D + c / 2 * 2 * ACROSS + n_ + c % 2];    \
                        [[unroll]] for (uint r = 0; r < EACH_M; r++)                        \
                            sum[r * 2 * PAIRS + c] = fma(w[r], x, sum[r * 2 * PAIRS + c]);  \
                    }                                                                       \
                }                                                                           \
        }                                                                                   \
    }
