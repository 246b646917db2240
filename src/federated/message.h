/* SPDX-License-Identifier: MIT
 *
 * The messages between clients and a coordinator (ringforge/federated.h), little-endian. Parsing is
 * a pure function of bytes: a message may be any until it is parsed.
 */
#ifndef RF_FEDERATED_MESSAGE_H
#define RF_FEDERATED_MESSAGE_H

#include <ringforge/federated.h>

#include "transport/bootstrap/handshake.h"
#include "transport/control/channel.h"

enum {
    FEDERATED_VERSION = 2,
    FEDERATED_RULE_BYTES = 1024, /* of a rule's text, with its end */
    FEDERATED_TERMS_BYTES = 16 << 10,
    FEDERATED_JOIN_BYTES = 12 + FEDERATED_RULE_BYTES + FEDERATED_TERMS_BYTES,
    FEDERATED_PIECE = RF_CHANNEL_BYTES / 4, /* values of a message VALUES, at most */
    /* Of secure aggregation: a set of members is a bit for each. */
    FEDERATED_MEMBERS = 255,
    FEDERATED_KEY_BYTES = 32,
    FEDERATED_SET_BYTES = 32,
    FEDERATED_SIGNATURE_BYTES = 64,
    FEDERATED_NAME_BYTES = RF_NAME_BYTES + 1, /* with zeros behind it */
    FEDERATED_KEYS_BYTES =
        2 * FEDERATED_KEY_BYTES + FEDERATED_SIGNATURE_BYTES, /* of boxes, of masks; signature */
    FEDERATED_READY_BYTES = FEDERATED_KEYS_BYTES + 32,       /* and the seed's hash */
    FEDERATED_PEER_BYTES = FEDERATED_NAME_BYTES + FEDERATED_KEYS_BYTES,
    FEDERATED_BOX_BYTES = 2 * FEDERATED_KEY_BYTES + 16, /* two shares, sealed */
    FEDERATED_MESSAGE_BYTES = 16 + FEDERATED_MEMBERS * FEDERATED_PEER_BYTES,
    /* What clients say in the handshake where ranks say the size of their job: no job has it. */
    FEDERATED_WORLD_SIZE = (1 << 16) + 2
};

/* A parsed message of any kind. Fields that it does not have are 0. Texts are those of the bytes.
 */
struct federated_message {
    enum rf_federated_message kind;
    uint32_t version;
    int status;
    int64_t count, round;
    uint64_t run;
    double weight;
    const char *rule, *terms;
    const uint8_t *values; /* of VALUES */
    int64_t value_count;
    const uint8_t *body; /* of a secure aggregation: what follows run and round */
    size_t body_bytes;
    int threshold;  /* of SECURE */
    char text[401]; /* of REFUSE, printable */
};

/* RF_ECORRUPT: the bytes are no message that this side may send; the message names the kind. */
int federated_parse(const struct rf_channel_message *bytes, bool from_client,
                    struct federated_message *out);

/* Writes a message other than VALUES to `out`, of FEDERATED_MESSAGE_BYTES, and returns its bytes.
 * Rule, terms and body are within their limits. */
size_t federated_write(const struct federated_message *message, uint8_t *out);

/* The members of a set, which are below `count`. */
bool federated_has(const uint8_t set[FEDERATED_SET_BYTES], int member);
void federated_add(uint8_t set[FEDERATED_SET_BYTES], int member);
int federated_members(const uint8_t set[FEDERATED_SET_BYTES]);

/* The values of the next piece behind the first `done` of `count`. */
int64_t federated_piece(int64_t count, int64_t done);

/* What must be equal of a rule, as lines of terms; at most FEDERATED_RULE_BYTES with the end. */
void federated_rule_text(const struct rf_rounds_rule *rule, char out[FEDERATED_RULE_BYTES]);

/* RF_EINVAL: a rule that clients and a coordinator cannot follow; the message says why. */
int federated_check_rule(const struct rf_rounds_rule *rule);

/* Whether all values are finite. */
bool federated_finite(const float *values, int64_t count);

#endif
