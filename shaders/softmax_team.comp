#version 450
/* SPDX-License-Identifier: MIT
 *
 * softmax.comp with a row for each team of lanes (team.glsl). A lane keeps its part of the row, up
 * to KEEP quads, and recomputes the rest.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "compensated.glsl"
#include "team.glsl"

#include "push/softmax.h"

const float LOWEST = -3.402823466e38;

/* Four elements at column c of row `base`; `fill` past its end. */
vec4 four(uvec2 from, uint base, uint c, float fill)
{
#if VEC
    vec4 v = load4(from, base + min(c, pc.columns - 4));
    return c < pc.columns ? v : vec4(fill);
#else
    return load4_within(from, base, c, pc.columns, fill);
#endif
}
void put(uint base, uint c, vec4 v)
{
#if VEC
    if (c < pc.columns)
        store4(pc.out_, base + c, v);
#else
    store4_within(pc.out_, base, c, pc.columns, v);
#endif
}
/* exp(x - top); 0 past the end of the row. */
vec4 share(vec4 x, float top, uint c)
{
    return mix(vec4(0.0), exp(x - top), within(c, pc.columns));
}

void main()
{
    uint index = team_index(), row = min(index, pc.rows - 1), lane = team_lane();
    uint columns = pc.columns, base = row * columns;
    const uint stride = 4 * TEAM, kept = KEEP * stride;
    vec4 v[KEEP], sum = vec4(0.0), lost = vec4(0.0);
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        v[k] = four(pc.x, base, 4 * lane + k * stride, BACKWARD != 0 ? 0.0 : LOWEST);
#if BACKWARD
    vec4 d[KEEP];
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        d[k] = four(pc.dout, base, 4 * lane + k * stride, 0.0);
    [[unroll]] for (uint k = 0; k < KEEP; k++) {
        precise vec4 term = v[k] * d[k];
        add_to(sum, lost, term);
    }
    for (uint c = 4 * lane + kept; c < columns; c += stride) {
        precise vec4 term = four(pc.x, base, c, 0.0) * four(pc.dout, base, c, 0.0);
        add_to(sum, lost, term);
    }
    float both = team_sum(vec2(join4(sum), 0.0)).x;
    if (index >= pc.rows)
        return;
    [[unroll]] for (uint k = 0; k < KEEP; k++) {
        precise vec4 dx = v[k] * (d[k] - both);
        put(base, 4 * lane + k * stride, dx);
    }
    for (uint c = 4 * lane + kept; c < columns; c += stride) {
        precise vec4 dx = four(pc.x, base, c, 0.0) * (four(pc.dout, base, c, 0.0) - both);
        put(base, c, dx);
    }
#else
    vec4 most = vec4(LOWEST);
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        most = max(most, v[k]);
    for (uint c = 4 * lane + kept; c < columns; c += stride)
        most = max(most, four(pc.x, base, c, LOWEST));
    float top = team_max(max4(most));
    [[unroll]] for (uint k = 0; k < KEEP; k++) {
        v[k] = share(v[k], top, 4 * lane + k * stride);
        add_to(sum, lost, v[k]);
    }
    for (uint c = 4 * lane + kept; c < columns; c += stride)
        add_to(sum, lost, share(four(pc.x, base, c, LOWEST), top, c));
    precise float factor = 1.0 / team_sum(vec2(join4(sum), 0.0)).x;
    if (index >= pc.rows)
        return;
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        put(base, 4 * lane + k * stride, factor * v[k]);
    for (uint c = 4 * lane + kept; c < columns; c += stride)
        put(base, c, factor * share(four(pc.x, base, c, LOWEST), top, c));
#endif
}
