/* SPDX-License-Identifier: MIT
 *
 * The list of steps of a collective: its form, and the functions for builders. One builder per
 * algorithm (ring.c, flat.c, ...) fills it; exec.c runs it, schedule.c shows it, count.c counts it.
 * A builder is a pure function of struct rf_coll_desc.
 */
#ifndef RF_COLL_SCHED_H
#define RF_COLL_SCHED_H

#include <assert.h>

#include "coll.h"

enum rf_step_verb {
    RF_STEP_SEND,   /* a -> peer */
    RF_STEP_RECV,   /* peer -> dst */
    RF_STEP_REDUCE, /* dst = a op b, or the fold of a list of operands */
    RF_STEP_COPY,   /* dst = a */
    RF_STEP_JOIN,   /* nothing: a point that other steps wait for */
    RF_STEP_FETCH, /* a list of moves from the tensor into staging memory; dst selects the tensor */
    RF_STEP_STORE, /* and back */
    /* If ranks reach each other's memory (fused.c): */
    RF_STEP_ADDRESSES, /* dst = the addresses of IN and OUT, for others */
    RF_STEP_AGREE,     /* a = the addresses of all ranks; if not all can be reached, continue with
                        * `fallback` */
    RF_STEP_REDUCE_ALL /* OUT of every rank = the fold of IN of all, from `peer` on, or by tree */
};

/* The caller's input, the caller's output, and memory of the executor. IN and OUT may overlap if
 * the public call allows it; every builder writes its dependencies for that case. */
enum rf_space { RF_SPACE_IN, RF_SPACE_OUT, RF_SPACE_TMP, RF_SPACE_COUNT };

/* A place in one of the three; level: of the subtree whose sum it is (for folds by tree). */
struct rf_operand {
    uint64_t space : 2, level : 6, offset : 56;
};

struct rf_step {
    uint8_t verb, tree : 1, divide : 1;
    uint8_t published;     /* SEND, COPY, REDUCE: see rf_sched_publish */
    uint8_t zero_copy : 1; /* RECV: one fold, reduction or copy reads it, at exactly this place */
    uint8_t exchange : 1;  /* RECV: see rf_sched_exchange */
    int32_t peer;
    uint32_t tag;  /* unique among the messages from one rank to another */
    uint32_t need; /* number of predecessors */
    uint64_t bytes;
    struct rf_operand dst, a, b;
    uint32_t list, list_count; /* in struct rf_sched: operands of a larger fold, or moves */
    uint32_t next, next_count; /* in struct rf_sched's successors */
};
static_assert(sizeof(struct rf_step) == 64, "a step is one cache line");

#define RF_NO_STEP UINT32_MAX
enum { RF_TEMP_ALIGNMENT = 64 };
#define RF_MAX_TAG 0xffffffu

struct rf_edge {
    uint32_t step, after;
};

struct rf_sched {
    int status; /* the builder's first error */
    enum rf_coll_op op;
    int rank, ranks;
    enum rf_dtype dtype;
    enum rf_redop redop;
    size_t element_bytes;
    const char *algorithm;

    struct rf_step *steps;
    uint32_t count, capacity;
    struct rf_operand *operands; /* lists of folds */
    uint32_t operand_count, operand_capacity, longest_list;
    struct rf_move *moves; /* of fetches and stores */
    uint32_t move_count, move_capacity;
    struct rf_edge *edges; /* until compiled */
    uint32_t edge_count, edge_capacity;

    uint32_t *successors; /* after compiling */
    uint32_t *roots;      /* receives first, then sends, then local work */
    uint32_t root_count;
    uint32_t message_count;
    uint32_t recv_count, recv_roots; /* receives; those that wait for no step */
    size_t temp_bytes;
    uint64_t sent_bytes;
    struct rf_sched *fallback;    /* for a schedule with an AGREE */
    uint64_t buffer_bytes;        /* bytes of IN and of OUT there */
    uint64_t address_bytes;       /* part of sent_bytes that is not payload */
    uint64_t in_bytes, out_bytes; /* for a schedule that publishes: of the caller's IN and OUT, 0 if
                                   * staged */
    uint64_t whole_bytes;         /* of the caller's OUT; 0 if staged */
    uint64_t counted_bytes;       /* bytes that the schedule for other networks would send */
};

