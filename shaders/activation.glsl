/* SPDX-License-Identifier: MIT
 *
 * The activations of enum rf_activation and their slopes. KIND, set when the pipeline is created,
 * selects one. A new activation needs a number and two cases here, and a row of the enum. NaN stays
 * NaN.
 */
layout(constant_id = 1) const uint KIND = 0;
const uint NONE = 0, RELU = 1, GELU = 2, SILU = 3, GELU_ERF = 4, SIGMOID = 5, TANH = 6;

/* r, or x if x is NaN: on some drivers exp(NaN) is not NaN. */
ITEM keep_nan(ITEM x, ITEM r)
{
#if VEC
    return mix(r, x, greaterThan(floatBitsToUint(x) & 0x7fffffffu, uvec4(0x7f800000u)));
#else
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u ? x : r;
#endif
}

/* Both branches call exp for an argument that is not above zero. It cannot overflow, and the result
 * is accurate far left of zero. */
ITEM logistic(ITEM x)
{
    ITEM e = exp(-abs(x));
    return mix(ITEM(1.0), e, LESS(x, 0.0)) / (1.0 + e);
}
ITEM logistic_slope(ITEM x)
{
    ITEM e = exp(-abs(x)), sum = 1.0 + e;
    return e / (sum * sum);
}
/* Cephes' polynomial near zero, where 1 - 2 / (e + 1) would cancel. */
ITEM tanh_of(ITEM x)
{
    ITEM a = abs(x), z = x * x;
    ITEM near = (((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z +
                 1.33314422036e-1) * z - 3.33332819422e-1;
    ITEM e = exp(-2.0 * a), far = (1.0 - e) / (1.0 + e);
    return mix(mix(far, -far, LESS(x, 0.0)), x + x * z * near, LESS(a, 0.625));
}

/* gelu(x) = x s(2u) with the logistic s and u = sqrt(2/pi) (x + 0.044715 x^3), because (1 + tanh u)
 * / 2 = s(2u). This form keeps its relative accuracy far left of zero. gelu has the same bits as in
 * matmul_epilogue.glsl, so a kept input of a product's activation reproduces the product's output.
 */
const float ROOT = 0.7978845608028654, CUBE = 0.044715;
ITEM gelu_u2(ITEM x)
{
    return 2.0 * ROOT * (x + CUBE * x * x * x);
}
ITEM gelu_gate(ITEM x)
{
    return 1.0 / (1.0 + exp(min(-gelu_u2(x), ITEM(87.0))));
}
ITEM gelu(ITEM x)
{
    return mix(x * gelu_gate(x), ITEM(0.0), LESS(gelu_u2(x), -87.0));
}

/* The normal distribution, P(X < x), to 1.2e-7 of itself: erfc by the Chebyshev fit of Press et al.,
 * Numerical Recipes, 6.2. */
ITEM normal_below(ITEM x)
{
    precise ITEM z = abs(x) * 0.7071067811865476, t = 1.0 / (1.0 + 0.5 * z);
    precise ITEM fit = -1.26551223 +
        t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 +
        t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 +
        t * 0.17087277))))))));
    precise ITEM tail = 0.5 * t * exp(fit - z * z);
    precise ITEM rest = 1.0 - tail;
    return mix(rest, tail, LESS(x, 0.0));
}

ITEM activation(ITEM x)
{
    switch (KIND) {
    case NONE: return x;
    case GELU: return gelu(x);
    case GELU_ERF: return x * normal_below(x);
    case RELU: return keep_nan(x, mix(x, ITEM(0.0), LESS(x, 0.0))); /* compilers make a maximum of it */
    case SILU: return x * logistic(x);
    case SIGMOID: return keep_nan(x, logistic(x));
    default: return keep_nan(x, tanh_of(x));
    }
}

ITEM slope(ITEM x)
{
    ITEM s;
    switch (KIND) {
    case NONE: return ITEM(1.0);
    case GELU:
        s = gelu_gate(x);
        return s + x * s * (1.0 - s) * (2.0 * ROOT) * (1.0 + 3.0 * CUBE * x * x);
    case GELU_ERF: {
        precise ITEM sum = normal_below(x) + x * 0.3989422804014327 * exp(-0.5 * x * x);
        return sum;
    }
    case RELU: return mix(ITEM(0.0), ITEM(1.0), LESS(ITEM(0.0), x));
    case SILU:
        s = logistic(x);
        return s + x * logistic_slope(x);
    case SIGMOID: return logistic_slope(x);
    default: return 4.0 * logistic_slope(2.0 * x);
    }
}
