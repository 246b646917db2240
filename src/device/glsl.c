/* SPDX-License-Identifier: MIT
 *
 * Compiles kernels from GLSL text, by libshaderc (https://github.com/google/shaderc, its C
 * interface), which is loaded on first use. If it cannot be loaded, or is a build like that of
 * Debian 12, the program glslangValidator compiles the text. Kernels in SPIR-V need neither.
 */
#include "glsl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../base/base.h"

/* Values of shaderc/shaderc.h and env.h. */
enum { COMPUTE_SHADER = 2, TARGET_VULKAN = 0 };
#define VULKAN_1_2 ((1u << 22) | (2u << 12))

struct shaderc {
    void *(*open)(void);
    void (*close)(void *compiler);
    void *(*open_options)(void);
    void (*close_options)(void *options);
    void (*set_target)(void *options, int target, uint32_t version);
    void *(*compile)(const void *compiler, const char *text, size_t bytes, int kind,
                     const char *file, const char *entry, const void *options);
    int (*status)(const void *result);
    const char *(*message)(const void *result);
    const char *(*bytes)(const void *result);
    size_t (*length)(const void *result);
    void (*release)(void *result);
};

/* Added before text without a version. */
static const char prelude[] =
    "#version 450\n"
    "#extension GL_EXT_buffer_reference : require\n"
    "layout(local_size_x = 64) in;\n"
    "layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };\n"
    "layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };\n"
    "#line 1\n";

static int find_all(void *handle, struct shaderc *s)
{
    const struct {
        const char *name;
        void *function;
    } all[] = {{"shaderc_compiler_initialize", &s->open},
               {"shaderc_compiler_release", &s->close},
               {"shaderc_compile_options_initialize", &s->open_options},
               {"shaderc_compile_options_release", &s->close_options},
               {"shaderc_compile_options_set_target_env", &s->set_target},
               {"shaderc_compile_into_spv", &s->compile},
               {"shaderc_result_get_compilation_status", &s->status},
               {"shaderc_result_get_error_message", &s->message},
               {"shaderc_result_get_bytes", &s->bytes},
               {"shaderc_result_get_length", &s->length},
               {"shaderc_result_release", &s->release}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        void *symbol = dlsym(handle, all[i].name);
        if (!symbol)
            return rf_fail(RF_ENOTSUP,
                           "the libshaderc that was found has no %s; install another version",
                           all[i].name);
        memcpy(all[i].function, &symbol, sizeof(symbol)); /* C cannot convert between the two */
    }
    return 0;
}

static int load(const char *const *names, struct shaderc *out)
{
    void *handle = NULL;
    for (int i = 0; !handle && names[i]; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return handle ? find_all(handle, out) : rf_fail(RF_ENOTSUP, "%s", dlerror());
}

static int take_result(const struct shaderc *s, void *result, const char *name, uint32_t **spirv,
                       size_t *bytes)
{
    if (!result)
        return rf_fail(RF_ENOMEM, "no memory to compile kernel %s", name);
    if (s->status(result) != 0)
        return rf_fail(RF_EINVAL, "kernel %s does not compile: %.800s", name, s->message(result));
    *bytes = s->length(result);
    *spirv = rf_alloc(*bytes ? *bytes : 1);
    if (!*spirv)
        return rf_fail(RF_ENOMEM, "no memory for kernel %s", name);
    memcpy(*spirv, s->bytes(result), *bytes);
    return 0;
}

static int compile(const struct shaderc *s, const char *name, const char *text, uint32_t **spirv,
                   size_t *bytes)
{
    void *compiler = s->open(), *options = s->open_options(), *result = NULL;
    int rc = compiler && options ? 0 : rf_fail(RF_ENOMEM, "no memory to compile kernel %s", name);
    if (rc == 0) {
        s->set_target(options, TARGET_VULKAN, VULKAN_1_2);
        result = s->compile(compiler, text, strlen(text), COMPUTE_SHADER, name, "main", options);
        rc = take_result(s, result, name, spirv, bytes);
    }
    if (result)
        s->release(result);
    if (options)
        s->close_options(options);
    if (compiler)
        s->close(compiler);
    return rc;
}

static int by_library(const struct rf_glsl_compilers *compilers, const char *name, const char *text,
                      uint32_t **spirv, size_t *bytes)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct shaderc shaderc;
    static bool loaded;
    pthread_mutex_lock(&lock);
    int rc = loaded ? 0 : load(compilers->libraries, &shaderc);
    loaded = rc == 0;
    pthread_mutex_unlock(&lock);
    return rc < 0 ? rc : compile(&shaderc, name, text, spirv, bytes);
}

int rf_glsl_compile_by(const struct rf_glsl_compilers *compilers, const char *name,
                       const char *text, uint32_t **spirv, size_t *bytes)
{
    const bool whole = strncmp(text, "#version", 8) == 0;
    const size_t capacity = sizeof(prelude) + strlen(text);
    char *all = rf_alloc(capacity);
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory to compile kernel %s", name);
    snprintf(all, capacity, "%s%s", whole ? "" : prelude, text);
    int rc = by_library(compilers, name, all, spirv, bytes);
    if (rc == RF_ENOTSUP) {
        char why[200];
        snprintf(why, sizeof(why), "%.199s", rf_last_error()->message);
        rc = rf_glslang_run(compilers->program, name, all, spirv, bytes);
        if (rc == RF_ENOTSUP)
            rc = rf_fail(
                RF_ENOTSUP,
                "kernel %s is GLSL text, which needs libshaderc or glslangValidator: neither is "
                "installed (%s); install one (Debian: glslang-tools), or use SPIR-V",
                name, why);
    }
    rf_free(all);
    return rc;
}

int rf_glsl_compile(const char *name, const char *text, uint32_t **spirv, size_t *bytes)
{
    static const char *const libraries[] = {"libshaderc.so.1", "libshaderc_shared.so.1", NULL};
    return rf_glsl_compile_by(&(struct rf_glsl_compilers){libraries, "glslangValidator"}, name,
                              text, spirv, bytes);
}
