/* SPDX-License-Identifier: MIT
 *
 * Times of programs that measure: two clocks, and samples in their order. For C and C++.
 */
#ifndef RF_BENCH_CLOCK_H
#define RF_BENCH_CLOCK_H

#include <stdlib.h>
#include <time.h>

static inline double clock_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double now_s(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

/* Processor time of all threads of this process: comparable while others use the machine. */
static inline double processor_s(void)
{
    return clock_s(CLOCK_PROCESS_CPUTIME_ID);
}

static inline int clock_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Smallest first: the median is samples[count / 2]. */
static inline void sort_samples(double *samples, size_t count)
{
    qsort(samples, count, sizeof(*samples), clock_compare);
}

#endif
