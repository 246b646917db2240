/* SPDX-License-Identifier: MIT
 *
 * The properties of each collective operation, in one table: the other files of coll and comm read
 * it instead of testing for operations. Pure.
 */
#ifndef RF_COLL_OPERATION_H
#define RF_COLL_OPERATION_H

#include <ringforge/comm.h>

struct rf_coll_desc;

/* The content of IN or OUT of a call. A share is the part of one rank: `count` elements, or
 * counts[rank]. */
enum rf_coll_shape {
    RF_SHAPE_NONE,        /* nothing */
    RF_SHAPE_WHOLE,       /* `count` elements */
    RF_SHAPE_CHUNKS,      /* the same, as one chunk for each rank: by counts, or nearly equal */
    RF_SHAPE_SHARE,       /* this rank's share */
    RF_SHAPE_SHARES,      /* the shares of all ranks, in the order of the ranks */
    RF_SHAPE_PARTS,       /* of a forest: one whole for each subtree of this rank, `stride` apart */
    RF_SHAPE_PART_SHARES, /* the same, as shares of all ranks */
    RF_SHAPE_LEAF, /* of a prefix: shares of all ranks, if this rank has a leaf in the round */
    RF_SHAPE_SLOTS /* of a prefix: this rank's share for each level */
};

/* The rank that a call names. */
enum rf_coll_root {
    RF_ROOT_NONE,
    RF_ROOT_FROM, /* the rank whose data all receive */
    RF_ROOT_TO,   /* the rank that receives the data of all */
    RF_PEER_TO,   /* the receiver of a message */
    RF_PEER_FROM  /* its sender */
};

/* How IN and OUT may overlap. */
enum rf_coll_in_place {
    RF_IN_PLACE_NEVER,
    RF_IN_PLACE_SAME,   /* OUT is IN */
    RF_IN_PLACE_ONE,    /* the only buffer is OUT */
    RF_IN_PLACE_IN_OUT, /* IN is this rank's share of OUT */
    RF_IN_PLACE_OUT_IN  /* OUT is this rank's share of IN */
};

/* Whether a rank needs messages from every other one to end such a call. */
enum rf_coll_needs { RF_NEEDS_SOME, RF_NEEDS_ALL_IF_COUNT, RF_NEEDS_ALL };

struct rf_operation {
    const char *name;
    enum rf_coll_shape in, out;
    bool in_on_root, out_on_root; /* only the root has this side */
    enum rf_coll_root root;
    enum rf_coll_in_place in_place;
    enum rf_coll_needs needs;
    bool reduces;
    bool adds_leaves; /* f32 sums over micro-batches, in tree order */
};

/* For any number: an invalid operation has the name "?" and otherwise zeros. */
const struct rf_operation *rf_operation(enum rf_coll_op op);

bool rf_coll_adds_leaves(enum rf_coll_op op);

/* ---- shape.c --------------------------------------------------------------------------------- */

/* The content of this rank's IN and OUT, and their number of elements. */
enum rf_coll_shape rf_coll_in_shape(const struct rf_coll_desc *desc);
enum rf_coll_shape rf_coll_out_shape(const struct rf_coll_desc *desc);
size_t rf_coll_in_count(const struct rf_coll_desc *desc);
size_t rf_coll_out_count(const struct rf_coll_desc *desc);
/* Elements of the shares of the ranks before this one. */
size_t rf_coll_share_offset(const struct rf_coll_desc *desc);
/* Whether in and out, two overlapping addresses, overlap in the one way that is allowed. */
bool rf_coll_in_place(const struct rf_coll_desc *desc, uint64_t in, uint64_t out);
/* The sum of all ranks' counts; 0 if counts is NULL. RF_EINVAL: too large. */
RF_MUST_CHECK int rf_coll_sum_counts(enum rf_coll_op op, const size_t *counts, int ranks,
                                     size_t *sum);

#endif
