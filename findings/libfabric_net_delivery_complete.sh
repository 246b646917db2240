#!/bin/sh
# SPDX-License-Identifier: MIT
#
# libfabric 1.17.0 (Debian 12), provider "net": an endpoint whose transmit attributes have the default flag
# FI_DELIVERY_COMPLETE, which fi_getinfo grants, completes fi_write while the bytes are not in the target's memory:
# here the target does not poll, the write "completes", and a look into the target's memory finds zeros. The same
# write by fi_writemsg with the flag in the call itself waits for the target, as asked. Provider "tcp;ofi_rxm" waits
# in both.
#
# Expected before it was run: tx_attr->op_flags are the default of every call without flags of its own.
#
# Needs a C compiler and the network. Fails if the behaviour changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq libfabric1=1.17.0-3 libfabric-dev=1.17.0-3 2>/dev/null
for package in *.deb; do
    dpkg -x "$package" .
done
library=$(dirname "$(find . -name 'libfabric.so.1')")
cat >write.c <<'C'
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEY 7

struct end {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_mr *mr;
};
/* In memory of both processes. */
struct shared {
    char name[256];
    size_t name_bytes;
    volatile int state; /* 1: the target is ready; 2: it shall sleep; 3: it sleeps; 4: it may end */
    volatile float target[16];
};

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, fi_strerror(-rc));
    exit(2);
}

static void open_end(struct end *e, const char *provider, struct shared *shared)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = 4};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = 64};
    hints->caps = FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->fabric_attr->prov_name = strdup(provider);
    must(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &e->info), "fi_getinfo");
    if (!(e->info->tx_attr->op_flags & FI_DELIVERY_COMPLETE))
        must(-FI_EOPNOTSUPP, "FI_DELIVERY_COMPLETE");
    must(fi_fabric(e->info->fabric_attr, &e->fabric, NULL), "fi_fabric");
    must(fi_domain(e->fabric, e->info, &e->domain, NULL), "fi_domain");
    must(fi_av_open(e->domain, &av, &e->av, NULL), "fi_av_open");
    must(fi_cq_open(e->domain, &cq, &e->cq, NULL), "fi_cq_open");
    must(fi_endpoint(e->domain, e->info, &e->ep, NULL), "fi_endpoint");
    must(fi_ep_bind(e->ep, &e->av->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(e->ep), "fi_enable");
    must(fi_mr_reg(e->domain, (void *)shared->target, sizeof(shared->target), FI_REMOTE_WRITE, 0, KEY, 0,
                   &e->mr, NULL),
         "fi_mr_reg");
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int poll_once(struct end *e)
{
    struct fi_cq_entry entry;
    return fi_cq_read(e->cq, &entry, 1) == 1;
}

static void target(const char *provider, struct shared *shared)
{
    struct end e = {0};
    open_end(&e, provider, shared);
    shared->name_bytes = sizeof(shared->name);
    must(fi_getname(&e.ep->fid, shared->name, &shared->name_bytes), "fi_getname");
    shared->state = 1;
    while (shared->state < 4) {
        poll_once(&e);
        if (shared->state == 2)
            shared->state = 3;
        while (shared->state == 3)
            usleep(1000);
    }
    _exit(0);
}

static void post(struct end *e, fi_addr_t to, float *value, int flagged, struct fi_context2 *context)
{
    const struct iovec from = {value, sizeof(*value)};
    const struct fi_rma_iov at = {0, sizeof(*value), KEY};
    const struct fi_msg_rma message = {.msg_iov = &from, .iov_count = 1, .addr = to, .rma_iov = &at,
                                       .rma_iov_count = 1, .context = context};
    ssize_t rc;
    do {
        rc = flagged ? fi_writemsg(e->ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION)
                     : fi_write(e->ep, value, sizeof(*value), NULL, to, 0, KEY, context);
        if (rc == -FI_EAGAIN)
            fi_cq_read(e->cq, NULL, 0);
    } while (rc == -FI_EAGAIN);
    must((int)rc, "write");
}

int main(int argc, char **argv)
{
    const char *provider = argv[1];
    const int flagged = argc > 2 && strcmp(argv[2], "flagged") == 0;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct end e = {0};
    static struct fi_context2 contexts[2];
    static float values[2] = {1, 2};
    static struct shared own;
    fi_addr_t to;
    const pid_t child = fork();
    if (child == 0)
        target(provider, shared);
    while (shared->state < 1)
        usleep(1000);
    open_end(&e, provider, &own);
    fi_av_insert(e.av, shared->name, 1, &to, 0, NULL);
    post(&e, to, &values[0], flagged, &contexts[0]); /* the connection is there after it */
    while (!poll_once(&e))
        ;
    for (double begin = now(); shared->target[0] != 1 && now() - begin < 5;)
        fi_cq_read(e.cq, NULL, 0);
    shared->state = 2;
    while (shared->state != 3)
        usleep(1000);
    post(&e, to, &values[1], flagged, &contexts[1]);
    int done = 0;
    for (double begin = now(); !done && now() - begin < 1;)
        done = poll_once(&e);
    printf("%s, %s: %s while the target does not poll; its memory has %s value\n", provider,
           flagged ? "fi_writemsg with the flag" : "fi_write", done ? "completes" : "does not complete",
           shared->target[0] == 2 ? "the new" : "the old");
    const int early = done && shared->target[0] != 2;
    shared->state = 4;
    waitpid(child, NULL, 0);
    return early;
}
C
gcc -O2 -I usr/include write.c -o write "$library/libfabric.so.1" -Wl,--allow-shlib-undefined
export LD_LIBRARY_PATH="$folder/$library"
early() {
    if ./write "$@" >&2; then echo no; else echo yes; fi
}
test "$(early net)" = yes
test "$(early net flagged)" = no
test "$(early 'tcp;ofi_rxm')" = no
