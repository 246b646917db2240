/* SPDX-License-Identifier: MIT
 *
 * What a message costs, and from it how long each algorithm would take. Pure; the figures come from
 * comm/job/links.c, or from a test. Used by table.c if a description has a model.
 */
#ifndef RF_COLL_MODEL_H
#define RF_COLL_MODEL_H

#include "coll.h"

/* Costs in one layer (within hosts, or between them): a round of short messages to all ranks there
 * at the same time, and each byte that a rank sends to them. */
struct rf_coll_layer {
    double round_s, byte_s;
};

/* Rates of the slowest rank, the same on all ranks. For two patterns, because a network that
 * carries one message at a time well need not carry many at once: in a ring every rank sends to one
 * neighbour, in a fan it sends to all others at the same time. */
struct rf_coll_model {
    double round_s;       /* a short message to the neighbour, until it arrives */
    double byte_s;        /* each further byte of it */
    double fan_message_s; /* each further short message, to one more rank at the same time */
    double fan_byte_s;    /* each byte of all messages of a rank together */
    double fold_byte_s;   /* adding a byte to a sum */
    size_t segment_bytes; /* the transport's: used if the model gives no other */
    struct rf_coll_layer intra_host,
        inter_host; /* if several hosts exist and some have several ranks; else 0 */
};

/* One call, in the model's terms. */
struct rf_cost_view {
    const struct rf_coll_model *m;
    double ranks, others, rounds; /* rounds: log2, rounded up */
    double bytes;                 /* of the whole */
    double share;                 /* of one rank's piece */
    double segment;
    double hosts, here; /* number of hosts, and average ranks per host; hosts 0: irrelevant */
    double windows;     /* number of windows of a call by hosts */
};

/* What an algorithm costs: its record names it. Seconds; negative: not predicted. */
typedef double rf_cost(const struct rf_cost_view *v);

enum {
    RF_UNCUT = 256 << 10,
    RF_LONGEST_UNCUT = 2 << 20,
    RF_LONGEST_EXCHANGED = 1 << 20 /* in both directions: 95 % of a link of 1 Gbit/s; 2 MiB: 79 % */
};
/* Some algorithms do not cut their messages, and so are for short ones: what overruns the buffers
 * of a connection is slower than was measured. HUGE_VAL if a message is longer than `most` bytes,
 * so that they are not taken. */
double rf_cost_uncut(double message, double most, double seconds);
/* The cost of `bytes` to each of all other ranks at the same time. */
double rf_cost_fan(const struct rf_cost_view *v, double bytes);
/* The cost of `bytes` to one neighbour, in segments: only the first is waited for. */
double rf_cost_hop(const struct rf_cost_view *v, double bytes);

/* The predicted seconds of an algorithm with this cost and segment length. */
double rf_model_time(const struct rf_coll_model *model, const struct rf_coll_desc *desc,
                     size_t segment_bytes, rf_cost *cost);

#endif
