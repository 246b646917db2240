/* SPDX-License-Identifier: MIT
 *
 * GLSL text to SPIR-V when a kernel is made: glsl.c.
 */
#ifndef RF_DEVICE_GLSL_H
#define RF_DEVICE_GLSL_H

#include <stddef.h>
#include <stdint.h>

/* *spirv is the caller's: rf_free. RF_EINVAL: the message has the compiler's, with line numbers of
 * the text. RF_ENOTSUP: there is no compiler. Any thread. */
int rf_glsl_compile(const char *name, const char *text, uint32_t **spirv, size_t *bytes);

/* The same by these, in their order: file names of libshaderc, up to NULL, and a program. */
struct rf_glsl_compilers {
    const char *const *libraries;
    const char *program;
};
int rf_glsl_compile_by(const struct rf_glsl_compilers *compilers, const char *name,
                       const char *text, uint32_t **spirv, size_t *bytes);

/* glslang.c: by the program alone. RF_ENOTSUP: it is not there. */
int rf_glslang_run(const char *program, const char *name, const char *text, uint32_t **spirv,
                   size_t *bytes);

#endif
