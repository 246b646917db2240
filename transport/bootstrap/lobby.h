/* SPDX-License-Identifier: MIT
 *
 * What the two ends of a lobby share: lobby.c (rank 0 of a running job, where newcomers wait) and
 * newcomer.c (a process that wants to join). Both ends prove the job key as ranks do at the start
 * (handshake.h); then the newcomer says its terms (terms.c), both say every half second that they
 * are there, and at some time rank 0 says where the larger job meets.
 */
#ifndef RF_TRANSPORT_LOBBY_H
#define RF_TRANSPORT_LOBBY_H

#include <stdbool.h>

#include "handshake.h"

enum {
    RF_LOBBY_PLACES = 64,
    /* The world that newcomers say they are of: larger than any job, so that neither a lobby nor a
     * job takes the other's visitors in. */
    RF_LOBBY_WORLD = (1 << 16) + 1,
    RF_TERMS_BYTES = 16 << 10,
    RF_INVITATION_BYTES = 12 + RF_JOB_BYTES
};

/* terms.c: lines "name=value". Whether every line of a newcomer that names something of the job
 * says the same of it; if not, `why` (room bytes) says in one sentence what differs. Lines that the
 * newcomer has not are the job's to say. Pure; `theirs` need not be sound. */
bool rf_terms_agree(const char *job, const char *theirs, char *why, size_t room);

/* newcomer.c; the payload of RF_FRAME_INVITE. read: RF_ECORRUPT where it makes no sense. */
struct rf_invitation;
void rf_invitation_write(const struct rf_invitation *invitation, uint8_t out[RF_INVITATION_BYTES]);
int rf_invitation_read(const uint8_t in[RF_INVITATION_BYTES], struct rf_invitation *out);

#endif
