/* SPDX-License-Identifier: MIT
 *
 * An algorithm is a file that exports a record of this form for each of its operations: its
 * builder, the conditions for its use, and the bytes it sends. table.c lists their names. This
 * header also declares helpers shared by several algorithms. Pure.
 */
#ifndef RF_COLL_ALGORITHM_H
#define RF_COLL_ALGORITHM_H

#include "model.h"
#include "sched.h"

/* Consecutive messages on the longest way through all ranks: the sum of the members, each
 * multiplied by its factor. Segments and windows count once, since only the first of them is waited
 * for. All 0: the lists of all ranks are built and counted. */
struct rf_rounds {
    int fixed;  /* times 1 */
    int log;    /* times log2 N, rounded up: each round reaches twice as many ranks */
    int tree;   /* times log2 N, rounded down: a tree whose ranks send to all children at once */
    int around; /* times N - 1 */
};

/* Fields that may be NULL, 0 or false may be omitted. */
struct rf_algorithm {
    enum rf_coll_op op; /* RF_COLL_NONE: any */
    const char *name;   /* for opts.algorithm */

    /* For people (docs/collectives.md): the calls that use it; and the bytes that the busiest rank
     * sends, K the size of the whole and N the number of ranks. */
    const char *note, *bytes;

    /* A message if the result would be wrong; NULL: it would be right, or (the function) it always
     * is. This and `preferred` may read only values that are equal on all ranks. */
    const char *(*why_not)(const struct rf_coll_desc *desc);
    /* Whether its size makes it the best; NULL: all sizes do. The first of the list that is right
     * and preferred is taken. */
    bool (*preferred)(const struct rf_coll_desc *desc);
    bool never_by_size; /* it is taken by name, or by prediction */
    /* Predicted seconds, if links are measured; NULL: never chosen by prediction. */
    rf_cost *cost;
    rf_builder *build;

    /* Bytes that desc->rank sends: in a call without counts, or of leaves; and in one with a count
     * for each rank. NULL: the list is built and counted. */
    uint64_t (*sent)(const struct rf_coll_desc *desc);
    uint64_t (*sent_counts)(const struct rf_coll_desc *desc);
    struct rf_rounds rounds;

    bool whole;         /* a message holds pieces of several ranks, or partial sums of the whole
                           call: long calls are not cut into windows */
    bool shares_memory; /* for ranks that share memory: precedes all others */
    /* Length of segments; NULL: the transport's. */
    size_t (*segment)(const struct rf_coll_desc *desc);
    /* The elements of each rank's share in a call without counts. NULL: the builder needs none. */
    void (*counts)(const struct rf_coll_desc *desc, size_t *counts);
    /* The fallback if a rank cannot reach another's buffers: fills in the call, returns the name of
     * its algorithm, or NULL to let the table choose. NULL: it needs none. */
    const char *(*fallback)(const struct rf_coll_desc *desc, struct rf_coll_desc *other);
};

/* ---- algorithm.c ------------------------------------------------------------------------------
 */

/* Why an algorithm cannot serve the call; NULL: it can. */
const char *rf_why_not(const struct rf_algorithm *algorithm, const struct rf_coll_desc *desc);

/* For why_not. There are two ranks or more. */
const char *rf_why_no_peers(const struct rf_coll_desc *desc);
/* Partial sums are sent, and so rounded to the type; `narrow` names the place of the rounding, for
 * 16-bit types. */
const char *rf_why_no_partial_sums(const struct rf_coll_desc *desc, const char *narrow);
/* The same, in the order of a ring of two ranks or more; and between pairs of 2^k ranks. */
const char *rf_why_no_ring_order(const struct rf_coll_desc *desc);
const char *rf_why_no_doubling(const struct rf_coll_desc *desc);
/* All ranks read from each address; with more than 32 there are too many. */
const char *rf_why_not_shared(const struct rf_coll_desc *desc);

/* For `sent`: the whole to every other rank; to the root (of a send, the peer); by the root to all.
 */
uint64_t rf_sent_nothing(const struct rf_coll_desc *desc);
uint64_t rf_sent_to_all(const struct rf_coll_desc *desc);
uint64_t rf_sent_to_root(const struct rf_coll_desc *desc);
uint64_t rf_sent_by_root(const struct rf_coll_desc *desc);

/* The size of the subtree under this rank, itself included, in a binomial tree from the root. */
int64_t rf_subtree(const struct rf_coll_desc *desc);

/* For a call with counts, the average of the pieces, which is equal on all ranks. */
size_t rf_coll_piece_bytes(const struct rf_coll_desc *desc);

static inline size_t rf_coll_bytes(const struct rf_coll_desc *desc)
{
    return desc->count * rf_dtype_bytes(desc->dtype);
}

/* Chunk c of the call, and (with counts) the piece of a rank; both are counted around the end. */
static inline uint64_t rf_chunk_bytes(const struct rf_coll_desc *desc, int c)
{
    return rf_chunk(desc->count, desc->ranks, c % desc->ranks, rf_dtype_bytes(desc->dtype)).bytes;
}

static inline uint64_t rf_piece_bytes(const struct rf_coll_desc *desc, int rank)
{
    return (uint64_t)desc->counts[rank % desc->ranks] * rf_dtype_bytes(desc->dtype);
}

/* The length of segments for an algorithm without its own. */
static inline size_t rf_usual_segment(const struct rf_coll_desc *desc)
{
    return desc->model ? desc->model->segment_bytes : desc->segment_bytes;
}

#endif
