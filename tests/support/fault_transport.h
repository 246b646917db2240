/* SPDX-License-Identifier: MIT
 *
 * Injects a fault: makes a rank die, or stand still, inside a chosen collective. A layer between
 * its communicator and the transport counts what is posted. Nothing depends on time. Tests of all
 * that calls collectives may use it.
 */
#ifndef RF_TESTS_FAULT_TRANSPORT_H
#define RF_TESTS_FAULT_TRANSPORT_H

#include <ringforge/comm.h>

#include "base/transport_interface.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fault_kind {
    FAULT_DEATH = 0, /* a process: SIGKILL; a thread: what the loopback's own fault does */
    FAULT_STOP       /* a process: SIGSTOP; a thread: stands still until fault_transport_release */
};

struct fault_transport {
    struct rf_transport_ops ops; /* in place of the real ones */
    const struct rf_transport_ops *real;
    struct rf_comm *comm;
    enum fault_kind kind;
    bool armed, points;
    bool injected, released;      /* the same in all of a rank; __atomic */
    struct fault_transport *next; /* of the same rank, in a ring */
    uint32_t sequence;            /* of the collective in which to inject */
    int message, posted;          /* sends and receives of it */
};

/* Puts itself between the communicator and its transport; nothing may be under way in it. `fault`
 * must outlive it.
 */
void fault_transport_insert(struct fault_transport *fault, struct rf_comm *comm);
/* The same of another communicator of the same rank, as of a group: who dies or stands still in one
 * of them does so in all. */
void fault_transport_insert_beside(struct fault_transport *fault, struct rf_comm *comm,
                                   struct fault_transport *other);
/* Injects the fault when this rank posts message `message` (from 1) of collective `number` (from 0)
 * of those that it starts from now on; or, where it has fewer messages, the next one after these.
 */
void fault_transport_arm(struct fault_transport *fault, enum fault_kind kind, uint64_t number,
                         int message);
/* The same in its point-to-point messages from now on. */
void fault_transport_arm_point(struct fault_transport *fault, enum fault_kind kind, int message);

/* A thread that stands still goes on, and is dead. By any thread. */
void fault_transport_release(struct fault_transport *fault);

/* What only a communicator knows of itself: collectives started; its timeout from now on. */
uint64_t fault_transport_started(const struct rf_comm *comm);
void fault_transport_timeout(struct rf_comm *comm, double seconds);

#ifdef __cplusplus
}
#endif
#endif
