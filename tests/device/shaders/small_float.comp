#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
/* Of each word, for each format: the value of the code in its low byte; and the codes of the f32
 * with its bits, rounded in each way, with and without saturation. */
#include "small_float.h"
layout(local_size_x = 64) in;
layout(buffer_reference, std430) buffer Words { uint w[]; };
layout(push_constant) uniform Push { Words in_, out_; uint count; } p;

void convert(small_float f, uint x, uint at)
{
    p.out_.w[at] = small_float_value(f, x & 255u);
    for (uint saturate = 0; saturate < 2; saturate++) {
        uint codes = 0;
        for (uint rounding = ROUND_NEAREST; rounding <= ROUND_RANDOM; rounding++)
            codes |= small_float_code(f, x, rounding, saturate != 0, x * 2654435769u)
                     << (8 * rounding);
        p.out_.w[at + 1 + saturate] = codes;
    }
}

void main()
{
    const uint i = gl_GlobalInvocationID.x;
    if (i >= p.count)
        return;
    const uint x = p.in_.w[i];
    convert(E4M3, x, 12 * i);
    convert(E5M2, x, 12 * i + 3);
    convert(E2M1, x, 12 * i + 6);
    convert(E8M0, x, 12 * i + 9);
}
