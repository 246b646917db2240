/* SPDX-License-Identifier: MIT
 *
 * Which algorithm serves which collective: the first row that fits. A row may look only at what all
 * ranks agree about (operation, ranks, bytes, type, order), never at what one rank sees. A new
 * algorithm is a builder and a row. Called by build.c and comm.
 */
#include "table.h"
#include "../base/base.h"
#include "model.h"

/* Of one rank's piece, on average: what all ranks agree about. */
static size_t share_of(const struct rf_coll_desc *desc)
{
    return desc->counts ? rf_coll_bytes(desc) / (size_t)desc->ranks : rf_coll_bytes(desc);
}

static bool any(const struct rf_coll_desc *desc)
{
    return true;
}

static bool has_peers(const struct rf_coll_desc *desc)
{
    return desc->ranks > 1;
}

static bool is_alone(const struct rf_coll_desc *desc)
{
    return desc->ranks == 1 && desc->op != RF_COLL_FOREST_ALL_REDUCE && desc->op != RF_COLL_RECV;
}

static bool is_empty(const struct rf_coll_desc *desc)
{
    if (desc->op == RF_COLL_ALL_TO_ALL && desc->counts)
        return false; /* counts differ from rank to rank */
    return desc->op == RF_COLL_BARRIER ||
           (desc->count == 0 && desc->op != RF_COLL_SEND && desc->op != RF_COLL_RECV);
}

/* Types that a ring would round at every hop. */
static bool is_narrow(const struct rf_coll_desc *desc)
{
    return desc->dtype == RF_F16 || desc->dtype == RF_BF16;
}

static bool in_ring_order(const struct rf_coll_desc *desc)
{
    return has_peers(desc) && desc->order != RF_ORDER_TREE && !is_narrow(desc);
}

static bool can_double(const struct rf_coll_desc *desc)
{
    return has_peers(desc) && (desc->ranks & (desc->ranks - 1)) == 0 &&
           desc->order != RF_ORDER_RING && !is_narrow(desc) && desc->redop != RF_CUSTOM;
}

static bool can_halve(const struct rf_coll_desc *desc)
{
    return can_double(desc) && desc->order == RF_ORDER_ANY;
}

/* Several hosts, and several ranks on some. */
static bool spans_hosts(const struct rf_coll_desc *desc)
{
    int most = 0;
    for (int r = 0; desc->hosts && r < desc->ranks; r++)
        most = desc->hosts[r] > most ? desc->hosts[r] : most;
    return most > 0 && most + 1 < desc->ranks;
}

/* Sums are rounded between hosts, and folded in an order of the layout's. */
static bool can_fold_by_hosts(const struct rf_coll_desc *desc)
{
    return spans_hosts(desc) && desc->order == RF_ORDER_ANY && !is_narrow(desc) &&
           desc->redop != RF_CUSTOM;
}

static bool never(const struct rf_coll_desc *desc)
{
    return false;
}

/* Only where that is predicted: the sizes in this file are of ranks that are all neighbours. */
static bool when_measured(const struct rf_coll_desc *desc)
{
    return false;
}

/* Of four ranks a second round costs more than one more short message. */
static bool fits_doubling(const struct rf_coll_desc *desc)
{
    size_t least = desc->ranks == 4 ? 4 * 1024 : 0;
    return desc->ranks >= 4 && rf_coll_bytes(desc) > least && rf_coll_bytes(desc) <= 64 * 1024;
}

/* One round, but N-1 times the data: for two ranks that is what a ring sends. Past this size the
 * ring's segments win on TCP by two (messages that overrun the socket's buffer leave the connection
 * slow for what follows), and make no difference in shared memory. */
static bool fits_flat(const struct rf_coll_desc *desc)
{
    size_t limit = desc->ranks == 2 ? 256 * 1024 : desc->ranks <= 4 ? 8 * 1024 : 1024;
    return rf_coll_bytes(desc) <= limit;
}

/* Two rounds where the ring has 2(N-1). */
static bool fits_direct(const struct rf_coll_desc *desc)
{
    return !in_ring_order(desc) || (desc->ranks > 2 && rf_coll_bytes(desc) <= 4 * 1024 * 1024);
}

/* 2 log2(N) rounds where direct has two, but of N-1 messages each. */
static bool fits_halving(const struct rf_coll_desc *desc)
{
    return desc->ranks >= 16 && rf_coll_bytes(desc) <= 4 * 1024 * 1024;
}

static bool fits_flat_reduce(const struct rf_coll_desc *desc)
{
    return rf_coll_bytes(desc) <= (desc->ranks == 2 ? RF_WINDOW_BYTES : 64 * 1024);
}

static bool fits_flat_gather(const struct rf_coll_desc *desc)
{
    return desc->ranks == 2 || share_of(desc) <= 256 * 1024;
}

static bool fits_bruck(const struct rf_coll_desc *desc)
{
    return desc->ranks > 8 && share_of(desc) <= 2048;
}

static bool fits_tree(const struct rf_coll_desc *desc)
{
    return desc->ranks > 8 && share_of(desc) <= 8192;
}

