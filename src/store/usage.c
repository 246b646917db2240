/* SPDX-License-Identifier: MIT
 *
 * What a step with a store costs, from the messages of message.h.
 */
#include "message.h"
#include "store.h"

enum { HEAD = sizeof(struct rf_store_head), PIECE = 8 };

static uint64_t pieces_of(int64_t count)
{
    return (uint64_t)((count + RF_STORE_LONGEST - 1) / RF_STORE_LONGEST);
}

/* Of the terms in the range of a server: values, and their pieces. */
static struct rf_store_piece terms_of(const struct rf_store_opts *opts, int server)
{
    struct rf_store_piece all = {0};
    struct rf_store_term term;
    for (int k = 0; k < opts->term_count; k++)
        if (rf_store_term_of(opts, server, k, &term)) {
            all.first += (int64_t)pieces_of(term.count);
            all.count += term.count;
        }
    return all;
}

/* A push, a pull and its answer: of one worker and one server. */
static uint64_t requests(const struct rf_store_opts *opts, int server, int64_t count)
{
    const struct rf_store_piece terms = terms_of(opts, server);
    return 2 * (HEAD + PIECE * pieces_of(count)) + 4 * (uint64_t)count +
           PIECE * (uint64_t)terms.first + 4 * (uint64_t)terms.count;
}

static uint64_t answers(int64_t count)
{
    return HEAD + 4 * (uint64_t)count;
}

/* Parameters, states, room for a request of each worker, and with SYNC its gradient. */
static uint64_t memory_of(const struct rf_store_opts *opts, int64_t count, int workers)
{
    const int64_t width = count + terms_of(opts, 0).count;
    const uint64_t wide = (uint64_t)workers * (opts->rule == RF_STORE_SYNC ? 2 : 1);
    uint64_t arrays = 1;
    for (int k = 0; opts->optimizer && k < RF_STATE_COUNT; k++)
        arrays += rf_optimizer_has(opts->optimizer, (enum rf_optimizer_state)k);
    return 4 * (arrays * (uint64_t)count + wide * (uint64_t)width);
}

int rf_store_usage(const struct rf_store_opts *opts, int workers, struct rf_store_usage *out)
{
    struct rf_store_usage u = {0};
    if (!opts || !out || workers < 1)
        return rf_fail(RF_EINVAL, "the usage of a store needs options, 1 worker or more, and room");
    struct rf_store_opts o = *opts;
    o.initial = NULL;
    o.state = NULL;
    o.servers = !rf_store_has_servers(o.rule) ? 0 : o.servers ? o.servers : 1;
    RETURN_IF_ERROR(rf_store_check(&o, workers + o.servers));
    for (int s = 0; s < o.servers; s++) {
        int64_t first, count;
        rf_store_shard(&o, s, &first, &count);
        u.sent_bytes += requests(&o, s, count);
        u.received_bytes += answers(count);
        if (s > 0)
            continue;
        u.server_received_bytes = (uint64_t)workers * requests(&o, 0, count);
        u.server_sent_bytes = (uint64_t)workers * answers(count);
        u.memory_bytes = memory_of(&o, count, workers);
    }
    u.value_bytes = 4 * (uint64_t)o.count;
    u.messages = o.servers ? 2 : 0;
    if (!o.servers)
        u.memory_bytes = (o.rule == RF_STORE_RACY ? 8 : 4) * (uint64_t)o.count;
    *out = u;
    return RF_OK;
}
