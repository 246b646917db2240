/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by fabric.c (endpoints and messages), fabric_open.c (agreement among ranks),
 * fabric_select.c (choice of the provider), window.c (one-sided operations) and library.c (loading
 * libfabric). Only these include it.
 */
#ifndef RF_TRANSPORT_FABRIC_H
#define RF_TRANSPORT_FABRIC_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "../matching.h"
#include "../providers.h"

#define RF_FABRIC_API FI_VERSION(1, 17)

struct rf_fabric_region {
    struct fid_mr *mr;
    const char *base;
    size_t bytes;
    void *context; /* of the only message it was made for; NULL = made by register_memory */
    struct rf_fabric_region *next;
};

struct rf_fabric {
    struct rf_transport transport; /* first member */
    struct fid_ep *ep;
    struct fid_cq *cq;
    fi_addr_t *peers; /* [size] */
    size_t max_message;
    bool register_always; /* FI_MR_LOCAL */
    bool cancelled;
    bool left; /* libfabric's objects stay open: see abandon() */

    /* Messages to oneself bypass the provider: not every provider supports them. */
    struct rf_self self;

    struct rf_fabric_region *regions;
    uint64_t next_key;

    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    bool one_sided;  /* of a window, without messages */
    int wait_fd;     /* readable if the queue may have something: see fi_trywait; -1 = none */
    unsigned traits; /* RF_PROVIDER_* */
    char name[64];
    int mark; /* see rf_leftovers_mark; -1 = none */
};

/* library.c: the functions that libfabric exports; all others are reached through its objects. Its
 * own declarations of these (fi_getinfo, ...) must not be called: it is not linked. */
struct rf_ofi {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info); /* of NULL: a new one */
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int error);
    uint32_t (*version)(void);
};
/* Loads libfabric on the first call; the program's signal dispositions are preserved. Thread-safe.
 * RF_ENET: not installed. */
RF_MUST_CHECK int rf_ofi_load(void);
/* Valid once rf_ofi_load has returned 0. */
const struct rf_ofi *rf_ofi(void);
const void *rf_ofi_address(void); /* some address within it */

/* fabric_select.c: the best fi_info on the interface of `address` (numeric IP), and one sentence
 * with the reason. */
int rf_fabric_select(const struct rf_opening *opening, const char *address, struct fi_info **out);

/* fabric.c. open takes ownership of info. The caller then fills in the peers. */
int rf_fabric_open(const struct rf_opening *opening, struct fi_info *info, int rank, int size,
                   struct rf_fabric **out);
void rf_fabric_close(struct rf_fabric *f);
/* The descriptor of memory for one operation; NULL if the provider needs none. With a negative
 * status or rf_fabric_release, which follows the operation's end, it is dropped. */
RF_MUST_CHECK int rf_fabric_describe(struct rf_fabric *f, const void *buffer, size_t bytes,
                                     void *context, void **out);
void rf_fabric_release(struct rf_fabric *f, void *context);
/* The status for an error of a completion queue. */
int rf_fabric_status(int fi_code);
/* leftovers.c: for libfabric's shm. Removes the files of processes that have ended. */
void rf_leftovers_clear(void);
/* Marks the file of an open endpoint, by its address, for removal after this process has ended.
 * Returns a descriptor to close after the endpoint; -1: no such file. */
int rf_leftovers_mark(const char *address);
/* Tests: registers memory for every message, as providers with FI_MR_LOCAL require. */
void rf_fabric_register_always(struct rf_transport *t);

#endif
