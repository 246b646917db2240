/* SPDX-License-Identifier: MIT
 *
 * Parameters in windows whose provider can only read and write. Two ranks that write one place
 * would leave a mixture of bytes there, so each rank writes to places of its own: a rank's memory
 * has, for every rank, the sums of what that one has added to the range. A parameter is the sum of
 * all of them, so nothing is lost. Sums lie in blocks with a version and a checksum; a reader
 * repeats what it has read while it was being written.
 */
#include "across.h"

enum { VALUES = 60 };

struct rf_store_block {
    uint32_t checksum; /* of what follows */
    uint32_t reserved;
    uint64_t version; /* writes of this block, from 1 */
    float values[VALUES];
};

static int64_t blocks_of(int64_t count)
{
    return (count + VALUES - 1) / VALUES;
}

static uint64_t memory(int ranks, int64_t count)
{
    return (uint64_t)ranks * (uint64_t)blocks_of(count) * sizeof(struct rf_store_block);
}

/* The blocks of a call, of every other rank: a part begins and ends within one. */
static uint64_t room(int ranks)
{
    return (uint64_t)ranks * (2 * RF_STORE_PARTS + RF_STORE_PART_VALUES / VALUES + 1) *
           sizeof(struct rf_store_block);
}

static uint32_t checksum(const struct rf_store_block *block)
{
    return rf_checksum(&block->reserved, sizeof *block - sizeof block->checksum, 0);
}

/* The blocks of a rank's range that this rank has written. */
static struct rf_store_block *mine(const struct rf_store *store, int owner)
{
    return store->across->mine + store->across->first_block[owner];
}

/* Where a writer's block is in the memory of a rank. */
static uint64_t offset(const struct rf_store *store, int owner, int writer, int64_t block)
{
    const int64_t *first = store->across->first_block;
    const int64_t blocks = first[owner + 1] - first[owner];
    return store->across->head +
           sizeof(struct rf_store_block) * ((uint64_t)writer * (uint64_t)blocks + (uint64_t)block);
}

