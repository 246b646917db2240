/* SPDX-License-Identifier: MIT
 *
 * Compares this rank's calls with the calls in which other ranks wait, or which they made before
 * they left. A difference fails the communicator. If only an earlier call differs, both ranks send
 * their histories, which show it.
 */
#include "../p2p.h"
#include "control_message.h"

int rf_compare_p2p(struct rf_comm *comm, int rank, const struct rf_contract *mine,
                   const struct rf_exec *exec)
{
    const struct rf_peer_state *peer = &comm->peers.states[rank];
    if (!peer->has_p2p || peer->p2p.root != comm->rank ||
        (!rf_call_needs_everybody(mine) && !(exec && rf_exec_needs(exec, rank))) ||
        mine->sequence < peer->p2p_started || rf_p2p_has_served(comm->p2p, rank, &peer->p2p))
        return 0;
    return rf_comm_fail_mismatch(comm, comm->rank, mine, rank, &peer->p2p);
}

int rf_comm_check_p2p(struct rf_comm *comm, const struct rf_contract *mine,
                      const struct rf_exec *exec)
{
    for (int rank = 0; rank < comm->size; rank++)
        RETURN_IF_ERROR(rf_compare_p2p(comm, rank, mine, exec));
    return 0;
}

int rf_compare_calls(struct rf_comm *comm, const struct rf_call_record *own, int rank,
                     const struct rf_call_record *theirs)
{
    if (own->chain_hash != theirs->chain_hash) {
        /* An earlier call differs: the rank that receives a history finds the difference. */
        comm->peers.states[rank].differs = true;
        rf_comm_send_history(comm);
        return 0;
    }
    if (rf_call_record_equal(own, theirs))
        return 0;
    return rf_comm_fail_mismatch(comm, comm->rank, &own->contract, rank, &theirs->contract);
}

int rf_comm_compare_announced(struct rf_comm *comm, const struct rf_call_record *mine)
{
    comm->peers.announced = 0;
    for (int rank = 0; rank < comm->size; rank++) {
        const struct rf_peer_state *peer = &comm->peers.states[rank];
        if (!peer->has_waiting)
            continue;
        if (peer->waiting.contract.sequence == mine->contract.sequence)
            RETURN_IF_ERROR(rf_compare_calls(comm, mine, rank, &peer->waiting));
        comm->peers.announced += peer->waiting.contract.sequence > mine->contract.sequence;
    }
    return 0;
}

int rf_comm_compare_leaver(struct rf_comm *comm, int rank)
{
    struct rf_peer_state *peer = &comm->peers.states[rank];
    const struct rf_call_record *last = &peer->last;
    const struct rf_call_record *own =
        peer->left_after > 0 ? rf_call_history_find(&comm->history, peer->left_after - 1) : NULL;
    if (!own)
        return 0; /* it has made no call, or more calls than this rank */
    if (!rf_contract_is_p2p(&last->contract))
        return rf_compare_calls(comm, own, rank, last);
    if (own->chain_hash != last->chain_hash || own->hash != last->hash) {
        peer->differs = true;
        rf_comm_send_history(comm);
    }
    return 0;
}

int rf_compare_last(struct rf_comm *comm, int rank)
{
    struct rf_peer_state *peer = &comm->peers.states[rank];
    RETURN_IF_ERROR(rf_comm_compare_leaver(comm, rank));
    if (peer->differs)
        return 0;
    const struct rf_call_record *own = rf_call_history_find(&comm->history, peer->left_after);
    if (peer->left_after > comm->history.next_sequence)
        comm->peers.missed = rank;
    if (!own)
        return 0;
    struct rf_contract theirs = {.sequence = peer->left_after, .root = RF_ROOT_LEFT};
    if (rf_contract_is_p2p(&peer->last.contract))
        theirs = peer->last.contract;
    return rf_comm_fail_mismatch(comm, comm->rank, &own->contract, rank, &theirs);
}

int rf_comm_fail_leaver(struct rf_comm *comm, int rank)
{
    char text[160];
    const struct rf_peer_state *peer = &comm->peers.states[rank];
    return rf_comm_fail_text(
        comm, RF_EMISMATCH, rank, NULL,
        "rank %d left after %llu operations, the last one %s; before that it and rank %d, which "
        "has "
        "called %llu, called different things; every rank must make the same calls in the same "
        "order",
        rank, (unsigned long long)peer->left_after,
        rf_contract_text(&peer->last.contract, text, 90), comm->rank,
        (unsigned long long)comm->history.next_sequence);
}
