/* SPDX-License-Identifier: MIT
 *
 * Sums over micro-batches whose bits do not depend on the number of ranks. The gradients of the
 * global micro-batches, called leaves here, are added pairwise by index: node (level, i) is the sum
 * of leaves i << level up to ((i + 1) << level) - 1. comm.h includes this.
 *
 * Two distributions of the leaves exist. Forest: each rank has consecutive leaves. Prefix: leaves
 * are dealt out in turns, and each rank keeps one at a time (ZeRO stages 2 and 3).
 */
#ifndef RINGFORGE_TREE_ORDER_H
#define RINGFORGE_TREE_ORDER_H

#include "collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- consecutive leaves ---------------------------------------------------------------------- */

/* Rank r has leaves first[r] to first[r + 1] - 1. It sums the maximal aligned subtrees of this
 * range itself, and passes these sums to the calls below, in index order. */
struct rf_forest {
    int leaves, ranks;
    const int *first; /* ranks + 1 entries; first[0] = 0, first[ranks] = leaves */
};

struct rf_forest_node {
    int level, index;
};

/* The subtrees of one rank, in index order; returns their number (<= 62). nodes may be NULL. */
RF_EXPORT int rf_forest_nodes(const struct rf_forest *forest, int rank,
                              struct rf_forest_node *nodes);

/* All-reduce: out = the f32 sum of all leaves, on every rank.
 *   parts: the sums of the subtrees of this rank, 1-D f32; part k begins at element k * stride.
 *   out: count elements; may be part 0.
 * Blocking or asynchronous, and errors: as rf_all_reduce_tensor. */
RF_API int rf_forest_all_reduce_tensor(struct rf_comm *comm, const struct rf_forest *forest,
                                       struct rf_tensor parts, size_t stride, struct rf_tensor out,
                                       const struct rf_coll_opts *opts);

/* Bytes that `rank` sends. Pure. */
RF_API int rf_forest_sent_bytes(const struct rf_forest *forest, int rank, size_t count,
                                uint64_t *out);

/* Bytes of temporary memory that the call needs on `rank`. Pure. */
RF_API int rf_forest_temp_bytes(const struct rf_forest *forest, int rank, size_t count,
                                uint64_t *out);

/* Bytes of staging memory, as rf_coll_staging_bytes. Pure. */
RF_API int rf_forest_staging_bytes(const struct rf_forest *forest, int rank, size_t count,
                                   uint64_t *out);

/* Reduce-scatter: the same sum with the same bits. Rank r gets counts[r] elements of it in `out`,
 * after those of ranks 0 to r - 1. counts: one entry for each rank, equal on all ranks; any may be
 * 0. stride: at least the sum of counts. out: may be this rank's piece of part 0. A rank without
 * leaves may pass parts with a NULL buffer, and a rank with count 0 an out with a NULL buffer. */
RF_API int rf_forest_reduce_scatter_tensor(struct rf_comm *comm, const struct rf_forest *forest,
                                           struct rf_tensor parts, size_t stride,
                                           struct rf_tensor out, const size_t *counts,
                                           const struct rf_coll_opts *opts);

/* As rf_forest_sent_bytes, rf_forest_temp_bytes, rf_forest_staging_bytes, for the reduce-scatter.
 */
RF_API int rf_forest_scatter_sent_bytes(const struct rf_forest *forest, int rank,
                                        const size_t *counts, uint64_t *out);

RF_API int rf_forest_scatter_temp_bytes(const struct rf_forest *forest, int rank,
                                        const size_t *counts, uint64_t *out);

RF_API int rf_forest_scatter_staging_bytes(const struct rf_forest *forest, int rank,
                                           const size_t *counts, uint64_t *out);

/* ---- leaves in turns ------------------------------------------------------------------------- */

/* The same sum with the same bits, in rounds. Leaf k * ranks + r belongs to rank r in round k. A
 * round adds the next leaf of every rank to partial sums that the caller keeps, so that no rank
 * holds more than one leaf. The partial sums behave like the bits of a binary counter: slot s holds
 * a sum of 2^s leaves. */

/* The number of rounds, ceil(leaves / ranks); 0 if either is less than 1. */
RF_EXPORT int rf_prefix_rounds(int leaves, int ranks);

/* The number of slots that a rank needs, each of counts[rank] elements; at most
 * floor(log2(leaves)) + 1. */
RF_EXPORT int rf_prefix_slots(int leaves, int ranks);

/* The slots that hold a partial sum after `rounds` rounds: bit s for slot s. None after 0 rounds;
 * after the last round only the highest slot, which holds the whole sum. */
RF_EXPORT uint32_t rf_prefix_levels(int leaves, int ranks, int rounds);

/* Runs one round. All ranks call it for round = 0, 1, ..., rf_prefix_rounds - 1.
 *   leaf: the whole gradient of this rank, 1-D f32, as many elements as the sum of counts. In the
 * last round a rank may have no leaf: a NULL buffer. A rank with a leaf sends all of it except its
 * own piece; other ranks send nothing.
 *   slots: rf_prefix_slots * counts[rank] elements, 1-D f32; slot s begins at element s *
 * counts[rank]. The call reads the partial sums of earlier rounds. Afterwards the slots of
 * rf_prefix_levels hold partial sums; the contents of the others are undefined. leaf and slots must
 * not overlap. After the last round the highest slot holds this rank's piece of the sum.
 *   counts: one entry for each rank, equal on all ranks and in all rounds.
 */
RF_API int rf_prefix_reduce_scatter_tensor(struct rf_comm *comm, int leaves, int round,
                                           struct rf_tensor leaf, struct rf_tensor slots,
                                           const size_t *counts, const struct rf_coll_opts *opts);

/* For one round: as rf_forest_sent_bytes, rf_forest_temp_bytes, rf_forest_staging_bytes. Pure. */
RF_API int rf_prefix_sent_bytes(int leaves, int round, int rank, int ranks, const size_t *counts,
                                uint64_t *out);

RF_API int rf_prefix_temp_bytes(int leaves, int round, int rank, int ranks, const size_t *counts,
                                uint64_t *out);

RF_API int rf_prefix_staging_bytes(int leaves, int round, int rank, int ranks, const size_t *counts,
                                   uint64_t *out);

#ifdef __cplusplus
}
#endif
#endif
