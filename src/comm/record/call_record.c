/* SPDX-License-Identifier: MIT
 *
 * The collectives that this rank has started, as far as it keeps them, and the comparison of two
 * calls.
 */
#include "../call_record.h"

const struct rf_call_record *rf_call_history_find(const struct rf_call_history *history,
                                                  uint64_t sequence)
{
    const uint64_t next = history->next_sequence;
    const bool kept = sequence < next && next - sequence <= RF_HISTORY;
    return kept ? &history->records[sequence % RF_HISTORY] : NULL;
}

bool rf_call_record_equal(const struct rf_call_record *a, const struct rf_call_record *b)
{
    return a->hash == b->hash && rf_contract_equal(&a->contract, &b->contract);
}

/* Labels are excluded, because an empty one matches any. */
uint32_t rf_call_chain_hash(const struct rf_call_record *record)
{
    uint32_t mixed = (record->chain_hash ^ record->hash) * 0x9e3779b1u;
    return (mixed ^ mixed >> 15) * 0x85ebca77u;
}
