/* SPDX-License-Identifier: MIT
 *
 * The products of attention_tiled.glsl by multiplications of f32: every invocation its share.
 */
layout(constant_id = 5) const uint ROLLED = 0;
const uint DEPTH = 16;               /* of a slice */
const uint PITCH = TILE + 4;         /* shifts each row of a slice to other banks */
const uint PITCH_D = 2 * ACROSS * PAIRS;
const uint DOT_LOADS = TILE * DEPTH / 4 / LANES;
const uint MIX_LOADS = (DEPTH * D4 + LANES - 1) / LANES;
const uint DOT_SHARED = 2 * DEPTH * PITCH, MIX_SHARED = DEPTH * PITCH_D;

shared float slices[DOT_SHARED > MIX_SHARED ? DOT_SHARED : MIX_SHARED];
shared float weights[TILE * TILE]; /* by contracted index, then row: see weight_at() */

/* DEPTH; where ROLLED something that no compiler knows to be DEPTH, so that loops stay loops: CPU
 * drivers else compile them for a second. */
uint depth()
{
    return ROLLED != 0 ? min(DEPTH, pc.queries | DEPTH) : DEPTH;
}

/* Where four rows of the weights lie together. Rows are rotated by the index, so that neighbours who
 * write the transposed form meet in no bank. */
uint weight_at(uint index, uint row)
{
    return index * TILE + ((row + (index & ~3u)) & (TILE - 1));
}
/* The weights of an index for four rows. */
void set_weights(uint index, uint row, vec4 w)
{
    uint at = weight_at(index, row);
    [[unroll]] for (uint r = 0; r < 4; r++)
        weights[at + r] = w[r];
}

/* An invocation's quad i of a slice of rows: row, quad. */
uvec2 dot_place(uint i)
{
    uint at = i * LANES + gl_LocalInvocationID.x;
    return uvec2(at / (DEPTH / 4), at % (DEPTH / 4));
}
void dot_keep(uint first, uint i, vec4 v)
{
    uvec2 at = dot_place(i);
    [[unroll]] for (uint c = 0; c < 4; c++)
        slices[first + (at.y * 4 + c) * PITCH + at.x] = v[c];
}

/* s[r][c] = row a0 + m + r of a times row b0 + 4 n + c of b. */
void dots(Rows a, uint a0, Rows b, uint b0, out float s[16])
{
    uint m = my_m(), n = DEPTH * PITCH + my_n() * 4;
    vec4 next_a[DOT_LOADS], next_b[DOT_LOADS];
    [[unroll]] for (uint i = 0; i < 16; i++)
        s[i] = 0.0;
    [[unroll]] for (uint i = 0; i < DOT_LOADS; i++) {
        uvec2 at = dot_place(i);
        next_a[i] = row_load(a, a0 + at.x, at.y);
        next_b[i] = row_load(b, b0 + at.x, at.y);
    }
    for (uint d = 0; d < D; d += DEPTH) {
        barrier();
        [[unroll]] for (uint i = 0; i < DOT_LOADS; i++) {
            dot_keep(0, i, next_a[i]);
            dot_keep(DEPTH * PITCH, i, next_b[i]);
        }
        barrier();
        [[unroll]] for (uint i = 0; i < DOT_LOADS; i++) {
            uvec2 at = dot_place(i);
            next_a[i] = row_load(a, a0 + at.x, at.y + (d + DEPTH) / 4);
            next_b[i] = row_load(b, b0 + at.x, at.y + (d + DEPTH) / 4);
        }
        for (uint k = 0; k < depth(); k++) {
            float x[4], y[4];
            [[unroll]] for (uint i = 0; i < 4; i++) {
                x[i] = slices[k * PITCH + m + i];
                y[i] = slices[k * PITCH + n + i];
            }
            [[unroll]] for (uint r = 0; r < 4; r++)
                [[unroll]] for (uint c = 0; c < 4; c++)
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

/* Row m + r of sum (8 PAIRS floats) += the weights of that row times the rows of b from b0. The
 * weights may have been written just before; afterwards they may be in use until the next barrier.
 * A macro, as glslang cannot pass arrays whose size is specialized. */
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
            for (uint k = 0; k < depth(); k++) {                                              \
                float w[4];                                                                 \
                [[unroll]] for (uint r = 0; r < 4; r++)                                     \
                    w[r] = weights[weight_at(k0 + k, m_) + r];                              \
                [[unroll]] for (uint c = 0; c < 2 * PAIRS; c++) {                           \
                    float x = slices[k * PITCH_D + c / 2 * 2 * ACROSS + n_ + c % 2];        \
                    [[unroll]] for (uint r = 0; r < 4; r++)                                 \
                        sum[r * 2 * PAIRS + c] = fma(w[r], x, sum[r * 2 * PAIRS + c]);      \
                }                                                                           \
            }                                                                               \
        }                                                                                   \
    }

