/* SPDX-License-Identifier: MIT
 *
 * What a window consists of: window.c (operations), window_open.c. Tests change what peers say.
 */
#ifndef RF_TRANSPORT_OFI_WINDOW_H
#define RF_TRANSPORT_OFI_WINDOW_H

#include <pthread.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "../window.h"
#include "base/base.h"
#include "fabric.h"

/* An operation under way. */
struct rf_window_slot {
    struct fi_context2 context; /* first member: the provider's */
    int rank;
    struct rf_window_slot *next; /* free */
};

/* Where the memory of a rank is, as it has said. */
struct rf_window_peer {
    uint64_t key, base, bytes;
};

enum { RF_WINDOW_DEPTH = 64, RF_WINDOW_SEGMENTS = 4 };

/* What becomes one operation: ranges of one rank's memory, such as the rows of a table. */
struct rf_window_gather {
    enum rf_window_op op;
    int rank, segments; /* segments 0: nothing */
    size_t elements;    /* of all */
    struct {
        uint64_t offset;
        void *local;
        size_t count;
    } segment[RF_WINDOW_SEGMENTS];
};

struct rf_window {
    struct rf_control *control;
    struct rf_fabric *fabric;
    struct fid_mr *region;
    unsigned char *memory;
    struct rf_window_peer *peers; /* [size] */
    size_t most[RF_WINDOW_OPS];   /* elements in one operation; 0: not all ranks have it */
    uint64_t timeout_ns;
    double timeout_s;
    /* Held by whoever calls the provider (FI_THREAD_DOMAIN): the caller, or the thread. */
    pthread_mutex_t lock;
    pthread_t thread;
    bool has_thread, stopping;
    int wake_fd; /* ends the thread's sleep */
    struct rf_window_slot slots[RF_WINDOW_DEPTH], *free;
    int under_way;
    struct rf_window_gather gather; /* started, and not posted yet */
    int at_once;                    /* sleeps of the caller that have ended at once, in a row */
    int status;                     /* of the first operation that failed */
    bool failed;
    struct rf_error error;
    uint64_t quiet_ns, looked_ns; /* since when nothing has ended; when ranks were looked after */
};

/* Elements of one operation by the provider; 0: it has none. */
size_t rf_window_limit(const struct rf_fabric *f, enum rf_window_op op);
/* The thread of a window. */
void *rf_window_serve(void *window);
/* Under the lock: takes what has ended. Returns its number. */
int rf_window_drain(struct rf_window *w);

#endif
