/* SPDX-License-Identifier: MIT
 *
 * What a round costs, from the messages of message.h.
 */
#include "base/base.h"
#include "message.h"

/* A message after which all values follow in pieces. */
static uint64_t message_bytes(enum rf_federated_message kind, int64_t count)
{
    const uint64_t pieces = (uint64_t)((count + FEDERATED_PIECE - 1) / FEDERATED_PIECE);
    return rf_federated_message_get_info(kind)->most + 4 * (uint64_t)count +
           (1 + pieces) * RF_CHANNEL_OVERHEAD;
}

int rf_federated_usage(const struct rf_rounds_rule *rule, int64_t count, int clients,
                       struct rf_federated_usage *out)
{
    if (!rule || !out || count < 1 || clients < 1)
        return rf_fail(RF_EINVAL, "the usage of a round needs a rule, 1 parameter and client or "
                                  "more, and room");
    RETURN_IF_ERROR(federated_check_rule(rule));
    uint64_t arrays = 2 + (uint64_t)clients;
    for (int s = 0; rule->outer && s < RF_STATE_COUNT; s++)
        arrays += rf_optimizer_has(rule->outer, (enum rf_optimizer_state)s);
    *out = (struct rf_federated_usage){
        .sent_bytes = message_bytes(RF_FEDERATED_UPDATE, count),
        .received_bytes = message_bytes(RF_FEDERATED_ROUND, count),
        .memory_bytes = 4 * arrays * (uint64_t)count,
    };
    return RF_OK;
}
