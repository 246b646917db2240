/* SPDX-License-Identifier: MIT
 *
 * The data of a plan: parameters and gradients, pieces, regions of memory, values, and lists of
 * instructions. plan.h includes it, and has functions of these data.
 */
#ifndef RF_PARALLEL_PLAN_DATA_H
#define RF_PARALLEL_PLAN_DATA_H

#include <ringforge/parallel.h>

#include "split.h"

#define RF_NO_GRAD UINT64_MAX
/* The micro-batch of a round in which this rank has none. expand.c writes it for the passes that
 * need all rounds; gather.c removes it. */
#define RF_PHANTOM (-2)
/* Parameters start at multiples of this many elements, or of rf_plan_grain. This is the grain of
 * the decay words, and cuts at these multiples do not change the bits of an update. */
#define RF_FLAT_GRAIN 64u
/* In a pipeline without a flush (2bw): the slot of inputs, losses and 16-bit parameters of the
 * previous step. The f32 parameters of that step are a state of the optimizer. */
#define RF_SLOT_BEFORE 1
enum { RF_STATE_BEFORE = RF_STATE_COUNT, RF_PLAN_STATES };
/* Slots of scalars. The scalars of the update have no slot; the newest step and the one before have
 * one each. Each starts at a multiple of these bytes. */
enum { RF_SCALARS_NOW = 1, RF_SCALARS_BEFORE, RF_SCALARS_COUNT };
#define RF_SCALARS_STRIDE 256u
#define RF_NORM_CHUNK 1024u

/* One declared use of a parameter. */
struct rf_plan_param {
    const struct rf_param_desc *desc;
    int block, index; /* its block, and its index in the block's list */
    int logical;      /* the first of the uses tied to each other; itself if not tied */
    /* The first of these whose block is on this rank, which has the storage here; -1: this use's
     * block is on another rank. */
    int owner;
    struct rf_param_cut cut; /* over the tensor ranks */
    int64_t count;           /* elements of this rank's part */
    bool bare; /* frozen, and in 16 bits in all uses: stored in 16 bits only, without a master */
    bool raw;  /* RF_U8: four bytes an element */
    /* Stored with the masters, behind them, without a copy in 16 bits: raw, or frozen and in f32 in
     * all uses where other parameters have a copy. */
    bool single;
    uint64_t first;      /* index in the flat parameter buffer */
    uint64_t grad_first; /* index in a gradient slot; RF_NO_GRAD if frozen */
    bool overwrite_grad; /* the first use of its gradient overwrites it: ctx->overwrite_grad */
    int piece;           /* that contains the parameter; for tied uses the owner's */
    int grad_piece;      /* that contains its gradient; -1 if frozen */
    /* The piece's index among the operands of a call of the block with RF_ROLE_PARAM or, if narrow,
     * RF_ROLE_COPY; and that of grad_piece with RF_ROLE_GRAD, or -1. */
    int operand, grad_operand;
};

/* Whether blocks use it in 16 bits. */
static inline bool rf_plan_narrow(const struct rf_plan_param *param)
{
    return param->desc->dtype == RF_F16 || param->desc->dtype == RF_BF16;
}

/* A part of a gradient slot that is cleared before its first micro-batch. */
struct rf_plan_span {
    uint64_t first, count; /* elements */
};

/* Intersects a span with these elements; false: the intersection is empty. */
static inline bool rf_plan_clip(struct rf_plan_span *span, uint64_t first, uint64_t count)
{
    const uint64_t end = span->first + span->count, last = first + count;
    const uint64_t from = span->first > first ? span->first : first;
    const uint64_t to = end < last ? end : last;
    *span = (struct rf_plan_span){from, to > from ? to - from : 0};
    return to > from;
}

/* A part that is reduced and updated together. It is a contiguous part of the flat parameter buffer
 * and of each gradient slot or, if use >= 0, of the gradient slots only. */
struct rf_plan_piece {
    uint64_t first, count; /* elements, without padding after the last parameter */
    int block;             /* gradients are complete after its backward pass */
    int use;               /* the parameter whose tied use this is; -1: none */
    bool trained;
    bool bare, single;            /* those of rf_plan_param, of all its parameters */
    bool coded;                   /* rf_plan_coded, of all its parameters */
    bool sums_tensor;             /* rf_plan_sums_tensor, of all its parameters */
    uint64_t *borders;            /* shards + 1 elements, from 0 to count: where shards begin */
    size_t *counts;               /* of each shard; any may be 0 */
    uint64_t shard_first;         /* index of this rank's shard in memory that has shards only */
    uint64_t first_chunk, chunks; /* of the norm, in this rank's shard: rf_plan_fill_chunks */
    uint64_t part_first; /* index of its partial sums; the last of them is the shard of gradients */
};

/* Every region of device memory of a run. Those of blocks follow the fixed ones. */
enum rf_region_id {
    RF_REGION_PARAMS = 0, /* if they are sharded: this rank's shards */
    RF_REGION_COPY,       /* the same in 16 bits, for blocks that use 16-bit parameters */
    RF_REGION_GRADS,      /* all slots, one after the other; if they are sharded: the shards */
    RF_REGION_STATE,      /* of the optimizer: one for each enum rf_optimizer_state, and BEFORE */
    RF_REGION_STATE_END = RF_REGION_STATE + RF_PLAN_STATES - 1,
    RF_REGION_COPY_BEFORE, /* 2bw: RF_REGION_COPY before the last update, trained parameters */
    RF_REGION_TOKENS,      /* host-visible; of all local micro-batches */
    RF_REGION_TARGETS,     /* likewise */
    RF_REGION_LOSSES,      /* likewise */
    RF_REGION_STARTS,      /* likewise; packed: starts, then positions, of each micro-batch */
    RF_REGION_DECAY,
    RF_REGION_PLACES, /* of stochastic rounding: rf_optimizer_part.places */
    RF_REGION_CHUNKS,
    RF_REGION_SCALARS,    /* host-visible: struct rf_step_scalars */
    RF_REGION_NORM,       /* the sum of squares of the gradients */
    RF_REGION_PARTIALS,   /* the same before it is rounded: RF_EXACT_WORDS */
    RF_REGION_SQUARES,    /* of each chunk, then scratch for their sum: rf_plan_squares_bytes */
    RF_REGION_WORKSPACE,  /* scratch of products */
    RF_REGION_SCRATCH,    /* of one call of one block */
    RF_REGION_HOST_GRADS, /* with the layout of the states */
    RF_REGION_FIXED       /* regions of temporary values follow: lifetimes.c */
};

