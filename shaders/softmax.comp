#version 450
/* SPDX-License-Identifier: MIT
 *
 * Softmax over rows, one row per invocation, in place or not. Forward: the maximum, the sum of
 * exponentials, the result. BACKWARD: dx = y (dout - sum(y dout)).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "compensated.glsl"

#include "push/softmax.h"
VIEW(0, x)
#if BACKWARD
VIEW(1, dout)
#endif

const float LOWEST = -3.402823466e38;

/* Columns c .. c+3 of row `base`. */
vec4 x4(uint base, uint c, uint columns, float fill)
{
#if VEC
    return load4(FROM(x), base + c);
#else
    return load4_within(FROM(x), base, c, columns, fill);
#endif
}
void result4(uint base, uint c, uint columns, vec4 v)
{
#if VEC
    store4(pc.out_, base + c, v);
#else
    store4_within(pc.out_, base, c, columns, v);
#endif
}
#if BACKWARD
vec4 dout4(uint base, uint c, uint columns)
{
#if VEC
    return load4(FROM(dout), base + c);
#else
    return load4_within(FROM(dout), base, c, columns, 0.0);
#endif
}
#endif

void main()
{
    uint index = flat_index();
    uint row = min(index, pc.rows - 1);
    uint columns = pc.columns, base = row * columns;
    vec4 sum = vec4(0.0), lost = vec4(0.0);
#if BACKWARD
    for (uint c = 0; c < columns; c += 4) {
        precise vec4 term = x4(base, c, columns, 0.0) * dout4(base, c, columns);
        add_to(sum, lost, term);
    }
    float both = join4(sum);
    if (index < pc.rows)
        for (uint c = 0; c < columns; c += 4) {
            precise vec4 v = x4(base, c, columns, 0.0) * (dout4(base, c, columns) - both);
            result4(base, c, columns, v);
        }
#else
    vec4 most = vec4(LOWEST);
    for (uint c = 0; c < columns; c += 4)
        most = max(most, x4(base, c, columns, LOWEST));
    float top = max4(most);
    const uint blocks = columns / 16 * 16; /* one correction for four of them */
    for (uint c = 0; c < blocks; c += 16) {
        precise vec4 e = (exp(x4(base, c, columns, LOWEST) - top) +
                          exp(x4(base, c + 4, columns, LOWEST) - top)) +
                         (exp(x4(base, c + 8, columns, LOWEST) - top) +
                          exp(x4(base, c + 12, columns, LOWEST) - top));
        add_to(sum, lost, e);
    }
    for (uint c = blocks; c < columns; c += 4)
        add_to(sum, lost,
               mix(vec4(0.0), exp(x4(base, c, columns, LOWEST) - top), within(c, columns)));
    precise float factor = 1.0 / join4(sum);
    if (index < pc.rows)
        for (uint c = 0; c < columns; c += 4)
            result4(base, c, columns, factor * exp(x4(base, c, columns, LOWEST) - top));
#endif
}
