/* SPDX-License-Identifier: MIT
 *
 * Which algorithm serves which collective: the first row that is supported and preferred. A row may
 * look only at what all ranks agree about (operation, ranks, bytes, type, order), never at what one
 * rank sees. A new algorithm is a file with its builder, and a row here (docs/adding.md). Called by
 * build.c and comm.
 */
#include "table.h"
#include "../base/base.h"
#include "model.h"

/* ---- what rows name: builders from the file of each algorithm, costs from there or model.c, bytes
 * and rounds from there or sent.c and rounds.c ---------------------------------------------------
 */

rf_builder rf_build_ring_all_reduce, rf_build_ring_all_gather;
rf_builder rf_build_flat_all_reduce, rf_build_flat_all_gather, rf_build_flat_reduce;
rf_builder rf_build_recursive_doubling_all_reduce, rf_build_rabenseifner_all_reduce,
    rf_build_naive_all_reduce;
rf_builder rf_build_halving_reduce_scatter;
rf_builder rf_build_direct_all_reduce, rf_build_direct_reduce_scatter, rf_build_direct_reduce;
rf_builder rf_build_fused_all_reduce, rf_build_bruck_all_gather;
rf_builder rf_build_shared_all_reduce, rf_build_shared_all_gather;
rf_builder rf_build_flat_gather, rf_build_flat_scatter, rf_build_pairs_all_to_all;
rf_builder rf_build_tree_gather, rf_build_tree_scatter;
rf_builder rf_build_forest, rf_build_prefix_reduce_scatter;
rf_builder rf_build_tree_broadcast, rf_build_chain_broadcast, rf_build_flat_broadcast;
rf_builder rf_build_hierarchical_all_reduce, rf_build_hierarchical_reduce_scatter,
    rf_build_hierarchical_all_gather;
rf_builder rf_build_hierarchical_broadcast;
rf_builder rf_build_barrier;
rf_builder rf_build_send, rf_build_recv;
rf_builder rf_build_copy;

rf_cost rf_cost_flat_all_reduce, rf_cost_recursive_doubling_all_reduce,
    rf_cost_rabenseifner_all_reduce, rf_cost_direct_all_reduce, rf_cost_ring_all_reduce;
rf_cost rf_cost_bruck_all_gather, rf_cost_flat_all_gather, rf_cost_ring_all_gather;
rf_cost rf_cost_tree_broadcast, rf_cost_chain_broadcast;
rf_cost rf_cost_flat_rooted, rf_cost_tree_rooted;
rf_cost rf_cost_direct_reduce_scatter, rf_cost_halving_reduce_scatter;
rf_cost rf_cost_hierarchical_all_reduce, rf_cost_hierarchical_reduce_scatter,
    rf_cost_hierarchical_all_gather, rf_cost_hierarchical_broadcast;
rf_segment_length rf_segment_chain, rf_segment_flat_reduce;

rf_sent rf_sent_nothing, rf_sent_to_all, rf_sent_to_root, rf_sent_by_root;
rf_sent rf_sent_ring_all_reduce, rf_sent_direct_all_reduce, rf_sent_direct_reduce;
rf_sent rf_sent_recursive_doubling_all_reduce, rf_sent_rabenseifner_all_reduce,
    rf_sent_naive_all_reduce;
rf_sent rf_sent_tree_broadcast, rf_sent_chain_broadcast, rf_sent_tree_gather, rf_sent_tree_scatter;
rf_sent rf_sent_other_pieces, rf_sent_own_piece, rf_sent_around, rf_sent_bruck;
rf_sent rf_sent_forest_all_reduce, rf_sent_forest_reduce_scatter, rf_sent_prefix_reduce_scatter;

rf_rounds rf_rounds_none, rf_rounds_two, rf_rounds_log, rf_rounds_tree, rf_rounds_log_twice,
    rf_rounds_around;
rf_rounds rf_rounds_around_twice, rf_rounds_hierarchical_twice;

rf_share_counts rf_hierarchical_counts;

/* Of one rank's piece, on average: what all ranks agree about. */
static size_t share_of(const struct rf_coll_desc *desc)
{
    return desc->counts ? rf_coll_bytes(desc) / (size_t)desc->ranks : rf_coll_bytes(desc);
}

/* ---- why a row cannot serve a call; NULL: it can --------------------------------------------- */

