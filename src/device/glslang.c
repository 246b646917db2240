/* SPDX-License-Identifier: MIT
 *
 * Compiles GLSL text in another process: glslangValidator, in a temporary folder of its own, with
 * its output in a file there.
 */
#include "glsl.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../base/base.h"

extern char **environ;

enum { TEXT, SPIRV, SAID, FILES };
struct folder {
    char path[128];
    char files[FILES][160];
};

static int open_folder(struct folder *f)
{
    static const char *const names[FILES] = {"kernel.comp", "kernel.spv", "said"};
    snprintf(f->path, sizeof(f->path), "%.80s/ringforge-glsl-XXXXXX", rf_env("TMPDIR"));
    if (!mkdtemp(f->path))
        return rf_fail(RF_EIO, "cannot create a folder for a compiler, %s: %s", f->path,
                       strerror(errno));
    for (int i = 0; i < FILES; i++)
        snprintf(f->files[i], sizeof(f->files[i]), "%s/%s", f->path, names[i]);
    return 0;
}

static void remove_folder(const struct folder *f)
{
    for (int i = 0; i < FILES; i++)
        (void)unlink(f->files[i]);
    (void)rmdir(f->path);
}

static int write_text(const struct folder *f, const char *text)
{
    FILE *file = fopen(f->files[TEXT], "we");
    const bool written = file && fputs(text, file) >= 0;
    const bool closed = file && fclose(file) == 0;
    return written && closed
               ? 0
               : rf_fail(RF_EIO, "cannot write %s: %s", f->files[TEXT], strerror(errno));
}

/* Reads a whole file, and appends a zero. */
static int read_all(const char *path, char **out, size_t *bytes)
{
    FILE *file = fopen(path, "re");
    const long end = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    *out = end >= 0 ? rf_alloc((size_t)end + 1) : NULL;
    if (file)
        rewind(file);
    *bytes = *out ? fread(*out, 1, (size_t)end, file) : 0;
    if (file)
        (void)fclose(file);
    if (*out && *bytes == (size_t)end)
        return 0;
    rf_free(*out);
    *out = NULL;
    return rf_fail(RF_EIO, "cannot read %s, which a compiler has written", path);
}

/* RF_ENOTSUP: no such program. *status: its exit status. */
static int start(const struct folder *f, const char *program, int *status)
{
    char *const argv[] = {(char *)program,
                          "-V",
                          "--quiet",
                          "--target-env",
                          "vulkan1.2",
                          "-S",
                          "comp",
                          "-o",
                          (char *)f->files[SPIRV],
                          (char *)f->files[TEXT],
                          NULL};
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, f->files[SAID], O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    const int error = posix_spawnp(&child, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return rf_fail(RF_ENOTSUP, "cannot start %s: %s", program, strerror(error));
    while (waitpid(child, status, 0) < 0) {
        if (errno == EINTR)
            continue;
        /* The compiler has ended, but its exit status is lost: this program ignores SIGCHLD, or
         * waits for all processes elsewhere. The compiler writes its result last. */
        struct stat result;
        *status = stat(f->files[SPIRV], &result) == 0 && result.st_size > 0 ? 0 : 1 << 8;
        return 0;
    }
    return 0;
}

/* Fails with the compiler's messages, without the lines that only name the file. */
static int refuse(const struct folder *f, const char *name)
{
    char *said = NULL, *error = NULL;
    size_t bytes = 0;
    RETURN_IF_ERROR(read_all(f->files[SAID], &said, &bytes));
    error = strstr(said, "ERROR: ");
    const int rc =
        rf_fail(RF_EINVAL, "kernel %s does not compile: %.800s", name, error ? error : said);
    rf_free(said);
    return rc;
}

static int run_compiler(const struct folder *f, const char *program, const char *name,
                        const char *text, uint32_t **spirv, size_t *bytes)
{
    char *words = NULL;
    int status = 0;
    RETURN_IF_ERROR(write_text(f, text));
    RETURN_IF_ERROR(start(f, program, &status));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return rf_fail(RF_ENOTSUP, "there is no program %s", program);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return refuse(f, name);
    RETURN_IF_ERROR(read_all(f->files[SPIRV], &words, bytes));
    *spirv = (uint32_t *)(void *)words; /* as aligned as any allocation */
    return 0;
}

int rf_glslang_run(const char *program, const char *name, const char *text, uint32_t **spirv,
                   size_t *bytes)
{
    struct folder folder;
    RETURN_IF_ERROR(open_folder(&folder));
    const int rc = run_compiler(&folder, program, name, text, spirv, bytes);
    remove_folder(&folder);
    return rc;
}
