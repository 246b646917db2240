/* SPDX-License-Identifier: MIT
 *
 * Long calls among ranks that can reach each other's memory, for any kind of buffer: each rank's
 * data lie in one place, from which all others read them. That is the buffer itself if others can
 * reach it, otherwise a few places in temporary memory; the data are copied there while the others
 * still read the previous ones. So nothing is copied once for each reader, and the messages are the
 * same for every kind of memory. Folds are those of direct.c.
 */
#include "algorithm.h"

#include "../base/base.h"

enum { SENT_BYTES = 1 << 20, LONGEST_SEGMENT = 256 << 10, SHORTEST_SEGMENT = 32 << 10 };

struct shared {
    struct rf_sched *sched;
    const struct rf_coll_desc *desc;
    struct rf_cut cut;
    size_t place_bytes, temp;
    uint32_t *last;  /* [place] the step after which it can be reused */
    uint32_t *sends; /* [rank] sends of inputs, for the current segment */
    struct rf_operand *operands;
};

/* The content of a place: this rank's input for `rank`, or (its own place) the data it sends to
 * all; and data received from `rank`: to be folded, or as its result. */
enum content { SENT, RECEIVED, RESULT, CONTENTS };

static size_t place_of(const struct shared *s, enum content content, int rank, uint32_t j)
{
    size_t ranks = (size_t)s->desc->ranks;
    return ((size_t)content * ranks + (size_t)rank) * RF_WINDOW + j % RF_WINDOW;
}

static struct rf_operand at(const struct shared *s, size_t place)
{
    return rf_tmp(s->temp + place * s->place_bytes);
}

static int peer_at(const struct shared *s, int distance)
{
    return (s->desc->rank + distance) % s->desc->ranks;
}

static bool init(struct shared *s, struct rf_sched *sched, const struct rf_coll_desc *desc,
                 size_t longest)
{
    size_t places = (size_t)CONTENTS * (size_t)desc->ranks * RF_WINDOW;
    size_t segment = SENT_BYTES / (size_t)desc->ranks;
    segment = segment > LONGEST_SEGMENT ? LONGEST_SEGMENT : segment;
    segment = segment < SHORTEST_SEGMENT ? SHORTEST_SEGMENT : segment;
    *s = (struct shared){.sched = sched, .desc = desc};
    s->cut = rf_cut(longest, segment, sched->element_bytes, 2);
    s->place_bytes = longest < s->cut.segment ? longest : s->cut.segment;
    s->place_bytes =
        (s->place_bytes + RF_TEMP_ALIGNMENT - 1) / RF_TEMP_ALIGNMENT * RF_TEMP_ALIGNMENT;
    s->temp = rf_sched_temp(sched, places * s->place_bytes);
    s->last = rf_sched_scratch(sched, places, sizeof(*s->last));
    s->sends = rf_sched_scratch(sched, (size_t)desc->ranks, sizeof(*s->sends));
    s->operands = rf_sched_scratch(sched, (size_t)desc->ranks, sizeof(*s->operands));
    for (size_t i = 0; s->last && i < places; i++)
        s->last[i] = RF_NO_STEP;
    return s->operands != NULL;
}

static void fini(struct shared *s)
{
    rf_free(s->last);
    rf_free(s->sends);
    rf_free(s->operands);
}

/* Segment j as sent by `from`, at its place; it stays there until `read`, to be set by the caller,
 * has ended. */
static uint32_t receive(struct shared *s, enum content content, int from, uint32_t tag, uint32_t j,
                        size_t bytes)
{
    size_t place = place_of(s, content, from, j);
    uint32_t recv = rf_sched_recv(s->sched, from, tag, at(s, place), bytes);
    rf_sched_allow_zero_copy(s->sched, recv);
    rf_sched_dep(s->sched, recv, s->last[place]);
    return recv;
}

/* Receives the result of another rank at its place in OUT. Not even the transport writes there
 * before `read`. */
static uint32_t take_result(struct shared *s, int from, uint32_t tag, uint32_t j,
                            struct rf_byte_range piece, uint32_t read)
{
    uint32_t recv = receive(s, RESULT, from, tag, j, piece.bytes);
    rf_sched_dep(s->sched, recv, read);
    size_t place = place_of(s, RESULT, from, j);
    uint32_t copy = rf_sched_copy(s->sched, rf_out(piece.offset), at(s, place), piece.bytes);
    rf_sched_dep(s->sched, copy, recv);
    s->last[place] = copy;
    return copy;
}

static struct rf_byte_range chunk(const struct shared *s, int rank, uint32_t j)
{
    struct rf_byte_range whole =
        rf_chunk(s->desc->count, s->desc->ranks, rank, s->sched->element_bytes);
    return rf_segment(whole, s->cut.segment, j);
}

static void send_inputs(struct shared *s, uint32_t j)
{
    for (int distance = 1; distance < s->desc->ranks; distance++) {
        int to = peer_at(s, s->desc->ranks - distance);
        struct rf_byte_range piece = chunk(s, to, j);
        size_t place = place_of(s, SENT, to, j);
        s->sends[to] = RF_NO_STEP;
        if (piece.bytes == 0)
            continue;
        uint32_t copy = rf_sched_publish(s->sched, at(s, place), rf_in(piece.offset), piece.bytes);
        rf_sched_dep(s->sched, copy, s->last[place]);
        uint32_t send = rf_sched_send_published(s->sched, to, j, rf_in(piece.offset), at(s, place),
                                                piece.bytes);
        rf_sched_dep(s->sched, send, copy);
        s->sends[to] = s->last[place] = send;
    }
}

