/* SPDX-License-Identifier: MIT
 *
 * A worker's pushes and pulls on servers: which part of them each server gets.
 */
#include <ringforge/ringforge.h>

#include "call.h"

/* What a request has for one server: values [from, from + count) of the caller's. */
struct share {
    int64_t from;
    uint64_t pieces, values;
};

static int add_piece(struct rf_store *store, struct share *share, int64_t first, int64_t count)
{
    while (count > 0) {
        const int64_t length = count < RF_STORE_LONGEST ? count : RF_STORE_LONGEST;
        if (share->pieces == store->most_pieces) {
            const uint64_t more = 2 * store->most_pieces + 16;
            uint64_t *grown = rf_realloc(store->pieces, more * sizeof *grown);
            if (!grown)
                return rf_fail(RF_ENOMEM, "out of memory for the keys of a request");
            store->pieces = grown;
            store->most_pieces = more;
        }
        store->pieces[share->pieces++] = rf_store_pack(first, length);
        share->values += (uint64_t)length;
        first += length, count -= length;
    }
    return RF_OK;
}

/* The part of the keys that lies in the range of a server. Values of it are consecutive, as keys
 * ascend. */
static int share_of(struct rf_store *store, const struct rf_store_keys *keys, int server,
                    struct share *out)
{
    struct rf_store_walk walk = {.keys = keys};
    struct rf_store_piece piece;
    int64_t first, count, at = 0;
    rf_store_shard(&store->opts, server, &first, &count);
    *out = (struct share){.from = -1};
    for (; rf_store_next(&walk, &piece); at += piece.count) {
        const int64_t from = piece.first > first ? piece.first : first;
        const int64_t piece_end = piece.first + piece.count, end = first + count;
        const int64_t to = piece_end < end ? piece_end : end;
        if (from >= to)
            continue;
        out->from = out->from < 0 ? at + from - piece.first : out->from;
        RETURN_IF_ERROR(add_piece(store, out, from - first, to - from));
    }
    out->from = out->from < 0 ? 0 : out->from;
    return RF_OK;
}

static int ask(struct rf_store *store, int server, const struct share *share,
               const struct rf_store_head *fields)
{
    struct rf_store_head head = *fields;
    head.pieces = share->pieces;
    head.values = share->values;
    store->stats.other_bytes += 8 * share->pieces;
    RETURN_IF_ERROR(rf_store_tell(store, server, &head));
    return rf_store_send(store, server, store->pieces, 8 * share->pieces);
}

/* Adds the pieces of all terms, which are behind the parameters of the server. */
static int add_terms(struct rf_store *store, int server, struct share *share)
{
    struct rf_store_term term;
    int64_t first, at;
    rf_store_shard(&store->opts, server, &first, &at);
    for (int k = 0; k < store->opts.term_count; k++)
        if (rf_store_term_of(&store->opts, server, k, &term)) {
            RETURN_IF_ERROR(add_piece(store, share, at, term.count));
            at += term.count;
        }
    return RF_OK;
}

/* A message for each piece. */
static int send_terms(struct rf_store *store, int server, const float *terms)
{
    struct rf_store_term term;
    for (int k = 0; k < store->opts.term_count; k++) {
        int64_t length = 0;
        if (!rf_store_term_of(&store->opts, server, k, &term))
            continue;
        for (int64_t done = 0; done < term.count; done += length) {
            length = term.count - done < RF_STORE_LONGEST ? term.count - done : RF_STORE_LONGEST;
            RETURN_IF_ERROR(
                rf_store_send(store, server, terms + term.from + done, 4 * (uint64_t)length));
        }
    }
    return RF_OK;
}

