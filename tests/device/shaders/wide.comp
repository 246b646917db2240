#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
/* Declares Int64, which not every device has. */
layout(local_size_x = 1) in;
layout(buffer_reference, std430) buffer Words { uint64_t w[]; };
layout(push_constant) uniform Push { Words out_; } p;
void main()
{
    p.out_.w[0] = 0x123456789abcdef0ul * 3ul;
}
