/* SPDX-License-Identifier: MIT
 *
 * The steps after the sum in every path of rf_matmul: scale, bias, an activation or its derivative,
 * residual, and a single rounding to out's type. Includers include matmul.glsl first and define
 * FINISHED, the number of groups of four columns that are finished at once. They declare two
 * constants. OUT_WIDE: rows of out, pre, residual and bias consist of whole quads. ACTIVATES: there
 * is an activation. It is a constant and not a flag, because CPU drivers execute both sides of a
 * branch.
 */
#define EACH [[unroll]] for (uint i = 0; i < FINISHED; i++)

struct Place {
    uint row, column; /* of the first of four elements; may be outside of out */
};

vec4 load_bias(uint column)
{
    vec4 x = vec4(0);
    if ((pc.flags & BIAS) != 0)
        x = load_four(pc.bias, OPERAND_TYPE, OUT_WIDE, min(column, pc.N - 1) / 4,
                      four(column, pc.N - 1));
    return x;
}

/* The index of element 0 of a row, and four elements of that row, in a tensor with the layout of
 * out. */
uint row_start(Place place)
{
    return gl_WorkGroupID.z * pc.out_step + min(place.row, pc.M - 1) * pc.out_row;
}
#define OUT_QUAD(place) ((row_start(place) + min(place.column, pc.N - 1)) / 4)
#define OUT_FOUR(place) (row_start(place) + four(place.column, pc.N - 1))

#ifdef VIEWS /* f32 only */
layout(set = 0, binding = 2) uniform samplerBuffer view_residual;
layout(set = 0, binding = 3) uniform samplerBuffer view_pre;
#define LOAD_LIKE_OUT(t, place)                                                                    \
    texels(view_##t, pc.t##_first, OUT_WIDE, OUT_QUAD(place), OUT_FOUR(place))
#else
#define LOAD_LIKE_OUT(t, place)                                                                    \
    load_four(pc.t, RESULT_TYPE, OUT_WIDE, OUT_QUAD(place), OUT_FOUR(place))
#endif

void store_four(uvec2 address, Place place, vec4 x)
{
    const uint start = row_start(place) + place.column;
    if (place.row >= pc.M || place.column >= pc.N)
        return;
    if (OUT_WIDE) {
        if (RESULT_TYPE == TYPE_F32)
            set_f32_quad(address, start / 4, x);
        else
            set_word_pair(address, start / 4,
                          uvec2(pack_as(RESULT_TYPE, x.xy), pack_as(RESULT_TYPE, x.zw)));
        return;
    }
    const uvec2 words = uvec2(pack_as(RESULT_TYPE, x.xy), pack_as(RESULT_TYPE, x.zw));
    [[unroll]] for (uint c = 0; c < 4; c++)
        if (place.column + c < pc.N) {
            if (RESULT_TYPE == TYPE_F32)
                Floats(address).at[start + c] = x[c];
            else
                set_half_word(address, start + c, words[c / 2] >> 16 * (c % 2) & 0xffff);
        }
}

/* All activations are x s(x). For GELU (its tanh form) s is the logistic of z = 2 sqrt(2/pi) (x +
 * 0.044715 x^3), for SiLU that of z = x, for ReLU a step. */
const float ROOT = 0.7978845608028654, CUBE = 0.044715;
vec4 gate(vec4 x)
{
    const bool relu = (pc.flags & RELU) != 0;
    const vec4 cubic = 2.0 * ROOT * (x + CUBE * x * x * x);
    const vec4 z = mix(x, cubic, bvec4((pc.flags & GELU) != 0));
    /* Left of -87 the result is below all normal numbers. */
    const vec4 s = mix(1.0 / (1.0 + exp(min(-z, 87.0))), vec4(0), lessThan(z, vec4(-87.0)));
    return mix(s, mix(vec4(1), vec4(0), lessThanEqual(x, vec4(0))), bvec4(relu));
}

/* The activation of x, or x times the derivative at `pre`. */
vec4 activated(vec4 x, vec4 pre, bool backward)
{
    const vec4 at = backward ? pre : x, s = gate(at);
    const vec4 slope = (pc.flags & GELU) != 0 ? 2.0 * ROOT * (1.0 + 3.0 * CUBE * at * at) : vec4(1);
    const vec4 y = backward ? x * (s + at * s * (1.0 - s) * slope) : x * s;
    /* If s is 0 or 1, at and slope may be infinite. */
    const vec4 flat_y = mix(x, vec4(0), equal(s, vec4(0)));
    return mix(y, flat_y, equal(s * (1.0 - s), vec4(0)));
}

void finish(vec4 x[FINISHED], vec4 bias[FINISHED], Place place[FINISHED])
{
    EACH x[i] = x[i] * pc.alpha + bias[i];
    if (ACTIVATES) {
        const bool backward = (pc.flags & BACKWARD) != 0;
        vec4 pre[FINISHED];
        EACH pre[i] = vec4(0);
        if (backward)
            EACH pre[i] = LOAD_LIKE_OUT(pre, place[i]);
        if ((pc.flags & WRITE_PRE) != 0)
            EACH store_four(pc.pre, place[i], x[i]);
        EACH x[i] = activated(x[i], pre[i], backward);
    }
    if ((pc.flags & RESIDUAL) != 0)
        EACH x[i] += LOAD_LIKE_OUT(residual, place[i]);
    EACH store_four(pc.out_, place[i], x[i]);
}