struct rf_plan_region {
    enum rf_category category;
    enum rf_memory memory;
    uint64_t bytes; /* a multiple of 256; 0 = none */
};

/* Instructions in order, and their number on each lane. */
struct rf_list {
    struct rf_instruction *instructions;
    int count, capacity;
    int positions[RF_LANE_COUNT];
};

enum rf_list_id {
    /* A step; with forward_only a forward pass; with 2bw the rest of the step in progress, its
     * update, and most of the next step. */
    RF_LIST_STEP = 0,
    RF_LIST_FILL,         /* 2bw: if no step is in progress, most of a step; otherwise empty */
    RF_LIST_DRAIN,        /* 2bw: the rest of the step in progress; otherwise empty */
    RF_LIST_EVALUATE,     /* a forward pass of as many micro-batches as a step has on this rank */
    RF_LIST_EVALUATE_ONE, /* of one micro-batch */
    /* This rank's part while other ranks evaluate one micro-batch: empty without sharded
     * parameters. */
    RF_LIST_EVALUATE_NONE,
    RF_LIST_COUNT
};

/* The ranks of a lane's transfers: rank k of the group is rank first + k * stride of the mesh. */
struct rf_plan_group {
    int first, stride;
    int size, rank; /* size 0: the lane is not used */
};

struct rf_value_index; /* values by key */

struct rf_plan {
    const struct rf_block *blocks;
    int block_count;
    struct rf_mesh mesh;
    struct rf_policy policy; /* all defaults are set */
    int rank;
    /* Its place in the mesh: rf_plan_rank_at. tp_rank: among the ranks that share its
     * micro-batches, rf_plan_tensor_ranks. */
    int tp_rank, dp_rank, pp_rank;
    double *stage_costs; /* [block_count] costs for dividing stages; NULL: evenly, or by a list */
    int *stage_of, *home_of; /* of each block: its stage, and the pp_rank of its ranks */
    int *stage_blocks;       /* number of blocks of each stage; policy.stage_blocks where pp > 1 */
    int stage_count;
    int64_t rows;            /* this rank's tokens of a micro-batch: rf_plan_whole_rows */
    struct rf_forest forest; /* the division of micro-batches among ranks */
    int *first_micro_batch;  /* forest.first */
    int most_parts;          /* the maximum number of subtrees of a rank; in tree order only */
    int local_micro_batches;
    bool round_robin; /* micro-batches go to ranks round-robin, not in contiguous parts */

    struct rf_plan_param *params; /* in registration order */
    int param_count;
    int *first_param;         /* of each block */
    int first_back;           /* the first block with a trained parameter: blocks before it have no
                               * backward pass; block_count: none */
    enum rf_dtype copy_type;  /* of RF_REGION_COPY; RF_F32: no copy */
    uint64_t param_elements;  /* of the flat buffer; frozen ones are last */
    uint64_t master_elements; /* its front part: all but bare and single ones */
    uint64_t copy_elements;   /* its front part that may have a 16-bit copy: all but single ones */
    uint64_t train_elements;  /* its front part, which the optimizer updates */
    uint64_t coded_elements;  /* its front part with states in 8 bits, if there are any */
    uint64_t slot_elements;   /* of one gradient slot: the same, then, in tree order, tied uses */
    struct rf_plan_span *cleared;
    int cleared_count;
    int64_t logical_elements;
    int slots;
    struct rf_plan_piece *pieces; /* trained ones in the order of reduction, then the frozen one */
    int piece_count, trained_pieces;
    int stage;         /* policy.zero, or 0 if there is nothing to shard */
    int shards, shard; /* number of shards, and this rank's shard */
    struct rf_plan_group groups[RF_LANE_COUNT];
    bool units;      /* blocks use parameters that are gathered or fetched for them */
    bool keep_units; /* and that stay in memory until the end of the list */
    int sum_slots;   /* places for partial sums of a shard: several in tree order with zero >= 2 */
    enum rf_lane shard_lane; /* of the ranks that hold one copy of the shards */
    bool trains;             /* any parameter is updated, on any rank */
    uint64_t chunk_count;    /* rf_plan_chunks of this rank's shard */
    uint64_t place_runs;     /* in the table of places; 0: elements draw by their index */

    /* For each block: the sizes on this rank, of all its parts together, and of each part. */
    struct rf_block_sizes *sizes, *part_sizes;
    struct rf_plan_region *regions;
    int region_count;

    struct rf_value *values;
    int value_count, value_capacity;
    struct rf_value_index *value_index;
    int *operands;
    uint8_t *roles; /* of each operand: enum rf_role */
    int operand_count, operand_capacity, role_capacity;
    struct rf_wait *waits;
    int wait_count, wait_capacity;
    struct rf_transfer *transfers;
    int transfer_count, transfer_capacity;
    struct rf_list lists[RF_LIST_COUNT];
    struct rf_bytes bytes;
};

#endif
