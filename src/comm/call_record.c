/* SPDX-License-Identifier: MIT
 *
 * The collectives that this rank has started, as far as it remembers them, and what makes two of
 * them the same call.
 */
#include "communicator.h"

const struct rf_call_record *rf_comm_history(const struct rf_comm *comm, uint64_t sequence)
{
    bool known = sequence < comm->sequence && comm->sequence - sequence <= RF_HISTORY;
    return known ? &comm->history[sequence % RF_HISTORY] : NULL;
}

bool rf_call_record_equal(const struct rf_call_record *a, const struct rf_call_record *b)
{
    return a->hash == b->hash && rf_contract_equal(&a->contract, &b->contract);
}

/* Labels are no part of it, as an empty one matches any. */
uint32_t rf_call_chain_hash(const struct rf_call_record *record)
{
    uint32_t mixed = (record->chain_hash ^ record->hash) * 0x9e3779b1u;
    return (mixed ^ mixed >> 15) * 0x85ebca77u;
}