/* The addresses that ranks exchange. */
struct rf_addresses {
    uint64_t in, out; /* offsets in the memory that the rank shares */
    uint32_t valid;   /* both are in that memory */
};

static inline struct rf_operand rf_in(size_t offset)
{
    return (struct rf_operand){.space = RF_SPACE_IN, .offset = offset};
}

static inline struct rf_operand rf_out(size_t offset)
{
    return (struct rf_operand){.space = RF_SPACE_OUT, .offset = offset};
}

static inline struct rf_operand rf_tmp(size_t offset)
{
    return (struct rf_operand){.space = RF_SPACE_TMP, .offset = offset};
}

/* ---- building: every function remembers the first error in sched->status and does nothing after
 * it; what gives a step then gives RF_NO_STEP, which rf_sched_dep ignores. -----------------------
 */

uint32_t rf_sched_send(struct rf_sched *sched, int peer, uint32_t tag, struct rf_operand from,
                       size_t bytes);
uint32_t rf_sched_recv(struct rf_sched *sched, int peer, uint32_t tag, struct rf_operand into,
                       size_t bytes);
/* Only one fold, reduction or copy will read the data of `recv`, at exactly its place in temporary
 * memory; so the data may stay in the transport's memory. */
void rf_sched_allow_zero_copy(struct rf_sched *sched, uint32_t recv);
/* This rank sends the peer of `recv` sent_bytes of IN, and what it receives is the peer's IN. If
 * both are about as long, neither core is idle meanwhile, and a transport may use another way. */
void rf_sched_exchange(struct rf_sched *sched, uint32_t recv, size_t sent_bytes);
uint32_t rf_sched_reduce(struct rf_sched *sched, struct rf_operand dst, struct rf_operand a,
                         struct rf_operand b, size_t bytes);
/* dst = the operands folded in the order of the list, or pairwise by their levels (tree). divide:
 * the average of the operands, one for each rank. 16-bit types are folded in f32 and rounded once.
 */
uint32_t rf_sched_fold(struct rf_sched *sched, struct rf_operand dst,
                       const struct rf_operand *operands, uint32_t count, size_t bytes, bool tree,
                       bool divide);
/* Publishes data of IN or OUT for all ranks, if ranks reach each other's memory: in place if the
 * buffer can be reached, otherwise in a copy. The run decides: the copy is made only if needed, a
 * send uses either, and a fold into OUT then also leaves its sum in `copy`. */
uint32_t rf_sched_publish(struct rf_sched *sched, struct rf_operand copy, struct rf_operand from,
                          size_t bytes);
uint32_t rf_sched_send_published(struct rf_sched *sched, int peer, uint32_t tag,
                                 struct rf_operand from, struct rf_operand copy, size_t bytes);
uint32_t rf_sched_fold_published(struct rf_sched *sched, struct rf_operand dst,
                                 struct rf_operand copy, const struct rf_operand *operands,
                                 uint32_t count, size_t bytes, bool tree, bool divide);
uint32_t rf_sched_copy(struct rf_sched *sched, struct rf_operand dst, struct rf_operand from,
                       size_t bytes);
uint32_t rf_sched_join(struct rf_sched *sched);
/* Adds one move; and a step that makes all moves from `first` on, for IN or OUT. */
void rf_sched_move(struct rf_sched *sched, struct rf_move move);
uint32_t rf_sched_move_step(struct rf_sched *sched, enum rf_step_verb verb, bool out,
                            uint32_t first, uint64_t bytes);
uint32_t rf_sched_exchange_addresses(struct rf_sched *sched, struct rf_operand dst);
uint32_t rf_sched_agree(struct rf_sched *sched, struct rf_operand addresses);
/* Folds [offset, offset+bytes) of all ranks' IN, from rank `first` on (or by tree), into all ranks'
 * OUT. */
uint32_t rf_sched_reduce_all(struct rf_sched *sched, size_t offset, size_t bytes, int first,
                             bool tree, bool divide);
