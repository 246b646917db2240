/* SPDX-License-Identifier: MIT
 *
 * Predictions for collective calls: the bytes sent, the algorithm, and the time. The functions that
 * take no communicator are pure and thread-safe. comm.h includes this.
 */
#ifndef RINGFORGE_PREDICT_H
#define RINGFORGE_PREDICT_H

#include "collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The reduction of a call is RF_SUM here. Averages and the caller's own reductions do not support
 * every algorithm; schedule.h describes their calls. */

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Bytes that `rank` sends for one call, by the schedule that the call would run. count: as in the
 * call. Most algorithms have a formula, so the time does not grow with the ranks. For sums over
 * micro-batches: rf_forest_sent_bytes, rf_prefix_sent_bytes (tree_order.h). */
RF_API int rf_coll_sent_bytes(enum rf_coll_op op, int rank, int ranks, size_t count,
                              enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out);

/* As rf_coll_sent_bytes, with the named algorithm. RF_EINVAL: it does not support the call. */
RF_API int rf_coll_sent_bytes_as(enum rf_coll_op op, const char *algorithm, int rank, int ranks,
                                 size_t count, enum rf_dtype dtype, enum rf_order order, int root,
                                 uint64_t *out);

/* As rf_coll_sent_bytes, for all_gather, reduce_scatter, gather and scatter with a count for each
 * rank. counts: `ranks` entries. (In all_to_all_v a rank sends what its send_counts say.) */
RF_API int rf_coll_sent_bytes_v(enum rf_coll_op op, int rank, int ranks, const size_t *counts,
                                enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out);

/* Bytes of staging memory (RF_CATEGORY_COMM) for a call on tensors whose memory the host cannot
 * map: a few chunks, however large the call. A communicator keeps the largest amount that any of
 * its calls has needed. */
RF_API int rf_coll_staging_bytes(enum rf_coll_op op, int rank, int ranks, size_t count,
                                 enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out);

/* As rf_coll_staging_bytes, with the named algorithm. RF_EINVAL: it does not support the call. */
RF_API int rf_coll_staging_bytes_as(enum rf_coll_op op, const char *algorithm, int rank, int ranks,
                                    size_t count, enum rf_dtype dtype, enum rf_order order,
                                    int root, uint64_t *out);

/* As rf_coll_staging_bytes, with a count for each rank. */
RF_API int rf_coll_staging_bytes_v(enum rf_coll_op op, int rank, int ranks, const size_t *counts,
                                   enum rf_dtype dtype, enum rf_order order, int root,
                                   uint64_t *out);

/* ---- algorithms ------------------------------------------------------------------------------ */

/* The algorithm of a call without measured links: "ring", "flat", ... (docs/collectives.md). */
RF_API int rf_coll_algorithm(enum rf_coll_op op, int ranks, size_t count, enum rf_dtype dtype,
                             enum rf_order order, const char **name);

/* Rates of the links of a communicator. They are measured when its ranks join, if the ranks are on
 * several hosts or RF_MEASURE=1 is set. They are those of the slowest rank, and equal on all ranks.
 * The communicator uses them to choose algorithms. */
struct rf_link_figures {
    bool measured;         /* false: all other members are 0, and algorithms are those of
                            * rf_coll_algorithm */
    double message_s;      /* a short message to a neighbour, until it has arrived */
    double bytes_per_s;    /* of long messages */
    double more_message_s; /* each further message, to another rank at the same time */
    double more_bytes_per_s; /* if a rank sends to all others at the same time */
    double fold_bytes_per_s; /* of a sum in host memory */
    /* Set if there are several hosts, and some have several ranks; else 0. host_*: short messages
     * to all other ranks of the host at the same time, and bytes per second of long ones.
     * between_*: the same to all ranks of other hosts. */
    double host_round_s, host_bytes_per_s, between_round_s, between_bytes_per_s;
};

/* Does not block. Thread-safe. Errors: RF_EINVAL. */
RF_API int rf_comm_links(const struct rf_comm *comm, struct rf_link_figures *out);

/* The algorithm of a call on this communicator. Does not block. Thread-safe.
 *   shared: all ranks pass memory of rf_comm_alloc, for which ranks of one host have special
 * algorithms ("fused"). False: ranks share no memory, as in predicted bytes.
 *   *seconds: the predicted time; negative if nothing was measured, or if there is no choice.
 */
RF_API int rf_comm_algorithm(const struct rf_comm *comm, enum rf_coll_op op, size_t count,
                             enum rf_dtype dtype, enum rf_order order, bool shared,
                             const char **name, double *seconds);

#ifdef __cplusplus
}
#endif
#endif
