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
