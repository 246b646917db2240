// SPDX-License-Identifier: MIT
//
// Sums of columns over blocks of 64 rows: out (blocks,N) = or (one block) += sums of x (rows,N). It
// is run again on its own result until one block is left. An invocation has four columns and adds
// rows in order, so the bits do not depend on the number of invocations. VIEWS: see
// matmul_subgroup.comp.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "elements.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool WIDE = true;   // rows consist of whole quads
layout(constant_id = 2) const uint X_TYPE = 0;    // TYPE_... of x
layout(constant_id = 3) const uint OUT_TYPE = 0;  // and of out

const uint BLOCK = 64; // rows; ROW_BLOCK of matmul_bias.c
const uint AT_ONCE = 4;

#include "push/matmul_bias_grad.h"

#ifdef VIEWS
layout(set = 0, binding = 0) uniform samplerBuffer view_x;
#define LOAD(quad, at) texels(view_x, pc.x_first, WIDE, quad, at)
#else
#define LOAD(quad, at) load_four(pc.x, X_TYPE, WIDE, quad, at)
#endif

void main()
{
    const uint group = gl_WorkGroupID.y * pc.groups_x + gl_WorkGroupID.x;
    const uint column = (group % pc.strips * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * 4;
    const uint row0 = group / pc.strips * BLOCK;
    const uint quads = pc.columns / 4, quad = min(column, pc.columns - 1) / 4;
    const uvec4 columns = min(column + uvec4(0, 1, 2, 3), uvec4(pc.columns - 1));

    precise vec4 sum = vec4(0);
    for (uint i = 0; i < BLOCK; i += AT_ONCE) {
        vec4 x[AT_ONCE];
        [[unroll]] for (uint j = 0; j < AT_ONCE; j++) {
            const uint row = row0 + i + j, near = min(row, pc.rows - 1);
            const uvec4 at = near * pc.columns + columns;
            x[j] = LOAD(near * quads + quad, at);
            x[j] = mix(vec4(0), x[j], bvec4(row < pc.rows));
        }
        [[unroll]] for (uint j = 0; j < AT_ONCE; j++)
            sum += x[j];
    }

    const uint row = row0 / BLOCK;
    if (row0 >= pc.rows)
        return;
    [[unroll]] for (uint c = 0; c < 4; c++)
        if (column + c < pc.columns) {
            const uint at = row * pc.columns + column + c;
            precise float y = sum[c];
            if (pc.accumulate != 0)
                y += load_one(pc.out_, OUT_TYPE, at);
            store_one(pc.out_, OUT_TYPE, at, y);
        }
}
