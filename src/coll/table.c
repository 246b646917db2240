/* SPDX-License-Identifier: MIT
 *
 * The list of algorithms, and which of them serves a call: the first that is right and preferred,
 * or the one of the least predicted time. A new algorithm is a file with its record, and its name
 * here (docs/adding.md). Called by build.c and comm.
 */
#include "table.h"

#include "../base/base.h"

/* In the order in which they are asked. A record is called rf_NAME. */
/* clang-format off */
#define ALGORITHMS(X)                                                             \
    X(local)                                                                      \
    X(dissemination)                                                              \
    X(fused_all_reduce)                                                           \
    X(shared_all_reduce)                                                          \
    X(recursive_doubling_all_reduce)                                              \
    X(flat_all_reduce)                                                            \
    X(rabenseifner_all_reduce)                                                    \
    X(direct_all_reduce)                                                          \
    X(ring_all_reduce)                                                            \
    X(naive_all_reduce)                                                           \
    X(flat_reduce) X(direct_reduce)                                               \
    X(tree_gather) X(flat_gather)                                                 \
    X(tree_scatter) X(flat_scatter)                                               \
    X(pairs_all_to_all)                                                           \
    X(halving_reduce_scatter) X(direct_reduce_scatter)                            \
    X(shared_all_gather) X(bruck_all_gather) X(flat_all_gather) X(ring_all_gather) \
    X(tree_broadcast) X(chain_broadcast) X(flat_broadcast)                        \
    X(hierarchical_all_reduce) X(hierarchical_reduce_scatter)                     \
    X(hierarchical_all_gather) X(hierarchical_broadcast)                          \
    X(message_send) X(message_recv)                                               \
    X(forest_all_reduce) X(forest_reduce_scatter) X(prefix_reduce_scatter)
/* clang-format on */

#define DECLARE(name) extern const struct rf_algorithm rf_##name;
#define ADDRESS(name) &rf_##name,
ALGORITHMS(DECLARE)
static const struct rf_algorithm *const table[] = {ALGORITHMS(ADDRESS)};
enum { COUNT = sizeof(table) / sizeof(table[0]) };
_Static_assert(COUNT <= UINT8_MAX, "a contract has an algorithm's number in 8 bits");

static int check(const struct rf_coll_desc *desc)
{
    const char *op = rf_coll_op_name(desc->op);
    if (desc->op <= RF_COLL_NONE || desc->op >= RF_COLL_OP_COUNT)
        return rf_fail(RF_EINVAL, "collective: %d is no operation", (int)desc->op);
    if (desc->ranks < 1 || desc->rank < 0 || desc->rank >= desc->ranks)
        return rf_fail(RF_EINVAL, "%s: rank %d of %d ranks does not exist", op, desc->rank,
                       desc->ranks);
    size_t element = rf_dtype_bytes(desc->dtype);
    if (element == 0 || (unsigned)desc->redop > RF_CUSTOM || (unsigned)desc->order > RF_ORDER_TREE)
        return rf_fail(RF_EINVAL, "%s: unknown type (%d), reduction (%d) or order (%d)", op,
                       (int)desc->dtype, (int)desc->redop, (int)desc->order);
    size_t extent = desc->stride > desc->count ? desc->stride : desc->count;
    if (extent > ((size_t)1 << 55) / element / (size_t)(desc->ranks < 64 ? 64 : desc->ranks))
        return rf_fail(RF_EINVAL, "%s: %zu elements are too many", op, extent);
    if (rf_coll_has_root(desc->op) && (desc->root < 0 || desc->root >= desc->ranks))
        return rf_fail(RF_EINVAL, "%s: rank %d does not exist among %d ranks", op, desc->root,
                       desc->ranks);
    if (desc->op == RF_COLL_RECV && desc->root == desc->rank)
        return rf_fail(RF_EINVAL, "recv: rank %d cannot receive from itself; use sendrecv",
                       desc->rank);
    if (desc->op == RF_COLL_PREFIX_REDUCE_SCATTER)
        return rf_prefix_check(desc);
    return rf_coll_adds_leaves(desc->op) ? rf_forest_check(desc) : 0;
}

static bool is_for(const struct rf_algorithm *a, enum rf_coll_op op)
{
    return a->op == RF_COLL_NONE || a->op == op;
}

static bool serves(const struct rf_algorithm *a, const struct rf_coll_desc *desc)
{
    return is_for(a, desc->op) && !rf_why_not(a, desc);
}

static bool is_preferred(const struct rf_algorithm *a, const struct rf_coll_desc *desc)
{
    return !a->never_by_size && (!a->preferred || a->preferred(desc));
}

