/* SPDX-License-Identifier: MIT
 *
 * Collectives of ranks on several hosts: first within a host, then between hosts, then within
 * again, so that a host gets and gives no byte twice. Uneven hosts, too.
 *
 * Every rank owns a share of the result. What all ranks of a host have of another host's
 * share is added up first: each of them sums one piece of it and sends that to the owner. And the
 * other way round: the owner sends a piece of its finished share to each rank of a host, which pass
 * the pieces on to each other.
 */
#include <math.h>

#include "../base/base.h"
#include "algorithm.h"

struct hierarchy {
    struct rf_sched *sched;
    const struct rf_coll_desc *desc;
    int rank, ranks, count;      /* count: of hosts */
    int host_id, local_rank;     /* this rank's host, and its index there */
    int *first;                  /* [count + 1] the first member of each host in... */
    int *members;                /* [ranks] ...this: ranks by host, in order */
    struct rf_byte_range *share; /* [rank] */
    uint32_t *used;              /* [rank] the step after which a share's place in OUT may be
                                  * written */
    struct rf_operand *operands;
};

static int local_ranks(const struct hierarchy *h, int host)
{
    return h->first[host + 1] - h->first[host];
}
static int member(const struct hierarchy *h, int host, int index)
{
    return h->members[h->first[host] + index];
}

/* The piece of a share that the index-th rank of a host handles. */
static struct rf_byte_range part(const struct hierarchy *h, int owner, int host, int index)
{
    size_t element = h->sched->element_bytes;
    struct rf_byte_range share = h->share[owner];
    struct rf_byte_range piece =
        rf_chunk(share.bytes / element, local_ranks(h, host), index, element);
    piece.offset += share.offset;
    return piece;
}

/* Two ranks of a host exchange messages about a share, in either direction; between hosts there is
 * one message in each direction. */
static uint32_t tag_in(int owner)
{
    return (uint32_t)owner;
}
static uint32_t tag_out(const struct hierarchy *h, int owner)
{
    return (uint32_t)(h->ranks + owner);
}
static uint32_t tag_between(const struct hierarchy *h, bool out)
{
    return 2 * (uint32_t)h->ranks + out;
}

static uint32_t send(struct hierarchy *h, int to, uint32_t tag, struct rf_operand from,
                     size_t bytes, uint32_t after)
{
    uint32_t step = bytes > 0 ? rf_sched_send(h->sched, to, tag, from, bytes) : RF_NO_STEP;
    rf_sched_dep(h->sched, step, after);
    return step;
}
static uint32_t receive(struct hierarchy *h, int from, uint32_t tag, struct rf_operand into,
                        size_t bytes, uint32_t after)
{
    uint32_t step = bytes > 0 ? rf_sched_recv(h->sched, from, tag, into, bytes) : RF_NO_STEP;
    rf_sched_dep(h->sched, step, after);
    return step;
}

/* ---- summing -----------------------------------------------------------------------------------
 */

/* Adds the other local ranks' parts of `piece` to the list of operands, with this rank's at its
 * place; `ready` comes after all have arrived. */
static uint32_t collect(struct hierarchy *h, int owner, struct rf_byte_range piece, uint32_t ready)
{
    uint32_t count = 0;
    for (int i = 0; i < local_ranks(h, h->host_id); i++) {
        if (i == h->local_rank) {
            h->operands[count++] = rf_in(piece.offset);
            continue;
        }
        struct rf_operand place = rf_tmp(rf_sched_temp(h->sched, piece.bytes));
        rf_sched_dep(
            h->sched, ready,
            receive(h, member(h, h->host_id, i), tag_in(owner), place, piece.bytes, RF_NO_STEP));
        h->operands[count++] = place;
    }
    return count;
}