static const char *any(const struct rf_coll_desc *desc)
{
    return NULL;
}

static const char *has_peers(const struct rf_coll_desc *desc)
{
    return desc->ranks > 1 ? NULL : "it needs two ranks or more";
}

static const char *is_alone(const struct rf_coll_desc *desc)
{
    bool alone = desc->ranks == 1 && !rf_coll_adds_leaves(desc->op) && desc->op != RF_COLL_RECV;
    return alone ? NULL : "it is for one rank";
}

static const char *is_empty(const struct rf_coll_desc *desc)
{
    /* Counts of an all-to-all differ from rank to rank. */
    bool empty = !desc->recv_counts && (rf_operation(desc->op)->out == RF_SHAPE_NONE ||
                                        (desc->count == 0 && !rf_coll_is_point(desc->op)));
    return empty ? NULL : "it is for calls without elements";
}

/* Types that a ring would round at every hop. */
static bool is_narrow(const struct rf_coll_desc *desc)
{
    return desc->dtype == RF_F16 || desc->dtype == RF_BF16;
}

/* Partial sums of an average may leave the type, which the average does not. */
static bool is_average(const struct rf_coll_desc *desc)
{
    return desc->redop == RF_AVG;
}

#define NO_AVERAGES "it sends partial sums, which may leave the type of the elements of an average"

static const char *in_ring_order(const struct rf_coll_desc *desc)
{
    if (desc->order == RF_ORDER_TREE)
        return "it does not add in tree order";
    if (is_average(desc))
        return NO_AVERAGES;
    return is_narrow(desc) ? "it would round 16-bit types at every hop" : has_peers(desc);
}

static const char *supported_recursive_doubling(const struct rf_coll_desc *desc)
{
    if ((desc->ranks & (desc->ranks - 1)) != 0)
        return "the number of ranks is no power of two";
    if (desc->order == RF_ORDER_RING)
        return "it does not add in ring order";
    if (desc->redop == RF_CUSTOM)
        return "it does not take reductions of the caller's own";
    if (is_average(desc))
        return NO_AVERAGES;
    return is_narrow(desc) ? "it would round 16-bit types at every hop" : has_peers(desc);
}

static const char *supported_rabenseifner(const struct rf_coll_desc *desc)
{
    const char *why = supported_recursive_doubling(desc);
    return why || desc->order == RF_ORDER_ANY ? why : "it does not add in tree order";
}

static const char *supported_halving(const struct rf_coll_desc *desc)
{
    return desc->counts ? "its pieces must be of one length" : supported_rabenseifner(desc);
}

/* Several hosts, and several ranks on some. */
static const char *supported_hierarchical(const struct rf_coll_desc *desc)
{
    int most = 0;
    for (int r = 0; desc->hosts && r < desc->ranks; r++)
        most = desc->hosts[r] > most ? desc->hosts[r] : most;
    return most > 0 && most + 1 < desc->ranks
               ? NULL
               : "it needs several hosts, and several ranks on some of them";
}

/* Sums are rounded between hosts, and folded in an order of the layout's. */
static const char *supported_hierarchical_sum(const struct rf_coll_desc *desc)
{
    if (desc->order != RF_ORDER_ANY)
        return "it adds in an order of its own";
    if (desc->redop == RF_CUSTOM)
        return "it does not take reductions of the caller's own";
    if (is_average(desc))
        return NO_AVERAGES;
    return is_narrow(desc) ? "it would round 16-bit types between hosts"
                           : supported_hierarchical(desc);
}

static const char *supported_shared(const struct rf_coll_desc *desc)
{
    return rf_coll_can_share(desc) ? NULL : "it needs 2 to 32 ranks that share memory";
}

static const char *supported_fused(const struct rf_coll_desc *desc)
{
    return desc->ranks > 1 && desc->shared && desc->count > 0
               ? NULL
               : "it needs two ranks or more that share memory, and elements";
}

/* ---- where it is good ------------------------------------------------------------------------ */

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
static bool prefers_recursive_doubling(const struct rf_coll_desc *desc)
{
    size_t least = desc->ranks == 4 ? 4 * 1024 : 0;
    return desc->ranks >= 4 && rf_coll_bytes(desc) > least && rf_coll_bytes(desc) <= 64 * 1024;
}

