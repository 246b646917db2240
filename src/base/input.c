/* SPDX-License-Identifier: MIT
 *
 * Opens input files. Pipes, devices and the like are refused by kind: reading them could block, or
 * give other bytes the next time.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base.h"

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "it is a folder, not a file"
           : S_ISFIFO(mode) ? "it is a pipe, not a file"
           : S_ISSOCK(mode) ? "it is a socket, not a file"
                            : "it is a device, not a file";
}

FILE *rf_open_input(const char *path, const char **why)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *file = NULL;
    if (fd < 0)
        /* open() fails on a socket. */
        *why = errno == ENXIO && stat(path, &about) == 0 ? kind_of(about.st_mode) : strerror(errno);
    else if (fstat(fd, &about) == 0 && !S_ISREG(about.st_mode))
        *why = kind_of(about.st_mode);
    else if (!(file = fdopen(fd, "rb")))
        *why = strerror(errno);
    if (!file && fd >= 0) {
        close(fd);
        errno = EINVAL;
    }
    return file;
}
