/* SPDX-License-Identifier: MIT
 *
 * The names of collective operations, and what is true of each.
 */
#include "coll.h"

static const char *const op_names[RF_COLL_OP_COUNT] = {
    [RF_COLL_NONE] = "none",
    [RF_COLL_ALL_REDUCE] = "all_reduce",
    [RF_COLL_REDUCE_SCATTER] = "reduce_scatter",
    [RF_COLL_ALL_GATHER] = "all_gather",
    [RF_COLL_BROADCAST] = "broadcast",
    [RF_COLL_REDUCE] = "reduce",
    [RF_COLL_GATHER] = "gather",
    [RF_COLL_SCATTER] = "scatter",
    [RF_COLL_ALL_TO_ALL] = "all_to_all",
    [RF_COLL_BARRIER] = "barrier",
    [RF_COLL_SEND] = "send",
    [RF_COLL_RECV] = "recv",
    [RF_COLL_FOREST_ALL_REDUCE] = "forest_all_reduce",
    [RF_COLL_FOREST_REDUCE_SCATTER] = "forest_reduce_scatter",
    [RF_COLL_PREFIX_REDUCE_SCATTER] = "prefix_reduce_scatter",
};

const char *rf_coll_op_name(enum rf_coll_op op)
{
    return (unsigned)op < RF_COLL_OP_COUNT ? op_names[op] : "?";
}

bool rf_coll_has_root(enum rf_coll_op op)
{
    return op == RF_COLL_BROADCAST || op == RF_COLL_REDUCE || op == RF_COLL_GATHER ||
           op == RF_COLL_SCATTER || op == RF_COLL_SEND || op == RF_COLL_RECV;
}

bool rf_coll_reduces(enum rf_coll_op op)
{
    return op == RF_COLL_ALL_REDUCE || op == RF_COLL_REDUCE || op == RF_COLL_REDUCE_SCATTER ||
           rf_coll_adds_leaves(op);
}

bool rf_coll_adds_leaves(enum rf_coll_op op)
{
    return op == RF_COLL_FOREST_ALL_REDUCE || op == RF_COLL_FOREST_REDUCE_SCATTER ||
           op == RF_COLL_PREFIX_REDUCE_SCATTER;
}
