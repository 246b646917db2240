/* SPDX-License-Identifier: MIT
 *
 * A yardstick: a simple, good all-reduce on libfabric, without any code of ringforge. Tagged
 * messages, all receives posted ahead, 256 KiB segments around a ring; recursive doubling up to 32
 * KiB; busy polling with sched_yield. No contracts, no death detection, no devices. `ringforge
 * bench all_reduce` must be at least as fast, measured at the same time on the same machine. Usage:
 * yardstick [-n RANKS] [-p PROVIDER] [-b BYTES] [-e BYTES] [-f FACTOR] [-i SAMPLES]
 */
#define _GNU_SOURCE
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

#define MAX_RANKS 32
#define SEGMENT (256 * 1024)
#define SHORT (32 * 1024)
#define MAX_SAMPLES 1000

/* Shared by the forked ranks: addresses, a barrier, and times. */
struct shared {
    char address[MAX_RANKS][256];
    atomic_int arrived, round;
    double seconds[MAX_RANKS][MAX_SAMPLES];
    atomic_int wrong;
};

/* One message on its way; the provider may use `context` until it completes. */
struct message {
    struct fi_context2 context;
    int step, segment;
    int receive;
};

struct rank {
    struct shared *shared;
    int rank, ranks;
    struct fid_ep *ep;
    struct fid_cq *cq;
    fi_addr_t peers[MAX_RANKS];
    uint64_t iteration;
    char *data, *temp;
    size_t count; /* floats */
    struct message *messages;
    int used, pending, in_ring;
};

static void check(long rc, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "yardstick: %s: %s\n", what, fi_strerror((int)-rc));
    exit(1);
}

static void barrier(struct rank *r)
{
    int round = atomic_load(&r->shared->round);
    if (atomic_fetch_add(&r->shared->arrived, 1) == r->ranks - 1) {
        atomic_store(&r->shared->arrived, 0);
        atomic_fetch_add(&r->shared->round, 1);
    }
    while (atomic_load(&r->shared->round) == round)
        sched_yield();
}

