/* SPDX-License-Identifier: MIT
 *
 * Rank 0's listening socket and the strangers in front of it. Each has two seconds to prove the job
 * key; there is room for a few dozen, the longest waiting makes way. Used while the job gathers,
 * and by the control thread afterwards, to turn latecomers away with a reason.
 */
#ifndef RF_TRANSPORT_DOOR_H
#define RF_TRANSPORT_DOOR_H

#include <poll.h>

#include "../control/link.h"
#include "handshake.h"

enum { RF_DOOR_GUESTS = 64, RF_DOOR_POLLS = 1 + RF_DOOR_GUESTS };

struct rf_door_guest {
    struct rf_link link;
    struct rf_handshake handshake;
    uint64_t since_ns;
    bool refused; /* told so; waits for the other end to close */
};

struct rf_door {
    int listener; /* -1 = none */
    int size;
    struct rf_job_key key;
    struct rf_door_guest guests[RF_DOOR_GUESTS];
    int guest_count;
    bool warned;
    /* Asked when a joiner has proved the key. 0: the owner has taken *link (and sent nothing yet);
     * else a status and a text in rf_last_error(), which are sent to the joiner. */
    int (*admit)(void *owner, int rank, struct rf_link *link);
    void *owner;
};

void rf_door_init(struct rf_door *door, int listener, int size, const struct rf_job_key *key);
void rf_door_close(struct rf_door *door);
/* Fills in what to wait for, at most RF_DOOR_POLLS entries; returns how many. */
int rf_door_polls(const struct rf_door *door, struct pollfd *polls);
/* The time until which one may sleep; UINT64_MAX when nobody waits. */
uint64_t rf_door_deadline(const struct rf_door *door);
/* Serves everybody who is ready. Never blocks, never fails: a stranger is not the job's problem. */
void rf_door_serve(struct rf_door *door);

#endif
