/* SPDX-License-Identifier: MIT
 *
 * Injects a fault: makes a rank die or hang inside a chosen collective. A layer between the
 * communicator and its transport counts the posted operations, so the fault does not depend on
 * time. Any test that calls collectives may use it.
 */
#ifndef RF_TESTS_FAULT_TRANSPORT_H
#define RF_TESTS_FAULT_TRANSPORT_H

#include <ringforge/comm.h>

#include "base/transport_interface.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fault_kind {
    FAULT_DEATH = 0, /* a process: SIGKILL; a thread: the loopback's own fault */
    FAULT_STOP       /* a process: SIGSTOP; a thread: blocks until fault_transport_release */
};

struct fault_transport {
    struct rf_transport_ops ops; /* replaces the real ones */
    const struct rf_transport_ops *real;
    struct rf_comm *comm;
    enum fault_kind kind;
    bool armed, points;
    bool injected, released;      /* equal in all layers of a rank; __atomic */
    struct fault_transport *next; /* of the same rank, in a ring */
    uint32_t sequence;            /* of the collective in which to inject the fault */
    int message, posted;          /* counts its sends and receives */
};

/* Inserts itself between the communicator and its transport, which must have no operation in
 * flight. `fault` must outlive it. */
void fault_transport_insert(struct fault_transport *fault, struct rf_comm *comm);
/* The same for another communicator of the same rank, such as a group's: a rank that dies or hangs
 * in one does so in all. */
void fault_transport_insert_beside(struct fault_transport *fault, struct rf_comm *comm,
                                   struct fault_transport *other);
/* Injects the fault when this rank posts message `message` (from 1) of collective `number` (from
 * 0), counted from now on. If the collective has fewer messages, the next message triggers it. */
void fault_transport_arm(struct fault_transport *fault, enum fault_kind kind, uint64_t number,
                         int message);
/* The same for its point-to-point messages from now on. */
void fault_transport_arm_point(struct fault_transport *fault, enum fault_kind kind, int message);

/* Continues a thread that hangs; the rank is then dead. Called by any thread. */
void fault_transport_release(struct fault_transport *fault);

/* State inside a communicator: the number of collectives that it has started, and its timeout from
 * now on. */
uint64_t fault_transport_started(const struct rf_comm *comm);
void fault_transport_timeout(struct rf_comm *comm, double seconds);

#ifdef __cplusplus
}
#endif
#endif
