/* SPDX-License-Identifier: MIT
 *
 * Shared by the programs of this folder: the flags of `ringforge bench`, its measurement (the
 * median over samples of the time from the first rank's start to the last one's end, short calls in
 * batches, every element checked) and a line of text for each size: bytes, microseconds, wrong
 * elements, and when the samples began and ended, in seconds of the monotonic clock.
 */
#ifndef RF_BENCH_PEER_H
#define RF_BENCH_PEER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../clock.h"

#define PEER_SAMPLE_S 0.001 /* the target duration of a batch */
#define PEER_BATCH 1000     /* calls at most */
#define PEER_WARMUP 4       /* single calls before */

struct peer {
    int rank, ranks, samples;
    size_t least, most;
    double factor;
    int rewrite; /* the input is rewritten before each call */
    const char *op;
    void *user;
    /* One call on `count` f32 of the whole (of all ranks in all_gather and reduce_scatter). */
    void (*call)(struct peer *peer, const float *in, float *out, size_t count);
    double (*largest)(struct peer *peer,
                      double value); /* of all ranks', any sign; also a barrier */
};

/* Element i of rank r's input; sums of it are exact. */
static inline float peer_value(size_t i, int rank)
{
    return (float)(((int)(i % 251) + 7 * rank) % 127 - 63);
}

static inline size_t peer_wrong(const struct peer *p, const float *out, size_t count)
{
    const size_t share = count / (size_t)p->ranks;
    size_t wrong = 0;
    const int gathers = strcmp(p->op, "all_gather") == 0 || strcmp(p->op, "gather") == 0;
    const int scatters = strcmp(p->op, "reduce_scatter") == 0, spreads = p->op[0] == 's';
    if ((strcmp(p->op, "gather") == 0 || strcmp(p->op, "reduce") == 0) && p->rank != 0)
        return 0;
    for (size_t i = 0; i < (scatters || spreads ? share : count); i++) {
        float want = 0;
        if (spreads)
            want = peer_value(i + (size_t)p->rank * share, 0);
        else if (strcmp(p->op, "all_to_all") == 0)
            want = peer_value(i % share + (size_t)p->rank * share, (int)(i / share));
        else if (gathers)
            want = peer_value(i % share, (int)(i / share));
        else if (strcmp(p->op, "broadcast") == 0)
            want = peer_value(i, 0);
        else
            for (int r = 0; r < p->ranks; r++)
                want += peer_value(scatters ? i + (size_t)p->rank * share : i, r);
        wrong += out[i] != want;
    }
    return wrong;
}

/* Rewrites each cache line of the input with the same contents; all ranks equally much. Returns the
 * seconds it took. */
static inline double peer_rewrite(struct peer *p, const float *in, float *out, size_t count)
{
    const size_t share = strcmp(p->op, "all_gather") == 0 || strcmp(p->op, "gather") == 0
                             ? count / (size_t)p->ranks
                             : count;
    volatile char *data =
        (volatile char *)(strcmp(p->op, "broadcast") == 0 ? out : (float *)(size_t)in);
    if (!p->rewrite)
        return 0;
    const double start = now_s();
    for (size_t i = 0; i < share * sizeof(float); i += 64)
        data[i] = data[i];
    return now_s() - start;
}

static inline double peer_batch(struct peer *p, const float *in, float *out, size_t count,
                                int calls)
{
    p->largest(p, 0);
    const double start = now_s() / calls;
    double rewriting = 0;
    for (int i = 0; i < calls; i++) {
        rewriting += peer_rewrite(p, in, out, count);
        p->call(p, in, out, count);
    }
    const double end = (now_s() - rewriting) / calls;
    return p->largest(p, end) + p->largest(p, -start);
}

/* The number of calls in a batch, found as `ringforge bench` does. Ranks that have just started,
 * and share cores, take ten times as long as a moment later. In a batch of few calls a late rank
 * finds everything in the system's buffers, and no rank's time includes the wait for it. */
static inline int peer_calls(struct peer *p, const float *in, float *out, size_t count)
{
    int calls = 1;
    double once = 0;
    for (int i = 0; i < PEER_WARMUP; i++)
        once = peer_batch(p, in, out, count, 1);
    for (int i = 0; i < 3; i++) {
        const double fit = PEER_SAMPLE_S / once;
        const int wanted = fit < 1 ? 1 : fit > PEER_BATCH ? PEER_BATCH : (int)fit;
        if (wanted <= calls)
            break;
        calls = wanted < 10 * calls ? wanted : 10 * calls;
        once = peer_batch(p, in, out, count, calls);
    }
    return calls;
}

static inline void peer_measure(struct peer *p, size_t bytes)
{
    const size_t ranks = (size_t)p->ranks;
    const int whole = strcmp(p->op, "all_reduce") == 0 || strcmp(p->op, "broadcast") == 0 ||
                      strcmp(p->op, "reduce") == 0;
    size_t count = bytes / sizeof(float);
    if (!whole) /* rounded up, as ringforge does */
        count = (count + ranks - 1) / ranks * ranks;
    if (count == 0)
        return;
    float *in = (float *)malloc(count * sizeof(*in)), *out = (float *)malloc(count * sizeof(*out));
    double *times = (double *)malloc((size_t)p->samples * sizeof(*times));
    if (!in || !out || !times) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        in[i] = peer_value(i, p->rank);
        out[i] = strcmp(p->op, "broadcast") == 0 && p->rank == 0 ? in[i] : -1;
    }
    p->call(p, in, out, count);
    const double wrong = p->largest(p, (double)peer_wrong(p, out, count));
    const int calls = peer_calls(p, in, out, count);
    const double began = now_s();
    for (int s = 0; s < p->samples; s++)
        times[s] = peer_batch(p, in, out, count, calls);
    const double ended = now_s();
    sort_samples(times, (size_t)p->samples);
    if (p->rank == 0)
        printf("%zu %.3f %.0f %.6f %.6f\n", count * sizeof(float), 1e6 * times[p->samples / 2],
               wrong, began, ended);
    fflush(stdout); /* if the run is stopped, these lines remain */
    free(in);
    free(out);
    free(times);
}

/* OP LEAST MOST FACTOR SAMPLES [rewrite], in bytes. 0: invalid. */
static inline int peer_arguments(struct peer *p, int argc, char **argv)
{
    static const char *const ops[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                      "reduce",     "gather",     "scatter",        "all_to_all"};
    p->rewrite = argc == 7 && strcmp(argv[6], "rewrite") == 0;
    if (argc != 6 && !p->rewrite)
        return 0;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (strcmp(argv[1], ops[i]) == 0)
            p->op = ops[i];
    p->least = strtoull(argv[2], NULL, 10);
    p->most = strtoull(argv[3], NULL, 10);
    p->factor = atof(argv[4]);
    p->samples = atoi(argv[5]);
    return p->op && p->least >= 4 && p->factor > 1 && p->samples > 0;
}

static inline void peer_run(struct peer *p)
{
    for (double bytes = (double)p->least; bytes <= (double)p->most; bytes *= p->factor)
        peer_measure(p, (size_t)bytes);
}

#endif