/* One round, but N-1 times the data: for two ranks that is what a ring sends. Past this size the
 * ring's segments win on TCP by two (messages that overrun the socket's buffer leave the connection
 * slow for what follows), and make no difference in shared memory. */
static bool prefers_flat(const struct rf_coll_desc *desc)
{
    size_t limit = desc->ranks == 2 ? 256 * 1024 : desc->ranks <= 4 ? 8 * 1024 : 1024;
    return rf_coll_bytes(desc) <= limit;
}

static bool prefers_halving(const struct rf_coll_desc *desc)
{
    return !desc->shared && desc->ranks > 3 && share_of(desc) <= 16 * 1024;
}

/* Two rounds where the ring has 2(N-1). */
static bool prefers_direct(const struct rf_coll_desc *desc)
{
    return in_ring_order(desc) || (desc->ranks > 2 && rf_coll_bytes(desc) <= 512 * 1024);
}

/* 2 log2(N) rounds where direct has two, but of N-1 messages each. */
static bool prefers_rabenseifner(const struct rf_coll_desc *desc)
{
    return desc->ranks >= 16 && rf_coll_bytes(desc) <= 4 * 1024 * 1024;
}

/* Of two ranks that share memory both fold, each a half, which is worth it for long sums: that is
 * half as much again to send. Over a network the root folds while the rest is coming. */
static bool prefers_flat_reduce(const struct rf_coll_desc *desc)
{
    const size_t limit = desc->ranks == 2 ? 256 * 1024 : 64 * 1024;
    return rf_coll_bytes(desc) <= limit || (desc->ranks == 2 && !desc->shared);
}

static bool prefers_flat_gather(const struct rf_coll_desc *desc)
{
    return desc->ranks == 2 || share_of(desc) <= 256 * 1024;
}

/* Fewer messages, but of more bytes, than flat. */
static bool prefers_bruck(const struct rf_coll_desc *desc)
{
    return desc->shared ? desc->ranks > 8 && share_of(desc) <= 2048
                        : desc->ranks > 3 && share_of(desc) <= 16 * 1024;
}

static bool prefers_tree(const struct rf_coll_desc *desc)
{
    return desc->ranks > 8 && share_of(desc) <= 8192;
}

/* Over sockets the root has no time for many messages; in shared memory both are as quick. */
static bool prefers_tree_scatter(const struct rf_coll_desc *desc)
{
    return prefers_tree(desc) || (desc->ranks > 3 && share_of(desc) <= 1024);
}

/* A tree's root sends log2(N) times what a chain's does, which counts where links do. Ranks that
 * share memory have less to wait for in a tree, until all of them together fill the memory's
 * bandwidth; of three, the root alone copies all that is sent. */
static bool prefers_tree_broadcast(const struct rf_coll_desc *desc)
{
    const size_t shared_limit = desc->ranks == 3 ? 256 * 1024 : 4 * 1024 * 1024;
    return desc->ranks <= 2 || rf_coll_bytes(desc) <= (desc->shared ? shared_limit : 64 * 1024);
}

/* Shorter ones travel inside the lines that would announce them. */
static bool prefers_fused(const struct rf_coll_desc *desc)
{
    return rf_coll_bytes(desc) > 8 * 1024;
}

/* Up to which two ranks send each other messages: an all_reduce, or a share of an all_gather. A sum
 * is published as it is added, which is quicker once the data fit no private cache. */
enum { LONGEST_SUM_OF_TWO = 1 << 20, LONGEST_SHARE_OF_TWO = 8 << 20 };

/* Of two ranks nobody else reads what has been published, and slots are quicker. More ranks read it
 * where each would have been sent a copy of the caller's own memory. */
static bool prefers_shared_gather(const struct rf_coll_desc *desc)
{
    return desc->ranks == 2 ? share_of(desc) > LONGEST_SHARE_OF_TWO : share_of(desc) >= 32 * 1024;
}

/* ---- what ranks go on with ------------------------------------------------------------------- */

/* Shorter ones are sent whole to everybody. */
enum { SHORTEST_SHARED = 32 << 10 };

static const char *fallback_fused(const struct rf_coll_desc *desc, struct rf_coll_desc *other)
{
    const size_t bytes = rf_coll_bytes(desc);
    const bool shares = bytes > SHORTEST_SHARED && rf_coll_can_share(desc);
    *other = *desc;
    other->shared = shares && desc->shared;
    if (!shares)
        return NULL;
    return desc->ranks == 2 && bytes <= LONGEST_SUM_OF_TWO ? "direct" : "shared";
}

