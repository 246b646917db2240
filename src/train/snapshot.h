/* SPDX-License-Identifier: MIT
 *
 * A rank's part of a run in host memory. snapshot.c makes it; restore.c writes it to another run.
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
    uint32_t tensors;         /* hash of the listings to whose tensors the rows refer */
    struct rf_span_row *rows; /* ascending */
    uint64_t *places;         /* of each row: where its values begin */
    size_t count;
    float *values; /* in the order of spans: a rank with several parts has them one by one */
};

/* Hash of the names and sizes of all tensors. */
uint32_t rf_listings_hash(const struct rf_listing listings[RF_PART_COUNT]);

#endif
