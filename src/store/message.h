/* SPDX-License-Identifier: MIT
 *
 * What workers and servers of a store send each other. A request is a head, the pieces of the shard
 * that it is about, and with a push their values. A pull is answered by a head and values; other
 * requests that are answered by a head and, as its kind says, what follows it.
 */
#ifndef RF_STORE_MESSAGE_H
#define RF_STORE_MESSAGE_H

#include <ringforge/store.h>

#include "base/base.h"

enum rf_store_message {
    RF_STORE_PUSH = 1, /* pieces, values; no answer */
    RF_STORE_PULL,     /* pieces; version: the least one */
    RF_STORE_STATS,    /* asks for struct rf_store_server_stats */
    RF_STORE_SAVE,
    RF_STORE_STATE,  /* a state of the optimizer: number `status`; answered by values */
    RF_STORE_REST,   /* the worker pushes no more; `status` is its note; no answer */
    RF_STORE_BYE,    /* the worker leaves; no answer */
    RF_STORE_VALUES, /* answers: values, of `version`; `status` is the highest note */
    RF_STORE_WAIT,   /* the server lives, and the answer is still to come */
    RF_STORE_REPORT, /* the statistics follow */
    RF_STORE_DONE,
    RF_STORE_REFUSED, /* `status`, and a text of RF_STORE_TEXT bytes follows */
    RF_STORE_MESSAGES
};

enum { RF_STORE_TEXT = 400 };
#define RF_STORE_MAGIC 0x31747366u

struct rf_store_head {
    uint32_t magic;
    uint16_t kind, reserved;
    int64_t number; /* of the request on this connection, from 1; answers have that of theirs */
    int64_t version;
    double share;
    float lr;
    int32_t status;
    uint64_t pieces, values;
    uint64_t unused;
};

/* A piece of a shard in eight bytes: its first parameter within the shard, and its length. */
enum { RF_STORE_LENGTH_BITS = 24 };
#define RF_STORE_LONGEST (((int64_t)1 << RF_STORE_LENGTH_BITS) - 1)
#define RF_STORE_MOST (((int64_t)1 << 40) - 1)

static inline uint64_t rf_store_pack(int64_t first, int64_t count)
{
    return (uint64_t)first << RF_STORE_LENGTH_BITS | (uint64_t)count;
}

static inline int64_t rf_store_first(uint64_t piece)
{
    return (int64_t)(piece >> RF_STORE_LENGTH_BITS);
}

static inline int64_t rf_store_length(uint64_t piece)
{
    return (int64_t)(piece & (uint64_t)RF_STORE_LONGEST);
}

/* A head that has come is one of the kinds from `from` to `to`, about a shard of `count`
 * parameters, and has this number. RF_ECORRUPT: it is not; the message says why. */
int rf_store_head_check(const struct rf_store_head *head, enum rf_store_message from,
                        enum rf_store_message to, int64_t number, int64_t count);

/* Pieces that have come ascend, do not overlap, lie in a shard of `count` parameters and have
 * `values` parameters together; else RF_ECORRUPT. */
int rf_store_pieces_check(const uint64_t *pieces, uint64_t number, uint64_t values, int64_t count);

#endif