static const struct rf_coll_row rows[] = {
    {RF_COLL_NONE, "local", "one rank", is_alone, NULL, NULL, rf_build_copy, rf_sent_nothing,
     .rounds = rf_rounds_none},
    {RF_COLL_NONE, "dissemination", "nothing but the contract", is_empty, NULL, NULL,
     rf_build_barrier, rf_sent_nothing, true, .rounds = rf_rounds_log},
    {RF_COLL_ALL_REDUCE, "fused", "ranks that reach each other's buffers", supported_fused,
     prefers_fused, NULL, rf_build_fused_all_reduce, NULL, true, true, .rounds = rf_rounds_two,
     .fallback = fallback_fused},
    {RF_COLL_ALL_REDUCE, "shared", "ranks that share memory, whatever their buffers",
     supported_shared, never, NULL, rf_build_shared_all_reduce, NULL, false, true,
     .rounds = rf_rounds_two},
    {RF_COLL_ALL_REDUCE, "recursive_doubling", "short, 2^k ranks, any or tree order",
     supported_recursive_doubling, prefers_recursive_doubling,
     rf_cost_recursive_doubling_all_reduce, rf_build_recursive_doubling_all_reduce,
     rf_sent_recursive_doubling_all_reduce, true, .rounds = rf_rounds_log},
    {RF_COLL_ALL_REDUCE, "flat", "short", has_peers, prefers_flat, rf_cost_flat_all_reduce,
     rf_build_flat_all_reduce, rf_sent_to_all, true},
    {RF_COLL_ALL_REDUCE, "rabenseifner", "middle sizes, many 2^k ranks, any order",
     supported_rabenseifner, prefers_rabenseifner, rf_cost_rabenseifner_all_reduce,
     rf_build_rabenseifner_all_reduce, rf_sent_rabenseifner_all_reduce, true,
     .rounds = rf_rounds_log_twice},
    {RF_COLL_ALL_REDUCE, "direct", "middle sizes; 16-bit types; averages; tree order", has_peers,
     prefers_direct, rf_cost_direct_all_reduce, rf_build_direct_all_reduce,
     rf_sent_direct_all_reduce, .rounds = rf_rounds_two},
    {RF_COLL_ALL_REDUCE, "ring", "long", in_ring_order, NULL, rf_cost_ring_all_reduce,
     rf_build_ring_all_reduce, rf_sent_ring_all_reduce, .rounds = rf_rounds_around_twice},
    {RF_COLL_ALL_REDUCE, "naive", "to rank 0 and back: for comparison", has_peers, never, NULL,
     rf_build_naive_all_reduce, rf_sent_naive_all_reduce, true, .rounds = rf_rounds_two},
    {RF_COLL_REDUCE, "flat", "short; two ranks", has_peers, prefers_flat_reduce,
     rf_cost_flat_all_reduce, rf_build_flat_reduce, rf_sent_to_root,
     .segment = rf_segment_flat_reduce},
    {RF_COLL_REDUCE, "direct", "long", has_peers, NULL, rf_cost_direct_all_reduce,
     rf_build_direct_reduce, rf_sent_direct_reduce, .rounds = rf_rounds_two},
    {RF_COLL_GATHER, "tree", "short, many ranks", has_peers, prefers_tree, rf_cost_tree_rooted,
     rf_build_tree_gather, rf_sent_tree_gather, true, .rounds = rf_rounds_tree},
    {RF_COLL_GATHER, "flat", "every size", has_peers, NULL, rf_cost_flat_rooted,
     rf_build_flat_gather, rf_sent_to_root},
    {RF_COLL_SCATTER, "tree", "short, many ranks", has_peers, prefers_tree_scatter,
     rf_cost_tree_rooted, rf_build_tree_scatter, rf_sent_tree_scatter, true,
     .rounds = rf_rounds_tree},
    {RF_COLL_SCATTER, "flat", "every size", has_peers, NULL, rf_cost_flat_rooted,
     rf_build_flat_scatter, rf_sent_by_root},
    {RF_COLL_ALL_TO_ALL, "pairs", "every size", has_peers, NULL, NULL, rf_build_pairs_all_to_all,
     rf_sent_to_all},
    {RF_COLL_REDUCE_SCATTER, "halving", "short, 2^k ranks, any order", supported_halving,
     prefers_halving, rf_cost_halving_reduce_scatter, rf_build_halving_reduce_scatter,
     rf_sent_to_all, true, .rounds = rf_rounds_log},
    {RF_COLL_REDUCE_SCATTER, "direct", "every size", has_peers, NULL, rf_cost_direct_reduce_scatter,
     rf_build_direct_reduce_scatter, rf_sent_to_all, .sent_counts = rf_sent_other_pieces},
    {RF_COLL_ALL_GATHER, "shared", "long, ranks that share memory", supported_shared,
     prefers_shared_gather, NULL, rf_build_shared_all_gather, NULL, false, true},
    {RF_COLL_ALL_GATHER, "bruck", "very short, many ranks", has_peers, prefers_bruck,
     rf_cost_bruck_all_gather, rf_build_bruck_all_gather, rf_sent_to_all, true,
     .sent_counts = rf_sent_bruck, .rounds = rf_rounds_log},
    {RF_COLL_ALL_GATHER, "flat", "short", has_peers, prefers_flat_gather, rf_cost_flat_all_gather,
     rf_build_flat_all_gather, rf_sent_to_all, .sent_counts = rf_sent_own_piece},
    {RF_COLL_ALL_GATHER, "ring", "long", has_peers, NULL, rf_cost_ring_all_gather,
     rf_build_ring_all_gather, rf_sent_to_all, .sent_counts = rf_sent_around,
     .rounds = rf_rounds_around},
    {RF_COLL_BROADCAST, "tree", "short", has_peers, prefers_tree_broadcast, rf_cost_tree_broadcast,
     rf_build_tree_broadcast, rf_sent_tree_broadcast, .rounds = rf_rounds_tree},
    {RF_COLL_BROADCAST, "chain", "long", has_peers, NULL, rf_cost_chain_broadcast,
     rf_build_chain_broadcast, rf_sent_chain_broadcast, .rounds = rf_rounds_around,
     .segment = rf_segment_chain},
    {RF_COLL_BROADCAST, "flat", "from the root to all: for comparison", has_peers, never, NULL,
     rf_build_flat_broadcast, rf_sent_by_root},
    {RF_COLL_ALL_REDUCE, "hierarchical", "within hosts, between, within: where links are measured",
     supported_hierarchical_sum, when_measured, rf_cost_hierarchical_all_reduce,
     rf_build_hierarchical_all_reduce, .rounds = rf_rounds_hierarchical_twice,
     .counts = rf_hierarchical_counts},
    {RF_COLL_REDUCE_SCATTER, "hierarchical", "the same", supported_hierarchical_sum, when_measured,
     rf_cost_hierarchical_reduce_scatter, rf_build_hierarchical_reduce_scatter,
     .rounds = rf_rounds_two},
    {RF_COLL_ALL_GATHER, "hierarchical", "the same", supported_hierarchical, when_measured,
     rf_cost_hierarchical_all_gather, rf_build_hierarchical_all_gather, .rounds = rf_rounds_two},
    {RF_COLL_BROADCAST, "hierarchical", "the same", supported_hierarchical, when_measured,
     rf_cost_hierarchical_broadcast, rf_build_hierarchical_broadcast, .rounds = rf_rounds_around},
    {RF_COLL_SEND, "message", "every size", has_peers, NULL, NULL, rf_build_send, rf_sent_to_root,
     true},
    {RF_COLL_RECV, "message", "every size", has_peers, NULL, NULL, rf_build_recv, rf_sent_nothing,
     true},
    {RF_COLL_FOREST_ALL_REDUCE, "forest", "every size", any, NULL, NULL, rf_build_forest,
     rf_sent_forest_all_reduce, .rounds = rf_rounds_two},
    {RF_COLL_FOREST_REDUCE_SCATTER, "forest", "every size", any, NULL, NULL, rf_build_forest,
     rf_sent_forest_reduce_scatter},
    {RF_COLL_PREFIX_REDUCE_SCATTER, "prefix", "every size", any, NULL, NULL,
     rf_build_prefix_reduce_scatter, rf_sent_prefix_reduce_scatter},
};
enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };
_Static_assert(ROW_COUNT <= UINT8_MAX, "a contract has a row's number in 8 bits");

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

