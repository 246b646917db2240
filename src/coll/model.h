/* SPDX-License-Identifier: MIT
 *
 * What a message costs, and from it how long each algorithm would take. Pure; the figures come from
 * comm/links.c, or from a test. Used by table.c where a description has a model.
 */
#ifndef RF_COLL_MODEL_H
#define RF_COLL_MODEL_H

#include "coll.h"

/* Short messages to all ranks of this host, or to all others, at the same time; and each byte of
 * all that a rank sends them. */
struct rf_coll_layer {
    double round_s, byte_s;
};

/* Of the slowest rank, the same on all ranks. Two patterns, since a network that carries one
 * message at a time well need not carry many at once: along a ring every rank has one neighbour to
 * send to, in a fan it sends to all others at the same time. */
struct rf_coll_model {
    double round_s;       /* a short message to the neighbour, until it has arrived */
    double byte_s;        /* each byte more of it */
    double fan_message_s; /* each short message more, to one more rank at the same time */
    double fan_byte_s;    /* each byte, of all messages of a rank together */
    double fold_byte_s;   /* adding a byte to a sum */
    size_t segment_bytes; /* of the transport: where the model has no reason for another */
    struct rf_coll_layer near, far; /* where some of several hosts have several ranks; else 0 */
};

/* What an algorithm costs: a row of the table has one of these. Seconds; negative: not predicted.
 */
struct rf_cost_view;
typedef double rf_cost(const struct rf_cost_view *v);
rf_cost rf_cost_flat_all_reduce, rf_cost_recursive_doubling_all_reduce,
    rf_cost_rabenseifner_all_reduce;
rf_cost rf_cost_direct_all_reduce, rf_cost_ring_all_reduce;
rf_cost rf_cost_bruck_all_gather, rf_cost_flat_all_gather, rf_cost_ring_all_gather;
rf_cost rf_cost_tree_broadcast, rf_cost_chain_broadcast;
rf_cost rf_cost_flat_rooted, rf_cost_tree_rooted;
rf_cost rf_cost_direct_reduce_scatter;
rf_cost rf_cost_hierarchical_all_reduce, rf_cost_hierarchical_reduce_scatter;
rf_cost rf_cost_hierarchical_all_gather, rf_cost_hierarchical_broadcast;

/* Seconds that `algorithm`, whose cost is given, would take. */
double rf_model_time(const struct rf_coll_model *model, const struct rf_coll_desc *desc,
                     const char *algorithm, rf_cost *cost);
/* How an algorithm's messages are best cut. */
size_t rf_model_segment(const struct rf_coll_model *model, const struct rf_coll_desc *desc,
                        const char *algorithm);

#endif
