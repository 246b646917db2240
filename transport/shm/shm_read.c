/* SPDX-License-Identifier: MIT
 *
 * Reading the memory of another rank's process: one copy instead of two through slots. Many systems
 * forbid it (seccomp, Yama, namespaces, a process that is not dumpable), and it may be slower than
 * slots, so it is tried when a job starts, and measured by shm_trial.c. Called by shm_open.c and
 * the two sides of a message.
 *
 * Every read ends with the peer's header, read at the same address as when the job started. It
 * shows that the process is still the peer, and not another one with its number.
 */
#define _GNU_SOURCE /* process_vm_readv */
#include <errno.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"
#include "shm.h"

/* The constant part of a header, which identifies its rank. */
enum { NAME_BYTES = offsetof(struct rf_shm_header, cancelled) };

void rf_shm_describe_self(const struct rf_shm *h, struct rf_shm_self *self)
{
    const char *wanted = rf_env("RF_PEER_READS");
    *self = (struct rf_shm_self){0};
    if (strcmp(wanted, "0") == 0)
        return;
    if (strcmp(wanted, "any") == 0)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* without Yama: not needed */
    self->base = (uintptr_t)h->base;
    self->process = (int32_t)getpid();
}

/* The number of bytes read; the process's name comes after all of them. */
static ssize_t read_with_name(const struct rf_shm_peer *peer, void *to, uint64_t from, size_t bytes,
                              unsigned char name[NAME_BYTES])
{
    const struct iovec local[] = {{to, bytes}, {name, NAME_BYTES}};
    const struct iovec remote[] = {{(void *)(uintptr_t)from, bytes},
                                   {(void *)(uintptr_t)peer->base_there, NAME_BYTES}};
    const bool only_name = bytes == 0;
    return process_vm_readv(peer->process, local + only_name, 2 - only_name, remote + only_name,
                            2 - only_name, 0);
}

static int fail_gone(int rank)
{
    return rf_fail_rank(RF_EPEER, rank, "shm: the process of rank %d has ended", rank);
}

/* The peer may have given its buffers back to their owner during the read. */
static int check_still_there(const struct rf_shm_peer *peer, int rank,
                             const unsigned char name[NAME_BYTES])
{
    const struct rf_shm_header *header = (const struct rf_shm_header *)peer->base;
    if (memcmp(name, header, NAME_BYTES) != 0)
        return fail_gone(rank);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&header->cancelled, __ATOMIC_ACQUIRE))
        return rf_fail_rank(RF_EPEER, rank, "shm: rank %d has given up the communicator", rank);
    return 0;
}

int rf_shm_read(struct rf_shm *h, int rank, void *to, const void *from, size_t bytes)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    unsigned char name[NAME_BYTES];
    size_t done = 0;
    while (peer->process > 0) {
        ssize_t got = read_with_name(peer, (unsigned char *)to + done,
                                     (uint64_t)(uintptr_t)from + done, bytes - done, name);
        if (got == (ssize_t)(bytes - done + NAME_BYTES))
            return check_still_there(peer, rank, name);
        if (got < 0 && errno == ESRCH)
            return fail_gone(rank);
        if (got < 0 && errno != EFAULT && errno != ENOMEM) {
            peer->process = 0; /* no longer permitted */
            return RF_EAGAIN;
        }
        if (got <= 0)
            return done == bytes ? fail_gone(rank) : RF_EAGAIN;
        /* It has read up to an unreadable page. The missing part decides. */
        done += (size_t)got < bytes - done ? (size_t)got : bytes - done;
    }
    return RF_EAGAIN;
}

/* ---- readable memory of a rank
 * ------------------------------------------------------------------------
 */

bool rf_shm_is_readable(const struct rf_shm *h, const void *memory, size_t bytes)
{
    const uintptr_t at = (uintptr_t)memory;
    return h->reads != RF_SHM_READS_NONE &&
           (at + bytes <= h->unreadable[0] || at >= h->unreadable[1]);
}

/* Others cannot read mappings of devices, and nobody can read freed memory. */
int rf_shm_check_send(struct rf_shm *h, const struct rf_posted *send)
{
    const uintptr_t start = (uintptr_t)send->buffer, end = start + send->bytes;
    uintptr_t at = start;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return 0;
    char line[512];
    while (at < end && fgets(line, sizeof(line), maps)) {
        unsigned long first, last;
        char mode = '-';
        if (sscanf(line, "%lx-%lx %c", &first, &last, &mode) != 3 || last <= at)
            continue;
        if (first > at || mode != 'r')
            break;
        if (at == start)
            h->unreadable[0] = first;
        h->unreadable[1] = at = last;
    }
    fclose(maps);
    if (at >= end)
        return 0;
    return rf_fail_rank(RF_EINVAL, h->transport.rank,
                        "rank %d: %llu bytes at %p can no longer be read; memory must stay as it "
                        "is until the call that uses it has ended",
                        h->transport.rank, (unsigned long long)send->bytes, send->buffer);
}

/* ---- whether ranks may -----------------------------------------------------------------------
 */

static bool can_read(struct rf_shm_peer *peer, const struct rf_shm_self *self)
{
    unsigned char name[NAME_BYTES];
    peer->process = self->process;
    peer->base_there = self->base;
    const bool can = self->process > 0 &&
                     read_with_name(peer, NULL, 0, 0, name) == (ssize_t)NAME_BYTES &&
                     memcmp(name, peer->base, NAME_BYTES) == 0;
    if (!can)
        peer->process = 0;
    return can;
}

void rf_shm_try_reads(struct rf_shm *h, const struct rf_shm_self *selves, size_t stride,
                      struct rf_shm_trial *out)
{
    const char *wanted = rf_env("RF_PEER_READS");
    *out = (struct rf_shm_trial){.permitted = 1};
    if (strcmp(wanted, "1") == 0)
        out->forced = RF_SHM_READS_ALL;
    else if (strcmp(wanted, "exchanges") == 0)
        out->forced = RF_SHM_READS_EXCHANGES;
    for (int i = 0; i < h->count; i++) {
        const int rank = h->ranks[i];
        if (rank == h->transport.rank)
            continue;
        const unsigned char *self = (const unsigned char *)selves + (size_t)rank * stride;
        if (!can_read(&h->peers[i], (const struct rf_shm_self *)self))
            out->permitted = 0;
    }
    out->permitted = out->permitted && h->count > 1;
}

bool rf_shm_reads_are_permitted(const struct rf_shm *h, const struct rf_shm_trial *trials)
{
    bool permitted = true;
    for (int i = 0; i < h->count; i++)
        permitted = permitted && trials[h->ranks[i]].permitted;
    return permitted;
}
