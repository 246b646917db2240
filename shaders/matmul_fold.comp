// SPDX-License-Identifier: MIT
//
// The second half of a product with a split k: adds the partial sums in order, and finishes the
// result. `a` has the partial sums, (parts,M,N) in f32, `a_step` elements apart; K is their number.
// An invocation has four columns of a row.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool A_WIDE = true;    // rows of the sums have whole quads
layout(constant_id = 2) const bool OUT_WIDE = true;  // the same for out and tensors with its layout
layout(constant_id = 3) const uint OPERAND_TYPE = 0; // see matmul.glsl; type of bias
layout(constant_id = 4) const uint RESULT_TYPE = 0;
layout(constant_id = 5) const bool ACTIVATES = true; // see matmul_epilogue.glsl

#define FINISHED 1
#include "matmul.glsl"
#include "matmul_epilogue.glsl"

void main()
{
    const uint group = gl_WorkGroupID.y * pc.groups_x + gl_WorkGroupID.x;
    const uint index = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    const uint quads = (pc.N + 3) / 4, row = index / quads, column = index % quads * 4;
    const uint start = min(row, pc.M - 1) * pc.N;

    precise vec4 sum = vec4(0);
    for (uint part = 0; part < pc.K; part++) {
        const uint from = part * pc.a_step + start;
        sum += load_four(pc.a, TYPE_F32, A_WIDE, (from + column) / 4,
                         from + four(column, pc.N - 1));
    }
    vec4 x[1], bias[1];
    Place at[1];
    x[0] = sum;
    bias[0] = load_bias(column);
    at[0] = Place(row, column);
    finish(x, bias, at);
}
