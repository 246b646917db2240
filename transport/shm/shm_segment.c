/* SPDX-License-Identifier: MIT
 *
 * Memory that ranks of one host share: a file in memory for each rank, sealed so that nobody can
 * shrink it while others have it mapped. It grows when its rank allocates for
 * its user; peers map more of it when they first get an offset behind what they have mapped.
 * Called by shm_open.c, shm.c and, through the transport, by comm.
 */
#define _GNU_SOURCE /* memfd_create, fallocate */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "shm.h"

enum { VERSION = 8 };

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static size_t acks_offset(void)
{
    return RF_SHM_PAGE;
}

static size_t channels_offset(int count)
{
    return acks_offset() + round_up((size_t)count * sizeof(struct rf_shm_ack), RF_SHM_PAGE);
}

/* A power of two. The cells to all peers together exceed the private caches of a core: see
 * shm_send.c. */
static unsigned cells_among(int count)
{
    unsigned cells = RF_SHM_CELLS;
    while (cells > RF_SHM_LEAST_CELLS && cells * (unsigned)(count - 1) > RF_SHM_CELLS)
        cells /= 2;
    return cells;
}

static size_t channel_offset(int count, int index)
{
    const size_t bytes =
        offsetof(struct rf_shm_channel, cells) + (size_t)cells_among(count) * RF_SHM_CELL;
    return channels_offset(count) + (size_t)index * round_up(bytes, RF_SHM_PAGE);
}

static void *map(int fd, size_t offset, size_t bytes, int protection)
{
    void *memory = mmap(NULL, bytes, protection, MAP_SHARED, fd, (off_t)offset);
    return memory == MAP_FAILED ? NULL : memory;
}

