/* SPDX-License-Identifier: MIT
 *
 * What a round costs, from the messages of message.h.
 */
#include "base/base.h"
#include "secure.h"

enum { ROUND_BYTES = 16 };

/* A message after which all values follow in pieces. */
static uint64_t message_bytes(enum rf_federated_message kind, int64_t count)
{
    const uint64_t pieces = (uint64_t)((count + FEDERATED_PIECE - 1) / FEDERATED_PIECE);
    return rf_federated_message_get_info(kind)->most + 4 * (uint64_t)count +
           (1 + pieces) * RF_CHANNEL_OVERHEAD;
}

/* A message of a secure aggregation, without what has no fixed size behind its round. */
static uint64_t body(uint64_t bytes)
{
    return ROUND_BYTES + bytes + RF_CHANNEL_OVERHEAD;
}

/* In place of an update; with all clients, who are n. */
static void add_secure(int64_t count, int clients, struct rf_federated_usage *u)
{
    enum { BOX = FEDERATED_BOX_BYTES, SET = FEDERATED_SET_BYTES, KEY = FEDERATED_KEY_BYTES };
    const uint64_t n = (uint64_t)clients, values = (uint64_t)count + 1;
    const uint64_t shares = body(SET + (n - 1) * BOX);
    const uint64_t pieces = (values + SECURE_PIECE - 1) / SECURE_PIECE;
    u->sent_bytes = body(FEDERATED_READY_BYTES) + shares + body(0) + 8 * values +
                    pieces * RF_CHANNEL_OVERHEAD + body(FEDERATED_SIGNATURE_BYTES) + body(n * KEY);
    u->received_bytes += body(n * FEDERATED_PEER_BYTES) + shares + body(SET) +
                         body(SET + n * FEDERATED_SIGNATURE_BYTES);
    u->memory_bytes += 4 * n * (uint64_t)count + 8 * n + n * n * (BOX + KEY);
}

int rf_federated_usage(const struct rf_rounds_rule *rule, int64_t count, int clients, int secure,
                       struct rf_federated_usage *out)
{
    if (!rule || !out || count < 1 || clients < 1)
        return rf_fail(RF_EINVAL, "the usage of a round needs a rule, 1 parameter and client or "
                                  "more, and room");
    RETURN_IF_ERROR(federated_check_rule(rule));
    RETURN_IF_ERROR(federated_check_threshold(secure, clients));
    uint64_t arrays = 2 + (uint64_t)clients;
    for (int s = 0; rule->outer && s < RF_STATE_COUNT; s++)
        arrays += rf_optimizer_has(rule->outer, (enum rf_optimizer_state)s);
    *out = (struct rf_federated_usage){
        .sent_bytes = message_bytes(RF_FEDERATED_UPDATE, count),
        .received_bytes = message_bytes(RF_FEDERATED_ROUND, count),
        .memory_bytes = 4 * arrays * (uint64_t)count,
        .messages = 2,
    };
    if (secure) {
        add_secure(count, clients, out);
        out->messages = 9; /* round; ready, peers, shares, shares, masked, unmask, ... reveal */
    }
    return RF_OK;
}
