/* SPDX-License-Identifier: MIT
 *
 * The frames of the control link: 16 bytes of header and a payload, little-endian. Parsing is a
 * pure function of bytes, since input from the network is untrusted until parsed.
 */
#ifndef RF_TRANSPORT_FRAME_H
#define RF_TRANSPORT_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum rf_frame_kind {
    /* Joining, in this order; either side may refuse instead. */
    RF_FRAME_HELLO = 1, /* joiner: version, rank, size, nonce; a client: its name */
    RF_FRAME_CHALLENGE, /* rank 0: nonce */
    RF_FRAME_PROOF,     /* joiner: proof of the key */
    RF_FRAME_WELCOME,   /* rank 0: proof of the key */
    RF_FRAME_REFUSE,    /* status, text */
    RF_FRAME_START,     /* rank 0: everybody is here */
    /* After joining. */
    RF_FRAME_HEARTBEAT,
    RF_FRAME_GATHER,        /* one rank's part of gather `number` */
    RF_FRAME_GATHERED,      /* rank 0: all parts */
    RF_FRAME_GATHER_FAILED, /* rank 0: text */
    RF_FRAME_MESSAGE,
    RF_FRAME_ABORT,   /* text */
    RF_FRAME_DEAD,    /* about `rank`: from rank 0 to all, or to rank 0 from the one that saw its
                       * process end; text */
    RF_FRAME_LEFT,    /* goodbye of the sender; from rank 0 also those of others, 32 bits each */
    RF_FRAME_MEMBERS, /* among survivors: the new job and its members (member_list.h) */
    /* Between a newcomer and the join listener (join_listener.h), after WELCOME. */
    RF_FRAME_TERMS,  /* newcomer: text, its terms */
    RF_FRAME_NOTE,   /* rank 0: text, what the newcomer is waiting for */
    RF_FRAME_INVITE, /* rank 0: the address of the larger job */
    /* After WELCOME, between a client and a coordinator (channel.h). */
    RF_FRAME_STREAM, /* both: how the sealed frames begin */
    RF_FRAME_SEALED, /* both */
    RF_FRAME_KINDS
};

enum {
    RF_FRAME_HEADER = 16,
    RF_FRAME_MAX_TEXT = 400, /* of a refusal */
    RF_FRAME_MAX_PAYLOAD = 16 << 20,
    RF_FRAME_MAX_SEALED = (256 << 10) + 64,
    RF_FRAME_VERSION = 4 /* of the whole control protocol */
};

struct rf_frame {
    int kind, rank;
    uint32_t number;
    uint32_t bytes;
    const uint8_t *payload; /* points into the parsed bytes */
};

/* Reads the frame at the start of `bytes`. Returns 1 and fills out; 0: incomplete, and *need is the
 * number of bytes of the whole frame; RF_ECORRUPT: not a frame. */
int rf_frame_parse(const uint8_t *bytes, size_t count, size_t max_payload, struct rf_frame *out,
                   size_t *need);
void rf_frame_header(uint8_t out[RF_FRAME_HEADER], int kind, int rank, uint32_t number,
                     uint32_t bytes);
/* Copies text of a payload, at most capacity - 1 characters, unprintable ones as '?'. */
void rf_frame_text(const uint8_t *payload, size_t bytes, char *out, size_t capacity);

void rf_put32(uint8_t *out, uint32_t value);
uint32_t rf_get32(const uint8_t *in);

#endif
