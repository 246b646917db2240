/* SPDX-License-Identifier: MIT
 *
 * Seals and opens the messages of a channel.
 */
#include "channel.h"

#include <sodium.h>

#include "../bootstrap/handshake.h"
#include "base/base.h"

_Static_assert(crypto_secretstream_xchacha20poly1305_ABYTES == 17, "size of a seal");
_Static_assert(crypto_secretstream_xchacha20poly1305_HEADERBYTES == 24, "size of a beginning");
_Static_assert(crypto_secretstream_xchacha20poly1305_KEYBYTES == 32, "size of a key");

enum { SEAL = 17, KIND = 1, SEALED = SEAL + KIND + RF_CHANNEL_BYTES };
_Static_assert((int)SEALED <= (int)RF_FRAME_MAX_SEALED, "a sealed message fits in its frame");

struct rf_channel_streams {
    crypto_secretstream_xchacha20poly1305_state push, pull;
    uint8_t pull_key[32];
    bool begun; /* the other end's stream */
    uint8_t sealed[SEALED];
    _Alignas(16) uint8_t opened[RF_CHANNEL_BYTES];
};

int rf_channel_open(struct rf_channel *channel, struct rf_link *link, const struct rf_job_key *key,
                    const struct rf_handshake *handshake, bool listens)
{
    uint8_t header[24], push_key[32];
    struct rf_channel_streams *streams = rf_alloc_aligned(sizeof *streams, 16);
    if (!streams)
        return rf_fail(RF_ENOMEM, "no memory for a connection");
    rf_handshake_derive(key, handshake, listens ? '>' : '<', push_key);
    rf_handshake_derive(key, handshake, listens ? '<' : '>', streams->pull_key);
    crypto_secretstream_xchacha20poly1305_init_push(&streams->push, header, push_key);
    sodium_memzero(push_key, sizeof push_key);
    const int rc = rf_link_queue(link, RF_FRAME_STREAM, 0, 0, header, sizeof header);
    if (rc < 0) {
        rf_free(streams);
        return rc;
    }
    link->max_payload = RF_FRAME_MAX_SEALED;
    *channel =
        (struct rf_channel){.link = *link, .streams = streams, .sent_bytes = RF_CHANNEL_BEGIN};
    *link = (struct rf_link){.fd = -1};
    return 0;
}

void rf_channel_close(struct rf_channel *channel)
{
    if (channel->streams) {
        rf_link_close(&channel->link);
        sodium_memzero(channel->streams, sizeof *channel->streams);
        rf_free(channel->streams);
    }
    *channel = (struct rf_channel){.link = {.fd = -1}};
}

int rf_channel_queue(struct rf_channel *channel, int kind, const void *payload, size_t bytes)
{
    struct rf_channel_streams *s = channel->streams;
    /* The kind travels in front of the seal, which covers it: in front of the payload it would cost
     * a copy of that. */
    const uint8_t first = (uint8_t)kind;
    s->sealed[0] = first;
    crypto_secretstream_xchacha20poly1305_push(&s->push, s->sealed + KIND, NULL, payload, bytes,
                                               &first, KIND,
                                               crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
    channel->sent_bytes += RF_CHANNEL_OVERHEAD + bytes;
    return rf_link_queue(&channel->link, RF_FRAME_SEALED, 0, 0, s->sealed, KIND + SEAL + bytes);
}

static int begin(struct rf_channel *channel, const struct rf_frame *frame)
{
    struct rf_channel_streams *s = channel->streams;
    if (frame->kind != RF_FRAME_STREAM ||
        crypto_secretstream_xchacha20poly1305_init_pull(&s->pull, frame->payload, s->pull_key) != 0)
        return rf_fail(RF_ECORRUPT, "control: a sealed connection begins out of order");
    sodium_memzero(s->pull_key, sizeof s->pull_key);
    s->begun = true;
    channel->received_bytes += RF_CHANNEL_BEGIN;
    return 0;
}

int rf_channel_next(struct rf_channel *channel, struct rf_channel_message *out)
{
    struct rf_channel_streams *s = channel->streams;
    struct rf_frame frame;
    unsigned long long bytes = 0;
    unsigned char tag = 0;
    int rc = rf_link_next(&channel->link, &frame);
    if (rc > 0 && !s->begun) {
        RETURN_IF_ERROR(begin(channel, &frame));
        rc = rf_link_next(&channel->link, &frame);
    }
    if (rc <= 0)
        return rc;
    if (frame.kind != RF_FRAME_SEALED || frame.bytes > SEALED || frame.payload[0] == 0 ||
        crypto_secretstream_xchacha20poly1305_pull(&s->pull, s->opened, &bytes, &tag,
                                                   frame.payload + KIND, frame.bytes - KIND,
                                                   frame.payload, KIND) != 0)
        return rf_fail(RF_ECORRUPT, "control: a message is not what the other end has sealed");
    *out = (struct rf_channel_message){
        .kind = frame.payload[0], .bytes = (uint32_t)bytes, .payload = s->opened};
    channel->received_bytes += RF_CHANNEL_OVERHEAD + bytes;
    return 1;
}
