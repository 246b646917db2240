/* SPDX-License-Identifier: MIT
 *
 * The recovery listener of a rank: a port at which other ranks can reach it if the star of the
 * control link is broken, and the endpoints of the others. Every communicator over sockets opens
 * one; a communicator of survivors keeps its predecessor's. Used by survivors.c.
 */
#ifndef RF_TRANSPORT_RECOVERY_LISTENER_H
#define RF_TRANSPORT_RECOVERY_LISTENER_H

#include <pthread.h>
#include <stdatomic.h>

#include "../bootstrap/handshake.h"

struct rf_control;

/* The address at which a rank listens. Endpoints have the rank numbers of the communicator that
 * opened the listeners, so they are valid in every communicator of its survivors. */
struct rf_endpoint {
    char host[64];
    int port; /* 0: this rank could not listen */
};

struct rf_recovery_listener {
    atomic_uint references;
    pthread_mutex_t lock; /* held during a recovery */
    int fd;
    int size;
    struct rf_job_key key;
    struct rf_endpoint *endpoints; /* [size] */
};

/* Collective over `control`, a link over sockets: listens, and exchanges endpoints with all ranks.
 * A rank that cannot listen is no error; the others will not find it. key: of the job; address:
 * this rank's. */
int rf_recovery_listener_open(struct rf_control *control, const struct rf_job_key *key,
                              const char *address, double timeout_s,
                              struct rf_recovery_listener **out);

struct rf_recovery_listener *rf_recovery_listener_retain(struct rf_recovery_listener *recovery);

void rf_recovery_listener_release(struct rf_recovery_listener *recovery); /* NULL is allowed */

#endif
