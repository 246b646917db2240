/* SPDX-License-Identifier: MIT
 *
 * The cost of passing private memory from one core to another, as bare loops: two processes, each
 * bound to a core, exchange BYTES in both directions. Each copies its data into a slot of shared
 * memory, and then the other's out of its slot; or it reads them in the other process
 * (process_vm_readv). Slots rotate in an area of a given size: if that is larger than the private
 * caches, lines have been evicted before they are rewritten. "streamed": written past the caches.
 * Every copy is timed with its wait. Prints medians in microseconds; -1 if the data were wrong or
 * reads are not permitted.
 *
 *   slots [REWRITES]      1: the data are written before each exchange, as programs do (0)
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

enum { LINE = 64, SAMPLES = 301, MOST = 256 << 10, AREA = 4 << 20 };

static const struct way {
    const char *name;
    size_t area; /* 0: the same slot again and again */
    bool streamed, reads;
} ways[] = {{"same", 0, false, false},        {"512 KiB", 512 << 10, false, false},
            {"1 MiB", 1 << 20, false, false}, {"2 MiB", 2 << 20, false, false},
            {"4 MiB", AREA, false, false},    {"streamed", 2 << 20, true, false},
            {"reads", 0, false, true}};
enum { WAYS = sizeof(ways) / sizeof(*ways) };

struct counter {
    _Alignas(LINE) atomic_ulong value;
};

/* Shared by both; [process] is the writer. */
struct shared {
    struct counter at[2];
    pid_t process[2];
    unsigned char *data[2];
    _Alignas(4096) unsigned char area[2][AREA];
};

struct bench {
    struct shared *shared;
    int me, other;
    unsigned long steps;
    unsigned char *out, *in;
    bool rewrites;
};

static void meet(struct bench *b)
{
    atomic_store_explicit(&b->shared->at[b->me].value, ++b->steps, memory_order_release);
    while (atomic_load_explicit(&b->shared->at[b->other].value, memory_order_acquire) < b->steps)
        continue;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void copy_past_caches(void *to, const void *from, size_t bytes)
{
#if defined(__SSE2__)
    for (size_t i = 0; i < bytes / sizeof(__m128i); i++)
        _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

static void write_slot(unsigned char *slot, const struct bench *b, size_t bytes, bool streamed)
{
    if (streamed)
        copy_past_caches(slot, b->out, bytes);
    else
        memcpy(slot, b->out, bytes);
}

static void read_other(const struct bench *b, size_t bytes)
{
    const struct iovec to = {b->in, bytes}, from = {b->shared->data[b->other], bytes};
    if (process_vm_readv(b->shared->process[b->other], &to, 1, &from, 1, 0) != (ssize_t)bytes)
        memset(b->in, 0, bytes); /* not permitted here; the check reports it */
}

static uint64_t exchange(struct bench *b, const struct way *way, size_t slot, size_t bytes)
{
    meet(b);
    const uint64_t start = now_ns();
    if (!way->reads)
        write_slot(b->shared->area[b->me] + slot, b, bytes, way->streamed);
    meet(b);
    if (way->reads)
        read_other(b, bytes);
    else
        memcpy(b->in, b->shared->area[b->other] + slot, bytes);
    meet(b);
    return now_ns() - start;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double measure(struct bench *b, const struct way *way, size_t bytes)
{
    uint64_t ns[SAMPLES];
    size_t slot = 0;
    bool right = true;
    for (int sample = 0; sample < SAMPLES; sample++) {
        if (b->rewrites || sample == 0)
            memset(b->out, 1 + b->me + 2 * (sample % 100), bytes);
        slot = slot + bytes <= way->area ? slot : 0;
        ns[sample] = exchange(b, way, slot, bytes);
        const int of = b->rewrites ? sample % 100 : 0;
        right = right && b->in[bytes - 1] == 1 + b->other + 2 * of;
        slot += bytes;
    }
    qsort(ns, SAMPLES, sizeof(*ns), compare);
    return right ? (double)ns[SAMPLES / 2] * 1e-3 : -1;
}

static void bind_to_core(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static void run(struct bench *b)
{
    bind_to_core(b->me);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    b->shared->process[b->me] = getpid();
    b->shared->data[b->me] = b->out;
    for (size_t bytes = 1024; bytes <= MOST; bytes *= 2) {
        if (b->me == 0)
            printf("%8zu", bytes);
        for (int way = 0; way < WAYS; way++) {
            const double us = measure(b, &ways[way], bytes);
            if (b->me == 0)
                printf(" %9.2f", us);
        }
        if (b->me == 0)
            printf("\n");
    }
}

int main(int argc, char **argv)
{
    struct bench b = {
        .out = malloc(MOST), .in = malloc(MOST), .rewrites = argc > 1 && strcmp(argv[1], "0") != 0};
    b.shared =
        mmap(NULL, sizeof(*b.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b.shared == MAP_FAILED || !b.in || !b.out) {
        fprintf(stderr, "slots: no memory\n");
        return 1;
    }
    printf("%8s", "bytes");
    for (int way = 0; way < WAYS; way++)
        printf(" %9s", ways[way].name);
    printf("\n");
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) {
        fprintf(stderr, "slots: no second process\n");
        return 1;
    }
    b.me = child == 0;
    b.other = !b.me;
    run(&b);
    if (b.me == 0)
        wait(NULL);
    return 0;
}
