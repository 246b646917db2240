#version 450
/* SPDX-License-Identifier: MIT
 *
 * Joins the chunks of attend_cache.comp in the order of the keys. One element of a head for each
 * invocation.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint CHUNK = 128; /* of attend_cache.comp */

#include "push/attend_cache.h"

void main()
{
    uint index = flat_index(), e = index % pc.size, line = index / pc.size;
    uint head = line % pc.heads, row = line / pc.heads;
    if (row >= pc.rows)
        return;
    uint count = min(Uints(pc.position).at[row], pc.cached - 1) / CHUNK + 1;
    count = min(count, pc.chunks);
    uint stride = pc.size + 2, base = line * pc.chunks * stride;
    Floats parts = Floats(pc.partial);
    float most = parts.at[base];
    for (uint k = 1; k < count; k++)
        most = max(most, parts.at[base + k * stride]);
    precise float sum = 0.0, value = 0.0;
    for (uint k = 0; k < count; k++) {
        uint at = base + k * stride;
        float factor = exp(parts.at[at] - most);
        sum = fma(parts.at[at + 1], factor, sum);
        value = fma(parts.at[at + 2 + e], factor, value);
    }
    store1(pc.out_, row * pc.out_row + head * pc.size + e, value / sum);
}
