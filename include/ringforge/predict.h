/* SPDX-License-Identifier: MIT
 *
 * A collective call as data: what it sends and needs, which algorithm it takes, and how long that
 * is predicted to take. The functions that take no communicator are pure and thread-safe. comm.h
 * includes this.
 */
#ifndef RINGFORGE_PREDICT_H
#define RINGFORGE_PREDICT_H

#include "collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_coll_model;
struct rf_forest;

/* ---- the call -------------------------------------------------------------------------------- */

/* A call as `rank` makes it. Zero is the default of every field but op and ranks. Pointers must
 * stay valid while a function reads them. */
struct rf_coll_desc {
    enum rf_coll_op op;
    int rank, ranks;
    size_t count; /* elements, as in the call; ignored if there are counts */
    enum rf_dtype dtype;
    enum rf_redop redop;
    enum rf_order order; /* of sums over micro-batches always RF_ORDER_TREE */

    /* [ranks] Elements of each rank, for all_gather, reduce_scatter, gather, scatter, all_to_all
     * and the sums over micro-batches in pieces. NULL: `count` for each. For all_to_all, counts is
     * what this rank sends to each rank, and recv_counts what each rank sends to it; both are
     * needed. */
    const size_t *counts, *recv_counts;

    /* The root of a broadcast, reduce, gather or scatter; the peer of a send or recv (of a send to
     * itself, this rank: IN is copied to OUT). */
    int root;

    /* Sums over micro-batches (tree_order.h). RF_COLL_FOREST_...: the forest, and the elements
     * between parts (0: count). RF_COLL_PREFIX_...: the leaves, and which round. */
    const struct rf_forest *forest;
    size_t stride;
    int leaves, round;

    /* [ranks] The host of each rank. Hosts are numbered from 0 in the order of their first ranks.
     * NULL: all ranks are on one host. */
    const int *hosts;

    /* Ranks can read and write each other's buffers, as on one host with memory of rf_comm_alloc.
     */
    bool shared;

    /* Bytes of a segment of a long message, and of a window of a long call (docs/collectives.md).
     * 0: 256 KiB and 4 MiB, as in a communicator. SIZE_MAX: no segments, no windows. */
    size_t segment_bytes, window_bytes;

    /* Set by the library; ignored elsewhere. */
    const struct rf_coll_model *model; /* by which to choose; NULL: by size */
    int most_parts;  /* rf_forest_most_parts of a forest that has been checked; 0: not known */
    bool is_window;  /* part of a call of several windows, whose pieces are apart from each other */
    unsigned staged; /* RF_STAGED_*: in or out is staging memory; messages are the same */
};

/* ---- what it sends and needs ------------------------------------------------------------------
 */

enum rf_coll_uses { RF_USES_SENT = 1, RF_USES_STAGING = 2, RF_USES_TEMP = 4, RF_USES_ROUNDS = 8 };

/* What `rank` sends and needs for one call. */
struct rf_coll_usage {
    uint64_t sent_bytes;    /* payload that it sends, by the schedule that the call would run */
    uint64_t staging_bytes; /* staging memory (RF_CATEGORY_COMM) on tensors whose memory the host
                               cannot map: a few chunks, however large the call. A communicator
                               keeps the largest amount that any of its calls has needed */
    uint64_t temp_bytes;    /* temporary memory, in host memory */
    uint64_t rounds;        /* messages one after the other, on the longest way through all ranks */
};

/* Finds those figures of a call that `what` names (RF_USES_SENT | ...); the others become 0.
 * algorithm: its name; NULL: the one that the library would take. Sent bytes and rounds have
 * formulas for most algorithms, so many ranks take no longer than few; temp_bytes needs the list.
 * Errors: RF_EINVAL (the call is invalid, or the algorithm does not support it), RF_ENOMEM. */
RF_API int rf_coll_usage(const struct rf_coll_desc *desc, const char *algorithm, unsigned what,
                         struct rf_coll_usage *out);

/* ---- algorithms ------------------------------------------------------------------------------ */

/* The algorithm that a call takes without measured links: "ring", "flat", ...
 * (docs/collectives.md). */
RF_API int rf_coll_algorithm(const struct rf_coll_desc *desc, const char **name);

/* Rates of the links of a communicator. They are measured when its ranks join, if the ranks are on
 * several hosts or RF_MEASURE=1 is set. They are those of the slowest rank, and equal on all ranks.
 * The communicator uses them to choose algorithms. */
struct rf_link_figures {
    bool measured;           /* false: all other members are 0, and algorithms are those of
                              * rf_coll_algorithm */
    double message_s;        /* a short message to a neighbour, until it has arrived */
    double bytes_per_s;      /* of long messages */
    double more_message_s;   /* each further message, to another rank at the same time */
    double more_bytes_per_s; /* if a rank sends to all others at the same time */
    double fold_bytes_per_s; /* of a sum in host memory */
    /* Set if there are several hosts, and some have several ranks; else 0. host_*: short messages
     * to all other ranks of the host at the same time, and bytes per second of long ones.
     * between_*: the same to all ranks of other hosts. */
    double host_round_s, host_bytes_per_s, between_round_s, between_bytes_per_s;
};

/* Does not block. Thread-safe. Errors: RF_EINVAL. */
RF_API int rf_comm_links(const struct rf_comm *comm, struct rf_link_figures *out);

/* The algorithm that a call takes on this communicator, whose ranks and hosts replace those of the
 * description. Does not block. Thread-safe.
 *   desc->shared: all ranks pass memory of rf_comm_alloc, for which ranks of one host have
 * algorithms of their own ("fused"). False: as for ranks that share no memory; predicted bytes are
 * of that case.
 *   *seconds: the predicted time; negative if nothing was measured, or if there is no choice. */
RF_API int rf_comm_algorithm(const struct rf_comm *comm, const struct rf_coll_desc *desc,
                             const char **name, double *seconds);

#ifdef __cplusplus
}
#endif
#endif