/* For a share of another host: every local rank sums a part of it. */
static void sum_for_other(struct hierarchy *h, int owner, int host)
{
    uint32_t done = rf_sched_join(h->sched);
    for (int i = 0; i < local_ranks(h, h->host_id); i++) {
        struct rf_byte_range piece = part(h, owner, h->host_id, i);
        if (i != h->local_rank)
            rf_sched_dep(h->sched, done,
                         send(h, member(h, h->host_id, i), tag_in(owner), rf_in(piece.offset),
                              piece.bytes, RF_NO_STEP));
    }
    struct rf_byte_range own = part(h, owner, h->host_id, h->local_rank);
    if (own.bytes > 0 && local_ranks(h, h->host_id) > 1) {
        uint32_t ready = rf_sched_join(h->sched);
        uint32_t count = collect(h, owner, own, ready);
        struct rf_operand sum = rf_tmp(rf_sched_temp(h->sched, own.bytes));
        uint32_t fold = rf_sched_fold(h->sched, sum, h->operands, count, own.bytes, false, false);
        rf_sched_dep(h->sched, fold, ready);
        rf_sched_dep(h->sched, done, fold);
        send(h, owner, tag_between(h, false), sum, own.bytes, fold);
    } else {
        rf_sched_dep(
            h->sched, done,
            send(h, owner, tag_between(h, false), rf_in(own.offset), own.bytes, RF_NO_STEP));
    }
    h->used[owner] = done;
}

/* For this rank's share: parts from its host's ranks, and a sum from each other host. */
static uint32_t sum_own(struct hierarchy *h, struct rf_operand result)
{
    struct rf_byte_range own = h->share[h->rank];
    if (own.bytes == 0)
        return RF_NO_STEP;
    uint32_t ready = rf_sched_join(h->sched), count = collect(h, h->rank, own, ready);
    for (int host = 0; host < h->count; host++) {
        if (host == h->host_id)
            continue;
        struct rf_operand place = rf_tmp(rf_sched_temp(h->sched, own.bytes));
        for (int i = 0; i < local_ranks(h, host); i++) {
            struct rf_byte_range piece = part(h, h->rank, host, i);
            struct rf_operand into = place;
            into.offset += piece.offset - own.offset;
            rf_sched_dep(h->sched, ready,
                         receive(h, member(h, host, i), tag_between(h, false), into, piece.bytes,
                                 RF_NO_STEP));
        }
        h->operands[count++] = place;
    }
    uint32_t fold = rf_sched_fold(h->sched, result, h->operands, count, own.bytes, false, false);
    rf_sched_dep(h->sched, fold, ready);
    return fold;
}

static uint32_t sum_all(struct hierarchy *h, struct rf_operand result)
{
    for (int host = 0; host < h->count; host++)
        for (int i = 0; i < local_ranks(h, host); i++) {
            int owner = member(h, host, i);
            struct rf_byte_range share = h->share[owner];
            if (host != h->host_id)
                sum_for_other(h, owner, host);
            else if (owner != h->rank)
                h->used[owner] =
                    send(h, owner, tag_in(owner), rf_in(share.offset), share.bytes, RF_NO_STEP);
        }
    return sum_own(h, result);
}

/* ---- gathering ---------------------------------------------------------------------------------
 */

/* Sends this rank's share, from `from`, to all others. */
static void give_own(struct hierarchy *h, struct rf_operand from, uint32_t ready)
{
    struct rf_byte_range own = h->share[h->rank];
    for (int host = 0; host < h->count; host++)
        for (int i = 0; i < local_ranks(h, host); i++) {
            struct rf_byte_range piece = host == h->host_id ? own : part(h, h->rank, host, i);
            struct rf_operand at = from;
            at.offset += piece.offset - own.offset;
            if (member(h, host, i) != h->rank)
                send(h, member(h, host, i),
                     host == h->host_id ? tag_out(h, h->rank) : tag_between(h, true), at,
                     piece.bytes, ready);
        }
}

