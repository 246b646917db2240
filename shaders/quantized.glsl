/* SPDX-License-Identifier: MIT
 *
 * Elements of a quantised b of the matrix product; the layout is that of ringforge/quantize.h. In
 * words from pc.b, pc.b_first is where the numbers of the blocks begin, and for NF4
 * pc.residual_first where those of groups of blocks do, and pc.pre_first where the offset is.
 * Multiplied and added as on the host, in f32. Included by matmul_tiled.comp.
 */
const uint BLOCK = 64, GROUP = 256;

#ifdef QUANTIZED_NF4
shared float levels[16], codes[256]; /* the value of each */

void fill_tables(uint id, uint lanes)
{
    const float level_values[16] = float[16](
#include "nf4_levels.h"
    );
    const float code_values[128] = float[128](
#include "dynamic_map.h"
    );
    for (uint i = id; i < 256; i += lanes) {
        const float x = code_values[i > 127 ? i - 128 : 126 - min(i, 126)];
        codes[i] = i > 127 ? x : i == 127 ? 0 : -x;
        if (i < 16)
            levels[i] = level_values[i];
    }
}

float block_scale(uint block)
{
    const uint code = Words(pc.b).at[pc.b_first + block / 4] >> 8 * (block % 4) & 255;
    precise const float part =
        codes[code] * Floats(pc.b).at[pc.residual_first + block / GROUP];
    precise const float scale = part + Floats(pc.b).at[pc.pre_first];
    return scale;
}

vec4 quantized_quad(uint quad)
{
    const uint x = Words(pc.b).at[quad / 2] >> 16 * (quad % 2);
    return vec4(levels[x >> 4 & 15], levels[x & 15], levels[x >> 12 & 15], levels[x >> 8 & 15]) *
           block_scale(quad / (BLOCK / 4));
}

float quantized_one(uint i)
{
    const uint x = Words(pc.b).at[i / 8] >> 8 * (i / 2 % 4);
    return levels[x >> 4 * (1 - i % 2) & 15] * block_scale(i / BLOCK);
}
#else
void fill_tables(uint id, uint lanes)
{
}

float block_scale(uint block)
{
    return Floats(pc.b).at[pc.b_first + block];
}

vec4 quantized_quad(uint quad)
{
    const int x = int(Words(pc.b).at[quad]);
    return vec4(bitfieldExtract(x, 0, 8), bitfieldExtract(x, 8, 8), bitfieldExtract(x, 16, 8),
                bitfieldExtract(x, 24, 8)) *
           block_scale(quad / (BLOCK / 4));
}

float quantized_one(uint i)
{
    const int x = int(Words(pc.b).at[i / 4]);
    return float(bitfieldExtract(x, int(8 * (i % 4)), 8)) * block_scale(i / BLOCK);
}
#endif

vec4 quantized_four(uvec4 at)
{
    return vec4(quantized_one(at.x), quantized_one(at.y), quantized_one(at.z),
                quantized_one(at.w));
}
