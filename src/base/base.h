/* SPDX-License-Identifier: MIT
 *
 * Functions that every layer uses: errors with a message, logging, the table of environment
 * variables, memory with failure injection for tests, the clock, and counter-based random numbers.
 */
#ifndef RF_BASE_BASE_H
#define RF_BASE_BASE_H

#include <pthread.h>
#include <ringforge/status.h>
#include <ringforge/types.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fail.c: called where an error is detected; callers return the status unchanged ---------- */

/* rf_fail is public. The same for an error caused by a rank: */
int rf_fail_rank(int status, int rank, const char *format, ...) RF_PRINTF(3, 4);
/* Stores a copy of a whole error; returns error->status. Used to pass errors between threads. */
int rf_fail_error(const struct rf_error *error);
/* Errors that this thread has stored so far: tells whether a user's function has said why it
 * failed.
 */
uint64_t rf_fail_count(void);

#define RETURN_IF_ERROR(call)                                                                      \
    do {                                                                                           \
        int return_status_ = (call);                                                               \
        if (return_status_ < 0)                                                                    \
            return return_status_;                                                                 \
    } while (0)

/* ---- log.c ----------------------------------------------------------------------------------- */

/* RF_LOG=component:level,..., or one level for all components. Components: "device", "comm",
 * "transport", ... The level is how often a line appears: 1 once per process, 2 once per object, 3
 * once per step, 4 once per message. 0: warnings, which always appear. */
void rf_log(const char *component, int level, const char *format, ...) RF_PRINTF(3, 4);
bool rf_log_on(const char *component, int level);
uint64_t rf_thread_number(void); /* of this thread: from 1, never reused by another thread */
int rf_thread_rank(void);        /* set for this thread, or RANK of the environment, or -1 */

/* ---- env.c: the only place that reads environment variables ---------------------------------- */

/* The value, or the table's default, which may be NULL. name must be in the table (or one of the
 * launcher variables listed there). */
const char *rf_env(const char *name);
/* Returns 0 on success. An unset variable without a default gives `absent`. Fails if the text is
 * not a number or outside the range of its row. */
int rf_env_int(const char *name, long absent, long *out);
/* The next variable whose name begins with `prefix`, as "NAME=value". *index begins at 0. False: no
 * more. */
bool rf_env_next(const char *prefix, int *index, char *text, size_t bytes);
/* RF_EINVAL: one of the library's own variables, RF_*, has an invalid value; the message lists the
 * valid ones. */
int rf_env_check(void);

/* ---- input.c --------------------------------------------------------------------------------- */

/* Opens a regular file for reading, and never blocks. NULL: *why tells its actual kind (a folder, a
 * pipe, a socket, a device), or the system's error; errno is ENOENT if it does not exist. */
FILE *rf_open_input(const char *path, const char **why);

/* ---- alloc.c --------------------------------------------------------------------------------- */

void *rf_alloc(size_t bytes); /* zeroed; NULL when out of memory, or when a test makes it fail */
void *rf_alloc_aligned(size_t bytes, size_t alignment); /* zeroed; freed with rf_free */
void *rf_realloc(void *memory, size_t bytes);
char *rf_strdup(const char *text);
void rf_free(void *memory);
/* Tests: the Nth allocation from now on fails (0: none). Returns the number of allocations since
 * the last call. */
uint64_t rf_alloc_fail_at(uint64_t nth);
/* Tests: size of the largest allocation by any thread since the last call. */
uint64_t rf_alloc_largest(void);

/* ---- copy.c ---------------------------------------------------------------------------------- */

/* memcpy of a part of `whole` bytes. Bypasses the caches if the whole is larger than they are. */
void rf_copy_bytes(void *to, const void *from, size_t bytes, size_t whole);
/* Always bypasses the caches. Call rf_copy_fence before other threads may read. */
void rf_copy_past(void *to, const void *from, size_t bytes);
/* The same, to `offset` of several destinations at once. */
void rf_copy_past_all(unsigned char *const *destinations, int count, size_t offset,
                      const void *from, size_t bytes);
void rf_copy_fence(void);
enum { RF_PAST_CACHES = 16 << 20 };

/* ---- flush.c --------------------------------------------------------------------------------- */

/* Whether this processor can treat subnormal numbers as 0. */
bool rf_can_flush(void);
/* From here to rf_flush_end, on this thread, f32 and f64 operands and results that are subnormal
 * are 0 of their sign. Without `flush` nothing changes. Returns the state for rf_flush_end. */
uint64_t rf_flush_begin(bool flush);
void rf_flush_end(bool flush, uint64_t before);

/* ---- clock.c: rf_now_ns is public ------------------------------------------------------------ */

void rf_sleep_ns(uint64_t ns);
/* A condition variable on rf_now_ns's clock, so that setting the system time ends no wait. */
void rf_cond_init(pthread_cond_t *cond);
/* Waits, with the lock held, until woken or until rf_now_ns reaches until_ns. Returns false in the
 * latter case. UINT64_MAX: no limit. */
bool rf_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns);
/* Callers give times in seconds; everywhere else they are in nanoseconds. UINT64_MAX ns means
 * never: for infinity, and for times that the clock cannot represent (584 years). Returns 0 for
 * negative numbers and NaN, which rf_check_seconds refuses in public calls. */
uint64_t rf_seconds_to_ns(double seconds);
uint64_t rf_add_ns(uint64_t time_ns, uint64_t more_ns); /* saturates at UINT64_MAX */
uint64_t rf_after_s(double seconds);                    /* the time `seconds` from now */
/* The timeout of poll(): whole milliseconds, rounded up, at most INT_MAX; -1 for never. */
int rf_poll_ms(uint64_t until_ns, uint64_t now_ns);
/* Returns RF_EINVAL, with a message that names `call`, for a timeout that is negative or not a
 * number. */
int rf_check_seconds(const char *call, double seconds);

/* ---- philox.c: Salmon et al. 2011, Philox4x32-10 --------------------------------------------- */

/* Four random words as a function of key (seed) and counter only. */
void rf_philox(uint64_t seed, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]);
/* A Normal(0,1) number for one element; it does not depend on the layout. */
float rf_philox_normal(uint64_t seed, uint64_t site, uint64_t index);
/* Uniform in [0, bound). */
uint64_t rf_philox_below(uint64_t seed, uint64_t site, uint64_t index, uint64_t bound);

/* ---- hash.c ---------------------------------------------------------------------------------- */

uint32_t rf_hash32(const void *data, size_t bytes, uint32_t seed);
/* For messages: as fast as memory. The same value on every processor. */
uint32_t rf_checksum(const void *data, size_t bytes, uint32_t seed);
/* Tests: with or without the processor's CRC instruction. */
uint32_t rf_checksum_by(bool quick, const void *data, size_t bytes, uint32_t seed);

/* ---- trace.c: public in ringforge.h; these are for the gathering in comm --------------------- */

struct rf_trace_item {
    char track[24], name[48];
    uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC of this host */
    int rank;
};
/* Copies up to capacity events out. Returns the number of events. */
size_t rf_trace_items(struct rf_trace_item *items, size_t capacity);

#endif
