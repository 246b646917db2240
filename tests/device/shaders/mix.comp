#version 460
#extension GL_EXT_buffer_reference : require
/* y[i] = y[i] * 3 + x[i] + c: does not commute, so any wrong order shows. */
layout(local_size_x = 64) in;
layout(buffer_reference, std430) buffer Words { uint w[]; };
layout(push_constant) uniform Push { Words y; Words x; uint n; uint c; } p;
void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i < p.n)
        p.y.w[i] = p.y.w[i] * 3u + p.x.w[i] + p.c;
}