size_t rf_coll_segment(const struct rf_coll_desc *desc, const struct rf_algorithm *algorithm)
{
    if (rf_coll_adds_leaves(desc->op))
        return 0; /* their own */
    return algorithm->segment ? algorithm->segment(desc) : rf_usual_segment(desc);
}

/* The least predicted time, among those that have a cost; NULL: none has. */
static const struct rf_algorithm *fastest(const struct rf_coll_desc *desc)
{
    const struct rf_algorithm *best = NULL;
    double least = 0;
    for (int i = 0; i < COUNT; i++) {
        if (!table[i]->cost || !serves(table[i], desc))
            continue;
        double time =
            rf_model_time(desc->model, desc, rf_coll_segment(desc, table[i]), table[i]->cost);
        if (time < 0)
            return NULL;
        if (!best || time < least) {
            best = table[i];
            least = time;
        }
    }
    return best;
}

static int choose(const struct rf_coll_desc *desc, const struct rf_algorithm **out)
{
    RETURN_IF_ERROR(check(desc));
    *out = NULL;
    for (int i = 0; i < COUNT && !*out; i++)
        if (serves(table[i], desc) && is_preferred(table[i], desc))
            *out = table[i];
    const struct rf_algorithm *best = desc->model && *out && (*out)->cost ? fastest(desc) : NULL;
    *out = best ? best : *out;
    if (*out)
        return 0;
    return rf_fail(RF_ENOTSUP, "%s: no algorithm serves %s in %s order", rf_coll_op_name(desc->op),
                   rf_dtype_name(desc->dtype), rf_order_name(desc->order));
}

int rf_coll_find(const struct rf_coll_desc *desc, const char *name, const struct rf_algorithm **out)
{
    if (!name)
        return choose(desc, out);
    RETURN_IF_ERROR(check(desc));
    const char *op = rf_coll_op_name(desc->op);
    const struct rf_algorithm *found = rf_coll_at(rf_coll_number(desc->op, name));
    if (!found)
        return rf_fail(RF_EINVAL, "%s: there is no algorithm \"%s\" for it", op, name);
    const char *why = rf_why_not(found, desc);
    if (why)
        return rf_fail(RF_EINVAL,
                       "%s: algorithm \"%s\" cannot serve %zu %s in %s order on %d ranks: %s", op,
                       name, desc->count, rf_dtype_name(desc->dtype), rf_order_name(desc->order),
                       desc->ranks, why);
    *out = found;
    return 0;
}

uint8_t rf_coll_number(enum rf_coll_op op, const char *algorithm)
{
    for (int i = 0; i < COUNT; i++)
        if (is_for(table[i], op) && strcmp(table[i]->name, algorithm) == 0)
            return (uint8_t)(i + 1);
    return 0;
}

const struct rf_algorithm *rf_coll_at(int number)
{
    return number > 0 && number <= COUNT ? table[number - 1] : NULL;
}

const char *rf_coll_numbered(uint8_t number)
{
    const struct rf_algorithm *algorithm = rf_coll_at(number);
    return algorithm ? algorithm->name : "?";
}

static double predict(const struct rf_coll_desc *desc, const struct rf_algorithm *algorithm)
{
    return desc->model && algorithm->cost
               ? rf_model_time(desc->model, desc, rf_coll_segment(desc, algorithm), algorithm->cost)
               : -1;
}

int rf_coll_choose(const struct rf_coll_desc *desc, const char **name, double *seconds)
{
    const struct rf_algorithm *algorithm;
    RETURN_IF_ERROR(choose(desc, &algorithm));
    *name = algorithm->name;
    *seconds = predict(desc, algorithm);
    return 0;
}

double rf_coll_predict(const struct rf_coll_desc *desc, const char *name)
{
    const struct rf_algorithm *algorithm;
    return rf_coll_find(desc, name, &algorithm) < 0 ? -1 : predict(desc, algorithm);
}

int rf_coll_algorithm(enum rf_coll_op op, int ranks, size_t count, enum rf_dtype dtype,
                      enum rf_order order, const char **name)
{
    const struct rf_coll_desc desc = {
        .op = op, .ranks = ranks, .count = count, .dtype = dtype, .order = order};
    const struct rf_algorithm *algorithm;
    if (!name)
        return rf_fail(RF_EINVAL, "rf_coll_algorithm: name is NULL");
    if (rf_coll_adds_leaves(op) || rf_coll_is_point(op))
        return rf_fail(RF_EINVAL, "rf_coll_algorithm: there is no choice in %s",
                       rf_coll_op_name(op));
    RETURN_IF_ERROR(choose(&desc, &algorithm));
    *name = algorithm->name;
    return 0;
}
