/* SPDX-License-Identifier: MIT
 *
 * spirv_markers none|f16|bf16 NAME IN OUT: reads the SPIR-V module IN, replaces its markers (none:
 * unchanged), and writes it as the C array NAME to OUT. Run by cmake/shaders.cmake.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spirv_markers.h"

#define MOST_BYTES (16u << 20)

static int fail(const char *file, const char *what)
{
    fprintf(stderr, "spirv_markers: %s: %s\n", file, what);
    return 1;
}

/* The whole file; *bytes > MOST_BYTES if it is longer. */
static void *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    void *data = file ? malloc(MOST_BYTES + 1) : NULL;
    *bytes = data ? fread(data, 1, MOST_BYTES + 1, file) : 0;
    if (data && ferror(file)) {
        free(data);
        data = NULL;
    }
    if (file)
        fclose(file);
    return data;
}

static int write_array(const char *path, const char *name, const uint32_t *words, size_t count)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return fail(path, strerror(errno));
    fprintf(file, "#pragma once\nconst uint32_t %s[] = {", name);
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%s0x%08x,", i % 8 ? " " : "\n\t", (unsigned)words[i]);
    fprintf(file, "\n};\n");
    int failed = ferror(file);
    if (fclose(file) != 0 || failed) {
        remove(path);
        return fail(path, "it could not be written");
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 5 ||
        (strcmp(argv[1], "none") && strcmp(argv[1], "f16") && strcmp(argv[1], "bf16"))) {
        fprintf(stderr, "usage: spirv_markers none|f16|bf16 NAME IN OUT\n");
        return 2;
    }
    size_t bytes = 0, count = 0;
    uint32_t *in = read_file(argv[3], &bytes), *out = NULL;
    const char *wrong = NULL;
    if (!in)
        wrong = "it cannot be read";
    else if (bytes > MOST_BYTES)
        wrong = "it is larger than any shader: more than 16 MiB";
    else if (bytes % 4 != 0)
        wrong = "its size is not a multiple of four bytes: it is no SPIR-V, or cut short";
    else if (strcmp(argv[1], "none") != 0)
        wrong = markers_replace(in, bytes / 4, strcmp(argv[1], "bf16") ? MARKER_F16 : MARKER_BF16,
                                &out, &count);
    int status = wrong ? fail(argv[3], wrong)
                       : write_array(argv[4], argv[2], out ? out : in, out ? count : bytes / 4);
    free(out);
    free(in);
    return status;
}
