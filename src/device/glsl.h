/* SPDX-License-Identifier: MIT
 *
 * Compiles GLSL text to SPIR-V when a kernel is created: glsl.c.
 */
#ifndef RF_DEVICE_GLSL_H
#define RF_DEVICE_GLSL_H

#include <stddef.h>
#include <stdint.h>

/* The caller frees *spirv with rf_free. RF_EINVAL: the message includes the compiler's, with line
 * numbers of the text. RF_ENOTSUP: no compiler. Safe in any thread. */
int rf_glsl_compile(const char *name, const char *text, uint32_t **spirv, size_t *bytes);

/* The same with these compilers, in order: file names of libshaderc, ending with NULL, and a
 * program. */
struct rf_glsl_compilers {
    const char *const *libraries;
    const char *program;
};
int rf_glsl_compile_by(const struct rf_glsl_compilers *compilers, const char *name,
                       const char *text, uint32_t **spirv, size_t *bytes);

/* glslang.c: the same with the program only. RF_ENOTSUP: not installed. */
int rf_glslang_run(const char *program, const char *name, const char *text, uint32_t **spirv,
                   size_t *bytes);

#endif
