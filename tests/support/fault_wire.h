/* SPDX-License-Identifier: MIT
 *
 * Makes a rank die, or stand still, in the midst of a chosen collective: a layer between its
 * communicator and the wire, which counts what is posted. Nothing depends on time. Tests of all
 * that calls collectives may use it.
 */
#ifndef RF_TESTS_FAULT_WIRE_H
#define RF_TESTS_FAULT_WIRE_H

#include <ringforge/comm.h>

#include "base/transport_interface.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fault_kind {
    FAULT_DEATH = 0, /* a process: SIGKILL; a thread: what the loopback's own fault does */
    FAULT_STOP       /* a process: SIGSTOP; a thread: stands still until fault_wire_release */
};

struct fault_wire {
    struct rf_transport_ops ops; /* in place of the real ones */
    const struct rf_transport_ops *real;
    struct rf_comm *comm;
    enum fault_kind kind;
    bool armed, points;
    bool struck, released;   /* the same in all of a rank; __atomic */
    struct fault_wire *next; /* of the same rank, in a ring */
    uint32_t sequence;       /* of the collective to strike in */
    int message, posted;     /* sends and receives of it */
};

/* Takes its place in the communicator, in which nothing may be under way. `fault` must outlive it.
 */
void fault_wire_place(struct fault_wire *fault, struct rf_comm *comm);
/* The same of another communicator of the same rank, as of a group: who dies or stands still in one
 * of them does so in all. */
void fault_wire_place_beside(struct fault_wire *fault, struct rf_comm *comm,
                             struct fault_wire *other);
/* Strikes when this rank posts message `message` (from 1) of collective `number` (from 0) of those
 * that it starts from now on; or, where it has fewer messages, the next one after these. */
void fault_wire_arm(struct fault_wire *fault, enum fault_kind kind, uint64_t number, int message);
/* The same in its point-to-point messages from now on. */
void fault_wire_arm_point(struct fault_wire *fault, enum fault_kind kind, int message);

/* A thread that stands still goes on, and is dead. By any thread. */
void fault_wire_release(struct fault_wire *fault);

/* What only a communicator knows of itself: collectives started; its timeout from now on. */
uint64_t fault_wire_started(const struct rf_comm *comm);
void fault_wire_timeout(struct rf_comm *comm, double seconds);

#ifdef __cplusplus
}
#endif
#endif