static void open_fabric(struct rank *r, const char *provider)
{
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = 4096};
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    hints->caps = FI_TAGGED;
    hints->ep_attr->type = FI_EP_RDM;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    int shm = strcmp(provider, "shm") == 0;
    check(fi_getinfo(FI_VERSION(1, 14), shm ? NULL : "127.0.0.1", NULL, shm ? 0 : FI_SOURCE, hints,
                     &info),
          "no such provider");
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    check(fi_av_open(domain, &table, &av, NULL), "fi_av_open");
    check(fi_cq_open(domain, &cq, &r->cq, NULL), "fi_cq_open");
    check(fi_endpoint(domain, info, &r->ep, NULL), "fi_endpoint");
    check(fi_ep_bind(r->ep, &av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(r->ep, &r->cq->fid, FI_SEND | FI_RECV), "fi_ep_bind");
    check(fi_enable(r->ep), "fi_enable");
    size_t bytes = sizeof(r->shared->address[0]);
    check(fi_getname(&r->ep->fid, r->shared->address[r->rank], &bytes), "fi_getname");
    barrier(r);
    for (int i = 0; i < r->ranks; i++)
        if (fi_av_insert(av, r->shared->address[i], 1, &r->peers[i], 0, NULL) != 1)
            check(-FI_EINVAL, "fi_av_insert");
    barrier(r);
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct message *take(struct rank *r);

static uint64_t tag(const struct rank *r, int step, int segment)
{
    return r->iteration << 32 | (uint64_t)step << 20 | (uint64_t)segment;
}

static struct message *next_message(struct rank *r, int step, int segment, int receive)
{
    struct message *m = &r->messages[r->used++];
    m->step = step;
    m->segment = segment;
    m->receive = receive;
    r->pending++;
    return m;
}

static void handle(struct rank *r, struct message *m);

static void post(struct rank *r, int step, int segment, int peer, void *at, size_t bytes,
                 int receive)
{
    struct message *m = next_message(r, step, segment, receive);
    for (;;) {
        ssize_t rc = receive ? fi_trecv(r->ep, at, bytes, NULL, r->peers[peer],
                                        tag(r, step, segment), 0, &m->context)
                             : fi_tsend(r->ep, at, bytes, NULL, r->peers[peer],
                                        tag(r, step, segment), &m->context);
        if (rc == 0)
            return;
        if (rc != -FI_EAGAIN)
            check(rc, receive ? "fi_trecv" : "fi_tsend");
        struct message *done = take(r);
        if (done)
            handle(r, done);
    }
}

static struct message *take(struct rank *r)
{
    struct fi_cq_entry entry;
    ssize_t n = fi_cq_read(r->cq, &entry, 1);
    if (n == 1) {
        r->pending--;
        return entry.op_context;
    }
    if (n != -FI_EAGAIN)
        check(n, "fi_cq_read");
    sched_yield();
    return NULL;
}

/* ---- the ring -------------------------------------------------------------------------------- */

static size_t chunk_first(const struct rank *r, int chunk)
{
    size_t base = r->count / (size_t)r->ranks, rest = r->count % (size_t)r->ranks;
    return base * (size_t)chunk + ((size_t)chunk < rest ? (size_t)chunk : rest);
}

/* Steps 0..N-2 reduce, N-1..2N-3 gather. In step s this rank receives chunk rank-1-s. */
static int chunk_in(const struct rank *r, int step)
{
    return ((r->rank - 1 - step) % r->ranks + 2 * r->ranks) % r->ranks;
}

static size_t part(const struct rank *r, int chunk, int segment, float **at)
{
    size_t first = chunk_first(r, chunk), end = chunk_first(r, chunk + 1);
    size_t from = first + (size_t)segment * (SEGMENT / 4);
    *at = (float *)r->data + from;
    return from >= end ? 0 : (end - from < SEGMENT / 4 ? end - from : SEGMENT / 4);
}

static void handle(struct rank *r, struct message *m)
{
    float *at;
    if (!m->receive || !r->in_ring)
        return;
    size_t n = part(r, chunk_in(r, m->step), m->segment, &at);
    if (m->step < r->ranks - 1) {
        const float *in = (float *)r->temp + (at - (float *)r->data);
        for (size_t i = 0; i < n; i++)
            at[i] += in[i];
    }
    if (m->step < 2 * r->ranks - 3)
        post(r, m->step + 1, m->segment, (r->rank + 1) % r->ranks, at, 4 * n, 0);
}

static void ring(struct rank *r)
{
    int previous = (r->rank + r->ranks - 1) % r->ranks;
    float *at;
    size_t n;
    for (int step = 0; step < 2 * r->ranks - 2; step++)
        for (int k = 0; (n = part(r, chunk_in(r, step), k, &at)) > 0; k++) {
            int gather = step >= r->ranks - 1;
            void *to = gather ? (void *)at : r->temp + ((char *)at - r->data);
            post(r, step, k, previous, to, 4 * n, 1);
        }
    for (int k = 0; (n = part(r, r->rank, k, &at)) > 0; k++)
        post(r, 0, k, (r->rank + 1) % r->ranks, at, 4 * n, 0);
    while (r->pending) {
        struct message *m = take(r);
        if (m)
            handle(r, m);
    }
}

static void doubling(struct rank *r)
{
    float *data = (float *)r->data, *in = (float *)r->temp;
    for (int step = 0, far = 1; far < r->ranks; step++, far *= 2) {
        post(r, step, 0, r->rank ^ far, in, 4 * r->count, 1);
        post(r, step, 0, r->rank ^ far, data, 4 * r->count, 0);
        while (r->pending)
            take(r);
        for (size_t i = 0; i < r->count; i++)
            data[i] += in[i];
    }
}

static void all_reduce(struct rank *r)
{
    r->used = 0;
    r->iteration++;
    r->in_ring = r->count * 4 > SHORT || (r->ranks & (r->ranks - 1)) != 0;
    if (!r->in_ring)
        doubling(r);
    else if (r->ranks > 1)
        ring(r);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static void fill(struct rank *r)
{
    for (size_t i = 0; i < r->count; i++)
        ((float *)r->data)[i] = (float)(r->rank + 1 + (int)(i % 7));
}

static void measure(struct rank *r, size_t bytes, int samples)
{
    r->count = bytes / 4;
    fill(r);
    barrier(r);
    all_reduce(r);
    int base = r->ranks * (r->ranks + 1) / 2;
    for (size_t i = 0; i < r->count; i++)
        if (((float *)r->data)[i] != (float)(base + r->ranks * (int)(i % 7)))
            atomic_fetch_add(&r->shared->wrong, 1);
    memset(r->data, 0, bytes); /* sums of zeros stay numbers */
    int batch = bytes < 65536 ? 50 : bytes < 1 << 20 ? 10 : 1;
    for (int s = 0; s < samples; s++) {
        barrier(r);
        double start = now_s();
        for (int i = 0; i < batch; i++)
            all_reduce(r);
        r->shared->seconds[r->rank][s] = (now_s() - start) / batch;
    }
    barrier(r);
    if (r->rank != 0)
        return;
    double slowest[MAX_SAMPLES];
    for (int s = 0; s < samples; s++) {
        slowest[s] = 0;
        for (int i = 0; i < r->ranks; i++)
            if (r->shared->seconds[i][s] > slowest[s])
                slowest[s] = r->shared->seconds[i][s];
    }
    sort_samples(slowest, (size_t)samples);
    double t = slowest[samples / 2], n = r->ranks;
    printf("%12zu %12zu %11.2f %9.3f %9.3f %7d\n", bytes, r->count, t * 1e6,
           (double)bytes / t / 1e9, (double)bytes / t / 1e9 * 2 * (n - 1) / n,
           atomic_load(&r->shared->wrong));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t least = 4, most = 64 << 20, factor = 8;
    int ranks = 2, samples = 11, option;
    const char *provider = "net";
    while ((option = getopt(argc, argv, "n:p:b:e:f:i:")) != -1) {
        switch (option) {
        case 'n':
            ranks = atoi(optarg);
            break;
        case 'p':
            provider = optarg;
            break;
        case 'b':
            least = strtoul(optarg, NULL, 0);
            break;
        case 'e':
            most = strtoul(optarg, NULL, 0);
            break;
        case 'f':
            factor = strtoul(optarg, NULL, 0);
            break;
        case 'i':
            samples = atoi(optarg);
            break;
        default:
            return 2;
        }
    }
    if (ranks < 1 || ranks > MAX_RANKS || samples < 1 || samples > MAX_SAMPLES || factor < 2 ||
        least < 4) {
        fprintf(stderr, "yardstick: 1 to 32 ranks, 1 to 1000 samples, factor from 2\n");
        return 2;
    }
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rank r = {.shared = shared, .ranks = ranks};
    printf("# yardstick all_reduce, f32 sum, %d ranks, provider %s\n%12s %12s %11s %9s %9s %7s\n",
           ranks, provider, "size(B)", "count", "time(us)", "algbw", "busbw", "#wrong");
    fflush(stdout);
    for (int i = 1; i < ranks && r.rank == 0; i++)
        if (fork() == 0)
            r.rank = i;
    r.data = aligned_alloc(4096, most + 4096);
    r.temp = aligned_alloc(4096, most + 4096);
    size_t segments = (most / SEGMENT + (size_t)ranks) * 4 + 64;
    r.messages = calloc(segments * 2, sizeof(*r.messages));
    if (!r.data || !r.temp || !r.messages)
        check(-FI_ENOMEM, "buffers");
    open_fabric(&r, provider);
    for (size_t bytes = least; bytes <= most; bytes *= factor)
        measure(&r, bytes, samples);
    barrier(&r);
    if (r.rank != 0)
        _exit(0);
    while (wait(NULL) > 0)
        ;
    return atomic_load(&shared->wrong) != 0;
}