/* `step` starts after `after` has finished. Either may be RF_NO_STEP. */
void rf_sched_dep(struct rf_sched *sched, uint32_t step, uint32_t after);
/* Reserves temporary memory; returns its offset. */
size_t rf_sched_temp(struct rf_sched *sched, size_t bytes);
/* Scratch of a builder, zeroed, freed by rf_free; NULL sets the status. */
void *rf_sched_scratch(struct rf_sched *sched, size_t count, size_t item_bytes);

/* An algorithm: writes the list of one rank. */
typedef void rf_builder(struct rf_sched *sched, const struct rf_coll_desc *desc);

/* Runs one builder, window by window if it `can_cut`, and compiles the result. */
RF_MUST_CHECK int rf_sched_create(const struct rf_coll_desc *desc, const char *algorithm,
                                  rf_builder *build, bool can_cut, struct rf_sched **out);
/* leaves.c: whether a forest's call makes sense: its leaves are divided among the ranks, its parts
 * do not overlap, ... */
RF_MUST_CHECK int rf_forest_check(const struct rf_coll_desc *desc);

/* prefix.c: the same check for a round of leaves; and the work of a checked round. */
RF_MUST_CHECK int rf_prefix_check(const struct rf_coll_desc *desc);
struct rf_prefix_round {
    int leaves; /* number of leaves: ranks 0 to leaves - 1 have one */
    bool last;
    int lowest;             /* the level of the first slot */
    uint32_t reads, writes; /* bit l: the slot of level l */
};
struct rf_prefix_round rf_prefix_round(const struct rf_coll_desc *desc);

/* ---- cutting: by (count, ranks) and the segment only ----------------------------------------- */

struct rf_byte_range {
    size_t offset, bytes;
};

/* Chunk c of count elements over ranks: the first count % ranks chunks are one longer. */
static inline struct rf_byte_range rf_chunk(size_t count, int ranks, int c, size_t element_bytes)
{
    size_t base = count / (size_t)ranks, longer = count % (size_t)ranks, i = (size_t)c;
    return (struct rf_byte_range){.offset = (base * i + (i < longer ? i : longer)) * element_bytes,
                                  .bytes = (base + (i < longer)) * element_bytes};
}

/* The part of rank r in a gather, a scatter or an all-to-all: the r-th of equal pieces, or of
 * counts[]. */
static inline struct rf_byte_range rf_share(const struct rf_coll_desc *desc, const size_t *counts,
                                            int r, size_t element_bytes)
{
    if (!counts)
        return (struct rf_byte_range){desc->count * element_bytes * (size_t)r,
                                      desc->count * element_bytes};
    size_t before = 0;
    for (int i = 0; i < r; i++)
        before += counts[i];
    return (struct rf_byte_range){before * element_bytes, counts[r] * element_bytes};
}
static inline size_t rf_longest_share(const struct rf_coll_desc *desc, const size_t *counts,
                                      size_t element_bytes)
{
    size_t longest = counts ? 0 : desc->count;
    for (int r = 0; counts && r < desc->ranks; r++)
        longest = counts[r] > longest ? counts[r] : longest;
    return longest * element_bytes;
}

/* Segment j of a piece; 0 bytes past its end. */
static inline struct rf_byte_range rf_segment(struct rf_byte_range piece, size_t segment, size_t j)
{
    size_t begin = j * segment < piece.bytes ? j * segment : piece.bytes;
    size_t left = piece.bytes - begin;
    return (struct rf_byte_range){piece.offset + begin, left < segment ? left : segment};
}

/* The segments of the longest piece of a schedule. */
struct rf_cut {
    size_t segment; /* bytes, a multiple of the element; > 0 */
    uint32_t count; /* segments in the longest piece; >= 1 */
};
/* `tags`: the number of tags per segment index; segments grow if 24 bits would not suffice. */
struct rf_cut rf_cut(size_t longest_piece, size_t wanted_segment, size_t element_bytes,
                     size_t tags);

/* The number of received segments that may wait for their reduction: temporary memory has this many
 * slots, and stays in the cache. */
enum { RF_WINDOW = 4 };

#endif
