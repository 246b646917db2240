/* SPDX-License-Identifier: MIT
 *
 * Matrix units (SPV_KHR_cooperative_matrix) for compilers without that extension, such as glslang
 * 12. The types and instructions are given by number. Where that is not possible (an element type,
 * a size that is a specialization constant), the source has a marker constant, which
 * cmake/spirv_markers.c replaces after compiling. Includers declare the specialization constants 5,
 * 6 and 7: FRAGMENT_M, FRAGMENT_N and FRAGMENT_K.
 */
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_memory_scope_semantics : require

/* By itself, a shared memory access here makes no write available or visible to others:
 * cmake/spirv_markers.c adds that. */
#define barrier()                                                                                  \
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared,                \
                   gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable |                        \
                       gl_SemanticsMakeVisible)

const uint MARK_OPERAND = 0xC0DE000Au, MARK_SUM = 0xC0DE000Cu;
const uint MARK_M = 0xC0DE0105u, MARK_N = 0xC0DE0106u, MARK_K = 0xC0DE0107u;
const uint MATRIX_SCOPE = 3, USE_A = 0, USE_B = 1, USE_SUM = 2; /* of a subgroup */

#define MATRIX extensions = ["SPV_KHR_cooperative_matrix"], capabilities = [6022]
#define MATRIX_A spirv_type(MATRIX, id = 4456, MARK_OPERAND, MATRIX_SCOPE, MARK_M, MARK_K, USE_A)
#define MATRIX_B spirv_type(MATRIX, id = 4456, MARK_OPERAND, MATRIX_SCOPE, MARK_K, MARK_N, USE_B)
#define MATRIX_SUM spirv_type(MATRIX, id = 4456, MARK_SUM, MATRIX_SCOPE, MARK_M, MARK_N, USE_SUM)

/* Memory is addressed in units of 16 bytes for all element types. `pitch`, in the same units, is
 * the distance between rows (between columns if `order` is COLUMNS). The last argument is always
 * SHARED. */
const uint ROWS = 0, COLUMNS = 1;
#define SHARED 32 /* other invocations read or write it: NonPrivatePointer */
spirv_instruction(MATRIX, id = 4457) MATRIX_A matrix_load_a(spirv_by_reference uvec4 from, uint order, uint pitch, spirv_literal uint access);
spirv_instruction(MATRIX, id = 4457) MATRIX_B matrix_load_b(spirv_by_reference uvec4 from, uint order, uint pitch, spirv_literal uint access);
spirv_instruction(MATRIX, id = 4458) void matrix_store(spirv_by_reference uvec4 to, MATRIX_SUM m, uint order, uint pitch, spirv_literal uint access);
spirv_instruction(MATRIX, id = 4459) MATRIX_SUM matrix_multiply_add(MATRIX_A a, MATRIX_B b, MATRIX_SUM c);
spirv_instruction(MATRIX, id = 80) MATRIX_SUM matrix_splat(float x);
spirv_instruction(id = 129) MATRIX_SUM matrix_add(MATRIX_SUM a, MATRIX_SUM b);

/* For operands in f16 only. */
#define FLOAT16 spirv_type(id = 22, 16)
spirv_instruction(id = 115) FLOAT16 float16(float x);
spirv_instruction(MATRIX, id = 80) MATRIX_A matrix_splat_a(FLOAT16 x);
spirv_instruction(MATRIX, id = 80) MATRIX_B matrix_splat_b(FLOAT16 x);
