/* SPDX-License-Identifier: MIT
 *
 * A C loop to compare with the matrix product on CPU devices: tiled, out (n, oc) = in (n, c) times
 * weights (oc, c) transposed, as in llm.c's forward pass, on all processors of the process. Timed
 * in the same run, it shows the speed of a C program on this machine.
 */
#define _GNU_SOURCE /* CPU_COUNT */
#include <pthread.h>
#include <sched.h>

#include "bench/row_loop.h"
#include "kernel.h"

#define MOST_THREADS 64

/* Uses the features of the processor at hand, without a build for it alone. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "fma", "default")))
#else
#define CLONES
#endif

struct part {
    const float *in, *weight;
    float *out;
    int64_t first, end, c, oc; /* rows */
    pthread_t thread;
};

/* All rows of a part, so that the loop is compiled for each kind of processor. */
CLONES static void run_rows(const struct part *p)
{
    for (int64_t r = p->first; r < p->end; r += ROW_LOOP_ROWS)
        row_loop(p->out + r * p->oc, p->in + r * p->c, p->weight, NULL, (int)p->c, (int)p->oc);
}

static void *run_part(void *user)
{
    run_rows(user);
    return NULL;
}

int bench_processors(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < MOST_THREADS ? count : MOST_THREADS;
}

static void run_loop(const struct part *whole)
{
    struct part parts[MOST_THREADS];
    const int count = bench_processors();
    const int64_t blocks = whole->end / ROW_LOOP_ROWS;
    int started = 0;
    for (int i = 0; i < count; i++) {
        parts[i] = *whole;
        parts[i].first = blocks * i / count * ROW_LOOP_ROWS;
        parts[i].end = blocks * (i + 1) / count * ROW_LOOP_ROWS;
    }
    while (started + 1 < count &&
           pthread_create(&parts[started + 1].thread, NULL, run_part, &parts[started + 1]) == 0)
        started++;
    run_part(&parts[0]);
    for (int i = 1; i <= started; i++)
        pthread_join(parts[i].thread, NULL);
    for (int i = started + 1; i < count; i++) /* threads that could not be started */
        run_part(&parts[i]);
}

int bench_loop_time(int64_t n, int64_t c, int64_t oc, int samples, double *seconds, double *work)
{
    n = (n + ROW_LOOP_ROWS - 1) / ROW_LOOP_ROWS * ROW_LOOP_ROWS;
    float *in = calloc((size_t)(n * c), sizeof(float));
    float *weight = calloc((size_t)(oc * c), sizeof(float));
    float *out = calloc((size_t)(n * oc), sizeof(float));
    int rc = in && weight && out ? 0 : RF_ENOMEM;
    struct part whole = {.in = in, .weight = weight, .out = out, .end = n, .c = c, .oc = oc};
    for (int64_t i = 0; rc == 0 && i < n * c; i++)
        in[i] = (float)(i % 7) - 3;
    for (int64_t i = 0; rc == 0 && i < oc * c; i++)
        weight[i] = (float)(i % 5) - 2;
    for (int i = -1; rc == 0 && i < samples; i++) { /* the first one touches the memory */
        uint64_t start = rf_now_ns();
        double before = bench_processor_seconds(), used;
        run_loop(&whole);
        used = bench_processor_seconds() - before;
        if (i < 0)
            continue;
        seconds[i] = (double)(rf_now_ns() - start) / 1e9;
        *work = used < *work ? used : *work;
    }
    free(in);
    free(weight);
    free(out);
    return rc;
}
