/* SPDX-License-Identifier: MIT
 *
 * All-gather and all-reduce of private memory by two processes of one host, as bare loops: no
 * messages, checks or waits for failures. They are yardsticks, not bounds. Through slots of shared
 * memory every byte is copied twice; the system's process_vm_readv copies it once. Each process is
 * bound to a core of its own. Prints medians of the slower process's time, in microseconds; -1
 * where the result was wrong or reads are not permitted.
 *
 *   private_memory [BYTES...]      (of the whole; 4096 to 4194304)
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE = 64,
    SAMPLES = 51,
    SLOT = 64 << 10,
    SLOTS = 16,
    MOST = 64 << 20,
    BATCH_BYTES = 1 << 18
};
enum way { GATHER_SLOTS, GATHER_READS, SUM_FLAT, SUM_HALVES, WAYS };

struct counter {
    _Alignas(LINE) atomic_ulong value;
};

/* Shared by both. [process] where it writes. */
struct shared {
    struct counter written[2], second[2], taken[2], here[2];
    double seconds[2][SAMPLES];
    pid_t process[2];
    unsigned char *in[2];
    _Alignas(4096) unsigned char slots[2][2][SLOTS][SLOT]; /* second: of results */
};

struct bench {
    struct shared *shared;
    int me, other;
    size_t bytes;
    unsigned char *in, *out;
    unsigned long written, second, taken, here;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void publish(struct counter *counter, unsigned long value)
{
    atomic_store_explicit(&counter->value, value, memory_order_release);
}

static void await(struct counter *counter, unsigned long value)
{
    while (atomic_load_explicit(&counter->value, memory_order_acquire) < value)
        continue;
}

static void meet(struct bench *b)
{
    publish(&b->shared->here[b->me], ++b->here);
    await(&b->shared->here[b->other], b->here);
}

static void add(void *out, void *copy, const void *x, const void *y, size_t bytes)
{
    float *restrict to = out, *restrict also = copy;
    const float *restrict a = x, *restrict b = y;
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        to[i] = a[i] + b[i];
    if (also)
        memcpy(also, to, bytes);
}

/* A slot may be written again once the other process has taken what was in it. */
static unsigned char *next_slot(struct bench *b, int process, int set)
{
    if (process == b->me && set == 0 && b->taken >= SLOTS)
        await(&b->shared->taken[b->other], b->taken - SLOTS + 1);
    return b->shared->slots[process][set][b->taken % SLOTS];
}

static void gather_by_slots(struct bench *b)
{
    const size_t half = b->bytes / 2;
    for (size_t at = 0; at < half; at += SLOT) {
        const size_t part = half - at < SLOT ? half - at : SLOT;
        memcpy(next_slot(b, b->me, 0), b->in + at, part);
        publish(&b->shared->written[b->me], ++b->written);
        memcpy(b->out + (size_t)b->me * half + at, b->in + at, part);
        await(&b->shared->written[b->other], b->written);
        memcpy(b->out + (size_t)b->other * half + at, next_slot(b, b->other, 0), part);
        publish(&b->shared->taken[b->me], ++b->taken);
    }
}

static void gather_by_reads(struct bench *b)
{
    const size_t half = b->bytes / 2;
    publish(&b->shared->written[b->me], ++b->written);
    memcpy(b->out + (size_t)b->me * half, b->in, half);
    await(&b->shared->written[b->other], b->written);
    const struct iovec to = {b->out + (size_t)b->other * half, half};
    const struct iovec from = {b->shared->in[b->other], half};
    if (process_vm_readv(b->shared->process[b->other], &to, 1, &from, 1, 0) != (ssize_t)half)
        memset(b->out, 0, b->bytes); /* not permitted here, which the check finds */
    publish(&b->shared->taken[b->me], ++b->taken);
    await(&b->shared->taken[b->other], b->taken);
}

static void sum_flat(struct bench *b)
{
    for (size_t at = 0; at < b->bytes; at += SLOT) {
        const size_t part = b->bytes - at < SLOT ? b->bytes - at : SLOT;
        memcpy(next_slot(b, b->me, 0), b->in + at, part);
        publish(&b->shared->written[b->me], ++b->written);
        await(&b->shared->written[b->other], b->written);
        add(b->out + at, NULL, b->in + at, next_slot(b, b->other, 0), part);
        publish(&b->shared->taken[b->me], ++b->taken);
    }
}

/* Each process adds one half up. */
static void sum_halves(struct bench *b)
{
    const size_t half = b->bytes / 2, mine = (size_t)b->me * half, theirs = half - mine;
    for (size_t at = 0; at < half; at += SLOT) {
        const size_t part = half - at < SLOT ? half - at : SLOT;
        memcpy(next_slot(b, b->me, 0), b->in + theirs + at, part);
        publish(&b->shared->written[b->me], ++b->written);
        await(&b->shared->written[b->other], b->written);
        add(b->out + mine + at, next_slot(b, b->me, 1), b->in + mine + at,
            next_slot(b, b->other, 0), part);
        publish(&b->shared->second[b->me], ++b->second);
        await(&b->shared->second[b->other], b->second);
        memcpy(b->out + theirs + at, next_slot(b, b->other, 1), part);
        publish(&b->shared->taken[b->me], ++b->taken);
    }
}

static void (*const ways[WAYS])(struct bench *) = {gather_by_slots, gather_by_reads, sum_flat,
                                                   sum_halves};

static float value(size_t i, int process)
{
    return (float)(i % 251 + 7 * (size_t)process);
}

static size_t count_wrong(const struct bench *b, enum way way)
{
    const size_t count = b->bytes / sizeof(float);
    const float *out = (const float *)(const void *)b->out;
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += out[i] != (way >= SUM_FLAT ? value(i, 0) + value(i, 1)
                                            : value(i % (count / 2), i >= count / 2));
    return wrong;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Microseconds; negative: the result was wrong. */
static double measure(struct bench *b, enum way way)
{
    const int calls = b->bytes < BATCH_BYTES ? (int)(BATCH_BYTES / b->bytes) : 1;
    double seconds[SAMPLES];
    for (int sample = -3; sample < SAMPLES; sample++) {
        meet(b);
        const double start = now_s();
        for (int call = 0; call < calls; call++)
            ways[way](b);
        b->shared->seconds[b->me][sample < 0 ? 0 : sample] = (now_s() - start) / calls;
    }
    meet(b);
    for (int i = 0; i < SAMPLES; i++) {
        const double *of = b->shared->seconds[0], *other = b->shared->seconds[1];
        seconds[i] = of[i] > other[i] ? of[i] : other[i];
    }
    meet(b);
    qsort(seconds, SAMPLES, sizeof(*seconds), compare);
    return count_wrong(b, way) == 0 ? seconds[SAMPLES / 2] * 1e6 : -1;
}

static void run(struct bench *b, size_t bytes)
{
    double us[WAYS];
    b->bytes = bytes / (2 * sizeof(float)) * 2 * sizeof(float);
    for (int way = 0; way < WAYS; way++)
        us[way] = measure(b, (enum way)way);
    if (b->me == 0)
        printf("%10zu %10.2f %10.2f %10.2f %10.2f\n", b->bytes, us[GATHER_SLOTS], us[GATHER_READS],
               us[SUM_FLAT], us[SUM_HALVES]);
}

static void bind_to_core(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
    struct bench b = {.in = malloc(MOST), .out = malloc(MOST)};
    b.shared =
        mmap(NULL, sizeof(*b.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b.shared == MAP_FAILED || !b.in || !b.out) {
        fprintf(stderr, "private_memory: no memory\n");
        return 1;
    }
    printf("%10s %10s %10s %10s %10s\n", "bytes", "gather", "by reads", "sum", "in halves");
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) {
        fprintf(stderr, "private_memory: no second process\n");
        return 1;
    }
    b.me = child == 0;
    b.other = !b.me;
    bind_to_core(b.me);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    for (size_t i = 0; i < MOST / sizeof(float); i++)
        ((float *)(void *)b.in)[i] = value(i, b.me);
    b.shared->process[b.me] = getpid();
    b.shared->in[b.me] = b.in;
    meet(&b);
    for (int i = 1; i < argc; i++) {
        const size_t bytes = strtoul(argv[i], NULL, 0);
        run(&b, bytes < 8 ? 8 : bytes > MOST ? MOST : bytes);
    }
    for (size_t bytes = 4096; argc < 2 && bytes <= 4 << 20; bytes *= 4)
        run(&b, bytes);
    if (b.me == 0)
        wait(NULL);
    return 0;
}
