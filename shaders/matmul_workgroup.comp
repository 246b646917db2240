// SPDX-License-Identifier: MIT
//
// out (M,N) = A B on matrix units, by whole workgroups (GL_NV_cooperative_matrix2): the driver
// stages operands and distributes the work. A workgroup computes TILE_M x TILE_N elements. Loads
// and stores are clamped to the tensors, unless WHOLE. Elements outside the tensors count as zero.
//   TYPE     TYPE_F16 or TYPE_BF16, of a, b and bias
//   OUT16=1  out, pre and residual have such elements, too; otherwise fp32
// Only compilers that know the extension can build this (cmake/shaders.cmake).
#version 450
#pragma use_vulkan_memory_model
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix2 : require

layout(local_size_x_id = 0) in; // the device's workgroup size for this scope
layout(constant_id = 1) const uint TILE_M = 128;
layout(constant_id = 2) const uint TILE_N = 128;
layout(constant_id = 3) const uint DEPTH = 32; // of a step in k
layout(constant_id = 4) const bool TRANS_A = false;
layout(constant_id = 5) const bool TRANS_B = false;
layout(constant_id = 6) const bool ACTIVATES = true; // see matmul_epilogue.glsl
// Every tile lies within a and b, and rows in memory are whole 16 bytes: loads without checks.
layout(constant_id = 7) const bool WHOLE = false;

const uint OPERAND_TYPE = TYPE, RESULT_TYPE = OUT16 != 0 ? TYPE : 0;
const bool OUT_WIDE = false;

#define FINISHED 1
#include "matmul.glsl"
#include "matmul_epilogue.glsl"