/* For another host's share: this rank receives a part of it, and passes that on within its host. */
static void take_from_other(struct hierarchy *h, int owner)
{
    for (int i = 0; i < local_ranks(h, h->host_id); i++) {
        struct rf_byte_range piece = part(h, owner, h->host_id, i);
        struct rf_operand place = rf_out(piece.offset);
        if (i != h->local_rank) {
            receive(h, member(h, h->host_id, i), tag_out(h, owner), place, piece.bytes,
                    h->used[owner]);
            continue;
        }
        uint32_t here = receive(h, owner, tag_between(h, true), place, piece.bytes, h->used[owner]);
        for (int to = 0; to < local_ranks(h, h->host_id); to++)
            if (to != h->local_rank)
                send(h, member(h, h->host_id, to), tag_out(h, owner), place, piece.bytes, here);
    }
}

static void gather_all(struct hierarchy *h, struct rf_operand from, uint32_t ready)
{
    give_own(h, from, ready);
    for (int owner = 0; owner < h->ranks; owner++) {
        struct rf_byte_range share = h->share[owner];
        if (h->desc->hosts[owner] != h->host_id)
            take_from_other(h, owner);
        else if (owner != h->rank)
            receive(h, owner, tag_out(h, owner), rf_out(share.offset), share.bytes, h->used[owner]);
    }
}

/* ---- the calls ---------------------------------------------------------------------------------
 */

static void end(struct hierarchy *h)
{
    rf_free(h->first);
    rf_free(h->members);
    rf_free(h->share);
    rf_free(h->used);
    rf_free(h->operands);
}

static bool begin(struct hierarchy *h, struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    size_t ranks = (size_t)desc->ranks;
    *h = (struct hierarchy){.sched = sched, .desc = desc, .rank = desc->rank, .ranks = desc->ranks};
    for (int r = 0; r < desc->ranks; r++)
        h->count = desc->hosts[r] >= h->count ? desc->hosts[r] + 1 : h->count;
    h->first = rf_sched_scratch(sched, (size_t)h->count + 1, sizeof(int));
    h->members = rf_sched_scratch(sched, ranks, sizeof(int));
    h->share = rf_sched_scratch(sched, ranks, sizeof(*h->share));
    h->used = rf_sched_scratch(sched, ranks, sizeof(uint32_t));
    h->operands = rf_sched_scratch(sched, 2 * ranks, sizeof(*h->operands));
    if (sched->status < 0) {
        end(h);
        return false;
    }
    h->host_id = desc->hosts[desc->rank];
    for (int host = 0, at = 0; host < h->count; host++) {
        for (int r = 0; r < desc->ranks; r++)
            if (desc->hosts[r] == host) {
                if (r == desc->rank)
                    h->local_rank = at - h->first[host];
                h->members[at++] = r;
            }
        h->first[host + 1] = at;
    }
    for (size_t r = 0; r < ranks; r++)
        h->used[r] = RF_NO_STEP;
    return true;
}

static void share_by_call(struct hierarchy *h)
{
    for (int r = 0; r < h->ranks; r++)
        h->share[r] = rf_share(h->desc, h->desc->counts, r, h->sched->element_bytes);
}

/* Equal shares for every host, divided equally among its ranks. */
static void find_counts(const struct rf_coll_desc *desc, size_t *counts)
{
    int hosts = 0;
    for (int r = 0; r < desc->ranks; r++)
        hosts = desc->hosts[r] >= hosts ? desc->hosts[r] + 1 : hosts;
    for (int r = 0; r < desc->ranks; r++) {
        int ranks = 0, index = 0;
        for (int other = 0; other < desc->ranks; other++)
            if (desc->hosts[other] == desc->hosts[r]) {
                index += other < r;
                ranks++;
            }
        struct rf_byte_range whole = rf_chunk(desc->count, hosts, desc->hosts[r], 1);
        counts[r] = rf_chunk(whole.bytes, ranks, index, 1).bytes;
    }
}

