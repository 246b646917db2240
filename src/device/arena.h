/* SPDX-License-Identifier: MIT
 *
 * Arenas: the device memory of one category and kind, allocated at once and divided into pieces of
 * given sizes. train/run.c uses them for all memory of a plan. Pieces are not freed separately.
 */
#ifndef RF_MEMORY_ARENA_H
#define RF_MEMORY_ARENA_H

#include <ringforge/tensor.h>

#define RF_ARENA_ALIGNMENT 256u

struct rf_arena;

/* Allocates pieces of bytes[i] (multiples of 256; 0 = none) in as few buffers as the device's
 * largest allocation allows. A piece is always inside one buffer. RF_ENOMEM: the message names the
 * arena (`what`), the piece and its size. */
RF_MUST_CHECK int rf_arena_create(struct rf_device *device, const char *what, enum rf_memory memory,
                                  enum rf_category category, const uint64_t *bytes, int count,
                                  struct rf_arena **out);
void rf_arena_destroy(struct rf_arena *arena); /* NULL is allowed */
/* Piece `index` as a u8 tensor; a NULL buffer if it has no bytes. */
struct rf_tensor rf_arena_piece(const struct rf_arena *arena, int index);
uint64_t rf_arena_bytes(const struct rf_arena *arena); /* all pieces together */

#endif
