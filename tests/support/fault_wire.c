/* SPDX-License-Identifier: MIT
 *
 * See fault_wire.h.
 */
#include "fault_wire.h"

#include <signal.h>
#include <time.h>

#include "comm/communicator.h"
#include "comm/p2p.h"
#include "transport/loopback/loopback.h"

enum { SEQUENCE_MASK = 0xfffff }; /* what a tag has of it: comm/operations.c */

/* What is under way elsewhere ends by itself: its next turn finds the rank dead. */
static void die_in(const struct fault_wire *fault, bool here)
{
    struct rf_transport *t = fault->comm->links.transport;
    struct rf_loop_rank *self = (struct rf_loop_rank *)t;
    atomic_store(&self->killed, true);
    if (here)
        fault->real->cancel_all(t);
    rf_loop_report_death(self->world, t->rank, "killed by a test");
}

static void die(const struct rf_transport *t, struct fault_wire *fault)
{
    if (!t->one_process)
        raise(SIGKILL);
    die_in(fault, true);
    for (struct fault_wire *other = fault->next; other != fault; other = other->next)
        die_in(other, false);
}

static void strike(const struct rf_transport *t, struct fault_wire *fault)
{
    fault->armed = false;
    struct fault_wire *other = fault;
    do {
        other->kind = fault->kind;
        __atomic_store_n(&other->struck, true, __ATOMIC_RELEASE);
        other = other->next;
    } while (other != fault);
    if (fault->kind == FAULT_DEATH)
        die(t, fault);
    else if (!t->one_process)
        raise(SIGSTOP);
}

void fault_wire_release(struct fault_wire *fault)
{
    struct fault_wire *other = fault;
    do {
        __atomic_store_n(&other->released, true, __ATOMIC_RELEASE);
        other = other->next;
    } while (other != fault);
}

/* What a thread that is dead gets from its transport: no error after which a call would ask the
 * others what has happened. */
static int dead(const struct fault_wire *fault)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    if (!__atomic_load_n(&fault->struck, __ATOMIC_ACQUIRE))
        return 0;
    while (fault->kind == FAULT_STOP && !__atomic_load_n(&fault->released, __ATOMIC_ACQUIRE))
        nanosleep(&nap, NULL);
    return rf_fail(RF_EIO, "killed by a test");
}

static int count(struct rf_transport *t, uint64_t tag)
{
    struct fault_wire *fault = (struct fault_wire *)t->ops; /* they are its first member */
    if (!fault->armed || fault->points != ((tag >> 52 & 1) == RF_TAG_P2P))
        return dead(fault);
    const uint32_t after = ((uint32_t)(tag >> 24) - fault->sequence) & SEQUENCE_MASK;
    if (fault->points || after == 0)
        fault->posted++;
    const bool past = !fault->points && after > 0 && after < SEQUENCE_MASK / 2;
    if (fault->posted >= fault->message || (past && fault->posted > 0))
        strike(t, fault);
    return dead(fault);
}

static int post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                     const void *buffer, size_t bytes, void *context)
{
    const struct fault_wire *fault = (const struct fault_wire *)t->ops;
    RETURN_IF_ERROR(count(t, tag));
    return fault->real->post_send(t, peer, tag, contract, buffer, bytes, context);
}

static int post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                     void *context)
{
    const struct fault_wire *fault = (const struct fault_wire *)t->ops;
    RETURN_IF_ERROR(count(t, tag));
    return fault->real->post_recv(t, peer, tag, buffer, bytes, context);
}

static int post_recv_zero_copy(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                               size_t bytes, void *context)
{
    const struct fault_wire *fault = (const struct fault_wire *)t->ops;
    RETURN_IF_ERROR(count(t, tag));
    return fault->real->post_recv_zero_copy(t, peer, tag, buffer, bytes, context);
}

static int poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    const struct fault_wire *fault = (const struct fault_wire *)t->ops;
    RETURN_IF_ERROR(dead(fault));
    return fault->real->poll(t, out, max);
}

void fault_wire_place(struct fault_wire *fault, struct rf_comm *comm)
{
    *fault = (struct fault_wire){.ops = *comm->links.transport->ops,
                                 .real = comm->links.transport->ops,
                                 .comm = comm,
                                 .armed = false};
    fault->ops.post_send = post_send;
    fault->ops.post_recv = post_recv;
    fault->ops.poll = poll;
    if (fault->ops.post_recv_zero_copy)
        fault->ops.post_recv_zero_copy = post_recv_zero_copy;
    fault->next = fault;
    comm->links.transport->ops = &fault->ops;
}

void fault_wire_place_beside(struct fault_wire *fault, struct rf_comm *comm,
                             struct fault_wire *other)
{
    fault_wire_place(fault, comm);
    fault->next = other->next;
    other->next = fault;
}

static void arm(struct fault_wire *fault, enum fault_kind kind, bool points, int message)
{
    fault->kind = kind;
    fault->points = points;
    fault->message = message;
    fault->posted = 0;
    fault->armed = true;
}

void fault_wire_arm(struct fault_wire *fault, enum fault_kind kind, uint64_t number, int message)
{
    fault->sequence = (uint32_t)(fault->comm->history.next_sequence + number) & SEQUENCE_MASK;
    arm(fault, kind, false, message);
}

void fault_wire_arm_point(struct fault_wire *fault, enum fault_kind kind, int message)
{
    arm(fault, kind, true, message);
}

uint64_t fault_wire_started(const struct rf_comm *comm)
{
    return comm->history.next_sequence;
}

void fault_wire_timeout(struct rf_comm *comm, double seconds)
{
    comm->settings.timeout_s = seconds;
}