static bool is_for(const struct rf_coll_row *row, enum rf_coll_op op)
{
    return row->op == RF_COLL_NONE || row->op == op;
}

static bool serves(const struct rf_coll_row *row, const struct rf_coll_desc *desc)
{
    return is_for(row, desc->op) && !row->why_not(desc);
}

size_t rf_coll_segment(const struct rf_coll_desc *desc, const struct rf_coll_row *row)
{
    if (rf_coll_adds_leaves(desc->op))
        return 0; /* their own */
    if (row->segment)
        return row->segment(desc);
    return desc->model ? desc->model->segment_bytes : desc->segment_bytes;
}

/* The row of the least predicted time, of those that have a cost; NULL: of none. */
static const struct rf_coll_row *quickest(const struct rf_coll_desc *desc)
{
    const struct rf_coll_row *best = NULL;
    double least = 0;
    for (int i = 0; i < ROW_COUNT; i++) {
        if (!rows[i].cost || !serves(&rows[i], desc))
            continue;
        double time =
            rf_model_time(desc->model, desc, rf_coll_segment(desc, &rows[i]), rows[i].cost);
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
        if (serves(row, desc) && (!row->preferred || row->preferred(desc)))
            *out = row;
    }
    const struct rf_coll_row *best = desc->model && *out && (*out)->cost ? quickest(desc) : NULL;
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
    const char *op = rf_coll_op_name(desc->op);
    for (int i = 0; i < ROW_COUNT; i++) {
        const struct rf_coll_row *row = &rows[i];
        if (!is_for(row, desc->op) || strcmp(row->name, algorithm) != 0)
            continue;
        const char *why = row->why_not(desc);
        if (why)
            return rf_fail(RF_EINVAL,
                           "%s: algorithm \"%s\" cannot serve %zu %s in %s order on %d ranks: %s",
                           op, algorithm, desc->count, rf_dtype_name(desc->dtype),
                           rf_order_name(desc->order), desc->ranks, why);
        *out = row;
        return 0;
    }
    return rf_fail(RF_EINVAL, "%s: there is no algorithm \"%s\" for it", op, algorithm);
}