/* Folds this rank's chunk, and sends it to all others. */
static void fold_own(struct shared *s, uint32_t j)
{
    const struct rf_coll_desc *desc = s->desc;
    struct rf_byte_range own = chunk(s, desc->rank, j);
    size_t place = place_of(s, SENT, desc->rank, j);
    bool tree = desc->order == RF_ORDER_TREE;
    if (own.bytes == 0)
        return;
    for (int i = 0; i < desc->ranks; i++) {
        int rank = tree ? i : peer_at(s, i);
        s->operands[i] =
            rank == desc->rank ? rf_in(own.offset) : at(s, place_of(s, RECEIVED, rank, j));
    }
    uint32_t fold =
        rf_sched_fold_published(s->sched, rf_out(own.offset), at(s, place), s->operands,
                                (uint32_t)desc->ranks, own.bytes, tree, desc->redop == RF_AVG);
    rf_sched_dep(s->sched, fold, s->last[place]);
    uint32_t sent = rf_sched_join(s->sched);
    s->last[place] = sent;
    for (int distance = 1; distance < desc->ranks; distance++) {
        int from = peer_at(s, distance), to = peer_at(s, desc->ranks - distance);
        rf_sched_dep(s->sched, fold, receive(s, RECEIVED, from, j, j, own.bytes));
        s->last[place_of(s, RECEIVED, from, j)] = fold;
        uint32_t send = rf_sched_send_published(s->sched, to, s->cut.count + j, rf_out(own.offset),
                                                at(s, place), own.bytes);
        rf_sched_dep(s->sched, send, fold);
        rf_sched_dep(s->sched, sent, send);
    }
}

/* A sum is written over its part, because OUT may be IN. */
static void take_results(struct shared *s, uint32_t j)
{
    for (int distance = 1; distance < s->desc->ranks; distance++) {
        int from = peer_at(s, distance);
        struct rf_byte_range piece = chunk(s, from, j);
        if (piece.bytes > 0)
            take_result(s, from, s->cut.count + j, j, piece, s->sends[from]);
    }
}

static void build_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct shared s;
    size_t longest = rf_chunk(desc->count, desc->ranks, 0, sched->element_bytes).bytes;
    bool ready = init(&s, sched, desc, longest);
    for (uint32_t j = 0; ready && sched->status == 0 && j < s.cut.count; j++) {
        send_inputs(&s, j);
        fold_own(&s, j);
        take_results(&s, j);
    }
    fini(&s);
}

static struct rf_byte_range share(const struct shared *s, int rank, uint32_t j)
{
    return rf_segment(rf_share(s->desc, s->desc->counts, rank, s->sched->element_bytes),
                      s->cut.segment, j);
}

/* Sends this rank's share to all, and copies it to its own place. */
static void send_share(struct shared *s, uint32_t j)
{
    const struct rf_coll_desc *desc = s->desc;
    struct rf_byte_range own = share(s, desc->rank, j);
    struct rf_operand from = rf_in(j * s->cut.segment);
    size_t place = place_of(s, SENT, desc->rank, j);
    if (own.bytes == 0)
        return;
    uint32_t copy = rf_sched_publish(s->sched, at(s, place), from, own.bytes);
    uint32_t sent = rf_sched_join(s->sched);
    rf_sched_dep(s->sched, copy, s->last[place]);
    s->last[place] = sent;
    for (int distance = 1; distance < desc->ranks; distance++) {
        int to = peer_at(s, desc->ranks - distance);
        uint32_t send = rf_sched_send_published(s->sched, to, j, from, at(s, place), own.bytes);
        rf_sched_dep(s->sched, send, copy);
        rf_sched_dep(s->sched, sent, send);
    }
    rf_sched_copy(s->sched, rf_out(own.offset), from, own.bytes);
}

static void build_all_gather(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    struct shared s;
    size_t longest = rf_longest_share(desc, desc->counts, sched->element_bytes);
    bool ready = init(&s, sched, desc, longest);
    for (uint32_t j = 0; ready && sched->status == 0 && j < s.cut.count; j++) {
        send_share(&s, j);
        for (int distance = 1; distance < desc->ranks; distance++) {
            int from = peer_at(&s, distance);
            struct rf_byte_range piece = share(&s, from, j);
            if (piece.bytes > 0)
                take_result(&s, from, j, j, piece, RF_NO_STEP);
        }
    }
    fini(&s);
}

/* ---- the records ----------------------------------------------------------------------------- */

/* Up to here two ranks send each other messages. */
enum { LONGEST_SHARE_OF_TWO = 8 << 20 };

/* With two ranks nobody else reads the published data, and slots are faster. More ranks read data
 * that would otherwise be copied once per rank. */
static bool prefers_shared_gather(const struct rf_coll_desc *desc)
{
    return desc->ranks == 2 ? rf_coll_piece_bytes(desc) > LONGEST_SHARE_OF_TWO
                            : rf_coll_piece_bytes(desc) >= 32 * 1024;
}

const struct rf_algorithm rf_shared_all_reduce = {
    .op = RF_COLL_ALL_REDUCE,
    .name = "shared",
    .note = "over 32 KiB (two ranks: over 1 MiB) if 2 to 32 ranks share memory, on any buffers",
    .bytes = "2 (N-1)/N K",
    .why_not = rf_why_not_shared,
    .never_by_size = true,
    .build = build_all_reduce,
    .rounds = {.fixed = 2},
    .shares_memory = true,
};

const struct rf_algorithm rf_shared_all_gather = {
    .op = RF_COLL_ALL_GATHER,
    .name = "shared",
    .note = "pieces of 32 KiB or more (two ranks: over 8 MiB) if 2 to 32 ranks share memory",
    .bytes = "(N-1)/N K",
    .why_not = rf_why_not_shared,
    .preferred = prefers_shared_gather,
    .build = build_all_gather,
    .rounds = {.fixed = 1},
    .shares_memory = true,
};