static int write_blocks(struct rf_store *store, int owner, int64_t from, int64_t to)
{
    struct rf_store_block *blocks = mine(store, owner);
    const uint64_t bytes = (uint64_t)(to - from) * sizeof *blocks;
    for (int64_t k = from; k < to; k++) {
        blocks[k].version++;
        blocks[k].checksum = checksum(blocks + k);
    }
    if (owner != store->rank)
        store->stats.pushed_bytes += bytes;
    return rf_window_start(store->across->window, RF_WINDOW_PUT, owner,
                           offset(store, owner, store->rank, from), blocks + from, bytes);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_blocks(struct rf_store *store)
{
    struct rf_store_across *a = store->across;
    int64_t blocks = 0, first, count;
    a->first_block = rf_alloc((size_t)(store->ranks + 1) * sizeof *a->first_block);
    for (int r = 0; a->first_block && r < store->ranks; r++) {
        rf_store_divide(store->opts.count, store->ranks, r, &first, &count);
        a->first_block[r] = blocks;
        blocks += blocks_of(count);
        a->first_block[r + 1] = blocks;
    }
    a->mine = rf_alloc((size_t)blocks * sizeof *a->mine);
    return a->first_block && a->mine
               ? RF_OK
               : rf_fail(RF_ENOMEM, "out of memory for what a rank adds to %lld parameters",
                         (long long)store->opts.count);
}

/* Initial values are the first that rank 0 adds. */
static int fill(struct rf_store *store, const struct rf_store_part *parts, int count,
                struct rf_store_job *job)
{
    for (int k = 0; k < count; k++)
        for (int64_t i = 0; i < parts[k].count; i++) {
            const int64_t at = parts[k].first + i;
            mine(store, parts[k].rank)[at / VALUES].values[at % VALUES] =
                job->from[parts[k].at + i];
        }
    return RF_OK;
}

/* Every block has a checksum from the start. */
static int write_all(struct rf_store *store)
{
    const int64_t *first = store->across->first_block;
    for (int r = 0; r < store->ranks; r++)
        RETURN_IF_ERROR(write_blocks(store, r, 0, first[r + 1] - first[r]));
    return rf_window_flush(store->across->window);
}

/* ---- push ------------------------------------------------------------------------------------ */

/* The blocks of a part that the part before, on the same rank, does not end in. */
static bool next_blocks(const struct rf_store_part *parts, int k, int64_t *from, int64_t *to)
{
    const struct rf_store_part *part = parts + k, *before = k > 0 ? part - 1 : NULL;
    const bool follows = before && before->rank == part->rank;
    const int64_t sent = follows ? blocks_of(before->first + before->count) : 0;
    *from = part->first / VALUES;
    *from = *from > sent ? *from : sent;
    *to = blocks_of(part->first + part->count);
    return *from < *to;
}

/* All values change before the first block is sent, because a block may have several parts. */
static int push(struct rf_store *store, const struct rf_store_part *parts, int count,
                struct rf_store_job *job)
{
    int64_t from, to;
    for (int k = 0; k < count; k++)
        for (int64_t i = 0; i < parts[k].count; i++) {
            const int64_t at = parts[k].first + i;
            mine(store, parts[k].rank)[at / VALUES].values[at % VALUES] +=
                rf_store_change(job, job->from[parts[k].at + i]);
        }
    for (int k = 0; k < count; k++)
        if (next_blocks(parts, k, &from, &to))
            RETURN_IF_ERROR(write_blocks(store, parts[k].rank, from, to));
    return rf_window_flush(store->across->window);
}

/* ---- pull ------------------------------------------------------------------------------------ */

static int read_blocks(struct rf_store *store, int owner, int writer, int64_t from, int64_t blocks,
                       struct rf_store_block *to)
{
    const uint64_t bytes = (uint64_t)blocks * sizeof *to;
    if (owner != store->rank)
        store->stats.pulled_bytes += bytes;
    return rf_window_start(store->across->window, RF_WINDOW_GET, owner,
                           offset(store, owner, writer, from), to, bytes);
}

/* Until the block is whole. Its writer may have stopped in the middle. */
static int read_again(struct rf_store *store, int owner, int writer, int64_t at,
                      struct rf_store_block *block)
{
    const uint64_t until_ns = rf_after_s(store->opts.timeout_s);
    while (block->version == 0 || block->checksum != checksum(block)) {
        if (rf_now_ns() > until_ns) {
            const int status = rf_fail_rank(
                RF_ETIMEOUT, writer, "rank %d has not written block %lld to the end for %g s",
                writer, (long long)at, store->opts.timeout_s);
            rf_window_abort(store->across->window, rf_last_error()->message);
            return status;
        }
        RETURN_IF_ERROR(read_blocks(store, owner, writer, at, 1, block));
        RETURN_IF_ERROR(rf_window_flush(store->across->window));
    }
    return RF_OK;
}

/* Adds what a writer has added to the part. */
static void add(const struct rf_store_part *part, const struct rf_store_block *blocks, float *to)
{
    for (int64_t i = 0; i < part->count; i++) {
        const int64_t at = part->first % VALUES + i;
        to[i] += blocks[at / VALUES].values[at % VALUES];
    }
}

/* Sums are added in the order of the ranks. `read`: the blocks of all other ranks, which follow one
 * another. */
static int add_up(struct rf_store *store, const struct rf_store_part *part,
                  struct rf_store_block *read, float *to)
{
    const int64_t from = part->first / VALUES;
    const int64_t blocks = blocks_of(part->first + part->count) - from;
    memset(to, 0, sizeof *to * (size_t)part->count);
    for (int writer = 0; writer < store->ranks; writer++) {
        if (writer == store->rank) {
            add(part, mine(store, part->rank) + from, to);
            continue;
        }
        for (int64_t k = 0; k < blocks; k++)
            RETURN_IF_ERROR(read_again(store, part->rank, writer, from + k, read + k));
        add(part, read, to);
        read += blocks;
    }
    return RF_OK;
}

static int pull(struct rf_store *store, const struct rf_store_part *parts, int count,
                struct rf_store_job *job)
{
    struct rf_store_block *next = store->across->room;
    for (int k = 0; k < count; k++) {
        const int64_t from = parts[k].first / VALUES;
        const int64_t blocks = blocks_of(parts[k].first + parts[k].count) - from;
        for (int writer = 0; writer < store->ranks; writer++) {
            if (writer == store->rank)
                continue;
            RETURN_IF_ERROR(read_blocks(store, parts[k].rank, writer, from, blocks, next));
            next += blocks;
        }
    }
    RETURN_IF_ERROR(rf_window_flush(store->across->window));
    next = store->across->room;
    for (int k = 0; k < count; k++) {
        RETURN_IF_ERROR(add_up(store, parts + k, next, job->to + parts[k].at));
        next += (store->ranks - 1) *
                (blocks_of(parts[k].first + parts[k].count) - parts[k].first / VALUES);
    }
    return RF_OK;
}

/* Without blocks that are read again. */
static int plan(struct rf_store *store, const struct rf_store_part *parts, int count,
                struct rf_store_job *job)
{
    const uint64_t each = sizeof(struct rf_store_block);
    int64_t from, to;
    for (int k = 0; k < count; k++) {
        if (parts[k].rank == store->rank)
            continue;
        if (next_blocks(parts, k, &from, &to))
            job->written += each * (uint64_t)(to - from);
        to = blocks_of(parts[k].first + parts[k].count);
        job->read += each * (uint64_t)(store->ranks - 1) * (uint64_t)(to - parts[k].first / VALUES);
    }
    return RF_OK;
}

const struct rf_store_form rf_store_versioned = {.path = "versioned one-sided reads and writes",
                                                 .needs = {RF_WINDOW_PUT, RF_WINDOW_GET},
                                                 .memory = memory,
                                                 .room = room,
                                                 .fill = fill,
                                                 .push = push,
                                                 .pull = pull,
                                                 .open = open_blocks,
                                                 .seal = write_all,
                                                 .plan = plan};
