/* SPDX-License-Identifier: MIT
 *
 * Secure aggregation at the coordinator. Those who are ready when a round's updates are collected
 * are its members, by name: of those who have shared, each masks with all of them; of those whose
 * masked update has arrived, the sum is made.
 */
#ifndef RF_FEDERATED_SECURE_ROUND_H
#define RF_FEDERATED_SECURE_ROUND_H

#include "coordinator.h"
#include "secure.h"

enum secure_phase {
    SECURE_COLLECTS,
    SECURE_SHARES,
    SECURE_UPLOADS,
    SECURE_CONFIRMS,
    SECURE_REVEALS
};

struct secure_round {
    int threshold;
    enum secure_phase phase;
    uint64_t since_ns; /* of the phase */
    bool failed;
    double weight; /* the sum of the weights */

    int order[FEDERATED_MEMBERS];          /* the clients of the list by name */
    int clients[FEDERATED_MEMBERS], count; /* the members */
    uint8_t peers[FEDERATED_MEMBERS][FEDERATED_PEER_BYTES];
    uint8_t hashes[FEDERATED_MEMBERS][32];
    uint8_t shared[FEDERATED_SET_BYTES], uploaded[FEDERATED_SET_BYTES],
        confirmed[FEDERATED_SET_BYTES], revealed[FEDERATED_SET_BYTES];
    uint8_t signatures[FEDERATED_MEMBERS][FEDERATED_SIGNATURE_BYTES];
    /* For each member as many as there are clients: for whom it has sealed shares; and its shares
     * of the members of `shared`, in their order. */
    uint8_t (*boxes)[FEDERATED_BOX_BYTES], (*reveals)[FEDERATED_KEY_BYTES];
    uint64_t sum[SECURE_PIECE], stream[SECURE_PIECE];
};

/* ---- secure_round.c -------------------------------------------------------------------------- */

int federated_secure_open(struct rf_coordinator *c);
void federated_secure_close(struct rf_coordinator *c);
/* Updates are collected: those that are ready are the members. */
void federated_secure_start(struct rf_coordinator *c);
/* Whether updates are still collected: what they are sent to may change. */
static inline bool federated_collects(const struct rf_coordinator *c)
{
    return !c->secure || c->secure->phase == SECURE_COLLECTS;
}
/* Continues; true: it has ended, with the sum in c->mean, or has failed. */
bool federated_secure_advance(struct rf_coordinator *c, uint64_t *next_ns);

/* ---- secure_receive.c: as receive.c ---------------------------------------------------------- */

int federated_secure_receive(struct rf_coordinator *c, struct client *client,
                             const struct federated_message *m);
/* All masked values of a client have arrived. */
void federated_secure_uploaded(struct rf_coordinator *c, struct client *client);

/* ---- unmask.c -------------------------------------------------------------------------------- */

/* The weighted mean of the uploaded updates, in c->mean, and their weight. RF_ECORRUPT: shares are
 * not those of what they are said to be of; the message names the client. */
int federated_unmask(struct rf_coordinator *c);

#endif
