/* SPDX-License-Identifier: MIT
 *
 * A recording, for the files that fill it (recording.c) and that begin, end and replay it
 * (record.c).
 */
#ifndef RF_DEVICE_RECORDING_H
#define RF_DEVICE_RECORDING_H

#include "internal.h"

struct rf_recording_mark {
    uint32_t hash;
    char name[RF_NAME_BYTES];
};

struct rf_recording_span {
    uint64_t first, last; /* inclusive */
};

struct rf_recording_list {
    void *items;
    size_t count, capacity;
};

enum rf_recording_stale { RF_RECORDING_VALID = 0, RF_RECORDING_NO_BUFFER, RF_RECORDING_NO_KERNEL };

struct rf_recording {
    struct rf_stream *stream;
    struct rf_submission *kept; /* its commands; never recycled */
    bool empty;
    uint64_t last;                    /* the stream's value of the last replay; 0 = none yet */
    struct rf_recording_list marks;   /* struct rf_recording_mark */
    struct rf_recording_list spans;   /* struct rf_recording_span; sorted, disjoint after the end */
    struct rf_recording_list kernels; /* const struct rf_kernel *, each once */
    atomic_int stale;                 /* enum rf_recording_stale */
    struct rf_recording *up;          /* in device->recordings; guarded by device->memory_lock */
};

/* Sorts them and joins those that overlap. Few are left, because tensors share buffers. */
void rf_recording_join_spans(struct rf_recording_list *list);

#endif
