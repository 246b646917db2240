/* SPDX-License-Identifier: MIT
 *
 * Staging memory for tensors that the host cannot reach.
 */
#ifndef RF_COMM_STAGING_H
#define RF_COMM_STAGING_H

#include "call.h"

struct rf_slot;
struct rf_staging_area;

enum {
    RF_SLOTS = 8, /* for sends, and as many for receives, on a device */
    RF_SLOT_BYTES = 1 << 20
};

struct rf_comm_staging {
    struct rf_staging_area *devices; /* a list: one for each device that needed it */
    uint64_t copied_bytes;           /* between tensors and staging memory, in all */
};

/* Gives a call of which call->staged tensors are out of the host's reach its mover and buffers. The
 * staging memory is the communicator's, one for each device, for one call at a time; it is kept and
 * grows. */
RF_MUST_CHECK int rf_staging_begin(struct rf_comm *comm, struct rf_device *device,
                                   struct rf_call *call, struct rf_tensor in, struct rf_tensor out);
/* After the call has failed: waits for the copies that have been started. */
void rf_staging_abandon(struct rf_mover *mover);
/* The same, of all devices. */
void rf_staging_abandon_all(struct rf_comm *comm);

/* A piece of a message to or from memory out of the host's reach. Takes staging memory for it, on
 * the device of `remote`: store for a receive. At most RF_SLOTS of either kind are taken at once;
 * who has one gives it back without waiting for who has none. RF_EAGAIN: all are taken. After a
 * failure they go with the communicator. */
RF_MUST_CHECK int rf_slot_take(struct rf_comm *comm, const struct rf_buffer *remote, bool store,
                               size_t bytes, struct rf_slot **out);
void rf_slot_give(struct rf_slot *slot); /* NULL is allowed */
void *rf_slot_map(const struct rf_slot *slot);
/* Starts the copy, from or to byte `at` of `remote`. ended: 1 = it has, 0 = not yet. */
RF_MUST_CHECK int rf_slot_copy(struct rf_slot *slot, struct rf_buffer *remote, uint64_t at,
                               size_t bytes);
RF_MUST_CHECK int rf_slot_ended(const struct rf_slot *slot);
RF_MUST_CHECK int rf_slot_wait(const struct rf_slot *slot);
void rf_staging_destroy(struct rf_comm_staging *staging);

#endif
