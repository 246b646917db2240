/* SPDX-License-Identifier: MIT
 *
 * A gate: the port on which a rank can be found by the others when the star of the control link is
 * broken, and where theirs are. One is opened with every communicator over sockets; those that
 * survivors make of it go on with the same one. Used by survivors.c.
 */
#ifndef RF_TRANSPORT_GATE_H
#define RF_TRANSPORT_GATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "../bootstrap/handshake.h"

struct rf_control;

/* Ranks of the communicator that opened the gates: whoever meets again, by whatever communicator it
 * knows the others, means the same by a seat. */
struct rf_seat {
    char host[64];
    int port; /* 0: this rank could not open a gate */
};

struct rf_gate {
    atomic_uint holders;
    pthread_mutex_t lock; /* held during a meeting */
    int listener;
    int size;
    struct rf_job_key key;
    struct rf_seat *seats; /* [size] */
};

/* Collective over `control`, a link over sockets: opens this rank's gate and learns the others'. A
 * rank that cannot listen has a gate that nobody finds; that is no error. key: of the job; address:
 * on which this rank is reached. */
int rf_gate_open(struct rf_control *control, const struct rf_job_key *key, const char *address,
                 double timeout_s, struct rf_gate **out);
struct rf_gate *rf_gate_hold(struct rf_gate *gate);
void rf_gate_release(struct rf_gate *gate); /* NULL is allowed */

#endif
