/* SPDX-License-Identifier: MIT
 *
 * The lock of a folder of checkpoints: flock(2) on DIR/lock, which the system releases when the
 * process ends. The file names the process that holds it. It is never removed: after a removal two
 * processes could lock different files of that name.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "lock.h"

static int open_file(const char *dir, char path[4096], int *out)
{
    struct stat about;
    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return rf_fail(RF_EIO, "cannot create the folder %s: %s", dir, strerror(errno));
    RETURN_IF_ERROR(rf_join_path(path, dir, "lock"));
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644);
    if (fd < 0)
        return rf_fail(RF_EIO, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode)) {
        close(fd);
        return rf_fail(RF_EIO, "%s is not a regular file: remove it", path);
    }
    *out = fd;
    return 0;
}

/* "4711 on node3". The content may be incomplete if the process has just taken the lock. */
static void read_holder(int fd, char text[128])
{
    ssize_t n = pread(fd, text, 127, 0);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    if (strspn(text, "0123456789") == 0 || strstr(text, " on ") == NULL)
        snprintf(text, 128, "unknown");
}

/* Whether this process of this host is ending, or has ended: the system still has to close its
 * files, after it has returned all of its memory. Linux says so in the seventh word behind the
 * process's name. */
static bool is_ending(const char *holder)
{
    enum { PF_EXITING = 4 };
    char host[64] = "", path[64], text[512] = "", state = 'X';
    unsigned flags = 0;
    gethostname(host, sizeof(host) - 1);
    const char *of = strstr(holder, " on ");
    if (!of || strcmp(of + 4, host) != 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%ld/stat", strtol(holder, NULL, 10));
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT;
    const size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = 0;
    const char *name = strrchr(text, ')');
    return !name || sscanf(name + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) < 2 ||
           state == 'Z' || state == 'X' || (flags & PF_EXITING);
}

static int try_lock(int fd)
{
    int got;
    do
        got = flock(fd, LOCK_EX | LOCK_NB);
    while (got < 0 && errno == EINTR);
    return got;
}

/* A rank that takes the place of a dead one may be here before the system has released its lock. */
static int take(int fd, char holder[128])
{
    const uint64_t until = rf_now_ns() + 60000000000u;
    int got = try_lock(fd);
    while (got < 0 && errno == EWOULDBLOCK) {
        read_holder(fd, holder);
        if (!is_ending(holder) || rf_now_ns() > until) {
            errno = EWOULDBLOCK;
            break;
        }
        rf_sleep_ns(1000000);
        got = try_lock(fd);
    }
    return got;
}

static void sign(int fd)
{
    char host[64] = "", text[128];
    gethostname(host, sizeof(host) - 1);
    int n = snprintf(text, sizeof(text), "%ld on %s\n", (long)getpid(), host);
    /* The text is only for people: the lock works without it. */
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) < n)
        rf_log("io", 1, "the holder of a lock cannot be written: %s", strerror(errno));
}

int rf_folder_lock(const char *dir, struct rf_folder_lock *lock)
{
    char path[4096], holder[128] = "";
    int fd = -1;
    RETURN_IF_ERROR(open_file(dir, path, &fd));
    const int got = take(fd, holder);
    if (got < 0 && errno == EWOULDBLOCK) {
        close(fd);
        return rf_fail(RF_EBUSY,
                       "another training saves into %s (process %.100s): stop it, or save into "
                       "another folder",
                       dir, holder);
    }
    if (got < 0) /* a file system without locks: continue unlocked */
        rf_log("io", 0, "%s cannot be locked (%s): let no other training save there", path,
               strerror(errno));
    sign(fd);
    *lock = (struct rf_folder_lock){.held = true, .fd = fd};
    return 0;
}

bool rf_folder_locked(const char *dir, const struct rf_folder_lock *lock)
{
    char path[4096];
    struct stat theirs, ours;
    return lock->held && rf_join_path(path, dir, "lock") == 0 && stat(path, &theirs) == 0 &&
           fstat(lock->fd, &ours) == 0 && theirs.st_dev == ours.st_dev &&
           theirs.st_ino == ours.st_ino;
}

void rf_folder_unlock(struct rf_folder_lock *lock)
{
    if (lock->held)
        close(lock->fd);
    lock->held = false;
}