#if TYPE == TYPE_BF16
#extension GL_EXT_bfloat16 : require
#define ELEMENT bfloat16_t
#else
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define ELEMENT float16_t
#endif
#if OUT16
#define RESULT ELEMENT
#define RESULT_BYTES 2
#else
#define RESULT float
#define RESULT_BYTES 4
#endif
layout(buffer_reference, std430, buffer_reference_align = 2) buffer Elements { ELEMENT at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Chunks { ELEMENT at[]; };
layout(buffer_reference, std430, buffer_reference_align = RESULT_BYTES) buffer Results { RESULT at[]; };

#define MATRIX_A coopmat<ELEMENT, gl_ScopeWorkgroup, TILE_M, DEPTH, gl_MatrixUseA>
#define MATRIX_B coopmat<ELEMENT, gl_ScopeWorkgroup, DEPTH, TILE_N, gl_MatrixUseB>
#define MATRIX_SUM coopmat<float, gl_ScopeWorkgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define MATRIX_OUT coopmat<RESULT, gl_ScopeWorkgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define LAYOUT tensorLayoutNV<2, gl_CooperativeMatrixClampModeConstantNV>
#define WHOLE_LAYOUT tensorLayoutNV<2, gl_CooperativeMatrixClampModeUndefinedNV>

LAYOUT layout_of(uint rows, uint columns, uint pitch)
{
    LAYOUT l = createTensorLayoutNV(2, gl_CooperativeMatrixClampModeConstantNV);
    l = setTensorLayoutDimensionNV(l, rows, columns);
    return setTensorLayoutStrideNV(l, pitch, 1);
}
WHOLE_LAYOUT whole_layout_of(uint rows, uint columns, uint pitch)
{
    WHOLE_LAYOUT l = createTensorLayoutNV(2, gl_CooperativeMatrixClampModeUndefinedNV);
    l = setTensorLayoutDimensionNV(l, rows, columns);
    return setTensorLayoutStrideNV(l, pitch & ~7u, 1); // compilers see that rows are aligned
}

float four_as_one(uvec2 address, uint type, uint at)
{
    return load_four(address, type, false, 0, uvec4(at)).x;
}

// The steps of finish() in matmul_epilogue.glsl for one element, except the last rounding.
float finish_element(const in uint row, const in uint column, const in float sum,
                     const in uint row0, const in uint column0)
{
    const uint m = min(row0 + row, pc.M - 1), n = min(column0 + column, pc.N - 1);
    const uint at = gl_WorkGroupID.z * pc.out_step + m * pc.out_row + n;
    float x = sum * pc.alpha;
    if ((pc.flags & BIAS) != 0)
        x += four_as_one(pc.bias, OPERAND_TYPE, n);
    if (ACTIVATES) {
        const bool backward = (pc.flags & BACKWARD) != 0;
        const float pre = backward ? four_as_one(pc.pre, RESULT_TYPE, at) : 0.0;
        if ((pc.flags & WRITE_PRE) != 0 && row0 + row < pc.M && column0 + column < pc.N)
            Results(pc.pre).at[at] = RESULT(x);
        x = activated(vec4(x), vec4(pre), backward).x;
    }
    if ((pc.flags & RESIDUAL) != 0)
        x += four_as_one(pc.residual, RESULT_TYPE, at);
    return x;
}

// sum += a b, read through buffers and layouts of these types.
#define MULTIPLY(buffer_type, layout_type, make_layout, aligned)                                   \
    {                                                                                              \
        buffer_type a_from = buffer_type(pc.a), b_from = buffer_type(pc.b);                        \
        const uint a0 = (z * pc.a_step) & aligned, b0 = (z * pc.b_step) & aligned;                 \
        layout_type a_layout = make_layout(TRANS_A ? K : pc.M, TRANS_A ? pc.M : K, pc.a_row);      \
        layout_type b_layout = make_layout(TRANS_B ? pc.N : K, TRANS_B ? K : pc.N, pc.b_row);      \
        for (uint k = 0; k < K; k += DEPTH) {                                                      \
            MATRIX_A a;                                                                            \
            MATRIX_B b;                                                                            \
            if (TRANS_A)                                                                           \
                coopMatLoadTensorNV(a, a_from.at, a0,                                              \
                                    sliceTensorLayoutNV(a_layout, k, DEPTH, row0, TILE_M),         \
                                    turned);                                                       \
            else                                                                                   \
                coopMatLoadTensorNV(a, a_from.at, a0,                                              \
                                    sliceTensorLayoutNV(a_layout, row0, TILE_M, k, DEPTH));        \
            if (TRANS_B)                                                                           \
                coopMatLoadTensorNV(b, b_from.at, b0,                                              \
                                    sliceTensorLayoutNV(b_layout, column0, TILE_N, k, DEPTH),      \
                                    turned);                                                       \
            else                                                                                   \
                coopMatLoadTensorNV(b, b_from.at, b0,                                              \
                                    sliceTensorLayoutNV(b_layout, k, DEPTH, column0, TILE_N));     \
            sum = coopMatMulAdd(a, b, sum);                                                        \
        }                                                                                          \
    }

void main()
{
    const uint tile = gl_WorkGroupID.y * pc.groups_x + gl_WorkGroupID.x, z = gl_WorkGroupID.z;
    if (tile >= pc.tiles_m * pc.tiles_n)
        return; // the whole workgroup
    // Tiles go column by column through bands of eight rows of tiles, so that concurrent workgroups
    // share operands.
    const uint band = tile / (8 * pc.tiles_n), in_band = tile % (8 * pc.tiles_n);
    const uint band_rows = min(8, pc.tiles_m - 8 * band);
    const uint row0 = (8 * band + in_band % band_rows) * TILE_M;
    const uint column0 = in_band / band_rows * TILE_N;
    const uint K = part_of_k();
    tensorViewNV<2, false, 1, 0> turned = createTensorViewNV(2, false, 1, 0);
    MATRIX_SUM sum = MATRIX_SUM(0.0);
    if (WHOLE)
        MULTIPLY(Chunks, WHOLE_LAYOUT, whole_layout_of, ~7u)
    else
        MULTIPLY(Elements, LAYOUT, layout_of, ~0u)

    MATRIX_SUM finished;
    coopMatPerElementNV(finished, sum, finish_element, row0, column0);
    LAYOUT out_layout = layout_of(pc.M, pc.N, pc.out_row);
    coopMatStoreTensorNV(MATRIX_OUT(finished), Results(pc.out_).at, z * pc.out_step,
                         sliceTensorLayoutNV(out_layout, row0, TILE_M, column0, TILE_N));
}