int rf_store_send_push(struct rf_store *store, const struct rf_store_keys *keys,
                       const float *gradient, const struct rf_store_update *update)
{
    const uint64_t start = rf_now_ns();
    const struct rf_store_head head = {.kind = RF_STORE_PUSH,
                                       .lr = rf_option(update->lr, 1),
                                       .share = update->share > 0 ? update->share : 1};
    RETURN_IF_ERROR(rf_store_check_worker(store, "push"));
    for (int s = 0; s < store->opts.servers; s++) {
        struct share share;
        RETURN_IF_ERROR(share_of(store, keys, s, &share));
        const uint64_t values = share.values;
        if (update->terms)
            RETURN_IF_ERROR(add_terms(store, s, &share));
        int status = ask(store, s, &share, &head);
        if (status == RF_OK)
            status = rf_store_send(store, s, gradient + share.from, 4 * values);
        if (status == RF_OK && update->terms)
            status = send_terms(store, s, update->terms);
        if (status < 0)
            return rf_store_lose(store, s, status);
        store->stats.pushed_bytes += 4 * share.values;
    }
    store->stats.wait_ns += rf_now_ns() - start;
    return RF_OK;
}

static int take(struct rf_store *store, int server, const struct share *share, float *values,
                bool *refused)
{
    struct rf_store_head head;
    RETURN_IF_ERROR(rf_store_hear(store, server, RF_STORE_VALUES, &head, refused));
    if (head.values != share->values)
        return rf_fail(RF_ECORRUPT, "server %d of a store has sent %llu values, not %llu", server,
                       (unsigned long long)head.values, (unsigned long long)share->values);
    RETURN_IF_ERROR(rf_store_receive(store, server, values + share->from, 4 * share->values));
    store->stats.pulled_bytes += 4 * share->values;
    store->stats.note = head.status > store->stats.note ? head.status : store->stats.note;
    if (store->stats.version < 0 || head.version < store->stats.version)
        store->stats.version = head.version;
    return RF_OK;
}

/* All servers are asked before the first one answers. A server without any of the keys is not. */
static int pull_all(struct rf_store *store, const struct rf_store_keys *keys, int64_t least,
                    float *values, struct share *shares)
{
    const struct rf_store_head head = {.kind = RF_STORE_PULL, .version = least};
    int refusal = RF_OK;
    struct rf_error error = {0};
    for (int s = 0; s < store->opts.servers; s++) {
        RETURN_IF_ERROR(share_of(store, keys, s, shares + s));
        const int status = shares[s].values ? ask(store, s, shares + s, &head) : RF_OK;
        if (status < 0)
            return rf_store_lose(store, s, status);
    }
    store->stats.version = -1;
    for (int s = 0; s < store->opts.servers; s++) {
        bool refused = false;
        const int status = shares[s].values ? take(store, s, shares + s, values, &refused) : RF_OK;
        if (status < 0 && !refused)
            return rf_store_lose(store, s, status);
        if (refused && refusal == RF_OK) {
            refusal = status;
            error = *rf_last_error();
        }
    }
    return refusal < 0 ? rf_fail_error(&error) : RF_OK;
}

int rf_store_fetch(struct rf_store *store, const struct rf_store_keys *keys, int64_t least,
                   float *values)
{
    const uint64_t start = rf_now_ns();
    RETURN_IF_ERROR(rf_store_check_worker(store, "pull"));
    struct share *shares = rf_alloc((size_t)store->opts.servers * sizeof *shares);
    if (!shares)
        return rf_fail(RF_ENOMEM, "out of memory for a pull");
    const int status = pull_all(store, keys, least, values, shares);
    rf_free(shares);
    store->stats.wait_ns += rf_now_ns() - start;
    return status;
}

int rf_store_fetch_state(struct rf_store *store, int state, float *values)
{
    for (int s = 0; s < store->opts.servers; s++) {
        struct rf_store_head head = {.kind = RF_STORE_STATE, .status = state};
        struct share share = {0};
        int64_t count;
        bool refused = false;
        rf_store_shard(&store->opts, s, &share.from, &count);
        share.values = (uint64_t)count;
        int status = rf_store_tell(store, s, &head);
        if (status == RF_OK)
            status = take(store, s, &share, values, &refused);
        if (status < 0)
            return refused ? status : rf_store_lose(store, s, status);
    }
    return RF_OK;
}
