/* SPDX-License-Identifier: MIT
 *
 * The limits for parsing or rendering one template: memory, steps and depth. Anybody can publish a
 * model with a template, so all three are limited. Used by every file of this layer.
 */
#ifndef RF_TEMPLATE_ROOM_H
#define RF_TEMPLATE_ROOM_H

#include <ringforge/status.h>
#include <stdbool.h>

/* The caller zeroes it and sets its limits; freed with rf_room_free. One thread at a time. */
struct rf_room {
    struct rf_room_block *blocks;
    size_t used, most;  /* bytes taken, and the limit */
    uint64_t steps;     /* left */
    int depth, deepest; /* of calls and nested values */
    unsigned line;      /* of the template, for messages; 0: none */
    const char *where;  /* begins the messages */
};

/* Zeroed memory that lasts until the room is emptied. NULL, with the error set: RF_ENOTSUP (beyond
 * the limit), RF_ENOMEM. */
void *rf_room_take(struct rf_room *room, size_t bytes);

/* Grows memory for one more element of `size` bytes after `count`. */
RF_MUST_CHECK int rf_room_grow(struct rf_room *room, void **memory, size_t count, size_t *capacity,
                               size_t size);

/* Frees all memory except one block, which is reused. */
void rf_room_empty(struct rf_room *room);
void rf_room_free(struct rf_room *room);

/* Takes steps: about one per operation and per 16 bytes of text. RF_ENOTSUP: none are left. */
RF_MUST_CHECK int rf_room_spend(struct rf_room *room, size_t steps);

/* Enters one level; rf_room_leave undoes it. RF_ENOTSUP: too deep; nothing to undo. */
RF_MUST_CHECK int rf_room_enter(struct rf_room *room);
void rf_room_leave(struct rf_room *room);

/* Sets the error "WHERE: line N: ...". Returns status. */
int rf_room_fail(struct rf_room *room, int status, const char *format, ...) RF_PRINTF(3, 4);

#endif
