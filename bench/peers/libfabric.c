/* SPDX-License-Identifier: MIT
 *
 * The floor under ringforge's network transport: collectives as bare libfabric calls, straight
 * between the ranks (a broadcast along a binomial tree), without headers, checks or waits for
 * failures. If it is slower than a peer, too, the provider is the reason. Measured like the other
 * programs of this folder; starts its own ranks on this machine.
 *
 *   ./libfabric native 4 gather 4 16384 4 11
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

enum { RANKS = 64, NAME_BYTES = 128 };

/* Memory that the ranks share. */
struct shared {
    atomic_uint arrived, round;
    char names[RANKS][NAME_BYTES];
    double seconds[RANKS];
};

struct end {
    struct shared *shared;
    struct fid_ep *ep;
    struct fid_cq *cq;
    fi_addr_t peers[RANKS];
    uint64_t tag;
    int posted;
    float *parts; /* of a sum */
};

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "libfabric: %s failed\n", what);
    exit(1);
}

static void barrier(struct shared *s, int ranks)
{
    const unsigned round = atomic_load(&s->round);
    if (atomic_fetch_add(&s->arrived, 1) + 1 == (unsigned)ranks) {
        atomic_store(&s->arrived, 0);
        atomic_store(&s->round, round + 1);
    }
    while (atomic_load(&s->round) == round)
        sched_yield();
}

static double largest(struct peer *p, double seconds)
{
    struct shared *s = ((struct end *)p->user)->shared;
    s->seconds[p->rank] = seconds;
    barrier(s, p->ranks);
    double most = s->seconds[0];
    for (int r = 1; r < p->ranks; r++)
        most = s->seconds[r] > most ? s->seconds[r] : most;
    barrier(s, p->ranks);
    return most;
}

/* ---- messages: posted, then all waited for --------------------------------------------------- */

static int progress(struct end *e)
{
    struct fi_cq_tagged_entry entries[16];
    const ssize_t got = fi_cq_read(e->cq, entries, 16);
    must(got >= 0 || got == -FI_EAGAIN, "fi_cq_read");
    e->posted -= got > 0 ? (int)got : 0;
    return got > 0;
}

static void send_to(struct end *e, int peer, const float *data, size_t count)
{
    ssize_t rc;
    while ((rc = fi_tsenddata(e->ep, data, count * sizeof(*data), NULL, 0, e->peers[peer], e->tag,
                              NULL)) == -FI_EAGAIN)
        progress(e);
    must(rc == 0, "fi_tsenddata");
    e->posted++;
}

static void receive_from(struct end *e, int peer, float *data, size_t count)
{
    ssize_t rc;
    while ((rc = fi_trecv(e->ep, data, count * sizeof(*data), NULL, e->peers[peer], e->tag, 0,
                          NULL)) == -FI_EAGAIN)
        progress(e);
    must(rc == 0, "fi_trecv");
    e->posted++;
}

static void wait_all(struct end *e)
{
    while (e->posted > 0)
        if (!progress(e))
            sched_yield();
}

/* ---- collectives; rank 0 is the root --------------------------------------------------------- */

