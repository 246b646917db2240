/* SPDX-License-Identifier: MIT
 *
 * A row of the table of algorithms, for table.c, which has them and chooses, and build.c, which
 * makes the list of a call out of one.
 */
#ifndef RF_COLL_TABLE_H
#define RF_COLL_TABLE_H

#include "model.h"
#include "sched.h"

/* Bytes that desc->rank sends; sent.c has some. */
typedef uint64_t rf_sent(const struct rf_coll_desc *desc);
/* Messages one after the other, on the longest way through all ranks; rounds.c has some. */
typedef uint64_t rf_rounds(int ranks);
/* Length of segments where links are measured (desc->model). */
typedef size_t rf_segment_length(const struct rf_coll_desc *desc);
/* The elements of each rank's share in a call that does not say so. */
typedef void rf_share_counts(const struct rf_coll_desc *desc, size_t *counts);
/* What ranks go on with where they find that they do not reach each other's buffers: that call, and
 * the algorithm of it, or NULL: the one that is chosen. */
typedef const char *rf_fallback(const struct rf_coll_desc *desc, struct rf_coll_desc *other);

/* An algorithm for an operation. What may be NULL or false can be left away. */
struct rf_coll_row {
    enum rf_coll_op op;      /* RF_COLL_NONE: any */
    const char *name, *note; /* for opts.algorithm, and for people */
    const char *(*why_not)(const struct rf_coll_desc *desc); /* NULL: it would be right */
    /* Whether it would be good; NULL: wherever it is right. The first such row is taken. */
    bool (*preferred)(const struct rf_coll_desc *desc);
    rf_cost *cost; /* where links are measured; NULL: never taken by prediction */
    rf_builder *build;
    rf_sent *sent;        /* of a call without counts, or of leaves; NULL: its list is counted */
    bool whole;           /* passes pieces on together: long calls cannot be cut into windows */
    bool shares_memory;   /* of ranks that share memory, and so before all others */
    rf_sent *sent_counts; /* of a call with a count for each rank; NULL: its list is counted */
    rf_rounds *rounds;    /* NULL: all messages at the same time */
    rf_segment_length *segment; /* NULL: the transport's */
    rf_share_counts *counts;    /* NULL: the builder needs none */
    rf_fallback *fallback;      /* NULL: it needs none */
};

/* The row of this name; without one, what suits the call. */
RF_MUST_CHECK int rf_coll_find(const struct rf_coll_desc *desc, const char *algorithm,
                               const struct rf_coll_row **out);

/* The rows by rf_coll_number, from 1 on; NULL behind the last. */
const struct rf_coll_row *rf_coll_row_at(int number);

/* The length of segments that the row's list has. */
size_t rf_coll_segment(const struct rf_coll_desc *desc, const struct rf_coll_row *row);

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

/* Ranks that all read from each address (shared.c): with more there are too many. */
static inline bool rf_coll_can_share(const struct rf_coll_desc *desc)
{
    return desc->ranks > 1 && desc->shared && desc->ranks <= 32;
}

#endif
