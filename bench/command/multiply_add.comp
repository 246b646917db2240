// SPDX-License-Identifier: MIT
//
// Nothing but multiplies and adds, in registers: what the device's arithmetic does at best. A lane
// has 2 or 8 chains of vec4: a GPU hides latency with many, a CPU driver's vectors of lanes have to
// fit its 16 registers. 64 operations a round either way.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = 64) in;
layout(constant_id = 0) const bool FUSED = true;
layout(constant_id = 1) const bool WIDE = true;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Out {
    vec4 value[];
};
layout(push_constant) uniform Push {
    uvec2 address;
    uint rounds;
    float factor;
};

vec4 multiply_add(vec4 a, float b, vec4 c)
{
    return FUSED ? fma(a, vec4(b), c) : a * b + c;
}

void main()
{
    const uint lane = gl_GlobalInvocationID.x;
    const float b = factor;
    const vec4 c = vec4(lane & 7) * 1e-3;
    vec4 sum = vec4(0);
    if (WIDE) {
        vec4 s[8];
        [[unroll]] for (uint k = 0; k < 8; k++)
            s[k] = c + k;
        for (uint i = 0; i < rounds; i++)
            [[unroll]] for (uint k = 0; k < 8; k++)
                s[k] = multiply_add(s[k], b, c);
        [[unroll]] for (uint k = 0; k < 8; k++)
            sum += s[k];
    } else {
        vec4 s = c, t = c + 1;
        for (uint i = 0; i < rounds; i++)
            [[unroll]] for (uint k = 0; k < 4; k++) {
                s = multiply_add(s, b, c);
                t = multiply_add(t, b, c);
            }
        sum = s + t;
    }
    Out(address).value[lane] = sum;
}
