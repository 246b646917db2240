/* SPDX-License-Identifier: MIT
 *
 * What the reading or the rendering of one template may use: memory, steps and depth. Templates
 * come with models that anybody may publish, so all three have limits. Used by every file of this
 * layer.
 */
#ifndef RF_TEMPLATE_ROOM_H
#define RF_TEMPLATE_ROOM_H

#include <ringforge/status.h>
#include <stdbool.h>

/* Zeroed and given its limits by the caller; freed with rf_room_free. One thread at a time. */
struct rf_room {
    struct rf_room_block *blocks;
    size_t used, most;  /* bytes that were taken, and may be */
    uint64_t steps;     /* left */
    int depth, deepest; /* of calls and of values within values */
    unsigned line;      /* of the template, for messages; 0: none */
    const char *where;  /* begins the messages */
};

/* Zeroed memory that lasts until the room is emptied. NULL, with the error set: RF_ENOTSUP (beyond
 * the limit), RF_ENOMEM. */
void *rf_room_take(struct rf_room *room, size_t bytes);

/* Room for one more element of `size` bytes behind `count` in memory that grows. */
RF_MUST_CHECK int rf_room_grow(struct rf_room *room, void **memory, size_t count, size_t *capacity,
                               size_t size);

/* Gives all memory back, but for a block that is used again. */
void rf_room_empty(struct rf_room *room);
void rf_room_free(struct rf_room *room);

/* Takes steps: about one for each operation and each 16 bytes of text. RF_ENOTSUP: none are left.
 */
RF_MUST_CHECK int rf_room_spend(struct rf_room *room, size_t steps);

/* Goes one level down, which rf_room_leave takes back. RF_ENOTSUP: too deep; nothing to take back.
 */
RF_MUST_CHECK int rf_room_enter(struct rf_room *room);
void rf_room_leave(struct rf_room *room);

/* The error of a template: "WHERE: line N: ...". Returns status. */
int rf_room_fail(struct rf_room *room, int status, const char *format, ...) RF_PRINTF(3, 4);

#endif
