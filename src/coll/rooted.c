/* SPDX-License-Identifier: MIT
 *
 * Gather and scatter: directly between the root and every rank if bandwidth dominates (the root's
 * link is the bound), and along a binomial tree for short pieces, for which the root would handle
 * N-1 messages. Scatter is gather with all directions reversed.
 */
#include "algorithm.h"

struct rooted {
    struct rf_sched *sched;
    const struct rf_coll_desc *desc;
    bool scatter;
};

/* Ranks count from the root here: place 0 is the root. */
static int rank_at(const struct rooted *r, int place)
{
    return (place + r->desc->root) % r->desc->ranks;
}

static struct rf_byte_range share_at(const struct rooted *r, int place)
{
    return rf_share(r->desc, r->desc->counts, rank_at(r, place), r->sched->element_bytes);
}

static size_t bytes_between(const struct rooted *r, int begin, int end)
{
    size_t bytes = 0;
    for (int place = begin; place < end; place++)
        bytes += share_at(r, place).bytes;
    return bytes;
}

/* A message towards the root (gather) or away from it (scatter). `is_parent`: this rank is the end
 * nearer to the root. */
static uint32_t message(const struct rooted *r, int other, bool is_parent, uint32_t tag,
                        struct rf_operand data, size_t bytes)
{
    int peer = rank_at(r, other);
    return is_parent == r->scatter ? rf_sched_send(r->sched, peer, tag, data, bytes)
                                   : rf_sched_recv(r->sched, peer, tag, data, bytes);
}

/* All data on the root, or a rank's own piece. */
static struct rf_operand whole(const struct rooted *r, size_t offset)
{
    return r->scatter ? rf_in(offset) : rf_out(offset);
}
static struct rf_operand own(const struct rooted *r, size_t offset)
{
    return r->scatter ? rf_out(offset) : rf_in(offset);
}

/* Copies between `a`, nearer to the root, and `b`. */
static uint32_t copy(const struct rooted *r, struct rf_operand a, struct rf_operand b, size_t bytes)
{
    return rf_sched_copy(r->sched, r->scatter ? b : a, r->scatter ? a : b, bytes);
}

static void build_flat(const struct rooted *r)
{
    const struct rf_coll_desc *desc = r->desc;
    size_t longest = rf_longest_share(desc, desc->counts, r->sched->element_bytes);
    struct rf_cut cut = rf_cut(longest, desc->segment_bytes, r->sched->element_bytes, 1);
    struct rf_byte_range mine = share_at(r, (desc->rank - desc->root + desc->ranks) % desc->ranks);
    if (desc->rank == desc->root && mine.bytes > 0)
        copy(r, whole(r, mine.offset), own(r, 0), mine.bytes);
    for (uint32_t j = 0; j < cut.count; j++) {
        if (desc->rank != desc->root) {
            struct rf_byte_range piece =
                rf_segment((struct rf_byte_range){0, mine.bytes}, cut.segment, j);
            if (piece.bytes > 0)
                message(r, 0, false, j, own(r, piece.offset), piece.bytes);
            continue;
        }
        for (int place = 1; place < desc->ranks; place++) {
            struct rf_byte_range piece = rf_segment(share_at(r, place), cut.segment, j);
            if (piece.bytes > 0)
                message(r, place, true, j, whole(r, piece.offset), piece.bytes);
        }
    }
}

/* The root's pieces are ordered by rank, a subtree's by place: pieces from the root's rank on come
 * first. */
static void turn_round(const struct rooted *r, struct rf_operand temp, uint32_t *steps)
{
    const struct rf_coll_desc *desc = r->desc;
    size_t above = bytes_between(r, 0, desc->ranks - desc->root);
    size_t below = bytes_between(r, desc->ranks - desc->root, desc->ranks);
    struct rf_operand second = temp;
    second.offset += above;
    steps[0] = above > 0 ? copy(r, whole(r, below), temp, above) : RF_NO_STEP;
    steps[1] = below > 0 ? copy(r, whole(r, 0), second, below) : RF_NO_STEP;
}

static void order(const struct rooted *r, const uint32_t *above, uint32_t below)
{
    for (int i = 0; i < 2; i++)
        rf_sched_dep(r->sched, r->scatter ? below : above[i], r->scatter ? above[i] : below);
}

/* Every rank holds the pieces of its subtree in temporary memory, by place. The transfer to or from
 * the side above (one message, or the root's two copies) comes after all transfers below in a
 * gather, before them in a scatter. */
