/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by join_listener.c (rank 0 of a running job) and newcomer.c (a process that
 * asks to join the job). Both ends prove the job key as ranks do at the start (handshake.h). Then
 * the newcomer sends its terms (terms.c), both ends send a heartbeat every half second, and later
 * rank 0 sends an invitation: the address of the larger job.
 */
#ifndef RF_TRANSPORT_JOIN_LISTENER_H
#define RF_TRANSPORT_JOIN_LISTENER_H

#include <stdbool.h>

#include "../transport.h"
#include "handshake.h"

enum {
    RF_JOIN_MAX_WAITING = 64,
    /* The size that newcomers give in the handshake. It is larger than that of any job, so a job
     * does not accept newcomers, and a join listener does not accept ranks. */
    RF_JOIN_WORLD_SIZE = (1 << 16) + 1,
    RF_INVITATION_BYTES = 12 + RF_JOB_BYTES
};

/* newcomer.c; the payload of RF_FRAME_INVITE. read: RF_ECORRUPT if it is invalid. */
struct rf_invitation;
void rf_invitation_write(const struct rf_invitation *invitation, uint8_t out[RF_INVITATION_BYTES]);
int rf_invitation_read(const uint8_t in[RF_INVITATION_BYTES], struct rf_invitation *out);

#endif
