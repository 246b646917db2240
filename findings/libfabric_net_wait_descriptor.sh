#!/bin/sh
# SPDX-License-Identifier: MIT
#
# libfabric 1.17.0 (Debian 12), provider "net": once something has completed, the descriptor of a completion queue
# (FI_GETWAIT) stays readable for good. fi_cq_read is empty and fi_trywait says that one may wait, yet every poll
# returns at once: a thread that waits as fi_poll(3) tells spins. One fi_cq_sread with a timeout takes the signal
# away, until the next completion. Provider "tcp;ofi_rxm" waits.
#
# Expected before it was run: after fi_trywait returns 0, poll blocks until there is an event.
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
cat >wait.c <<'C'
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "%s: %s\n", what, fi_strerror(-rc));
    exit(2);
}

int main(int argc, char **argv)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 4};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .size = 64, .wait_obj = FI_WAIT_FD};
    struct fi_context2 contexts[2];
    struct fi_cq_entry entry;
    static char name[256], from[8] = "message", to[8];
    size_t bytes = sizeof(name);
    fi_addr_t self;
    int fd = -1, rc;
    (void)argc;
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL;
    hints->fabric_attr->prov_name = strdup(argv[1]);
    must(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info), "fi_getinfo");
    must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    must(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    must(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
    must(fi_control(&cq->fid, FI_GETWAIT, &fd), "FI_GETWAIT");
    must(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
    must(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(ep), "fi_enable");
    must(fi_getname(&ep->fid, name, &bytes), "fi_getname");
    fi_av_insert(av, name, 1, &self, 0, NULL);
    must((int)fi_recv(ep, to, sizeof(to), NULL, FI_ADDR_UNSPEC, &contexts[0]), "fi_recv");
    while ((rc = (int)fi_send(ep, from, sizeof(from), NULL, self, &contexts[1])) == -FI_EAGAIN)
        fi_cq_read(cq, NULL, 0);
    must(rc, "fi_send");
    for (int done = 0; done < 2;)
        done += fi_cq_read(cq, &entry, 1) == 1;
    int readable = 0;
    for (int k = 0; k < 100; k++) {
        struct fid *list[] = {&cq->fid};
        struct pollfd p = {.fd = fd, .events = POLLIN};
        while (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN)
            ;
        if (fi_trywait(fabric, list, 1) == 0)
            readable += poll(&p, 1, 2) == 1;
    }
    printf("%s: %d of 100 waits end at once, with nothing to read\n", argv[1], readable);
    struct fid *list[] = {&cq->fid};
    fi_cq_sread(cq, &entry, 1, NULL, 20);
    int after = 0;
    for (int k = 0; k < 100; k++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        while (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN)
            ;
        if (fi_trywait(fabric, list, 1) == 0)
            after += poll(&p, 1, 2) == 1;
    }
    printf("%s: after one fi_cq_sread %d of 100\n", argv[1], after);
    return readable == 100 && after == 0;
}
C
gcc -O2 -I usr/include wait.c -o wait "$library/libfabric.so.1" -Wl,--allow-shlib-undefined
export LD_LIBRARY_PATH="$folder/$library"
spins() {
    if ./wait "$1" >&2; then echo no; else echo yes; fi
}
test "$(spins net)" = yes
test "$(spins 'tcp;ofi_rxm')" = no
