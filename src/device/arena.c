/* SPDX-License-Identifier: MIT
 *
 * Arenas: see arena.h. Pieces are contiguous. A new buffer begins when the next piece would make
 * the current one larger than the device allows.
 */
#include "arena.h"

#include "../base/base.h"

struct piece {
    int buffer;
    uint64_t offset, bytes;
};

struct rf_arena {
    struct rf_buffer **buffers;
    int buffer_count, piece_count;
    struct piece *pieces;
    uint64_t bytes;
};

static int place_pieces(struct rf_arena *arena, const char *what, const uint64_t *bytes,
                        uint64_t limit, uint64_t *buffer_bytes)
{
    for (int i = 0; i < arena->piece_count; i++) {
        if (bytes[i] % RF_ARENA_ALIGNMENT != 0)
            return rf_fail(RF_EINVAL,
                           "memory for %s: piece %d has %llu bytes, not a multiple of %u", what, i,
                           (unsigned long long)bytes[i], RF_ARENA_ALIGNMENT);
        if (bytes[i] == 0)
            continue;
        if (bytes[i] > limit)
            return rf_fail(
                RF_ENOMEM,
                "memory for %s: one piece needs %llu bytes, but this device allocates at "
                "most %llu at once; use a smaller model, micro-batch or sequence",
                what, (unsigned long long)bytes[i], (unsigned long long)limit);
        int at = arena->buffer_count - 1;
        if (at < 0 || buffer_bytes[at] + bytes[i] > limit)
            at = arena->buffer_count++;
        arena->pieces[i] = (struct piece){at, buffer_bytes[at], bytes[i]};
        buffer_bytes[at] += bytes[i];
        arena->bytes += bytes[i];
    }
    return 0;
}

int rf_arena_create(struct rf_device *device, const char *what, enum rf_memory memory,
                    enum rf_category category, const uint64_t *bytes, int count,
                    struct rf_arena **out)
{
    uint64_t limit = rf_device_get_info(device)->max_allocation_bytes;
    size_t at_least_one = (size_t)(count > 0 ? count : 1);
    struct rf_arena *arena = rf_alloc(sizeof(*arena));
    uint64_t *buffer_bytes = rf_alloc(at_least_one * sizeof(*buffer_bytes));
    int rc = 0;
    if (!arena || !buffer_bytes) {
        rc = rf_fail(RF_ENOMEM, "memory for %s: out of host memory", what);
        goto fail;
    }
    limit = limit ? limit / RF_ARENA_ALIGNMENT * RF_ARENA_ALIGNMENT : UINT64_MAX / 2;
    arena->piece_count = count;
    arena->pieces = rf_alloc(at_least_one * sizeof(*arena->pieces));
    arena->buffers = rf_alloc(at_least_one * sizeof(struct rf_buffer *));
    if (!arena->pieces || !arena->buffers) {
        rc = rf_fail(RF_ENOMEM, "memory for %s: out of host memory", what);
        goto fail;
    }
    rc = place_pieces(arena, what, bytes, limit, buffer_bytes);
    for (int i = 0; rc == 0 && i < arena->buffer_count; i++)
        rc = rf_buffer_create(device, buffer_bytes[i], memory, category, &arena->buffers[i]);
    if (rc < 0)
        goto fail;
    rf_free(buffer_bytes);
    *out = arena;
    return 0;

fail:
    rf_free(buffer_bytes);
    rf_arena_destroy(arena);
    return rc;
}

void rf_arena_destroy(struct rf_arena *arena)
{
    if (!arena)
        return;
    for (int i = 0; arena->buffers && i < arena->buffer_count; i++)
        rf_buffer_destroy(arena->buffers[i]);
    rf_free(arena->buffers);
    rf_free(arena->pieces);
    rf_free(arena);
}

struct rf_tensor rf_arena_piece(const struct rf_arena *arena, int index)
{
    const struct piece *piece = &arena->pieces[index];
    return (struct rf_tensor){.buffer = piece->bytes ? arena->buffers[piece->buffer] : NULL,
                              .offset = piece->offset,
                              .shape = rf_shape1((int64_t)piece->bytes),
                              .dtype = RF_U8};
}

uint64_t rf_arena_bytes(const struct rf_arena *arena)
{
    return arena->bytes;
}
