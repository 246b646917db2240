/* SPDX-License-Identifier: MIT
 *
 * The latency between two cores of this machine during another measurement. A virtual machine may
 * be moved, which changes all times between cores.
 *
 * Until standard input ends, 50 times a second, a line of the cache goes 192 times from one core to
 * another and back, between two threads. That takes as long as the line does (20 to 80 us on the
 * machine this was written on), and at most 2 ms if one of the threads does not get its core. A
 * line of output is the time of the sample, in seconds of the monotonic clock, and nanoseconds
 * there and back. Exit status 77: the process has only one core. collectives.py reads this.
 */
#define _GNU_SOURCE /* CPU_SET */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

enum { PERIOD_MS = 20, BOUNCES = 32, BATCHES = 6, MOST_MS = 2 };

/* Each on a cache line of its own. */
static _Alignas(128) atomic_uint there;
static _Alignas(128) atomic_uint back;
static _Alignas(128) atomic_bool stop;
static int cores[2];
static double start_s;

static void bind(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/* Both threads begin a period at the same time. Returns its latest end. */
static double begin_period(unsigned period)
{
    const double begin = start_s + period * (PERIOD_MS * 1e-3);
    const struct timespec t = {(time_t)begin, (long)((begin - (double)(time_t)begin) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
    return begin + MOST_MS * 1e-3;
}

/* False: the other thread did not reply in time. */
static bool await(atomic_uint *line, unsigned value, double limit_s)
{
    while (atomic_load_explicit(line, memory_order_acquire) != value)
        if (now_s() > limit_s)
            return false;
    return true;
}

/* A value names the period, so that a late one cannot be taken for the next. */
static void *reply(void *user)
{
    (void)user;
    bind(cores[1]);
    for (unsigned period = 0; !atomic_load(&stop); period++) {
        const double limit_s = begin_period(period);
        for (unsigned i = 1; i <= BOUNCES * BATCHES; i++) {
            if (!await(&there, period << 8 | i, limit_s))
                break;
            atomic_store_explicit(&back, period << 8 | i, memory_order_release);
        }
    }
    return NULL;
}

/* The fastest of the batches, in seconds; 0: the other thread did not reply. */
static double bounce(unsigned period, double limit_s)
{
    double best = 0;
    for (unsigned batch = 0; batch < BATCHES; batch++) {
        const double begin = now_s();
        for (unsigned k = 1; k <= BOUNCES; k++) {
            const unsigned value = period << 8 | (batch * BOUNCES + k);
            atomic_store_explicit(&there, value, memory_order_release);
            if (!await(&back, value, limit_s))
                return best;
        }
        const double once = (now_s() - begin) / BOUNCES;
        best = best == 0 || once < best ? once : best;
    }
    return best;
}

static void *ask(void *user)
{
    (void)user;
    bind(cores[0]);
    for (unsigned period = 0; !atomic_load(&stop); period++) {
        const double seconds = bounce(period, begin_period(period));
        if (seconds > 0)
            printf("%.6f %.1f\n", now_s(), seconds * 1e9);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    cpu_set_t set;
    char byte;
    int found = 0;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
            if (CPU_ISSET(core, &set))
                cores[found++] = core;
    if (found < 2)
        return 77;
    start_s = now_s() + 0.01;
    if (pthread_create(&threads[0], NULL, ask, NULL) != 0)
        return 1;
    const bool both = pthread_create(&threads[1], NULL, reply, NULL) == 0;
    while (both && read(STDIN_FILENO, &byte, 1) > 0)
        continue;
    atomic_store(&stop, true);
    for (int i = 0; i <= both; i++)
        pthread_join(threads[i], NULL);
    return both ? 0 : 1;
}