void rf_shm_map_pages(const void *memory, size_t bytes, bool written)
{
#ifdef MADV_POPULATE_WRITE
    madvise((void *)(uintptr_t)memory, bytes, written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
}

/* With few ranks, maps the cells when they join: it takes a millisecond, and the first touch of
 * each page later would cost a call a few microseconds. With many ranks, pages are mapped on
 * demand. */
static void map_cells(const struct rf_shm_channel *channel, unsigned cells, bool written)
{
    if (cells > RF_SHM_LEAST_CELLS)
        rf_shm_map_pages(channel->cells, (size_t)cells * RF_SHM_CELL, written);
}

/* ---- this rank's ----------------------------------------------------------------------------- */

int rf_shm_segment_create(struct rf_shm *h)
{
    struct rf_transport *t = &h->transport;
    h->heap_offset = h->file_bytes = channel_offset(h->count, h->count);
    h->fd = memfd_create("ringforge", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (h->fd < 0)
        return rf_fail(RF_ENOTSUP, "shm: no file in memory can be made: %s", strerror(errno));
    if (ftruncate(h->fd, (off_t)h->file_bytes) < 0)
        return rf_fail(RF_ENOMEM, "shm: a segment of %zu bytes cannot be made: %s", h->file_bytes,
                       strerror(errno));
    if (fcntl(h->fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return rf_fail(RF_ENOTSUP, "shm: the segment cannot be sealed: %s", strerror(errno));
    h->base = map(h->fd, 0, h->heap_offset, PROT_READ | PROT_WRITE);
    if (!h->base)
        return rf_fail(RF_ENOMEM, "shm: the segment of %zu bytes cannot be mapped: %s",
                       h->heap_offset, strerror(errno));
    struct rf_shm_header *header = (struct rf_shm_header *)h->base;
    *header = (struct rf_shm_header){.magic = RF_SHM_MAGIC,
                                     .version = VERSION,
                                     .rank = (uint32_t)t->rank,
                                     .size = (uint32_t)t->size,
                                     .count = (uint32_t)h->count};
    struct rf_shm_ack *acks = (struct rf_shm_ack *)(h->base + acks_offset());
    for (int i = 0; i < h->count; i++) {
        h->peers[i].out = (struct rf_shm_channel *)(h->base + channel_offset(h->count, i));
        h->peers[i].acks_out = &acks[i];
        h->peers[i].goes_round = h->count <= RF_SHM_ROUND_RANKS;
        h->peers[i].cells = cells_among(h->count);
        if (h->ranks[i] != t->rank)
            map_cells(h->peers[i].out, h->peers[i].cells, true);
    }
    return 0;
}

void rf_shm_segment_name(struct rf_shm *h, uint64_t job)
{
    h->job = job;
    ((struct rf_shm_header *)h->base)->job = job;
}

/* ---- the peers' ------------------------------------------------------------------------------ */

/* A peer may hand over anything. */
static int check_file(const struct rf_shm *h, int peer, int fd, size_t *bytes)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &file) < 0 || seals < 0 || !(seals & F_SEAL_SHRINK) ||
        (size_t)file.st_size < h->heap_offset)
        return rf_fail_rank(RF_ECORRUPT, peer,
                            "shm: rank %d has handed over something else "
                            "than a segment",
                            peer);
    *bytes = (size_t)file.st_size;
    return 0;
}

/* The peer's file is valid, but this process has no address space or memory for it. */
static int fail_to_map(const struct rf_shm *h, int peer, size_t bytes)
{
    return rf_fail_rank(RF_ENOMEM, h->transport.rank,
                        "shm: rank %d cannot map %zu bytes that rank %d shares: %s; raise its "
                        "limit of address space (ulimit -v)",
                        h->transport.rank, bytes, peer, strerror(errno));
}

int rf_shm_segment_attach(struct rf_shm *h, int rank, int fd)
{
    struct rf_transport *t = &h->transport;
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    const int index = h->index_of[t->rank];
    if (peer->fd >= 0) {
        close(fd);
        return rf_fail_rank(RF_ECORRUPT, rank, "shm: rank %d has handed over two segments", rank);
    }
    peer->fd = fd;
    RETURN_IF_ERROR(check_file(h, rank, fd, &peer->file_bytes));
    peer->base = map(fd, 0, h->heap_offset, PROT_READ);
    if (!peer->base)
        return fail_to_map(h, rank, h->heap_offset);
    const struct rf_shm_header *header = (const struct rf_shm_header *)peer->base;
    if (header->magic != RF_SHM_MAGIC || header->job != h->job || header->version != VERSION ||
        header->rank != (uint32_t)rank || header->size != (uint32_t)t->size ||
        header->count != (uint32_t)h->count)
        return rf_fail_rank(RF_ECORRUPT, rank,
                            "shm: the segment of rank %d is of another job or build", rank);
    peer->in = (const struct rf_shm_channel *)(peer->base + channel_offset(h->count, index));
    peer->acks_in = (const struct rf_shm_ack *)(peer->base + acks_offset()) + index;
    map_cells(peer->in, peer->cells, false);
    return 0;
}

/* Maps a peer's memory for users up to `end`, and more, so that it happens rarely. */
static int extend_view(struct rf_shm *h, int rank, size_t end)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    size_t had = peer->view ? peer->view->bytes : 0;
    size_t bytes = peer->file_bytes - h->heap_offset;
    if (end - h->heap_offset <= had)
        return 0;
    struct rf_shm_view *view = rf_alloc(sizeof(*view));
    if (!view)
        return rf_fail(RF_ENOMEM, "shm: no memory to note what rank %d shares", rank);
    view->bytes = round_up(bytes > 2 * had ? bytes : 2 * had, RF_SHM_PAGE);
    view->base = map(peer->fd, h->heap_offset, view->bytes, PROT_READ | PROT_WRITE);
    if (!view->base) {
        int rc = fail_to_map(h, rank, view->bytes);
        rf_free(view);
        return rc;
    }
    madvise(view->base, view->bytes, MADV_DONTDUMP);
    view->older = peer->view;
    peer->view = view;
    return 0;
}

static int fail_elsewhere(int rank, uint64_t offset, size_t bytes)
{
    return rf_fail_rank(RF_ECORRUPT, rank,
                        "shm: rank %d has named %zu bytes at %llu, which are outside of the memory "
                        "it shares",
                        rank, bytes, (unsigned long long)offset);
}

int rf_shm_reach(struct rf_transport *t, int rank, uint64_t offset, size_t bytes,
                 unsigned char **out)
{
    struct rf_shm *h = (struct rf_shm *)t;
    if (!rf_shm_has(h, rank) || offset < h->heap_offset || bytes > SIZE_MAX / 4 ||
        offset > SIZE_MAX / 4)
        return fail_elsewhere(rank, offset, bytes);
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    size_t end = (size_t)offset + bytes;
    if (end > peer->file_bytes)
        RETURN_IF_ERROR(check_file(h, rank, peer->fd, &peer->file_bytes));
    if (end > peer->file_bytes)
        return fail_elsewhere(rank, offset, bytes);
    RETURN_IF_ERROR(extend_view(h, rank, end));
    *out = peer->view->base + (offset - h->heap_offset);
    return 0;
}

