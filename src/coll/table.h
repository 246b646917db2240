/* SPDX-License-Identifier: MIT
 *
 * A row of the table of algorithms, for table.c, which has them and chooses, and build.c, which
 * makes the list of a call out of one.
 */
#ifndef RF_COLL_TABLE_H
#define RF_COLL_TABLE_H

#include "model.h"
#include "sched.h"

/* sent.c: the bytes that desc->rank sends. */
typedef uint64_t rf_sent(const struct rf_coll_desc *desc);
rf_sent rf_sent_nothing, rf_sent_to_all, rf_sent_to_root, rf_sent_by_root;
rf_sent rf_sent_ring_all_reduce, rf_sent_direct_all_reduce, rf_sent_direct_reduce;
rf_sent rf_sent_recursive_doubling_all_reduce, rf_sent_rabenseifner_all_reduce,
    rf_sent_naive_all_reduce;
rf_sent rf_sent_tree_broadcast, rf_sent_chain_broadcast, rf_sent_tree_gather, rf_sent_tree_scatter;
rf_sent rf_sent_other_pieces, rf_sent_own_piece, rf_sent_around, rf_sent_bruck;
rf_sent rf_sent_forest_all_reduce, rf_sent_forest_reduce_scatter, rf_sent_prefix_reduce_scatter;

/* rounds.c: messages one after the other. */
typedef uint64_t rf_rounds(int ranks);
rf_rounds rf_rounds_none, rf_rounds_two, rf_rounds_log, rf_rounds_tree, rf_rounds_log_twice,
    rf_rounds_around;
rf_rounds rf_rounds_around_twice, rf_rounds_hierarchical_twice;

struct rf_coll_row {
    enum rf_coll_op op; /* RF_COLL_NONE: any */
    const char *name, *note;
    const char *(*why_not)(const struct rf_coll_desc *desc); /* NULL: it would be right */
    bool (*preferred)(
        const struct rf_coll_desc *desc); /* it would be good; NULL: wherever it can */
    rf_cost *cost; /* where links are measured; NULL: never taken by prediction */
    rf_builder *build;
    rf_sent *sent; /* bytes of a call without counts, or of leaves; NULL: its list is counted */
    bool whole;    /* passes pieces on together: long calls cannot be cut into windows */
    bool near;     /* of ranks that share memory, and so before all others */
    rf_sent *sent_counts; /* of a call with a count for each rank; NULL: its list is counted */
    rf_rounds *rounds;    /* NULL: all messages at the same time */
};

/* The row of this name; without one, what suits the call. */
RF_MUST_CHECK int rf_coll_find(const struct rf_coll_desc *desc, const char *algorithm,
                               const struct rf_coll_row **out);

/* The rows by rf_coll_number, from 1 on; NULL behind the last. */
const struct rf_coll_row *rf_coll_row_at(int number);

/* Predicted seconds of this row for the description, which has a model; negative: none. */
double rf_coll_predict(const struct rf_coll_desc *desc, const char *algorithm);

/* Bytes that the list of rf_sched_build (or, with an algorithm, rf_sched_build_as) would send: by
 * the row's formula where that serves, else from the list. */
RF_MUST_CHECK int rf_coll_count_sent(const struct rf_coll_desc *desc, const char *algorithm,
                                     uint64_t *out);

/* Messages one after the other in such a call. */
RF_MUST_CHECK int rf_coll_count_rounds(const struct rf_coll_desc *desc, const char *algorithm,
                                       uint64_t *out);

static inline size_t rf_coll_bytes(const struct rf_coll_desc *desc)
{
    return desc->count * rf_dtype_bytes(desc->dtype);
}

/* Ranks that all read what each has shown (shared.c): with more there are too many places. */
static inline bool rf_coll_can_share(const struct rf_coll_desc *desc)
{
    return desc->ranks > 1 && desc->shared && desc->ranks <= 32;
}

#endif