static void broadcast(const struct peer *p, struct end *e, float *out, size_t count)
{
    int bit = 1;
    while (bit < p->ranks && !(p->rank & bit))
        bit *= 2;
    if (p->rank > 0) {
        receive_from(e, p->rank - bit, out, count);
        wait_all(e);
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (p->rank + bit < p->ranks)
            send_to(e, p->rank + bit, out, count);
}

static void reduce(const struct peer *p, struct end *e, const float *in, float *out, size_t count)
{
    if (p->rank > 0) {
        send_to(e, 0, in, count);
        return;
    }
    for (int r = 1; r < p->ranks; r++)
        receive_from(e, r, e->parts + (size_t)(r - 1) * count, count);
    wait_all(e);
    memcpy(out, in, count * sizeof(*out));
    for (int r = 1; r < p->ranks; r++)
        for (size_t i = 0; i < count; i++)
            out[i] += e->parts[(size_t)(r - 1) * count + i];
}

/* Sends each rank's piece to its receivers: gather, scatter, all_gather, all_to_all. */
static void exchange(const struct peer *p, struct end *e, const float *in, float *out, size_t share)
{
    const int all = p->op[0] == 'a', scatters = p->op[0] == 's';
    const int personal = scatters || strcmp(p->op, "all_to_all") == 0;
    const int sends = all || scatters == (p->rank == 0), gets = all || scatters != (p->rank == 0);
    const size_t mine = (size_t)p->rank * share;
    for (int i = 1; i < p->ranks && gets; i++) {
        const int r = (p->rank + i) % p->ranks;
        if (all || r == 0 || p->rank == 0)
            receive_from(e, r, scatters ? out : out + (size_t)r * share, share);
    }
    for (int i = 1; i < p->ranks && sends; i++) {
        const int r = (p->rank + i) % p->ranks;
        if (all || r == 0 || p->rank == 0)
            send_to(e, r, personal ? in + (size_t)r * share : in, share);
    }
    if (all || p->rank == 0)
        memcpy(scatters ? out : out + mine, personal ? in + mine : in, share * sizeof(*out));
}

static void call(struct peer *p, const float *in, float *out, size_t count)
{
    struct end *e = p->user;
    e->tag++;
    if (strcmp(p->op, "broadcast") == 0)
        broadcast(p, e, out, count);
    else if (strcmp(p->op, "reduce") == 0)
        reduce(p, e, in, out, count);
    else
        exchange(p, e, in, out, count / (size_t)p->ranks);
    wait_all(e);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void open_end(struct end *e, const struct peer *p, const char *provider)
{
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    must(hints != NULL, "fi_allocinfo");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->cq_data_size = 4;
    /* Native TCP has had two names. */
    if (strcmp(provider, "native") == 0)
        provider = fi_version() < FI_VERSION(1, 18) ? "net" : "tcp";
    hints->fabric_attr->prov_name = strdup(provider);
    must(fi_getinfo(FI_VERSION(1, 11), "127.0.0.1", NULL, FI_SOURCE, hints, &info) == 0,
         "fi_getinfo");
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = RANKS};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .size = 4096};
    must(fi_fabric(info->fabric_attr, &fabric, NULL) == 0, "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL) == 0, "fi_domain");
    must(fi_av_open(domain, &av_attr, &av, NULL) == 0, "fi_av_open");
    must(fi_cq_open(domain, &cq_attr, &e->cq, NULL) == 0, "fi_cq_open");
    must(fi_endpoint(domain, info, &e->ep, NULL) == 0, "fi_endpoint");
    must(fi_ep_bind(e->ep, &av->fid, 0) == 0, "fi_ep_bind");
    must(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV) == 0, "fi_ep_bind");
    must(fi_enable(e->ep) == 0, "fi_enable");
    size_t bytes = NAME_BYTES;
    must(fi_getname(&e->ep->fid, e->shared->names[p->rank], &bytes) == 0, "fi_getname");
    barrier(e->shared, p->ranks);
    for (int r = 0; r < p->ranks; r++)
        must(fi_av_insert(av, e->shared->names[r], 1, &e->peers[r], 0, NULL) == 1, "fi_av_insert");
    fi_freeinfo(hints);
    fi_freeinfo(info);
}

/* A rank that has ended makes no progress on messages that others still receive from it: all stay
 * until the last has arrived. */
static void last_round(struct peer *p, struct end *e)
{
    struct shared *s = e->shared;
    const unsigned round = atomic_load(&s->round);
    if (atomic_fetch_add(&s->arrived, 1) + 1 == (unsigned)p->ranks)
        atomic_store(&s->round, round + 1);
    while (atomic_load(&s->round) == round)
        progress(e);
}

int main(int argc, char **argv)
{
    struct peer p = {.call = call, .largest = largest};
    struct end e = {0};
    p.ranks = argc == 8 ? atoi(argv[2]) : 0;
    if (p.ranks < 2 || p.ranks > RANKS || !peer_arguments(&p, argc - 2, argv + 2) ||
        strcmp(p.op, "all_reduce") == 0 || strcmp(p.op, "reduce_scatter") == 0) {
        fprintf(stderr, "use: libfabric PROVIDER RANKS OP LEAST MOST FACTOR SAMPLES\n");
        return 2;
    }
    e.shared =
        mmap(NULL, sizeof(*e.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    e.parts = malloc((size_t)p.ranks * (p.most + sizeof(float)));
    must(e.shared != MAP_FAILED && e.parts, "memory");
    while (p.rank + 1 < p.ranks && fork() == 0)
        p.rank++;
    p.user = &e;
    open_end(&e, &p, argv[1]);
    peer_run(&p);
    last_round(&p, &e);
    int status = 0;
    if (p.rank + 1 < p.ranks)
        wait(&status);
    return status != 0;
}
