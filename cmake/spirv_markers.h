/* SPDX-License-Identifier: MIT
 *
 * Turns marker constants of a SPIR-V module into operands that the shader compiler does not
 * support. Used at build time by spirv_markers_main.c, and by the tests; no part of the library.
 * How the markers get into a module: shaders/cooperative.glsl.
 */
#ifndef SPIRV_MARKERS_H
#define SPIRV_MARKERS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As operands of OpTypeCooperativeMatrixKHR: */
#define MARKER_OPERAND 0xC0DE000Au /* the element type of a product's operands */
#define MARKER_SUM 0xC0DE000Cu     /* the element type of sums: 32-bit float */
#define MARKER_SPEC 0xC0DE0100u    /* + n, n < 256: specialization constant n of the module */

enum marker_operand { MARKER_F16, MARKER_BF16 };

/* Also removes MakePointerAvailable and MakePointerVisible from accesses of shared memory: the
 * module's barriers must do both. Rewrites a module of `count` words in *out (malloc, for the
 * caller to free) and *out_count. Returns NULL, or a message about the error in the module; then
 * nothing is written. */
const char *markers_replace(const uint32_t *words, size_t count, enum marker_operand operand,
                            uint32_t **out, size_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
