/* SPDX-License-Identifier: MIT
 *
 * Ring all-reduce and ring all-gather (Patarasuk and Yuan 2009): every rank talks to its two
 * neighbours only and sends 2(N-1)/N of the data, the least that is possible.
 *
 * All-reduce: chunk c starts at rank c and is folded c, c+1, ... around the ring, so rank r ends up
 * with the sum of chunk r+1; then the sums travel once around. Everything is cut into segments, and
 * a segment is passed on as soon as it is reduced; cutting changes no fold order.
 */
#include "algorithm.h"

#include "../base/base.h"

struct ring {
    struct rf_sched *sched;
    const struct rf_coll_desc *desc;
    struct rf_cut cut;
    int left, right;
    size_t slots[RF_WINDOW];
    uint32_t slot_users[RF_WINDOW]; /* the reduction that empties the slot */
    uint32_t slot_count, received;
    uint32_t *ready; /* [segment] the step after which the current chunk may be sent */
};

static struct rf_byte_range chunk(const struct ring *ring, int c)
{
    int ranks = ring->desc->ranks;
    return rf_chunk(ring->desc->count, ranks, (c + 2 * ranks) % ranks, ring->sched->element_bytes);
}

static uint32_t tag(const struct ring *ring, int hop, uint32_t segment)
{
    return (uint32_t)hop * ring->cut.count + segment;
}

/* Hop `hop` of the reduction: passes chunk rank-hop on. Its place in OUT is then free, so the
 * finished sum of that chunk is received there, and sent on unless it has reached every rank. */
static void pass_on(struct ring *ring, int hop)
{
    const struct rf_coll_desc *desc = ring->desc;
    struct rf_byte_range whole = chunk(ring, desc->rank - hop);
    int gather = desc->ranks - 1; /* tags of the second round start here */
    for (uint32_t j = 0; j < ring->cut.count; j++) {
        struct rf_byte_range piece = rf_segment(whole, ring->cut.segment, j);
        if (piece.bytes == 0)
            break;
        struct rf_operand from = hop == 0 ? rf_in(piece.offset) : rf_out(piece.offset);
        uint32_t send =
            rf_sched_send(ring->sched, ring->right, tag(ring, hop, j), from, piece.bytes);
        rf_sched_dep(ring->sched, send, ring->ready[j]);
        uint32_t recv = rf_sched_recv(ring->sched, ring->left, tag(ring, gather + hop, j),
                                      rf_out(piece.offset), piece.bytes);
        rf_sched_dep(ring->sched, recv, send);
        if (hop < desc->ranks - 2) {
            uint32_t forward =
                rf_sched_send(ring->sched, ring->right, tag(ring, gather + hop + 1, j),
                              rf_out(piece.offset), piece.bytes);
            rf_sched_dep(ring->sched, forward, recv);
        }
    }
}

/* Receives the partial sum of chunk rank-1-hop and adds this rank's part after it. */
static void add_own(struct ring *ring, int hop)
{
    struct rf_byte_range whole = chunk(ring, ring->desc->rank - 1 - hop);
    for (uint32_t j = 0; j < ring->cut.count; j++) {
        struct rf_byte_range piece = rf_segment(whole, ring->cut.segment, j);
        if (piece.bytes == 0)
            break;
        uint32_t slot = ring->received++ % ring->slot_count;
        uint32_t recv = rf_sched_recv(ring->sched, ring->left, tag(ring, hop, j),
                                      rf_tmp(ring->slots[slot]), piece.bytes);
        rf_sched_allow_zero_copy(ring->sched, recv);
        rf_sched_dep(ring->sched, recv, ring->slot_users[slot]);
        uint32_t reduce =
            rf_sched_reduce(ring->sched, rf_out(piece.offset), rf_tmp(ring->slots[slot]),
                            rf_in(piece.offset), piece.bytes);
        rf_sched_dep(ring->sched, reduce, recv);
        ring->slot_users[slot] = reduce;
        ring->ready[j] = reduce;
    }
}

/* Chunk rank+1 is complete here: it starts around the ring. */
static void send_sum(struct ring *ring)
{
    const struct rf_coll_desc *desc = ring->desc;
    struct rf_byte_range whole = chunk(ring, desc->rank + 1);
    for (uint32_t j = 0; j < ring->cut.count; j++) {
        struct rf_byte_range piece = rf_segment(whole, ring->cut.segment, j);
        if (piece.bytes == 0)
            break;
        uint32_t send = rf_sched_send(ring->sched, ring->right, tag(ring, desc->ranks - 1, j),
                                      rf_out(piece.offset), piece.bytes);
        rf_sched_dep(ring->sched, send, ring->ready[j]);
    }
}