static void build_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct hierarchy h;
    if (!begin(&h, sched, desc))
        return;
    share_by_call(&h);
    struct rf_operand own = rf_out(h.share[h.rank].offset);
    gather_all(&h, own, sum_all(&h, own));
    end(&h);
}

static void build_reduce_scatter(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct hierarchy h;
    if (!begin(&h, sched, desc))
        return;
    share_by_call(&h);
    sum_all(&h, rf_out(0));
    end(&h);
}

static void build_all_gather(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct hierarchy h;
    if (!begin(&h, sched, desc))
        return;
    share_by_call(&h);
    struct rf_byte_range own = h.share[h.rank];
    gather_all(&h, rf_in(0), RF_NO_STEP);
    if (own.bytes > 0)
        rf_sched_copy(sched, rf_out(own.offset), rf_in(0), own.bytes);
    end(&h);
}

static void put_first(int *line, int head)
{
    int at = 0;
    while (line[at] != head)
        at++;
    memmove(line + 1, line, (size_t)at * sizeof(*line));
    line[0] = head;
}

/* A chain through one rank of each host, beginning with the root, and from each of them a chain
 * through the others of its host. */
static void build_broadcast(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct hierarchy h;
    if (!begin(&h, sched, desc))
        return;
    int from = -1, to[2] = {-1, -1}, root_host = desc->hosts[desc->root];
    int head = h.host_id == root_host ? desc->root : member(&h, h.host_id, 0);
    int *line = h.members + h.first[h.host_id], length = local_ranks(&h, h.host_id), place = 0;
    put_first(line, head);
    while (line[place] != h.rank)
        place++;
    to[1] = place + 1 < length ? line[place + 1] : -1;
    if (place > 0) {
        from = line[place - 1];
    } else {
        int turn = (h.host_id - root_host + h.count) % h.count;
        int before = (h.host_id - 1 + h.count) % h.count, next = (h.host_id + 1) % h.count;
        if (turn > 0)
            from = before == root_host ? desc->root : member(&h, before, 0);
        if (turn + 1 < h.count)
            to[0] = member(&h, next, 0);
    }
    struct rf_byte_range whole = {0, desc->count * sched->element_bytes};
    struct rf_cut cut = rf_cut(whole.bytes, desc->segment_bytes, sched->element_bytes, 1);
    for (uint32_t j = 0; j < cut.count; j++) {
        struct rf_byte_range piece = rf_segment(whole, cut.segment, j);
        uint32_t here = RF_NO_STEP;
        if (from >= 0)
            here = receive(&h, from, j, rf_out(piece.offset), piece.bytes, RF_NO_STEP);
        for (int i = 0; i < 2; i++)
            if (to[i] >= 0)
                send(&h, to[i], j, rf_out(piece.offset), piece.bytes, here);
    }
    end(&h);
}

/* ---- the records: what they cost within hosts, between them, and within again ---------------- */

/* NULL if there are several hosts, and several ranks on some. */
static const char *why_not_hierarchical(const struct rf_coll_desc *desc)
{
    int most = 0;
    for (int r = 0; desc->hosts && r < desc->ranks; r++)
        most = desc->hosts[r] > most ? desc->hosts[r] : most;
    return most > 0 && most + 1 < desc->ranks
               ? NULL
               : "it needs several hosts, and several ranks on some of them";
}

/* Sums are rounded between hosts, and the fold order depends on the layout. */
static const char *why_not_hierarchical_sum(const struct rf_coll_desc *desc)
{
    if (desc->order != RF_ORDER_ANY)
        return "it adds in an order of its own";
    if (desc->redop == RF_CUSTOM)
        return "it does not take reductions of the caller's own";
    const char *why = rf_why_no_partial_sums(desc, "it would round 16-bit types between hosts");
    return why ? why : why_not_hierarchical(desc);
}