static bool fits_tree_broadcast(const struct rf_coll_desc *desc)
{
    return desc->ranks <= 2 || rf_coll_bytes(desc) <= 64 * 1024;
}

static bool can_fuse(const struct rf_coll_desc *desc)
{
    return has_peers(desc) && desc->shared && desc->count > 0;
}

/* Shorter ones travel inside the lines that would announce them. */
static bool fits_fused(const struct rf_coll_desc *desc)
{
    return rf_coll_bytes(desc) > 8 * 1024;
}

static bool fits_shared_gather(const struct rf_coll_desc *desc)
{
    return share_of(desc) > 64 * 1024;
}

static const struct rf_coll_row rows[] = {
    {RF_COLL_NONE, "local", "one rank", is_alone, NULL, rf_build_copy},
    {RF_COLL_NONE, "dissemination", "nothing but the contract", is_empty, NULL, rf_build_barrier,
     true},
    {RF_COLL_ALL_REDUCE, "fused", "ranks that reach each other's buffers", can_fuse, fits_fused,
     rf_build_fused_all_reduce, true, true},
    {RF_COLL_ALL_REDUCE, "shared", "ranks that share memory, whatever their buffers",
     rf_coll_can_share, never, rf_build_shared_all_reduce, false, true},
    {RF_COLL_ALL_REDUCE, "doubling", "short, 2^k ranks, any or tree order", can_double,
     fits_doubling, rf_build_doubling_all_reduce, true},
    {RF_COLL_ALL_REDUCE, "flat", "short", has_peers, fits_flat, rf_build_flat_all_reduce, true},
    {RF_COLL_ALL_REDUCE, "halving", "middle sizes, many 2^k ranks, any order", can_halve,
     fits_halving, rf_build_halving_all_reduce, true},
    {RF_COLL_ALL_REDUCE, "direct", "middle sizes; 16-bit types; tree order", has_peers, fits_direct,
     rf_build_direct_all_reduce},
    {RF_COLL_ALL_REDUCE, "ring", "long", in_ring_order, NULL, rf_build_ring_all_reduce},
    {RF_COLL_ALL_REDUCE, "naive", "to rank 0 and back: for comparison", has_peers, never,
     rf_build_naive_all_reduce, true},
    {RF_COLL_REDUCE, "flat", "short", has_peers, fits_flat_reduce, rf_build_flat_reduce, true},
    {RF_COLL_REDUCE, "direct", "long", has_peers, NULL, rf_build_direct_reduce},
    {RF_COLL_GATHER, "tree", "short, many ranks", has_peers, fits_tree, rf_build_tree_gather, true},
    {RF_COLL_GATHER, "flat", "every size", has_peers, NULL, rf_build_flat_gather},
    {RF_COLL_SCATTER, "tree", "short, many ranks", has_peers, fits_tree, rf_build_tree_scatter,
     true},
    {RF_COLL_SCATTER, "flat", "every size", has_peers, NULL, rf_build_flat_scatter},
    {RF_COLL_ALL_TO_ALL, "pairs", "every size", has_peers, NULL, rf_build_pairs_all_to_all},
    {RF_COLL_REDUCE_SCATTER, "direct", "every size", has_peers, NULL,
     rf_build_direct_reduce_scatter},
    {RF_COLL_ALL_GATHER, "shared", "long, ranks that share memory", rf_coll_can_share,
     fits_shared_gather, rf_build_shared_all_gather, false, true},
    {RF_COLL_ALL_GATHER, "bruck", "very short, many ranks", has_peers, fits_bruck,
     rf_build_bruck_all_gather, true},
    {RF_COLL_ALL_GATHER, "flat", "short", has_peers, fits_flat_gather, rf_build_flat_all_gather},
    {RF_COLL_ALL_GATHER, "ring", "long", has_peers, NULL, rf_build_ring_all_gather},
    {RF_COLL_BROADCAST, "tree", "short", has_peers, fits_tree_broadcast, rf_build_tree_broadcast},
    {RF_COLL_BROADCAST, "chain", "long", has_peers, NULL, rf_build_chain_broadcast},
    {RF_COLL_BROADCAST, "flat", "from the root to all: for comparison", has_peers, never,
     rf_build_flat_broadcast},
    {RF_COLL_ALL_REDUCE, "hosts", "within hosts, between, within: where links are measured",
     can_fold_by_hosts, when_measured, rf_build_hosts_all_reduce},
    {RF_COLL_REDUCE_SCATTER, "hosts", "the same", can_fold_by_hosts, when_measured,
     rf_build_hosts_reduce_scatter},
    {RF_COLL_ALL_GATHER, "hosts", "the same", spans_hosts, when_measured,
     rf_build_hosts_all_gather},
    {RF_COLL_BROADCAST, "hosts", "the same", spans_hosts, when_measured, rf_build_hosts_broadcast},
    {RF_COLL_SEND, "message", "every size", has_peers, NULL, rf_build_send, true},
    {RF_COLL_RECV, "message", "every size", has_peers, NULL, rf_build_recv, true},
    {RF_COLL_FOREST_ALL_REDUCE, "forest", "every size", any, NULL, rf_build_forest_all_reduce},
};
enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

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
           op == RF_COLL_FOREST_ALL_REDUCE;
}

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
    size_t extent = desc->op == RF_COLL_FOREST_ALL_REDUCE && desc->stride > desc->count
                        ? desc->stride
                        : desc->count;
    if (extent > ((size_t)1 << 55) / element / (size_t)(desc->ranks < 64 ? 64 : desc->ranks))
        return rf_fail(RF_EINVAL, "%s: %zu elements are too many", op, extent);
    if (rf_coll_has_root(desc->op) && (desc->root < 0 || desc->root >= desc->ranks))
        return rf_fail(RF_EINVAL, "%s: rank %d does not exist among %d ranks", op, desc->root,
                       desc->ranks);
    if (desc->op == RF_COLL_RECV && desc->root == desc->rank)
        return rf_fail(RF_EINVAL, "recv: rank %d cannot receive from itself; use sendrecv",
                       desc->rank);
    if (desc->op == RF_COLL_FOREST_ALL_REDUCE) {
        RETURN_IF_ERROR(rf_forest_check(desc->forest, desc->rank, desc->ranks));
        if (desc->dtype != RF_F32 || desc->redop != RF_SUM || desc->stride < desc->count)
            return rf_fail(RF_EINVAL,
                           "forest_all_reduce: sums of f32 only, and parts %zu elements "
                           "apart must not overlap",
                           desc->stride);
    }
    return 0;
}

