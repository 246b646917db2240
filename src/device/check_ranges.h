/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by check_ranges.c, which checks launches, judge_ranges.c, which judges a
 * launch by a declaration, and try_ranges.c, which tries wrong declarations. The functions for
 * other files of the device are in internal.h.
 */
#ifndef RF_DEVICE_CHECK_RANGES_H
#define RF_DEVICE_CHECK_RANGES_H

#include "internal.h"

enum copy {
    BEFORE, /* before the launch */
    AFTER,  /* after the real run */
    FILLED, /* BEFORE, with a pattern in memory that is not declared */
    NOW,    /* the current memory */
    COPIES
};
struct image {
    const struct rf_buffer *buffer;
    uint8_t *copy[COPIES];
};

struct rf_ranges {
    pthread_mutex_t lock; /* held while a command runs; guards the other members */
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
/* Sorted, and disjoint with gaps between. */
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
    enum { KEPT, WROTE, READ } what; /* outside of the declared ranges */
    const struct image *image;       /* READ: the image where the result differs */
    uint64_t offset;
    const uint8_t *pattern; /* two bytes */
};
/* BEFORE and AFTER are inputs; the other images are overwritten. Returns errors of the device. */
int rf_ranges_judge(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                    struct finding *f);

/* Finds, among the bytes that were filled, one whose pattern changes the result. */
int rf_ranges_find_read(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                        struct finding *f);
void rf_ranges_copy_all(struct rf_ranges *r, enum copy to, enum copy from);
/* Runs a command alone and waits for its end. */
int rf_ranges_run_command(struct rf_stream *stream, const struct rf_command *command);

/* ---- try_ranges.c ---------------------------------------------------------------------------- */

/* Like rf_ranges_judge. `d` is the declaration of the launch. */
int rf_ranges_try(struct rf_ranges *r, const struct attempt *a, const struct declared *d);

#endif
