/* SPDX-License-Identifier: MIT
 *
 * Blocks that take a given time and compute nothing: for `ringforge bench overlap` and
 * `bench pipeline`.
 */
#ifndef RF_BENCH_TIMED_H
#define RF_BENCH_TIMED_H

#include <pthread.h>
#include <semaphore.h>

#include "tools/tool.h"

enum { TIMED_CALLS = 512 };

/* What one call of each of a block's functions takes on the device. */
struct timed_seconds {
    double forward, backward_input, backward_weight;
};

/* A call that has ended; times count from timed_watch. All are f64, so that they can be gathered.
 */
struct timed_mark {
    double begin_s, end_s;
    double verb; /* enum rf_verb */
    double micro_batch;
};

/* The arithmetic of one rank's device: a thread that carries out calls in turn. Each begins when
 * its stream has come to it, waits, and lets the stream go on; so the host records ahead, and
 * memory is waited for, as with kernels that take this long. */
struct timed_device {
    struct timed_seconds seconds;
    int64_t channels;             /* f32 of an output, for each token */
    struct rf_timeline *timeline; /* calls that have ended */
    struct timed_call {
        struct rf_point after;
        double seconds; /* negative: there are no more */
        enum rf_verb verb;
        int64_t micro_batch;
    } calls[TIMED_CALLS];
    uint64_t given;
    struct timed_mark marks[TIMED_CALLS]; /* since timed_watch */
    uint64_t marked;
    double zero_s;
    sem_t ready;
    pthread_t thread;
};

/* Blocks of timed_ops have a struct timed_device as `self`, and vary; a step may make at most
 * TIMED_CALLS calls. All seconds are 0 then, and
 * channels 4. A status of the tools. */
int timed_open(const struct tool_command *command, int rank, struct rf_device *device,
               struct timed_device *out);
/* Waits until all calls have ended. */
int timed_wait(struct timed_device *timed);
/* The same, and then marks are of the calls from now on. */
int timed_watch(struct timed_device *timed);
/* After the run, before the device. */
void timed_close(struct timed_device *timed);

extern const struct rf_block_ops timed_ops;

#endif