static void detach(struct rf_shm *h, struct rf_shm_peer *peer)
{
    if (peer->base)
        munmap(peer->base, h->heap_offset);
    while (peer->view) {
        struct rf_shm_view *view = peer->view;
        peer->view = view->older;
        munmap(view->base, view->bytes);
        rf_free(view);
    }
    if (peer->fd >= 0)
        close(peer->fd);
    peer->fd = -1;
}

/* ---- memory for the user --------------------------------------------------------------------- */

/* Returns the pages to the system; the offset may be reused. */
static void empty(struct rf_shm *h, struct rf_shm_block *block)
{
    munmap(block->memory, block->bytes);
    block->memory = NULL;
    fallocate(h->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)block->offset,
              (off_t)block->bytes);
}

void rf_shm_segment_destroy(struct rf_shm *h)
{
    for (int i = 0; h->peers && i < h->count; i++)
        detach(h, &h->peers[i]);
    while (h->blocks) {
        struct rf_shm_block *block = h->blocks;
        h->blocks = block->next;
        if (block->memory)
            empty(h, block);
        rf_free(block);
    }
    if (h->base)
        munmap(h->base, h->heap_offset);
    if (h->fd >= 0)
        close(h->fd);
}

/* A free block of this size: a part of an old one, or a new one at the end of the file. Once the
 * communicator has failed, a slow peer may still write to old ones. Called with the lock held. */
static struct rf_shm_block *find_block(struct rf_shm *h, size_t bytes)
{
    struct rf_shm_block **link = &h->blocks;
    for (; *link; link = &(*link)->next)
        if (!(*link)->memory && (*link)->bytes >= bytes && !h->cancelled)
            break;
    struct rf_shm_block *found = *link;
    if (found && found->bytes == bytes)
        return found;
    struct rf_shm_block *block = rf_alloc(sizeof(*block));
    if (!block)
        return NULL;
    block->bytes = bytes;
    block->offset = found ? found->offset : h->file_bytes;
    if (found) {
        found->offset += bytes;
        found->bytes -= bytes;
    } else if (ftruncate(h->fd, (off_t)(h->file_bytes + bytes)) < 0) {
        rf_free(block);
        return NULL;
    } else {
        h->file_bytes += bytes;
    }
    block->next = found;
    *link = block;
    return block;
}

int rf_shm_alloc(struct rf_transport *t, size_t bytes, void **out)
{
    struct rf_shm *h = (struct rf_shm *)t;
    size_t rounded = round_up(bytes > 0 ? bytes : 1, RF_SHM_PAGE);
    pthread_mutex_lock(&h->lock);
    struct rf_shm_block *block = bytes < SIZE_MAX / 4 ? find_block(h, rounded) : NULL;
    if (block)
        block->memory = map(h->fd, block->offset, rounded, PROT_READ | PROT_WRITE);
    *out = block ? block->memory : NULL;
    pthread_mutex_unlock(&h->lock);
    if (!*out)
        return rf_fail(RF_ENOMEM, "shm: no %zu bytes of memory to share", bytes);
    return 0;
}

/* Merges free neighbours. Called with the lock held. */
static void join_free(struct rf_shm *h)
{
    struct rf_shm_block *block = h->blocks;
    while (block && block->next) {
        struct rf_shm_block *next = block->next;
        if (block->memory || next->memory) {
            block = next;
            continue;
        }
        block->bytes += next->bytes;
        block->next = next->next;
        rf_free(next);
    }
}

void rf_shm_free(struct rf_transport *t, void *memory)
{
    struct rf_shm *h = (struct rf_shm *)t;
    if (!memory)
        return;
    pthread_mutex_lock(&h->lock);
    for (struct rf_shm_block *block = h->blocks; block; block = block->next)
        if (block->memory == memory) {
            empty(h, block);
            break;
        }
    join_free(h);
    pthread_mutex_unlock(&h->lock);
}

bool rf_shm_locate(struct rf_transport *t, const void *memory, size_t bytes, uint64_t *offset)
{
    struct rf_shm *h = (struct rf_shm *)t;
    const unsigned char *start = memory;
    bool found = false;
    pthread_mutex_lock(&h->lock);
    for (struct rf_shm_block *block = h->blocks; block && !found; block = block->next)
        if (block->memory && start >= block->memory && start < block->memory + block->bytes &&
            bytes <= (size_t)(block->memory + block->bytes - start)) {
            *offset = block->offset + (size_t)(start - block->memory);
            found = true;
        }
    pthread_mutex_unlock(&h->lock);
    return found;
}
