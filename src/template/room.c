/* SPDX-License-Identifier: MIT
 *
 * Memory, steps and depth of one template; see room.h.
 */
#include "room.h"

#include "../base/base.h"

enum { ALIGNMENT = 16, BLOCK_BYTES = 64 << 10 };

struct rf_room_block {
    struct rf_room_block *next;
    size_t bytes, used;
    _Alignas(ALIGNMENT) unsigned char memory[];
};

int rf_room_fail(struct rf_room *room, int status, const char *format, ...)
{
    char text[512], line[32] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (room->line)
        snprintf(line, sizeof(line), ": line %u", room->line);
    return rf_fail(status, "%s%s: %s", room->where ? room->where : "chat template", line, text);
}

static struct rf_room_block *add_block(struct rf_room *room, size_t bytes)
{
    const size_t last = room->blocks ? room->blocks->bytes : 0;
    size_t wanted = last < ((size_t)16 << 20) ? 2 * last : last;
    wanted = wanted < BLOCK_BYTES ? BLOCK_BYTES : wanted;
    wanted = wanted < bytes ? bytes : wanted;
    struct rf_room_block *block = rf_alloc(sizeof(*block) + wanted);
    if (!block) {
        rf_room_fail(room, RF_ENOMEM, "out of memory");
        return NULL;
    }
    block->bytes = wanted;
    block->next = room->blocks;
    room->blocks = block;
    return block;
}

void *rf_room_take(struct rf_room *room, size_t bytes)
{
    if (bytes > room->most - room->used) {
        rf_room_fail(room, RF_ENOTSUP, "needs more than %zu MiB of memory", room->most >> 20);
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct rf_room_block *block = room->blocks;
    if (!block || bytes > block->bytes - block->used)
        block = add_block(room, bytes);
    if (!block)
        return NULL;
    void *memory = block->memory + block->used;
    block->used += bytes;
    room->used = room->used + bytes < room->most ? room->used + bytes : room->most;
    return memset(memory, 0, bytes);
}

int rf_room_grow(struct rf_room *room, void **memory, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return 0;
    const size_t wanted = 2 * *capacity + 4;
    void *grown = rf_room_take(room, wanted * size);
    if (!grown)
        return rf_last_error()->status;
    if (count > 0)
        memcpy(grown, *memory, count * size);
    *memory = grown;
    *capacity = wanted;
    return 0;
}

void rf_room_empty(struct rf_room *room)
{
    while (room->blocks && room->blocks->next) {
        struct rf_room_block *next = room->blocks->next;
        rf_free(room->blocks);
        room->blocks = next;
    }
    if (room->blocks)
        room->blocks->used = 0;
    room->used = 0;
    room->depth = 0;
    room->line = 0;
}

void rf_room_free(struct rf_room *room)
{
    rf_room_empty(room);
    rf_free(room->blocks);
    room->blocks = NULL;
}

int rf_room_spend(struct rf_room *room, size_t steps)
{
    if (steps > room->steps)
        return rf_room_fail(room, RF_ENOTSUP, "takes too many steps");
    room->steps -= steps;
    return 0;
}

int rf_room_enter(struct rf_room *room)
{
    RETURN_IF_ERROR(rf_room_spend(room, 1));
    if (room->depth >= room->deepest)
        return rf_room_fail(room, RF_ENOTSUP, "is nested more than %d deep", room->deepest);
    room->depth++;
    return 0;
}

void rf_room_leave(struct rf_room *room)
{
    room->depth--;
}
