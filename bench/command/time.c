/* SPDX-License-Identifier: MIT
 *
 * Times of benchmarks: quantiles of samples, processor time, and the seconds of a launch. Called by
 * all benchmarks; calls none of them.
 */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "kernel.h"

#define BATCH_S 2e-3 /* short launches are timed in batches of about this */
#define BATCH_MOST 200
#define BUDGET_S 3.0 /* for one row; then fewer samples are taken */
#define SAMPLES_LEAST 3

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench_times bench_quantiles(double *samples, int count)
{
    qsort(samples, (size_t)count, sizeof(*samples), compare);
    int high = (count * 99 + 99) / 100 - 1;
    return (struct bench_times){
        .best = samples[0], .p50 = samples[count / 2], .p99 = samples[high]};
}

double bench_processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* `count` launches in one recording, so that the host submits once. */
static int time_batch(struct rf_stream *stream, int (*launch)(void *), void *user, int count,
                      int samples, double *seconds, double *work)
{
    struct rf_recording *recording = NULL;
    int rc = rf_record_begin(stream);
    for (int i = 0; i < count && rc == 0; i++)
        rc = launch(user);
    if (rc < 0) {
        return rf_record_end(stream, NULL) < 0 ? -1 : rc;
    }
    rc = rf_record_end(stream, &recording);
    for (int i = 0; i < samples && rc == 0; i++) {
        uint64_t start = rf_now_ns();
        double before = bench_processor_seconds();
        rc = rf_record_replay(stream, recording);
        if (rc == 0)
            rc = rf_stream_wait(stream);
        seconds[i] = (double)(rf_now_ns() - start) / 1e9 / count;
        *work = fmin(*work, (bench_processor_seconds() - before) / count);
    }
    rf_recording_destroy(recording);
    return rc;
}

int bench_time(struct rf_stream *stream, const struct bench_options *o, int (*launch)(void *user),
               void *user, struct bench_seconds *out)
{
    double first[2], work = INFINITY, *seconds = calloc((size_t)o->samples, sizeof(*seconds));
    int rc = seconds ? time_batch(stream, launch, user, 1, 2, first, &work) : RF_ENOMEM;
    double once = rc == 0 ? fmax(first[1], 1e-7) : 1;
    int batch = (int)fmin(fmax(BATCH_S / once, 1), BATCH_MOST);
    int samples = (int)fmax(BUDGET_S / (once * batch), SAMPLES_LEAST);
    samples = samples < o->samples ? samples : (int)o->samples;
    if (rc == 0)
        rc = time_batch(stream, launch, user, batch, samples, seconds, &work);
    if (rc == 0) {
        out->work = work;
        out->median = bench_quantiles(seconds, samples).p50;
        out->best = seconds[0]; /* they are sorted now */
    }
    free(seconds);
    return rc;
}
