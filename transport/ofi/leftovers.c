/* SPDX-License-Identifier: MIT
 *
 * Removes files that killed processes leave behind from libfabric's shm: 16 MiB in /dev/shm for
 * each endpoint, called PID:UID:NUMBER, which only that process would have removed. The next
 * process of the same user that opens this provider removes it. Called by fabric.c.
 *
 * A file is removed only if all of this holds:
 *   its name is such a name, it is a plain file, and it belongs to this user;
 *   it bears a mark of this library at its end, so it is no other program's. libfabric maps the
 *   file before the mark is added, and cuts the mark off should it ever use the file again;
 *   nobody holds the lock on it that its owner took before it set the mark. The system gives a lock
 *   back when the last process ends that has it, and knows it across containers that share
 *   /dev/shm, where a process number alone would mean nothing;
 *   and no process has the number in its name, as that one may be about to use the file again.
 * So a file whose owner was killed before it could set the mark remains, which is safe.
 */
#define _GNU_SOURCE /* flock */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "fabric.h"

#define FOLDER "/dev/shm"
static const char MARK[32] = "ringforge holds a lock on this";

/* The process in a name such as "4711:1000:0"; 0: not such a name. */
static pid_t process_of(const char *name)
{
    int pid = 0, end = 0;
    unsigned user, number;
    if (name[strspn(name, "0123456789:")] || strlen(name) > 40 ||
        sscanf(name, "%d:%u:%u%n", &pid, &user, &number, &end) != 3 || name[end])
        return 0;
    return pid;
}

/* Whether the file belongs to this user; *bytes is its length. */
static bool is_own_file(int fd, off_t *bytes)
{
    struct stat file;
    if (fstat(fd, &file) < 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid())
        return false;
    *bytes = file.st_size;
    return true;
}

static bool is_marked(int fd)
{
    char end[sizeof(MARK)];
    off_t bytes;
    return is_own_file(fd, &bytes) && bytes > (off_t)sizeof(end) &&
           pread(fd, end, sizeof(end), bytes - (off_t)sizeof(end)) == sizeof(end) &&
           memcmp(end, MARK, sizeof(end)) == 0;
}

/* Whether the name still refers to the examined file. */
static bool is_called(int folder, const char *name, int fd)
{
    struct stat named, opened;
    return fstat(fd, &opened) == 0 && fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

static void clear_one(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (is_marked(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_called(folder, name, fd) &&
        unlinkat(folder, name, 0) == 0)
        rf_log("transport", 1, "removed %s/%s, which a process that has ended left behind", FOLDER,
               name);
    close(fd);
}

void rf_leftovers_clear(void)
{
    DIR *folder = opendir(FOLDER);
    if (!folder)
        return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        pid_t pid = process_of(entry->d_name);
        if (pid > 0 && kill(pid, 0) < 0 && errno == ESRCH)
            clear_one(dirfd(folder), entry->d_name);
    }
    closedir(folder);
}

int rf_leftovers_mark(const char *address)
{
    const char *name = strstr(address, "://");
    char path[64];
    off_t bytes;
    name = name ? name + 3 : address;
    if (!process_of(name))
        return -1;
    snprintf(path, sizeof(path), FOLDER "/%s", name);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (is_own_file(fd, &bytes) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        pwrite(fd, MARK, sizeof(MARK), bytes) == sizeof(MARK))
        return fd;
    close(fd);
    return -1;
}
