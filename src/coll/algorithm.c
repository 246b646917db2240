/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of several algorithms: why a call cannot be served, and formulas of the bytes
 * that a rank sends. tests/coll/sent_test.cc compares the formulas with the lists.
 */
#include "algorithm.h"

#include "../base/base.h"

/* ---- why not ----------------------------------------------------------------------------------
 */

const char *rf_why_not(const struct rf_algorithm *algorithm, const struct rf_coll_desc *desc)
{
    return algorithm->why_not ? algorithm->why_not(desc) : NULL;
}

const char *rf_why_no_peers(const struct rf_coll_desc *desc)
{
    return desc->ranks > 1 ? NULL : "it needs two ranks or more";
}

const char *rf_why_no_partial_sums(const struct rf_coll_desc *desc, const char *narrow)
{
    if (desc->redop == RF_AVG) /* the average lies within the type, its partial sums need not */
        return "it sends partial sums, which may leave the type of the elements of an average";
    return desc->dtype == RF_F16 || desc->dtype == RF_BF16 ? narrow : NULL;
}

const char *rf_why_no_ring_order(const struct rf_coll_desc *desc)
{
    if (desc->order == RF_ORDER_TREE)
        return "it does not add in tree order";
    const char *why = rf_why_no_partial_sums(desc, "it would round 16-bit types at every hop");
    return why ? why : rf_why_no_peers(desc);
}

const char *rf_why_no_doubling(const struct rf_coll_desc *desc)
{
    if ((desc->ranks & (desc->ranks - 1)) != 0)
        return "the number of ranks is no power of two";
    if (desc->order == RF_ORDER_RING)
        return "it does not add in ring order";
    if (desc->redop == RF_CUSTOM)
        return "it does not take reductions of the caller's own";
    const char *why = rf_why_no_partial_sums(desc, "it would round 16-bit types at every hop");
    return why ? why : rf_why_no_peers(desc);
}

const char *rf_why_not_shared(const struct rf_coll_desc *desc)
{
    return desc->ranks > 1 && desc->shared && desc->ranks <= 32
               ? NULL
               : "it needs 2 to 32 ranks that share memory";
}

/* ---- bytes ------------------------------------------------------------------------------------
 */

uint64_t rf_sent_nothing(const struct rf_coll_desc *desc)
{
    return 0;
}

uint64_t rf_sent_to_all(const struct rf_coll_desc *desc)
{
    return ((uint64_t)desc->ranks - 1) * rf_coll_bytes(desc);
}

uint64_t rf_sent_to_root(const struct rf_coll_desc *desc)
{
    return desc->rank == desc->root ? 0 : rf_coll_bytes(desc);
}

uint64_t rf_sent_by_root(const struct rf_coll_desc *desc)
{
    return desc->rank == desc->root ? rf_sent_to_all(desc) : 0;
}

/* The lowest set bit of its place, or as many as there are ranks. */
int64_t rf_subtree(const struct rf_coll_desc *desc)
{
    const int64_t place = (desc->rank - (int64_t)desc->root + desc->ranks) % desc->ranks;
    int64_t places = 1;
    while (places < desc->ranks && !(place & places))
        places *= 2;
    return places < desc->ranks - place ? places : desc->ranks - place;
}

size_t rf_coll_piece_bytes(const struct rf_coll_desc *desc)
{
    return desc->counts ? rf_coll_bytes(desc) / (size_t)desc->ranks : rf_coll_bytes(desc);
}
