// SPDX-License-Identifier: MIT
//
// Your own kernel: x * |x| or, with GRADIENT, its backward pass dx = dy * 2|x|. Like every kernel
// of ringforge it uses no descriptors: it gets addresses in push constants.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require

layout(local_size_x = 64) in;
layout(buffer_reference, scalar) buffer Floats { float at[]; };
layout(push_constant, scalar) uniform Push {
    Floats result;
    Floats x;
    Floats dy; // only in the backward pass
    uint count;
};

void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i >= count)
        return;
#ifdef GRADIENT
    result.at[i] = dy.at[i] * 2.0 * abs(x.at[i]);
#else
    result.at[i] = x.at[i] * abs(x.at[i]);
#endif
}
