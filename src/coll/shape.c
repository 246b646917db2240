/* SPDX-License-Identifier: MIT
 *
 * One rank's IN and OUT of a call: their content, their number of elements, and their allowed
 * overlap. Derived from the operation's row and the description.
 */
#include "../base/base.h"
#include "coll.h"

enum rf_coll_shape rf_coll_in_shape(const struct rf_coll_desc *desc)
{
    const struct rf_operation *row = rf_operation(desc->op);
    const int64_t leaf = (int64_t)desc->round * desc->ranks + desc->rank;
    if ((row->in_on_root && desc->rank != desc->root) ||
        (row->in == RF_SHAPE_LEAF && leaf >= desc->leaves))
        return RF_SHAPE_NONE;
    return row->in;
}

enum rf_coll_shape rf_coll_out_shape(const struct rf_coll_desc *desc)
{
    const struct rf_operation *row = rf_operation(desc->op);
    return row->out_on_root && desc->rank != desc->root ? RF_SHAPE_NONE : row->out;
}

/* counts: of the shares; NULL: equal shares. */
static size_t elements(const struct rf_coll_desc *desc, enum rf_coll_shape shape,
                       const size_t *counts)
{
    const size_t share = counts ? counts[desc->rank] : desc->count;
    size_t sum = 0;
    int parts;
    switch (shape) {
    case RF_SHAPE_NONE:
        return 0;
    case RF_SHAPE_SHARE:
        return share;
    case RF_SHAPE_SHARES:
        for (int r = 0; counts && r < desc->ranks; r++)
            sum += counts[r];
        return counts ? sum : desc->count * (size_t)desc->ranks;
    case RF_SHAPE_PARTS:
    case RF_SHAPE_PART_SHARES:
        parts = rf_forest_nodes(desc->forest, desc->rank, NULL);
        return parts > 0 ? (size_t)(parts - 1) * desc->stride + desc->count : 0;
    case RF_SHAPE_SLOTS:
        return (size_t)rf_prefix_slots(desc->leaves, desc->ranks) * share;
    default:
        return desc->count;
    }
}

size_t rf_coll_in_count(const struct rf_coll_desc *desc)
{
    return elements(desc, rf_coll_in_shape(desc), desc->counts);
}

size_t rf_coll_out_count(const struct rf_coll_desc *desc)
{
    return elements(desc, rf_coll_out_shape(desc),
                    desc->recv_counts ? desc->recv_counts : desc->counts);
}

size_t rf_coll_share_offset(const struct rf_coll_desc *desc)
{
    size_t before = 0;
    for (int r = 0; desc->counts && r < desc->rank; r++)
        before += desc->counts[r];
    return desc->counts ? before : desc->count * (size_t)desc->rank;
}

bool rf_coll_in_place(const struct rf_coll_desc *desc, uint64_t in, uint64_t out)
{
    const uint64_t share = rf_coll_share_offset(desc) * rf_dtype_bytes(desc->dtype);
    switch (rf_operation(desc->op)->in_place) {
    case RF_IN_PLACE_NEVER:
        return false;
    case RF_IN_PLACE_IN_OUT:
        return in == out + share;
    case RF_IN_PLACE_OUT_IN:
        return out == in + share;
    default:
        return in == out;
    }
}
