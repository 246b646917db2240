/* SPDX-License-Identifier: MIT
 *
 * Sealed messages over a link that has passed the handshake (bootstrap/handshake.h): what follows
 * it can neither be read nor be changed, reordered, repeated or left out by the network
 * (libsodium's secretstream, XChaCha20-Poly1305). The key of each direction depends on the key of
 * the handshake and on its nonces. A message is a kind, from 1 to 255, and at most
 * RF_CHANNEL_BYTES. Belongs to one thread.
 */
#ifndef RF_TRANSPORT_CHANNEL_H
#define RF_TRANSPORT_CHANNEL_H

#include "link.h"

enum {
    RF_CHANNEL_BYTES = 256 << 10,
    RF_CHANNEL_OVERHEAD = RF_FRAME_HEADER + 18, /* a frame's header, the kind, the seal */
    RF_CHANNEL_BEGIN = RF_FRAME_HEADER + 24     /* once in each direction */
};

struct rf_job_key;
struct rf_handshake;
struct rf_channel_streams;

struct rf_channel {
    struct rf_link link;
    struct rf_channel_streams *streams;
    uint64_t sent_bytes, received_bytes; /* with all overhead, since the handshake */
};

struct rf_channel_message {
    int kind;
    uint32_t bytes;
    const uint8_t *payload; /* of the channel, until the next call; aligned for any number */
};

/* Takes the link, unless it fails, and queues the beginning of its stream. listens: of the two ends
 * of the handshake this is the one that listened. */
int rf_channel_open(struct rf_channel *channel, struct rf_link *link, const struct rf_job_key *key,
                    const struct rf_handshake *handshake, bool listens);
/* Frees everything; a zero channel is allowed. */
void rf_channel_close(struct rf_channel *channel);

/* Queues a message, of which rf_link_flush of the link sends as much as the socket accepts. */
int rf_channel_queue(struct rf_channel *channel, int kind, const void *payload, size_t bytes);

/* Takes the next message that has arrived (rf_link_fill of the link): 1; 0: none yet; RF_ECORRUPT:
 * it is not what the other end has sealed. */
int rf_channel_next(struct rf_channel *channel, struct rf_channel_message *out);

#endif
