/* SPDX-License-Identifier: MIT
 *
 * Ranks that wait for each other in a circle, as two that receive from each other. Who has been
 * quiet for long sends a probe to the rank it waits for; that one, if it waits itself and has not
 * done what the sender waits for, adds itself and sends the probe on (edge chasing: Chandy, Misra,
 * Haas 1983). A probe that comes back has found a circle: nobody in it can have gone on, since each
 * has been seen waiting for the next, which has not served it, and the first one still waits.
 * Called by watch.c and notes.c. Not for what a worker does while its caller goes on.
 */
#include <ringforge/ringforge.h>

#include "communicator.h"

/* Whether this watch's call needs `rank`, which has not begun it, for its end. */
static bool needs(const struct rf_comm *comm, const struct rf_watch *watch, int rank)
{
    const struct rf_peer_state *peer = &comm->peers[rank];
    if (peer->has_waiting && peer->waiting.contract.sequence >= watch->mine->sequence)
        return false;
    return rf_call_needs_everybody(watch->mine) ||
           (watch->exec && rf_exec_needs(watch->exec, rank));
}

/* The rank that this one waits for; -1: none, or it may go on by itself. */
static int waits_for(const struct rf_comm *comm, const struct rf_watch *watch)
{
    if (!watch->blocking || watch->may_send || rf_async_busy(comm->async))
        return -1;
    if (rf_contract_is_point(watch->mine))
        return watch->peer;
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank && needs(comm, watch, rank))
            return rank;
    return -1;
}

/* Adds this rank and sends it on. */
static void send_on(struct rf_comm *comm, const struct rf_watch *watch, struct rf_probe *probe)
{
    const int to = waits_for(comm, watch);
    if (to < 0 || to == comm->rank || probe->count >= RF_PROBE_HOPS)
        return;
    struct rf_probe_hop *hop = &probe->hops[probe->count++];
    const struct rf_contract *mine = watch->mine;
    *hop = (struct rf_probe_hop){.rank = comm->rank,
                                 .to = to,
                                 .sequence = mine->sequence,
                                 .count = mine->count,
                                 .root = mine->root,
                                 .op = mine->op,
                                 .dtype = mine->dtype,
                                 .redop = mine->redop,
                                 .order = mine->order};
    rf_note_probe(comm, probe);
}

static struct rf_contract contract_of(const struct rf_probe_hop *hop)
{
    return (struct rf_contract){.sequence = hop->sequence,
                                .count = hop->count,
                                .root = hop->root,
                                .op = hop->op,
                                .dtype = hop->dtype,
                                .redop = hop->redop,
                                .order = hop->order};
}

/* This rank has not done what the hop waits for, and does not while it waits itself. */
static bool is_unserved(const struct rf_comm *comm, const struct rf_probe_hop *hop)
{
    const struct rf_contract theirs = contract_of(hop);
    return rf_contract_is_point(&theirs) ? rf_p2p_owes(comm->p2p, hop->rank, &theirs)
                                         : comm->sequence <= hop->sequence;
}

/* A circle of a message and a collective is no more than two ranks that call different things. */
static int fail_pair(struct rf_comm *comm, const struct rf_probe *probe)
{
    const struct rf_contract first = contract_of(&probe->hops[0]),
                             second = contract_of(&probe->hops[1]);
    const bool swap = rf_contract_is_point(&first);
    return rf_comm_fail_mismatch(comm, probe->hops[swap].rank, swap ? &second : &first,
                                 probe->hops[!swap].rank, swap ? &first : &second);
}

static int fail_circle(struct rf_comm *comm, const struct rf_probe *probe)
{
    char text[RF_VERDICT_TEXT] = "", call[100];
    size_t at = 0;
    struct rf_contract about = contract_of(&probe->hops[0]);
    for (uint32_t i = 0; i < probe->count && at < sizeof(text); i++) {
        const struct rf_contract theirs = contract_of(&probe->hops[i]);
        if (rf_contract_is_point(&about))
            about = theirs; /* rather an operation, as messages are numbered apart */
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%srank %d waits for rank %d in %s",
                               i ? ", " : "", probe->hops[i].rank, probe->hops[i].to,
                               rf_contract_text(&theirs, call, sizeof(call)));
    }
    return rf_comm_fail_text(comm, RF_EMISMATCH, probe->hops[0].to, &about,
                             "ranks wait for each other in a circle: %.225s", text);
}

void rf_cycle_probe(struct rf_comm *comm, const struct rf_watch *watch)
{
    struct rf_probe probe = {.wait = ++comm->waits};
    send_on(comm, watch, &probe);
}

int rf_cycle_heard(struct rf_comm *comm, int rank, const struct rf_probe *heard)
{
    const struct rf_watch *watch = comm->watching;
    struct rf_probe probe = *heard;
    if (probe.count < 1 || probe.count > RF_PROBE_HOPS)
        return 0;
    const struct rf_probe_hop *last = &probe.hops[probe.count - 1];
    if (!watch || last->rank != rank || last->to != comm->rank || !is_unserved(comm, last))
        return 0;
    if (probe.hops[0].rank != comm->rank) {
        for (uint32_t i = 1; i < probe.count; i++)
            if (probe.hops[i].rank == comm->rank)
                return 0; /* a circle without the one who asked: its own ranks find it */
        send_on(comm, watch, &probe);
        return 0;
    }
    /* Back, and this rank has not moved since. */
    const bool waits = probe.wait == comm->waits && watch->announced && !watch->may_send &&
                       watch->quiet_activity == watch->activity &&
                       waits_for(comm, watch) == probe.hops[0].to;
    if (!waits)
        return 0;
    const struct rf_contract next = contract_of(&probe.hops[probe.count - 1]);
    return probe.count == 2 && rf_contract_is_point(watch->mine) != rf_contract_is_point(&next)
               ? fail_pair(comm, &probe)
               : fail_circle(comm, &probe);
}
