/* SPDX-License-Identifier: MIT
 *
 * The messages between clients and a coordinator (ringforge/federated.h), little-endian. Parsing is
 * a pure function of bytes: a message may be any until it is parsed.
 */
#ifndef RF_FEDERATED_MESSAGE_H
#define RF_FEDERATED_MESSAGE_H

#include <ringforge/federated.h>

#include "transport/control/channel.h"

enum {
    FEDERATED_VERSION = 1,
    FEDERATED_RULE_BYTES = 1024, /* of a rule's text, with its end */
    FEDERATED_TERMS_BYTES = 16 << 10,
    FEDERATED_JOIN_BYTES = 12 + FEDERATED_RULE_BYTES + FEDERATED_TERMS_BYTES,
    FEDERATED_PIECE = RF_CHANNEL_BYTES / 4, /* values of a message VALUES, at most */
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
    char text[401]; /* of REFUSE, printable */
};

/* RF_ECORRUPT: the bytes are no message that this side may send; the message names the kind. */
int federated_parse(const struct rf_channel_message *bytes, bool from_client,
                    struct federated_message *out);

/* Writes a message other than VALUES to `out`, of FEDERATED_JOIN_BYTES, and returns its bytes. Rule
 * and terms are within their limits. */
size_t federated_write(const struct federated_message *message, uint8_t *out);

/* The values of the next piece behind the first `done` of `count`. */
int64_t federated_piece(int64_t count, int64_t done);

/* What must be equal of a rule, as lines of terms; at most FEDERATED_RULE_BYTES with the end. */
void federated_rule_text(const struct rf_rounds_rule *rule, char out[FEDERATED_RULE_BYTES]);

/* RF_EINVAL: a rule that clients and a coordinator cannot follow; the message says why. */
int federated_check_rule(const struct rf_rounds_rule *rule);

/* Whether all values are finite. */
bool federated_finite(const float *values, int64_t count);

#endif
