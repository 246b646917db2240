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

#include "predict.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- consecutive leaves ---------------------------------------------------------------------- */

/* Rank r has leaves first[r] to first[r + 1] - 1. It sums the maximal aligned subtrees of this
 * range itself, and passes these sums to rf_tree_sum_tensor, in index order. */
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

/* ---- the calls ------------------------------------------------------------------------------- */

/* One of the sums over micro-batches. `desc` says which: its op, forest, stride, counts, leaves and
 * round are read. counts: one entry for each rank, equal on all ranks (and in all rounds); any may
 * be 0. Tensors are 1-D f32. rf_coll_usage tells what a call sends and needs. Blocking or
 * asynchronous, and errors: as rf_all_reduce_tensor.
 *
 * RF_COLL_FOREST_ALL_REDUCE: out = the sum of all leaves, on every rank.
 *   in: the sums of the subtrees of this rank; part k begins at element k * stride.
 *   out: its length is the count; may be part 0.
 *
 * RF_COLL_FOREST_REDUCE_SCATTER: the same sum to the same bits. Rank r gets counts[r] elements of
 * it, those that follow the elements of ranks 0 to r - 1. in: as above; stride is at least the sum
 * of counts. NULL buffer: this rank has no leaves. out: may be this rank's piece of part 0. NULL
 * buffer: its count is 0.
 *
 * RF_COLL_PREFIX_REDUCE_SCATTER: one round. All ranks call it for round = 0, 1, ...,
 * rf_prefix_rounds - 1.
 *   in: the whole gradient of this rank's leaf, as many elements as the sum of counts. In the last
 * round a rank may have no leaf: a NULL buffer. A rank with a leaf sends all of it but its own
 * piece; other ranks send nothing. out: the slots, rf_prefix_slots * counts[rank] elements; slot s
 * begins at element s * counts[rank]. The call reads what earlier rounds have left there.
 * Afterwards the slots of rf_prefix_levels hold partial sums; the contents of the others are
 * undefined. in and out must not overlap. After the last round the highest slot holds this rank's
 * piece of the sum. */
RF_API int rf_tree_sum_tensor(struct rf_comm *comm, const struct rf_coll_desc *desc,
                              struct rf_tensor in, struct rf_tensor out,
                              const struct rf_coll_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
