/* SPDX-License-Identifier: MIT
 *
 * The table of collective operations.
 */
#include "operation.h"

#include "../base/base.h"
#include "coll.h"

static const struct rf_operation operations[] = {
    [RF_COLL_NONE] = {.name = "none"},
    [RF_COLL_ALL_REDUCE] = {.name = "all_reduce",
                            .in = RF_SHAPE_CHUNKS,
                            .out = RF_SHAPE_CHUNKS,
                            .in_place = RF_IN_PLACE_SAME,
                            .needs = RF_NEEDS_ALL_IF_COUNT,
                            .reduces = true},
    [RF_COLL_REDUCE_SCATTER] = {.name = "reduce_scatter",
                                .in = RF_SHAPE_SHARES,
                                .out = RF_SHAPE_SHARE,
                                .in_place = RF_IN_PLACE_OUT_IN,
                                .needs = RF_NEEDS_ALL_IF_COUNT,
                                .reduces = true},
    [RF_COLL_ALL_GATHER] = {.name = "all_gather",
                            .in = RF_SHAPE_SHARE,
                            .out = RF_SHAPE_SHARES,
                            .in_place = RF_IN_PLACE_IN_OUT,
                            .needs = RF_NEEDS_ALL_IF_COUNT},
    [RF_COLL_BROADCAST] = {.name = "broadcast",
                           .in = RF_SHAPE_WHOLE,
                           .out = RF_SHAPE_WHOLE,
                           .root = RF_ROOT_FROM,
                           .in_place = RF_IN_PLACE_ONE},
    [RF_COLL_REDUCE] = {.name = "reduce",
                        .in = RF_SHAPE_CHUNKS,
                        .out = RF_SHAPE_CHUNKS,
                        .out_on_root = true,
                        .root = RF_ROOT_TO,
                        .in_place = RF_IN_PLACE_SAME,
                        .needs = RF_NEEDS_ALL_IF_COUNT,
                        .reduces = true},
    [RF_COLL_GATHER] = {.name = "gather",
                        .in = RF_SHAPE_SHARE,
                        .out = RF_SHAPE_SHARES,
                        .out_on_root = true,
                        .root = RF_ROOT_TO,
                        .in_place = RF_IN_PLACE_IN_OUT,
                        .needs = RF_NEEDS_ALL_IF_COUNT},
    [RF_COLL_SCATTER] = {.name = "scatter",
                         .in = RF_SHAPE_SHARES,
                         .in_on_root = true,
                         .out = RF_SHAPE_SHARE,
                         .root = RF_ROOT_FROM,
                         .in_place = RF_IN_PLACE_OUT_IN,
                         .needs = RF_NEEDS_ALL_IF_COUNT},
    [RF_COLL_ALL_TO_ALL] = {.name = "all_to_all",
                            .in = RF_SHAPE_SHARES,
                            .out = RF_SHAPE_SHARES,
                            .in_place = RF_IN_PLACE_NEVER,
                            .needs = RF_NEEDS_ALL_IF_COUNT},
    [RF_COLL_BARRIER] = {.name = "barrier",
                         .in = RF_SHAPE_NONE,
                         .out = RF_SHAPE_NONE,
                         .in_place = RF_IN_PLACE_SAME,
                         .needs = RF_NEEDS_ALL},
    [RF_COLL_SEND] = {.name = "send",
                      .in = RF_SHAPE_WHOLE,
                      .out = RF_SHAPE_WHOLE, /* for a send to itself */
                      .root = RF_PEER_TO,
                      .in_place = RF_IN_PLACE_SAME,
                      .needs = RF_NEEDS_ALL_IF_COUNT},
    [RF_COLL_RECV] = {.name = "recv",
                      .in = RF_SHAPE_WHOLE,
                      .out = RF_SHAPE_WHOLE,
                      .root = RF_PEER_FROM,
                      .in_place = RF_IN_PLACE_SAME,
                      .needs = RF_NEEDS_ALL_IF_COUNT},
    [RF_COLL_FOREST_ALL_REDUCE] = {.name = "forest_all_reduce",
                                   .in = RF_SHAPE_PARTS,
                                   .out = RF_SHAPE_WHOLE,
                                   .in_place = RF_IN_PLACE_SAME,
                                   .needs = RF_NEEDS_ALL_IF_COUNT,
                                   .reduces = true,
                                   .adds_leaves = true},
    /* A rank may have no leaves, and then a count of 0. */
    [RF_COLL_FOREST_REDUCE_SCATTER] = {.name = "forest_reduce_scatter",
                                       .in = RF_SHAPE_PART_SHARES,
                                       .out = RF_SHAPE_SHARE,
                                       .in_place = RF_IN_PLACE_OUT_IN,
                                       .reduces = true,
                                       .adds_leaves = true},
    [RF_COLL_PREFIX_REDUCE_SCATTER] = {.name = "prefix_reduce_scatter",
                                       .in = RF_SHAPE_LEAF,
                                       .out = RF_SHAPE_SLOTS,
                                       .in_place = RF_IN_PLACE_NEVER,
                                       .reduces = true,
                                       .adds_leaves = true},
};
_Static_assert(sizeof(operations) / sizeof(operations[0]) == RF_COLL_OP_COUNT, "a row for each");

const struct rf_operation *rf_operation(enum rf_coll_op op)
{
    static const struct rf_operation unknown = {.name = "?"};
    return (unsigned)op < RF_COLL_OP_COUNT ? &operations[op] : &unknown;
}

const char *rf_coll_op_name(enum rf_coll_op op)
{
    return rf_operation(op)->name;
}

bool rf_coll_has_root(enum rf_coll_op op)
{
    return rf_operation(op)->root != RF_ROOT_NONE;
}

bool rf_coll_reduces(enum rf_coll_op op)
{
    return rf_operation(op)->reduces;
}

bool rf_coll_adds_leaves(enum rf_coll_op op)
{
    return rf_operation(op)->adds_leaves;
}

bool rf_coll_is_point(enum rf_coll_op op)
{
    const enum rf_coll_root root = rf_operation(op)->root;
    return root == RF_PEER_TO || root == RF_PEER_FROM;
}

bool rf_coll_has_shares(enum rf_coll_op op)
{
    const struct rf_operation *row = rf_operation(op);
    return row->in == RF_SHAPE_SHARES || row->out == RF_SHAPE_SHARES;
}

int rf_coll_sum_counts(enum rf_coll_op op, const size_t *counts, int ranks, size_t *sum)
{
    size_t total = 0;
    for (int r = 0; counts && r < ranks; r++)
        if (__builtin_add_overflow(total, counts[r], &total))
            return rf_fail(RF_EINVAL, "%s: the counts add up to more than memory can hold",
                           rf_coll_op_name(op));
    *sum = total;
    return 0;
}
