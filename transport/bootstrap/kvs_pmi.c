/* SPDX-License-Identifier: MIT
 *
 * The key-value store of MPICH's launchers: lines of text over a socket that the process inherits
 * (PMI, version 1). Rank 0 puts a text, all wait in a barrier, all get it.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <ringforge/ringforge.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../control/socket.h"
#include "base/base.h"
#include "kvs.h"

enum { LINE = 2048 };

/* One per process, like the socket. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int fd; /* 0: not opened yet */
    struct stat socket;
    char name[256];     /* of the store */
    unsigned exchanged; /* texts so far */
    bool broken;        /* an answer may still arrive */
} pmi;

static int read_line(char line[LINE], uint64_t deadline)
{
    for (size_t used = 0; used + 1 < LINE;) {
        if (!rf_socket_wait(pmi.fd, POLLIN, deadline))
            return rf_fail(RF_ETIMEOUT, "not all ranks of the job came to the launcher in time");
        ssize_t got = read(pmi.fd, line + used, 1); /* reads no byte of a later answer */
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return rf_fail(RF_ENET, "the launcher has closed its connection (PMI_FD)");
        if (got != 1)
            continue;
        if (line[used] == '\n') {
            line[used] = 0;
            return 0;
        }
        used++;
    }
    return rf_fail(RF_ENET, "the launcher's answer over PMI_FD is too long");
}

/* Sends a command. The answer must be `wanted`, and must not report a failure. */
static int ask(const char *command, const char *wanted, char line[LINE], uint64_t deadline)
{
    const char *rc;
    for (size_t sent = 0, bytes = strlen(command); sent < bytes;) {
        ssize_t more = send(pmi.fd, command + sent, bytes - sent, MSG_NOSIGNAL);
        if (more < 0 && errno == EAGAIN)
            (void)rf_socket_wait(pmi.fd, POLLOUT, deadline);
        else if (more < 0 && errno != EINTR)
            return rf_fail(RF_ENET, "the launcher cannot be asked over PMI_FD: %s",
                           strerror(errno));
        sent += more > 0 ? (size_t)more : 0;
    }
    RETURN_IF_ERROR(read_line(line, deadline));
    if (strncmp(line, "cmd=", 4) != 0 || strncmp(line + 4, wanted, strlen(wanted)) != 0 ||
        ((rc = strstr(line, " rc=")) && atoi(rc + 4) != 0))
        return rf_fail(RF_ENET, "the launcher answers over PMI_FD: %.200s", line);
    return 0;
}

/* The text after `name=`, up to a space. */
static int value_of(const char *line, const char *name, char *out, size_t bytes)
{
    const char *found = strstr(line, name);
    size_t length = found ? strcspn(found + strlen(name), " ") : 0;
    if (length == 0 || length >= bytes)
        return rf_fail(RF_ENET, "the launcher answers over PMI_FD: %.200s", line);
    memcpy(out, found + strlen(name), length);
    out[length] = 0;
    return 0;
}

/* Hydra treats a process that has used PMI and ends without this as crashed. If MPI has been
 * finalized meanwhile, the socket is closed. */
static void finalize(void)
{
    static const char text[] = "cmd=finalize\n";
    struct stat now;
    if (fstat(pmi.fd, &now) == 0 && now.st_dev == pmi.socket.st_dev &&
        now.st_ino == pmi.socket.st_ino && send(pmi.fd, text, sizeof(text) - 1, MSG_NOSIGNAL) > 0)
        (void)rf_socket_wait(pmi.fd, POLLIN, rf_now_ns() + 1000000000);
}

static int open_session(uint64_t deadline)
{
    char line[LINE];
    long fd = -1;
    RETURN_IF_ERROR(rf_env_int("PMI_FD", -1, &fd));
    if (fd <= 0 || fstat((int)fd, &pmi.socket) || !S_ISSOCK(pmi.socket.st_mode))
        return rf_fail(RF_ENET, "PMI_FD is no connection to a launcher");
    pmi.fd = (int)fd;
    atexit(finalize);
    RETURN_IF_ERROR(
        ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", line, deadline));
    RETURN_IF_ERROR(ask("cmd=get_my_kvsname\n", "my_kvsname", line, deadline));
    return value_of(line, "kvsname=", pmi.name, sizeof(pmi.name));
}

static int exchange_locked(bool writes, char text[RF_KVS_TEXT], uint64_t deadline)
{
    char command[LINE], line[LINE];
    if (!pmi.fd)
        RETURN_IF_ERROR(open_session(deadline));
    unsigned number = pmi.exchanged++;
    snprintf(command, sizeof(command), "cmd=put kvsname=%s key=ringforge-%u value=%s\n", pmi.name,
             number, text);
    if (writes)
        RETURN_IF_ERROR(ask(command, "put_result", line, deadline));
    RETURN_IF_ERROR(ask("cmd=barrier_in\n", "barrier_out", line, deadline));
    snprintf(command, sizeof(command), "cmd=get kvsname=%s key=ringforge-%u\n", pmi.name, number);
    RETURN_IF_ERROR(ask(command, "get_result", line, deadline));
    return value_of(line, "value=", text, RF_KVS_TEXT);
}

static int exchange(bool writes, char text[RF_KVS_TEXT], uint64_t deadline)
{
    pthread_mutex_lock(&lock);
    int rc = pmi.broken
                 ? rf_fail(RF_ENET, "the launcher did not answer before; nothing more is asked")
                 : exchange_locked(writes, text, deadline);
    pmi.broken = rc < 0;
    pthread_mutex_unlock(&lock);
    return rc;
}

const struct rf_kvs *rf_kvs_pmi(void)
{
    static const struct rf_kvs kvs = {"PMI", exchange};
    return rf_env("PMI_FD") ? &kvs : NULL;
}