uint8_t rf_coll_number(enum rf_coll_op op, const char *algorithm)
{
    for (int i = 0; i < ROW_COUNT; i++)
        if (is_for(&rows[i], op) && strcmp(rows[i].name, algorithm) == 0)
            return (uint8_t)(i + 1);
    return 0;
}

const struct rf_coll_row *rf_coll_row_at(int number)
{
    return number > 0 && number <= ROW_COUNT ? &rows[number - 1] : NULL;
}

const char *rf_coll_numbered(uint8_t number)
{
    const struct rf_coll_row *row = rf_coll_row_at(number);
    return row ? row->name : "?";
}

static double predict(const struct rf_coll_desc *desc, const struct rf_coll_row *row)
{
    return desc->model && row->cost
               ? rf_model_time(desc->model, desc, rf_coll_segment(desc, row), row->cost)
               : -1;
}

int rf_coll_choose(const struct rf_coll_desc *desc, const char **name, double *seconds)
{
    const struct rf_coll_row *row;
    RETURN_IF_ERROR(choose(desc, &row));
    *name = row->name;
    *seconds = predict(desc, row);
    return 0;
}

double rf_coll_predict(const struct rf_coll_desc *desc, const char *algorithm)
{
    const struct rf_coll_row *row;
    return rf_coll_find(desc, algorithm, &row) < 0 ? -1 : predict(desc, row);
}

int rf_coll_algorithm(enum rf_coll_op op, int ranks, size_t count, enum rf_dtype dtype,
                      enum rf_order order, const char **name)
{
    const struct rf_coll_desc desc = {
        .op = op, .ranks = ranks, .count = count, .dtype = dtype, .order = order};
    const struct rf_coll_row *row;
    if (!name)
        return rf_fail(RF_EINVAL, "rf_coll_algorithm: name is NULL");
    if (rf_coll_adds_leaves(op) || rf_coll_is_point(op))
        return rf_fail(RF_EINVAL, "rf_coll_algorithm: there is no choice in %s",
                       rf_coll_op_name(op));
    RETURN_IF_ERROR(choose(&desc, &row));
    *name = row->name;
    return 0;
}
