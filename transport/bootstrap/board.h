/* SPDX-License-Identifier: MIT
 *
 * Boards: a launcher's own table of texts, to which rank 0 writes where the job meets, and with
 * which key. Used by join.c; launcher.c says which launcher has one.
 */
#ifndef RF_TRANSPORT_BOARD_H
#define RF_TRANSPORT_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "handshake.h"

enum { RF_BOARD_TEXT = 512 };

struct rf_board {
    const char *name;
    /* Collective over the launcher's job, in the same order on all its ranks: what rank 0 has in
     * `text` (no spaces, no '=') is in everybody's afterwards. Blocks until all have come: then 0;
     * RF_ETIMEOUT, and RF_ENET where the launcher does not answer as it should. One thread at a
     * time. */
    int (*share)(bool writes, char text[RF_BOARD_TEXT], uint64_t deadline_ns);
};

/* board_pmi.c: the first version of MPICH's process manager interface, which Hydra and Slurm's
 * `--mpi=pmi2` speak over an inherited socket (PMI_FD). NULL: there is none. */
const struct rf_board *rf_board_pmi(void);
/* board_pmix.c: PMIx, of Open MPI and Slurm's `--mpi=pmix`. NULL: this process has no such
 * launcher. */
const struct rf_board *rf_board_pmix(void);

/* What rank 0 writes. */
struct rf_notice {
    char host[64];
    int port; /* 0: it could not open a listener */
    uint8_t job[RF_JOB_BYTES];
    char key[65]; /* one made for this job; empty: everybody has it */
};
/* board.c */
void rf_notice_key(struct rf_notice *notice);
/* share of the board, as above. RF_ECORRUPT: what came is no notice. */
int rf_notice_share(const struct rf_board *board, bool writes, struct rf_notice *notice,
                    uint64_t deadline_ns);

#endif
