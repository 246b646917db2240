#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_KHR_shader_subgroup_basic : require
/* Writes two specialization constants and the subgroup size. */
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint A = 1;
layout(constant_id = 7) const uint B = 2;
layout(buffer_reference, std430) buffer Words { uint w[]; };
layout(push_constant) uniform Push { Words out_; } p;
void main()
{
    if (gl_GlobalInvocationID.x == 0u) {
        p.out_.w[0] = A;
        p.out_.w[1] = B;
        p.out_.w[2] = gl_SubgroupSize;
    }
}
