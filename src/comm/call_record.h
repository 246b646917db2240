/* SPDX-License-Identifier: MIT
 *
 * The calls that this rank has started: contracts, their records in memory, and the records in a
 * file.
 */
#ifndef RF_COMM_CALL_RECORD_H
#define RF_COMM_CALL_RECORD_H

#include "call.h"

struct rf_recorder;

/* The root of a contract without operation: its rank left, and made no further call. */
enum { RF_ROOT_LEFT = -2 };

/* A collective that this rank has started. With the chain hash two ranks find an earlier difference
 * that caused no error: for example, if each of them is the root of its broadcast, both calls
 * succeed. */
struct rf_call_record {
    struct rf_contract contract;
    uint32_t hash;       /* of the contract and of arguments that it has no field for, without the
                          * label */
    uint32_t chain_hash; /* of all collectives before this one */
};

/* Number of records kept, so that a difference found late can still be named. */
enum { RF_HISTORY = 256 };

/* The calls of this rank so far. */
struct rf_call_history {
    uint64_t next_sequence; /* of the next collective */
    uint32_t chain_hash;    /* of the next collective */
    bool sent;              /* all records have been sent to the other ranks */
    struct rf_call_record records[RF_HISTORY];
    const struct rf_contract *running; /* the collective in which the caller waits; NULL: none */
    struct rf_contract last_p2p;       /* the last send or receive; its op is 0: none */
    uint64_t last_p2p_after;           /* number of collectives called before it */
    struct rf_recorder *recorder;      /* NULL: RF_FLIGHT is unset */
    const char *trace_track;           /* NULL: "comm" */
};

/* ---- contract.c ------------------------------------------------------------------------------ */

void rf_contract_fill(struct rf_contract *contract, const struct rf_call *call);
void rf_contract_label(struct rf_contract *contract, const char *label);

/* The low 24 bits of the word sent with its messages: a hash of everything that ranks must agree
 * about, except the label. desc.ranks of the call is set. */
uint32_t rf_call_hash(const struct rf_call *call);
uint32_t rf_label_hash(const char *label); /* in the high 8 bits; 0 = none */
bool rf_contract_equal(const struct rf_contract *a, const struct rf_contract *b);
bool rf_contract_is_p2p(const struct rf_contract *contract); /* a send or receive */

/* ---- call_record.c --------------------------------------------------------------------------- */

/* The record of collective `sequence`. NULL: it has not begun, or is no longer kept. */
const struct rf_call_record *rf_call_history_find(const struct rf_call_history *history,
                                                  uint64_t sequence);

/* Whether two records describe the same call. Earlier calls do not count. */
bool rf_call_record_equal(const struct rf_call_record *a, const struct rf_call_record *b);

/* The chain hash after a call. */
uint32_t rf_call_chain_hash(const struct rf_call_record *record);

/* ---- flight_recorder.c: the last calls, in a file -------------------------------------------- */

/* *out is NULL if RF_FLIGHT is unset. job: the same bytes on all ranks. */
RF_MUST_CHECK int rf_recorder_open(const struct rf_comm *comm, const uint8_t job[16],
                                   struct rf_recorder **out);
void rf_recorder_close(struct rf_recorder *recorder);
void rf_recorder_begin(struct rf_recorder *recorder, const struct rf_call_record *record);
void rf_recorder_end(struct rf_recorder *recorder, uint64_t sequence, int status);

#endif