static void build_tree(const struct rooted *r)
{
    const struct rf_coll_desc *desc = r->desc;
    int ranks = desc->ranks, place = (desc->rank - desc->root + ranks) % ranks, bit = 1;
    while (bit < ranks && !(place & bit))
        bit *= 2;
    int end = place + bit < ranks ? place + bit : ranks;
    size_t all = bytes_between(r, place, end), mine = share_at(r, place).bytes;
    struct rf_operand temp = rf_tmp(rf_sched_temp(r->sched, all));
    uint32_t above[2] = {RF_NO_STEP, RF_NO_STEP};
    if (place == 0)
        turn_round(r, temp, above);
    else if (all > 0)
        above[0] = message(r, place - bit, false, 0, temp, all);
    if (mine > 0)
        order(r, above, copy(r, temp, own(r, 0), mine));
    for (int child = bit / 2; child > 0; child /= 2) {
        int begin = place + child, last = begin + child < ranks ? begin + child : ranks;
        size_t bytes = begin < ranks ? bytes_between(r, begin, last) : 0;
        if (bytes == 0)
            continue;
        struct rf_operand data = temp;
        data.offset += bytes_between(r, place, begin);
        order(r, above, message(r, begin, true, 0, data, bytes));
    }
}

static void build_flat_gather(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    build_flat(&(struct rooted){sched, desc, false});
}
static void build_flat_scatter(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    build_flat(&(struct rooted){sched, desc, true});
}
static void build_tree_gather(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    build_tree(&(struct rooted){sched, desc, false});
}
static void build_tree_scatter(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    build_tree(&(struct rooted){sched, desc, true});
}

/* ---- the records ----------------------------------------------------------------------------- */

static bool prefers_tree(const struct rf_coll_desc *desc)
{
    return desc->ranks > 8 && rf_coll_piece_bytes(desc) <= 8192;
}

/* Over sockets many messages keep the root busy; in shared memory both are equally fast. */
static bool prefers_tree_scatter(const struct rf_coll_desc *desc)
{
    return prefers_tree(desc) || (desc->ranks > 3 && rf_coll_piece_bytes(desc) <= 1024);
}

/* Next to the root, half of the data passes one rank, after a quarter has, and so on. */
static double cost_tree_rooted(const struct rf_cost_view *v)
{
    return rf_cost_uncut(v->bytes / 2, RF_LONGEST_UNCUT,
                         v->rounds * v->m->round_s + v->others * v->share * v->m->byte_s +
                             v->bytes * v->m->fold_byte_s);
}

static double cost_flat_rooted(const struct rf_cost_view *v)
{
    return rf_cost_fan(v, v->share);
}

static uint64_t sent_tree_gather(const struct rf_coll_desc *desc)
{
    return desc->rank == desc->root ? 0 : (uint64_t)rf_subtree(desc) * rf_coll_bytes(desc);
}

static uint64_t sent_tree_scatter(const struct rf_coll_desc *desc)
{
    return (uint64_t)(rf_subtree(desc) - 1) * rf_coll_bytes(desc);
}

const struct rf_algorithm rf_tree_gather = {
    .op = RF_COLL_GATHER,
    .name = "tree",
    .note = "pieces up to 8 KiB on more than 8 ranks",
    .bytes = "K/2 (next to the root)",
    .why_not = rf_why_no_peers,
    .preferred = prefers_tree,
    .cost = cost_tree_rooted,
    .build = build_tree_gather,
    .sent = sent_tree_gather,
    .rounds = {.tree = 1},
    .whole = true,
};

const struct rf_algorithm rf_flat_gather = {
    .op = RF_COLL_GATHER,
    .name = "flat",
    .note = "every size",
    .bytes = "K/N",
    .why_not = rf_why_no_peers,
    .cost = cost_flat_rooted,
    .build = build_flat_gather,
    .sent = rf_sent_to_root,
    .rounds = {.fixed = 1},
};

const struct rf_algorithm rf_tree_scatter = {
    .op = RF_COLL_SCATTER,
    .name = "tree",
    .note = "pieces up to 8 KiB on more than 8 ranks, up to 1 KiB on four or more",
    .bytes = "(N-1)/N K (the root)",
    .why_not = rf_why_no_peers,
    .preferred = prefers_tree_scatter,
    .cost = cost_tree_rooted,
    .build = build_tree_scatter,
    .sent = sent_tree_scatter,
    .rounds = {.tree = 1},
    .whole = true,
};

const struct rf_algorithm rf_flat_scatter = {
    .op = RF_COLL_SCATTER,
    .name = "flat",
    .note = "every size",
    .bytes = "(N-1)/N K (the root)",
    .why_not = rf_why_no_peers,
    .cost = cost_flat_rooted,
    .build = build_flat_scatter,
    .sent = rf_sent_by_root,
    .rounds = {.fixed = 1},
};