static bool serves(const struct rf_coll_row *row, const struct rf_coll_desc *desc)
{
    return (row->op == RF_COLL_NONE || row->op == desc->op) && row->can(desc);
}

/* The row of the least predicted time, of those of which the model knows; NULL: of none. */
static const struct rf_coll_row *quickest(const struct rf_coll_desc *desc)
{
    const struct rf_coll_row *best = NULL;
    double least = 0;
    for (int i = 0; i < ROW_COUNT; i++) {
        if (!serves(&rows[i], desc) || rows[i].fits == never || rows[i].near)
            continue;
        double time = rf_model_time(desc->model, desc, rows[i].name);
        if (time < 0)
            return NULL;
        if (!best || time < least) {
            best = &rows[i];
            least = time;
        }
    }
    return best;
}

static int choose(const struct rf_coll_desc *desc, const struct rf_coll_row **out)
{
    RETURN_IF_ERROR(check(desc));
    *out = NULL;
    for (int i = 0; i < ROW_COUNT && !*out; i++) {
        const struct rf_coll_row *row = &rows[i];
        if (serves(row, desc) && (!row->fits || row->fits(desc)))
            *out = row;
    }
    const struct rf_coll_row *best = desc->model && *out && !(*out)->near ? quickest(desc) : NULL;
    *out = best ? best : *out;
    if (*out)
        return 0;
    return rf_fail(RF_ENOTSUP, "%s: no algorithm serves %s in %s order", rf_coll_op_name(desc->op),
                   rf_dtype_name(desc->dtype), rf_order_name(desc->order));
}

int rf_coll_find(const struct rf_coll_desc *desc, const char *algorithm,
                 const struct rf_coll_row **out)
{
    if (!algorithm)
        return choose(desc, out);
    RETURN_IF_ERROR(check(desc));
    for (int i = 0; i < ROW_COUNT; i++) {
        const struct rf_coll_row *row = &rows[i];
        if (serves(row, desc) && strcmp(row->name, algorithm) == 0) {
            *out = row;
            return 0;
        }
    }
    return rf_fail(RF_EINVAL, "%s: no algorithm \"%s\" for %s in %s order",
                   rf_coll_op_name(desc->op), algorithm, rf_dtype_name(desc->dtype),
                   rf_order_name(desc->order));
}

int rf_coll_choose(const struct rf_coll_desc *desc, const char **name, double *seconds)
{
    const struct rf_coll_row *row;
    RETURN_IF_ERROR(choose(desc, &row));
    *name = row->name;
    *seconds = desc->model ? rf_model_time(desc->model, desc, row->name) : -1;
    return 0;
}

int rf_coll_algorithm(enum rf_coll_op op, int ranks, size_t count, enum rf_dtype dtype,
                      enum rf_order order, const char **name)
{
    const struct rf_coll_desc desc = {
        .op = op, .ranks = ranks, .count = count, .dtype = dtype, .order = order};
    const struct rf_coll_row *row;
    if (!name)
        return rf_fail(RF_EINVAL, "rf_coll_algorithm: name is NULL");
    if (op == RF_COLL_FOREST_ALL_REDUCE || op == RF_COLL_SEND || op == RF_COLL_RECV)
        return rf_fail(RF_EINVAL, "rf_coll_algorithm: there is no choice in %s",
                       rf_coll_op_name(op));
    RETURN_IF_ERROR(choose(&desc, &row));
    *name = row->name;
    return 0;
}
