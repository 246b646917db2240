/* SPDX-License-Identifier: MIT
 *
 * What check_ranges.c, which checks launches, judge_ranges.c, which judges them by a declaration,
 * and try_ranges.c, which tries wrong ones, share. What the device calls of them is in internal.h.
 */
#ifndef RF_DEVICE_CHECK_RANGES_H
#define RF_DEVICE_CHECK_RANGES_H

#include "internal.h"

enum copy {
    BEFORE, /* the launch */
    AFTER,  /* it was run as it is */
    FILLED, /* BEFORE, with a pattern where nothing is declared */
    NOW,    /* the memory itself */
    COPIES
};
struct image {
    const struct rf_buffer *buffer;
    uint8_t *copy[COPIES];
};

struct rf_ranges {
    pthread_mutex_t lock; /* held while a command runs; guards the rest */
    struct image *images; /* of each buffer */
    size_t count, capacity;
    bool tries; /* rf_device_try_ranges */
    struct rf_range_trial *trials;
    size_t trial_count, trial_capacity;
};

struct attempt {
    struct rf_stream *stream;
    const struct rf_command *command;
};

struct span {
    uint64_t first, end;
};
/* Sorted, with gaps between them. */
struct cover {
    struct span *spans;
    uint32_t count;
};
struct declared {
    struct cover touched, written;
};
/* judge_ranges.c */
int rf_ranges_declare(struct declared *d, const struct rf_range *ranges, uint32_t count);
void rf_ranges_undeclare(struct declared *d);

struct finding {
    enum { KEPT, WROTE, READ } what; /* outside of what is declared */
    const struct image *image;       /* READ: where the result differs */
    uint64_t offset;
    const uint8_t *pattern; /* of two bytes */
};
/* BEFORE and AFTER are known; the others are overwritten. An error is the device's. */
int rf_ranges_judge(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                    struct finding *f);

/* Of the bytes that were filled one whose pattern makes the difference. */
int rf_ranges_find_read(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                        struct finding *f);
void rf_ranges_copy_all(struct rf_ranges *r, enum copy to, enum copy from);
/* Alone, to its end. */
int rf_ranges_run_command(struct rf_stream *stream, const struct rf_command *command);

/* ---- try_ranges.c ---------------------------------------------------------------------------- */

/* As rf_ranges_judge. `d` is what the launch declares. */
int rf_ranges_try(struct rf_ranges *r, const struct attempt *a, const struct declared *d);

#endif
