/* SPDX-License-Identifier: MIT
 *
 * See state.h.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { PERIOD_MS = 20, BOUNCES = 32, BATCHES = 6, MOST_MS = 2 };
/* Two states differ by more than the samples of one. */
#define APART 1.8

struct sample {
    double at_s, ns;
};

struct bench_state {
    /* Each on a line of its own. */
    _Alignas(128) atomic_uint there;
    _Alignas(128) atomic_uint back;
    _Alignas(128) atomic_bool stop;
    int cores[2];
    double start_s;
    pthread_t threads[2];
    struct sample *samples;
    size_t count, capacity;
    double limit_ns, median_ns[2]; /* limit_ns: between the two; 0: there is one */
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_until(double at_s)
{
    const struct timespec t = {(time_t)at_s, (long)((at_s - (double)(time_t)at_s) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
}

static void bind(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static double begin_period(const struct bench_state *s, unsigned period)
{
    const double begin = s->start_s + period * (PERIOD_MS * 1e-3);
    sleep_until(begin);
    return begin;
}

/* False: the other thread has not come in time. */
static bool await(atomic_uint *line, unsigned value, double limit_s)
{
    while (atomic_load_explicit(line, memory_order_acquire) != value)
        if (now_s() > limit_s)
            return false;
    return true;
}

/* Both threads begin a period at the same time. What they write names the period, so that one that
 * was late cannot be taken for the next. */
static void *reply(void *user)
{
    struct bench_state *s = user;
    bind(s->cores[1]);
    for (unsigned period = 0; !atomic_load(&s->stop); period++) {
        const double begin = begin_period(s, period);
        for (unsigned i = 1; i <= BOUNCES * BATCHES; i++) {
            if (!await(&s->there, period << 8 | i, begin + MOST_MS * 1e-3))
                break;
            atomic_store_explicit(&s->back, period << 8 | i, memory_order_release);
        }
    }
    return NULL;
}

/* The quickest of the batches, in seconds; 0: the other thread did not reply. */
static double bounce(struct bench_state *s, unsigned period, double limit_s)
{
    double best = 0;
    for (unsigned batch = 0; batch < BATCHES; batch++) {
        const double begin = now_s();
        for (unsigned k = 1; k <= BOUNCES; k++) {
            const unsigned value = period << 8 | (batch * BOUNCES + k);
            atomic_store_explicit(&s->there, value, memory_order_release);
            if (!await(&s->back, value, limit_s))
                return best;
        }
        const double once = (now_s() - begin) / BOUNCES;
        best = best == 0 || once < best ? once : best;
    }
    return best;
}

static void note(struct bench_state *s, double ns)
{
    if (s->count == s->capacity) {
        const size_t more = s->capacity ? 2 * s->capacity : 1024;
        struct sample *grown = realloc(s->samples, more * sizeof(*grown));
        if (!grown)
            return;
        s->samples = grown;
        s->capacity = more;
    }
    s->samples[s->count++] = (struct sample){now_s(), ns};
}

static void *ask(void *user)
{
    struct bench_state *s = user;
    bind(s->cores[0]);
    for (unsigned period = 0; !atomic_load(&s->stop); period++) {
        const double begin = begin_period(s, period);
        const double seconds = bounce(s, period, begin + MOST_MS * 1e-3);
        if (seconds > 0)
            note(s, seconds * 1e9);
    }
    return NULL;
}

static bool two_cores(int *cores)
{
    cpu_set_t set;
    int found = 0;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return false;
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &set))
            cores[found++] = core;
    return found == 2;
}

struct bench_state *bench_state_begin(void)
{
    struct bench_state *s = aligned_alloc(_Alignof(struct bench_state), sizeof(*s));
    if (!s)
        return NULL;
    *s = (struct bench_state){.start_s = now_s() + 0.01};
    if (!two_cores(s->cores)) {
        free(s);
        return NULL;
    }
    if (pthread_create(&s->threads[0], NULL, ask, s) != 0) {
        free(s);
        return NULL;
    }
    if (pthread_create(&s->threads[1], NULL, reply, s) != 0) {
        atomic_store(&s->stop, true);
        pthread_join(s->threads[0], NULL);
        bench_state_free(s);
        return NULL;
    }
    return s;
}

/* ---- after the end --------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The widest gap between neighbours, between the 2nd and the 98th of a hundred samples, if it is
 * wide enough. */
static void divide(struct bench_state *s, const double *sorted)
{
    const size_t from = s->count / 50, to = s->count - s->count / 50;
    size_t first = 0; /* of the distant ones */
    double widest = 1;
    for (size_t i = from + 1; i < to; i++)
        if (sorted[i] / sorted[i - 1] > widest) {
            widest = sorted[i] / sorted[i - 1];
            first = i;
        }
    s->median_ns[0] = sorted[s->count / 2];
    if (first == 0 || sorted[(first + s->count) / 2] < APART * sorted[first / 2])
        return;
    s->limit_ns = (sorted[first] + sorted[first - 1]) / 2;
    s->median_ns[0] = sorted[first / 2];
    s->median_ns[1] = sorted[(first + s->count) / 2];
}

void bench_state_end(struct bench_state *s)
{
    if (!s)
        return;
    atomic_store(&s->stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(s->threads[i], NULL);
    double *sorted = s->count > 0 ? malloc(s->count * sizeof(*sorted)) : NULL;
    if (!sorted)
        return;
    for (size_t i = 0; i < s->count; i++)
        sorted[i] = s->samples[i].ns;
    qsort(sorted, s->count, sizeof(*sorted), compare);
    divide(s, sorted);
    free(sorted);
}

void bench_state_free(struct bench_state *s)
{
    if (s)
        free(s->samples);
    free(s);
}

bool bench_state_has_two(const struct bench_state *s)
{
    return s && s->limit_ns > 0;
}

double bench_state_ns(const struct bench_state *s, bool distant)
{
    return s ? s->median_ns[distant] : 0;
}

int bench_state_between(const struct bench_state *s, double began, double ended)
{
    bool seen[2] = {false, false};
    if (!s || s->count == 0 || !(began > 0 && ended >= began))
        return -1;
    /* With the last one before and the first one after. */
    size_t i = 0;
    for (size_t end = s->count; end - i > 1;) {
        const size_t middle = i + (end - i) / 2;
        *(s->samples[middle].at_s <= began ? &i : &end) = middle;
    }
    for (; i < s->count; i++) {
        seen[s->limit_ns > 0 && s->samples[i].ns > s->limit_ns] = true;
        if (s->samples[i].at_s > ended)
            break;
    }
    return seen[0] && seen[1] ? -1 : seen[1];
}
