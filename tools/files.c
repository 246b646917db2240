/* SPDX-License-Identifier: MIT
 *
 * Output files of the program: whether they can be written is tested before any work, and a file
 * gets its name when it is complete. Called by rank 0 only.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

/* ---- before any work ------------------------------------------------------------------------- */

static const char *path_of(const struct tool_option *o)
{
    return *(const char *const *)o->value;
}

static int refused(const struct tool_command *command, const struct tool_option *o, int error)
{
    const char *why = strerror(error);
    if (error == ENOENT)
        why = "No such file or directory; make its folder first";
    if (error == ENXIO)
        why = "it is a pipe that no process reads";
    if (error == EEXIST) /* created by us alone, or not at all */
        why = "it is a link to a file that does not exist";
    return tool_error(command, "cannot write --%s %s: %s", o->name, path_of(o), why);
}

static int check_file(const struct tool_command *command, const struct tool_option *o)
{
    struct stat about = {0};
    const bool there = stat(path_of(o), &about) == 0;
    if (there && (S_ISDIR(about.st_mode) || S_ISSOCK(about.st_mode)))
        return tool_error(command, "cannot write --%s %s: it is a %s; name a file", o->name,
                          path_of(o), S_ISDIR(about.st_mode) ? "folder" : "socket");
    int fd =
        open(path_of(o),
             O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (there ? 0 : O_CREAT | O_EXCL), 0666);
    if (fd < 0)
        return refused(command, o, errno);
    if (!there)
        unlink(path_of(o));
    /* A pipe stays open: its reader would take closing it for the end. */
    if (!S_ISFIFO(about.st_mode))
        close(fd);
    return TOOL_OK;
}

static int check_folder(const struct tool_command *command, const struct tool_option *o)
{
    struct stat about;
    char probe[4096];
    if (mkdir(path_of(o), 0777) != 0 && errno != EEXIST)
        return tool_error(command, "cannot make the folder --%s %s: %s", o->name, path_of(o),
                          strerror(errno));
    if (stat(path_of(o), &about) != 0)
        return refused(command, o, errno);
    if (!S_ISDIR(about.st_mode))
        return tool_error(command, "cannot write --%s %s: it is a file; name a folder", o->name,
                          path_of(o));
    if (snprintf(probe, sizeof(probe), "%s/.ringforge-%ld", path_of(o), (long)getpid()) >=
        (int)sizeof(probe))
        return refused(command, o, ENAMETOOLONG);
    int fd = open(probe, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return refused(command, o, errno);
    close(fd);
    unlink(probe);
    return TOOL_OK;
}

int tool_outputs_check(const struct tool_command *command, const struct tool_option *table)
{
    int status = TOOL_OK;
    for (const struct tool_option *o = table; o && o->name && status == TOOL_OK; o++) {
        if (o->path < TOOL_WRITES || o->path == TOOL_REPLACES || !path_of(o) ||
            strcmp(path_of(o), "-") == 0)
            continue;
        status = o->path == TOOL_WRITES_INTO ? check_folder(command, o) : check_file(command, o);
    }
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

void tool_file_begin(const char *path, char name[TOOL_PATH_BYTES])
{
    struct stat about;
    const bool there = lstat(path, &about) == 0;
    snprintf(name, TOOL_PATH_BYTES, "%s", path);
    if (there && !S_ISREG(about.st_mode))
        return; /* a device, a pipe or a link is written directly */
    char beside[TOOL_PATH_BYTES];
    if (snprintf(beside, sizeof(beside), "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof(beside))
        return;
    unlink(beside); /* left by a killed process with this id */
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return; /* the folder allows no new file: the existing one is overwritten */
    if (there && fchmod(fd, about.st_mode & 0777) != 0)
        unlink(beside);
    else
        memcpy(name, beside, sizeof(beside));
    close(fd);
}

int tool_file_end(const struct tool_command *command, const char *path, const char *name,
                  bool whole)
{
    const bool beside = strcmp(path, name) != 0;
    if (!beside || (whole && rename(name, path) == 0))
        return TOOL_OK;
    int error = errno;
    unlink(name);
    return whole ? tool_error(command, "cannot write %s: %s", path, strerror(error)) : TOOL_OK;
}

int tool_file_write(const struct tool_command *command, const char *path, const void *data,
                    size_t bytes)
{
    char name[TOOL_PATH_BYTES];
    const bool standard = strcmp(path, "-") == 0;
    if (!standard)
        tool_file_begin(path, name);
    FILE *file = standard ? stdout : fopen(name, "we");
    bool good = file && fwrite(data, 1, bytes, file) == bytes && fflush(file) == 0;
    int error = errno;
    if (file && !standard && fclose(file) != 0 && good) {
        good = false;
        error = errno;
    }
    int status = good ? TOOL_OK : tool_error(command, "cannot write %s: %s", path, strerror(error));
    if (standard)
        return status;
    int ended = tool_file_end(command, path, name, good);
    return good ? ended : status;
}
