/* SPDX-License-Identifier: MIT
 *
 * See fault_transport.h.
 */
#include "fault_transport.h"

#include <signal.h>
#include <time.h>

#include "comm/communicator.h"
#include "comm/p2p.h"
#include "transport/loopback/loopback.h"

enum { SEQUENCE_MASK = 0xfffff }; /* the sequence number's bits in a tag: comm/run/operations.c */

/* The rank's calls in progress elsewhere end by themselves: their next poll finds the rank dead. */
static void die_in(const struct fault_transport *fault, bool here)
{
    struct rf_transport *t = fault->comm->links.transport;
    struct rf_loop_rank *self = (struct rf_loop_rank *)t;
    atomic_store(&self->killed, true);
    if (here)
        fault->real->cancel_all(t);
}

static void report_death(const struct fault_transport *fault)
{
    const struct rf_loop_rank *self = (const struct rf_loop_rank *)fault->comm->links.transport;
    rf_loop_report_death(self->world, fault->comm->links.transport->rank, "killed by a test");
}

static void die(struct fault_transport *fault)
{
    die_in(fault, true);
    for (struct fault_transport *other = fault->next; other != fault; other = other->next)
        die_in(other, false);
}

static void inject(const struct rf_transport *t, struct fault_transport *fault)
{
    fault->armed = false;
    /* The process dies before the threads of other lanes see the fault: otherwise their errors
     * would reach other ranks first. */
    if (fault->kind == FAULT_DEATH && !t->one_process)
        raise(SIGKILL);
    struct fault_transport *other = fault;
    do {
        if (fault->kind == FAULT_DEATH)
            report_death(other);
        other = other->next;
    } while (other != fault);
    do {
        other->kind = fault->kind;
        __atomic_store_n(&other->injected, true, __ATOMIC_RELEASE);
        other = other->next;
    } while (other != fault);
    if (fault->kind == FAULT_DEATH)
        die(fault);
    else if (!t->one_process)
        raise(SIGSTOP);
}

void fault_transport_release(struct fault_transport *fault)
{
    struct fault_transport *other = fault;
    do {
        __atomic_store_n(&other->released, true, __ATOMIC_RELEASE);
        other = other->next;
    } while (other != fault);
}

/* The error that a dead thread gets from its transport. After it, no call may ask the other ranks
 * for the cause. */
static int dead(const struct fault_transport *fault)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    if (!__atomic_load_n(&fault->injected, __ATOMIC_ACQUIRE))
        return 0;
    while (fault->kind == FAULT_STOP && !__atomic_load_n(&fault->released, __ATOMIC_ACQUIRE))
        nanosleep(&nap, NULL);
    return rf_fail(RF_EIO, "killed by a test");
}

static int count(struct rf_transport *t, uint64_t tag)
{
    struct fault_transport *fault =
        (struct fault_transport *)t->ops; /* they are its first member */
    if (!fault->armed || fault->points != ((tag >> 52 & 1) == RF_TAG_P2P))
        return dead(fault);
    const uint32_t after = ((uint32_t)(tag >> 24) - fault->sequence) & SEQUENCE_MASK;
    if (fault->points || after == 0)
        fault->posted++;
    const bool past = !fault->points && after > 0 && after < SEQUENCE_MASK / 2;
    if (fault->posted >= fault->message || (past && fault->posted > 0))
        inject(t, fault);
    return dead(fault);
}

static int post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                     const void *buffer, size_t bytes, void *context)
{
    const struct fault_transport *fault = (const struct fault_transport *)t->ops;
    RETURN_IF_ERROR(count(t, tag));
    return fault->real->post_send(t, peer, tag, contract, buffer, bytes, context);
}

static int post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                     void *context)
{
    const struct fault_transport *fault = (const struct fault_transport *)t->ops;
    RETURN_IF_ERROR(count(t, tag));
    return fault->real->post_recv(t, peer, tag, buffer, bytes, context);
}

static int post_recv_zero_copy(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                               size_t bytes, void *context)
{
    const struct fault_transport *fault = (const struct fault_transport *)t->ops;
    RETURN_IF_ERROR(count(t, tag));
    return fault->real->post_recv_zero_copy(t, peer, tag, buffer, bytes, context);
}

static int post_recv_exchange(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                              size_t bytes, void *context)
{
    const struct fault_transport *fault = (const struct fault_transport *)t->ops;
    RETURN_IF_ERROR(count(t, tag));
    return fault->real->post_recv_exchange(t, peer, tag, buffer, bytes, context);
}

/* While a fault is armed every message is posted, so that each is counted once. */
static int send_at_once(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                        const void *buffer, size_t bytes)
{
    const struct fault_transport *fault = (const struct fault_transport *)t->ops;
    RETURN_IF_ERROR(dead(fault));
    return fault->armed ? 0 : fault->real->send_at_once(t, peer, tag, contract, buffer, bytes);
}

static int recv_at_once(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                        struct rf_completion *out)
{
    const struct fault_transport *fault = (const struct fault_transport *)t->ops;
    RETURN_IF_ERROR(dead(fault));
    return fault->armed ? 0 : fault->real->recv_at_once(t, peer, tag, buffer, bytes, out);
}

static int poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    const struct fault_transport *fault = (const struct fault_transport *)t->ops;
    RETURN_IF_ERROR(dead(fault));
    return fault->real->poll(t, out, max);
}

void fault_transport_insert(struct fault_transport *fault, struct rf_comm *comm)
{
    *fault = (struct fault_transport){
        .ops = *comm->links.transport->ops, .real = comm->links.transport->ops, .comm = comm};
    fault->ops.post_send = post_send;
    fault->ops.post_recv = post_recv;
    fault->ops.poll = poll;
    if (fault->ops.send_at_once)
        fault->ops.send_at_once = send_at_once;
    if (fault->ops.recv_at_once)
        fault->ops.recv_at_once = recv_at_once;
    if (fault->ops.post_recv_zero_copy)
        fault->ops.post_recv_zero_copy = post_recv_zero_copy;
    if (fault->ops.post_recv_exchange)
        fault->ops.post_recv_exchange = post_recv_exchange;
    fault->next = fault;
    comm->links.transport->ops = &fault->ops;
}

void fault_transport_insert_beside(struct fault_transport *fault, struct rf_comm *comm,
                                   struct fault_transport *other)
{
    fault_transport_insert(fault, comm);
    fault->next = other->next;
    other->next = fault;
}

static void arm(struct fault_transport *fault, enum fault_kind kind, bool points, int message)
{
    fault->kind = kind;
    fault->points = points;
    fault->message = message;
    fault->posted = 0;
    fault->armed = true;
}

void fault_transport_arm(struct fault_transport *fault, enum fault_kind kind, uint64_t number,
                         int message)
{
    fault->sequence = (uint32_t)(fault->comm->history.next_sequence + number) & SEQUENCE_MASK;
    arm(fault, kind, false, message);
}

void fault_transport_arm_point(struct fault_transport *fault, enum fault_kind kind, int message)
{
    arm(fault, kind, true, message);
}

uint64_t fault_transport_started(const struct rf_comm *comm)
{
    return comm->history.next_sequence;
}

void fault_transport_timeout(struct rf_comm *comm, double seconds)
{
    comm->settings.timeout_s = seconds;
}