static void init(struct ring *ring, struct rf_sched *sched, const struct rf_coll_desc *desc,
                 size_t longest, size_t rounds)
{
    *ring = (struct ring){.sched = sched,
                          .desc = desc,
                          .left = (desc->rank + desc->ranks - 1) % desc->ranks,
                          .right = (desc->rank + 1) % desc->ranks};
    ring->cut = rf_cut(longest, desc->segment_bytes, sched->element_bytes,
                       rounds * (size_t)(desc->ranks - 1));
    ring->ready = rf_sched_scratch(sched, ring->cut.count, sizeof(uint32_t));
    for (uint32_t j = 0; ring->ready && j < ring->cut.count; j++)
        ring->ready[j] = RF_NO_STEP;
}

static void build_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct ring ring;
    size_t longest = rf_chunk(desc->count, desc->ranks, 0, sched->element_bytes).bytes;
    init(&ring, sched, desc, longest, 2);
    if (!ring.ready)
        return;
    uint64_t receives = (uint64_t)(desc->ranks - 1) * ring.cut.count;
    ring.slot_count = receives < RF_WINDOW ? (uint32_t)receives : RF_WINDOW;
    for (uint32_t i = 0; i < ring.slot_count; i++) {
        ring.slots[i] =
            rf_sched_temp(sched, longest < ring.cut.segment ? longest : ring.cut.segment);
        ring.slot_users[i] = RF_NO_STEP;
    }
    for (int hop = 0; hop < desc->ranks - 1; hop++) {
        pass_on(&ring, hop);
        add_own(&ring, hop);
    }
    send_sum(&ring);
    rf_free(ring.ready);
}

static void build_all_gather(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct ring ring;
    init(&ring, sched, desc, rf_longest_share(desc, desc->counts, sched->element_bytes), 1);
    if (!ring.ready)
        return;
    for (int hop = 0; hop < desc->ranks; hop++) {
        int owner = (desc->rank - hop + desc->ranks) % desc->ranks;
        struct rf_byte_range share = rf_share(desc, desc->counts, owner, sched->element_bytes);
        for (uint32_t j = 0; j < ring.cut.count; j++) {
            struct rf_byte_range piece = rf_segment(share, ring.cut.segment, j);
            if (piece.bytes == 0)
                break;
            struct rf_operand place = rf_out(piece.offset);
            struct rf_operand from = hop == 0 ? rf_in(piece.offset - share.offset) : place;
            if (hop > 0)
                ring.ready[j] =
                    rf_sched_recv(sched, ring.left, tag(&ring, hop - 1, j), place, piece.bytes);
            else
                rf_sched_copy(sched, place, from, piece.bytes);
            if (hop < desc->ranks - 1) {
                uint32_t send =
                    rf_sched_send(sched, ring.right, tag(&ring, hop, j), from, piece.bytes);
                rf_sched_dep(sched, send, ring.ready[j]);
            }
        }
    }
    rf_free(ring.ready);
}

/* ---- the records ----------------------------------------------------------------------------- */

static double cost_ring_all_reduce(const struct rf_cost_view *v)
{
    return v->others * (2 * rf_cost_hop(v, v->share) + v->share * v->m->fold_byte_s);
}

/* All chunks twice, except the one that it completes and the one that its neighbour has completed.
 */
static uint64_t sent_ring_all_reduce(const struct rf_coll_desc *desc)
{
    return 2 * (uint64_t)rf_coll_bytes(desc) - rf_chunk_bytes(desc, desc->rank + 1) -
           rf_chunk_bytes(desc, desc->rank + 2);
}

static double cost_ring_all_gather(const struct rf_cost_view *v)
{
    return v->others * rf_cost_hop(v, v->share);
}

/* All pieces except that of the neighbour to which it sends. */
static uint64_t sent_around(const struct rf_coll_desc *desc)
{
    return (uint64_t)rf_coll_bytes(desc) - rf_piece_bytes(desc, desc->rank + 1);
}

const struct rf_algorithm rf_ring_all_reduce = {
    .op = RF_COLL_ALL_REDUCE,
    .name = "ring",
    .note = "long",
    .bytes = "2 (N-1)/N K",
    .why_not = rf_why_no_ring_order,
    .cost = cost_ring_all_reduce,
    .build = build_all_reduce,
    .sent = sent_ring_all_reduce,
    .rounds = {.around = 2},
};

const struct rf_algorithm rf_ring_all_gather = {
    .op = RF_COLL_ALL_GATHER,
    .name = "ring",
    .note = "long",
    .bytes = "(N-1)/N K",
    .why_not = rf_why_no_peers,
    .cost = cost_ring_all_gather,
    .build = build_all_gather,
    .sent = rf_sent_to_all,
    .sent_counts = sent_around,
    .rounds = {.around = 1},
};
