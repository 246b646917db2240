/* SPDX-License-Identifier: MIT
 *
 * Key-value stores (KVS) of launchers, in which rank 0 publishes a rendezvous record: its address,
 * and the job's key. Used by gather.c and join.c; launcher.c selects the store.
 */
#ifndef RF_TRANSPORT_KVS_H
#define RF_TRANSPORT_KVS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "handshake.h"

enum { RF_KVS_TEXT = 512 };

struct rf_kvs {
    const char *name;
    /* Collective over the launcher's job, in the same order on all its ranks: sends the `text` of
     * rank 0 (no spaces, no '=') to all. Blocks until all ranks have called it. RF_ETIMEOUT: not
     * all have; RF_ENET: the launcher gives an unexpected answer. One thread at a time. */
    int (*exchange)(bool writes, char text[RF_KVS_TEXT], uint64_t deadline_ns);
};

/* kvs_pmi.c: the first version of MPICH's process manager interface, which Hydra and Slurm's
 * `--mpi=pmi2` speak over an inherited socket (PMI_FD). NULL: absent. */
const struct rf_kvs *rf_kvs_pmi(void);
/* kvs_pmix.c: PMIx, of Open MPI and Slurm's `--mpi=pmix`. NULL: this process has no such
 * launcher. */
const struct rf_kvs *rf_kvs_pmix(void);

/* The record that rank 0 publishes. */
struct rf_rendezvous_record {
    char host[64];
    int port; /* 0: rank 0 could not open a listener */
    uint8_t job[RF_JOB_BYTES];
    char key[65]; /* made for this job; empty: all ranks have it already */
};
/* kvs.c */
void rf_rendezvous_record_make_key(struct rf_rendezvous_record *record);
/* By kvs->exchange. writes: this is rank 0. RF_ECORRUPT: the received text is not a record. */
int rf_rendezvous_record_exchange(const struct rf_kvs *kvs, bool writes,
                                  struct rf_rendezvous_record *record, uint64_t deadline_ns);

#endif