/* A rank's traffic with its own host, in one direction: a part of every share of the others, and
 * its own share. */
static double within(const struct rf_cost_view *v)
{
    double others = v->ranks - v->here;
    return v->windows * (others + 1) * v->m->intra_host.round_s +
           v->bytes * (v->here - 1) / v->here * v->m->intra_host.byte_s;
}

static double between(const struct rf_cost_view *v)
{
    return v->windows * v->m->inter_host.round_s +
           v->bytes * (v->hosts - 1) / v->ranks * v->m->inter_host.byte_s;
}

static double fold_by_hosts(const struct rf_cost_view *v)
{
    double parts = v->bytes * (v->hosts - 1) / v->ranks * (v->here - 1);
    double own = v->share * (v->here + v->hosts - 2);
    return (parts + own) * v->m->fold_byte_s;
}

static double cost_hierarchical_reduce_scatter(const struct rf_cost_view *v)
{
    return v->hosts > 0 ? within(v) + between(v) + fold_by_hosts(v) : HUGE_VAL;
}

static double cost_hierarchical_all_gather(const struct rf_cost_view *v)
{
    return v->hosts > 0 ? within(v) + between(v) : HUGE_VAL;
}

static double cost_hierarchical_all_reduce(const struct rf_cost_view *v)
{
    return cost_hierarchical_reduce_scatter(v) + cost_hierarchical_all_gather(v);
}

/* Every byte passes once from host to host, and from rank to rank within each host. */
static double cost_hierarchical_broadcast(const struct rf_cost_view *v)
{
    double first = v->bytes < v->segment ? v->bytes : v->segment;
    if (v->hosts == 0)
        return HUGE_VAL;
    return (v->hosts - 2) * (v->m->round_s + first * v->m->byte_s) + rf_cost_hop(v, v->bytes) +
           (v->here - 1) * (v->m->intra_host.round_s + first * v->m->intra_host.byte_s) +
           v->bytes * v->m->intra_host.byte_s;
}

const struct rf_algorithm rf_hierarchical_all_reduce = {
    .op = RF_COLL_ALL_REDUCE,
    .name = "hierarchical",
    .note = "where links are measured, hosts have several ranks, and it is predicted to be fastest",
    .bytes = "2 (H-1)/H K leave each of H hosts",
    .why_not = why_not_hierarchical_sum,
    .never_by_size = true,
    .cost = cost_hierarchical_all_reduce,
    .build = build_all_reduce,
    .rounds = {.fixed = 4},
    .counts = find_counts,
};

const struct rf_algorithm rf_hierarchical_reduce_scatter = {
    .op = RF_COLL_REDUCE_SCATTER,
    .name = "hierarchical",
    .note = "as in all_reduce",
    .bytes = "(H-1)/H K leave each of H hosts",
    .why_not = why_not_hierarchical_sum,
    .never_by_size = true,
    .cost = cost_hierarchical_reduce_scatter,
    .build = build_reduce_scatter,
    .rounds = {.fixed = 2},
};

const struct rf_algorithm rf_hierarchical_all_gather = {
    .op = RF_COLL_ALL_GATHER,
    .name = "hierarchical",
    .note = "as in all_reduce",
    .bytes = "(H-1)/H K leave each of H hosts",
    .why_not = why_not_hierarchical,
    .never_by_size = true,
    .cost = cost_hierarchical_all_gather,
    .build = build_all_gather,
    .rounds = {.fixed = 2},
};

const struct rf_algorithm rf_hierarchical_broadcast = {
    .op = RF_COLL_BROADCAST,
    .name = "hierarchical",
    .note = "as in all_reduce",
    .bytes = "2 K (the first of a host)",
    .why_not = why_not_hierarchical,
    .never_by_size = true,
    .cost = cost_hierarchical_broadcast,
    .build = build_broadcast,
    .rounds = {.around = 1},
};
