/* SPDX-License-Identifier: MIT
 *
 * Memory that all ranks of a communicator map, for stores without a server: a file in memory of
 * rank 0. Its pages exist before anybody writes them, and it cannot shrink, so that no access
 * fails. It exists as long as one of the ranks does.
 */
#define _GNU_SOURCE /* memfd_create, fallocate */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store.h"

/* What rank 0 tells the others. The words are those at the start of the file: a process of the same
 * number in another namespace has another file. */
struct place {
    int64_t process, fd;
    uint64_t words[2];
};

static int create(size_t bytes, struct rf_store_memory *out, struct place *place)
{
    out->fd = memfd_create("ringforge-store", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (out->fd < 0)
        return rf_fail(RF_ENOMEM, "a store of %zu bytes: no memory to share: %s", bytes,
                       strerror(errno));
    int failed;
    do
        failed = fallocate(out->fd, 0, 0, (off_t)bytes);
    while (failed < 0 && errno == EINTR);
    if (failed < 0 || fcntl(out->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return rf_fail(RF_ENOMEM, "a store of %zu bytes: no memory to share: %s", bytes,
                       strerror(errno));
    if (getrandom(place->words, sizeof place->words, 0) != sizeof place->words)
        return rf_fail(RF_EIO, "a store: the system gives no random numbers: %s", strerror(errno));
    place->process = getpid();
    place->fd = out->fd;
    return RF_OK;
}

static int find(size_t bytes, const struct place *place, struct rf_store_memory *out)
{
    char path[80];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)place->process,
             (long long)place->fd);
    out->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (out->fd < 0)
        return rf_fail(RF_ENOTSUP,
                       "a store: the memory of rank 0 cannot be opened: %s; processes of other "
                       "users or in other containers cannot share it",
                       strerror(errno));
    if (fstat(out->fd, &about) < 0 || !S_ISREG(about.st_mode) || about.st_size != (off_t)bytes)
        return rf_fail(RF_ENOTSUP,
                       "a store: %s is not the memory of rank 0: processes in other "
                       "containers cannot share it",
                       path);
    return RF_OK;
}

static int map(struct rf_store_memory *memory, size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (base == MAP_FAILED)
        return rf_fail(RF_ENOMEM, "a store of %zu bytes cannot be mapped: %s", bytes,
                       strerror(errno));
    memory->base = base;
    memory->bytes = bytes;
    return RF_OK;
}

static const char cannot[] = "cannot share the memory of rank 0";

int rf_store_memory_open(struct rf_comm *comm, size_t bytes, struct rf_store_memory *out)
{
    struct place place = {0};
    const bool first = rf_comm_rank(comm) == 0;
    *out = (struct rf_store_memory){.fd = -1};
    int status = first ? create(bytes, out, &place) : RF_OK;
    if (status == RF_OK && first)
        status = map(out, bytes);
    if (status == RF_OK && first)
        memcpy(out->base, place.words, sizeof place.words);
    RETURN_IF_ERROR(rf_store_agree(comm, status, cannot));
    RETURN_IF_ERROR(rf_broadcast(comm, &place, sizeof place, RF_U8, 0, NULL));
    if (!first)
        status = find(bytes, &place, out);
    if (status == RF_OK && !first)
        status = map(out, bytes);
    if (status == RF_OK && memcmp(out->base, place.words, sizeof place.words) != 0)
        status = rf_fail(RF_ENOTSUP, "a store: what is open as rank 0's memory is not: processes "
                                     "in other containers cannot share it");
    RETURN_IF_ERROR(rf_store_agree(comm, status, cannot));
    if (first)
        memset(out->base, 0, sizeof place.words);
    return rf_barrier(comm, NULL);
}

void rf_store_memory_close(struct rf_store_memory *memory)
{
    if (memory->base)
        munmap(memory->base, memory->bytes);
    if (memory->fd >= 0)
        close(memory->fd);
    *memory = (struct rf_store_memory){.fd = -1};
}
