/* SPDX-License-Identifier: MIT
 *
 * What a rank had of a run, in host memory: taken by snapshot.c, put into another run by restore.c.
 */
#ifndef RF_TRAIN_SNAPSHOT_H
#define RF_TRAIN_SNAPSHOT_H

#include "spans.h"

/* Elements [first, first + count) of a whole tensor of a listing. */
struct rf_span_row {
    int32_t part, tensor;
    uint64_t first, count;
};

struct rf_snapshot {
    struct rf_checkpoint_state state;
    uint32_t tensors;         /* a hash of the listings: whose tensors the rows are of */
    struct rf_span_row *rows; /* ascending */
    size_t count;
    float *values; /* of the rows, one after the other */
};

/* Names and sizes of all tensors. */
uint32_t rf_listings_hash(const struct rf_listing listings[RF_PART_COUNT]);

#endif
