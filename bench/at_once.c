/* SPDX-License-Identifier: MIT
 *
 * Long collectives of one communicator, one after the other and at once: a broadcast from every
 * rank, a reduction to every rank, four all-reduces, and a gather beside a scatter. Started as the
 * ranks of a job are (`ringforge run --ranks 4 -- at_once`, or by bench/shaped.sh). Rank 0 prints
 * medians over interleaved turns of the slowest rank's time.
 *
 *   at_once [BYTES]      (of each collective; 16777216)
 */
#include <ringforge/ringforge.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"

enum { TURNS = 7, MOST = 32, ALL_REDUCES = 4 };
enum what { BROADCASTS, REDUCTIONS, SUMS, THERE_AND_BACK, WHATS };
static const char *const names[WHATS] = {"a broadcast from every rank", "a reduce to every rank",
                                         "four all_reduce", "a gather and a scatter at rank 0"};

struct bench {
    struct rf_comm *comm;
    int rank, size;
    size_t count;
    float *in[MOST], *out[MOST];
    long wrong;
};

static void must(int rc)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "%s\n", rf_last_error()->message);
    exit(1);
}

static int calls(const struct bench *b, enum what what)
{
    return what == SUMS ? ALL_REDUCES : what == THERE_AND_BACK ? 2 : b->size;
}

static size_t share(const struct bench *b)
{
    return b->count / (size_t)b->size;
}

static void begin(const struct bench *b, enum what what, int i, struct rf_request **request)
{
    const struct rf_coll_opts opts = {.request = request};
    if (what == BROADCASTS)
        must(rf_broadcast(b->comm, b->out[i], b->count, RF_F32, i, &opts));
    else if (what == REDUCTIONS)
        must(rf_reduce(b->comm, b->in[i], b->out[i], b->count, RF_F32, RF_SUM, i, &opts));
    else if (what == THERE_AND_BACK && i == 0)
        must(rf_gather(b->comm, b->in[0], b->out[0], share(b), RF_F32, 0, &opts));
    else if (what == THERE_AND_BACK)
        must(rf_scatter(b->comm, b->in[1], b->out[1], share(b), RF_F32, 0, &opts));
    else
        must(rf_all_reduce(b->comm, b->in[i], b->out[i], b->count, RF_F32, RF_SUM, &opts));
}

static void fill(const struct bench *b, enum what what)
{
    for (int i = 0; i < calls(b, what); i++)
        for (size_t k = 0; k < b->count; k++) {
            b->in[i][k] = (float)(b->rank + i);
            b->out[i][k] = what == BROADCASTS && i == b->rank ? (float)(7 + i) : -1;
        }
}

/* in[i] has rank + i everywhere. */
static void check_there_and_back(struct bench *b)
{
    for (size_t k = 0; k < share(b); k++)
        b->wrong += b->out[1][k] != 1;
    for (size_t k = 0; b->rank == 0 && k < share(b) * (size_t)b->size; k++)
        b->wrong += b->out[0][k] != (float)(k / share(b));
}

static void check(struct bench *b, enum what what)
{
    if (what == THERE_AND_BACK) {
        check_there_and_back(b);
        return;
    }
    const int ranks_sum = b->size * (b->size - 1) / 2;
    for (int i = 0; i < calls(b, what); i++) {
        const float want = what == BROADCASTS ? (float)(7 + i) : (float)(ranks_sum + b->size * i);
        const size_t count = what == REDUCTIONS && i != b->rank ? 0 : b->count;
        for (size_t k = 0; k < count; k++)
            b->wrong += b->out[i][k] != want;
    }
}

static double run(struct bench *b, enum what what, int at_once)
{
    struct rf_request *requests[MOST];
    const int count = calls(b, what);
    fill(b, what);
    must(rf_barrier(b->comm, NULL));
    double seconds = -now_s();
    for (int i = 0; i < count; i++) {
        begin(b, what, i, &requests[i]);
        if (!at_once)
            must(rf_request_wait(requests[i], 0));
    }
    must(rf_request_wait_all(requests, (size_t)count, 0));
    seconds += now_s();
    for (int i = 0; i < count; i++)
        rf_request_free(requests[i]);
    check(b, what);
    must(rf_all_reduce(b->comm, &seconds, &seconds, 1, RF_F64, RF_MAX, NULL));
    return seconds;
}

int main(int argc, char **argv)
{
    const size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 0) : 16 << 20;
    struct bench b = {.count = bytes / sizeof(float)};
    must(rf_comm_open("env:", NULL, &b.comm));
    b.rank = rf_comm_rank(b.comm);
    b.size = rf_comm_size(b.comm);
    const int most = b.size > ALL_REDUCES ? b.size : ALL_REDUCES;
    if (most > MOST || share(&b) == 0) {
        fprintf(stderr, "at_once: at most %d ranks, and at least 4 bytes for each\n", MOST);
        return 2;
    }
    for (int i = 0; i < most; i++) {
        must(rf_comm_alloc(b.comm, b.count * sizeof(float), (void **)&b.in[i]));
        must(rf_comm_alloc(b.comm, b.count * sizeof(float), (void **)&b.out[i]));
    }
    for (int what = 0; what < WHATS; what++) {
        double seconds[2][TURNS];
        for (int turn = -1; turn < TURNS; turn++)
            for (int at_once = 0; at_once < 2; at_once++)
                seconds[at_once][turn < 0 ? 0 : turn] = run(&b, (enum what)what, at_once);
        for (int at_once = 0; at_once < 2; at_once++)
            sort_samples(seconds[at_once], TURNS);
        const double serial = seconds[0][TURNS / 2], at_once = seconds[1][TURNS / 2];
        if (b.rank == 0)
            printf("%-32s of %zu bytes, %d ranks: one after the other %9.2f ms, at once %9.2f ms "
                   "(%.2f)\n",
                   names[what], bytes, b.size, serial * 1e3, at_once * 1e3, serial / at_once);
    }
    double wrong = (double)b.wrong;
    must(rf_all_reduce(b.comm, &wrong, &wrong, 1, RF_F64, RF_SUM, NULL));
    if (b.rank == 0 && wrong > 0)
        printf("%g elements are wrong\n", wrong);
    must(rf_comm_close(b.comm));
    return wrong > 0;
}
