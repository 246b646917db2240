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
    RF_SLOTS = 8, /* on each device for sends, and as many for receives */
    RF_SLOT_BYTES = 1 << 20
};

struct rf_comm_staging {
    struct rf_staging_area *devices; /* a list: one for each device that has needed it */
    uint64_t copied_bytes;           /* total between tensors and staging memory */
};

/* Sets the mover and buffers of a call that has tensors which the host cannot reach (call->staged).
 * Each device has one area of staging memory. It serves one call at a time, is kept, and grows. */
RF_MUST_CHECK int rf_staging_begin(struct rf_comm *comm, struct rf_device *device,
                                   struct rf_call *call, struct rf_tensor in, struct rf_tensor out);
/* After a call has failed: waits for started copies. */
void rf_staging_abandon(struct rf_mover *mover);
/* The same for all devices. */
void rf_staging_abandon_all(struct rf_comm *comm);

/* Takes a slot of staging memory on the device of `remote`, for a piece of a message. store: for a
 * receive. There are RF_SLOTS for sends, and as many for receives. The holder of a slot must give
 * it back without waiting for another slot. RF_EAGAIN: none is free. After a failure slots are
 * freed with the communicator. */
RF_MUST_CHECK int rf_slot_take(struct rf_comm *comm, const struct rf_buffer *remote, bool store,
                               size_t bytes, struct rf_slot **out);
void rf_slot_give(struct rf_slot *slot); /* NULL is allowed */
void *rf_slot_map(const struct rf_slot *slot);
/* Starts the copy from or to byte `at` of `remote`. rf_slot_ended: 1: it has ended; 0: not yet. */
RF_MUST_CHECK int rf_slot_copy(struct rf_slot *slot, struct rf_buffer *remote, uint64_t at,
                               size_t bytes);
RF_MUST_CHECK int rf_slot_ended(const struct rf_slot *slot);
RF_MUST_CHECK int rf_slot_wait(const struct rf_slot *slot);
void rf_staging_destroy(struct rf_comm_staging *staging);

#endif
