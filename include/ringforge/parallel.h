/* SPDX-License-Identifier: MIT
 *
 * Plans: what a training step is going to do on one rank, as a list of instructions. Each
 * instruction names the values (pieces of memory) that it reads and writes, the lane it runs on,
 * what it waits for and what it transfers; so the bytes of every memory category and of every
 * message follow from the list. Pure: nothing is allocated on a device, nobody is asked; a plan for
 * 4,096 ranks is made on a laptop.
 */
#ifndef RINGFORGE_PARALLEL_H
#define RINGFORGE_PARALLEL_H

#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values ---------------------------------------------------------------------------------- */

/* What a value is of, besides its kind: */
enum rf_value_kind {
    /* With sharded parameters there only from a RF_VERB_GATHER to the last reader. */
    RF_VALUE_PARAM = 0, /* piece: the f32 parameters */
    RF_VALUE_COPY,      /* piece: the same in 16 bits, for blocks that want that */
    RF_VALUE_GRAD,      /* piece, slot: a sum of gradients over micro-batches */
    /* Of a piece what this rank updates: all of it where states are not sharded, maybe nothing. */
    RF_VALUE_PARAM_SHARD, /* piece: a part of RF_VALUE_PARAM */
    RF_VALUE_COPY_SHARD,  /* piece: a part of RF_VALUE_COPY */
    RF_VALUE_GRAD_SHARD,  /* piece: a part of RF_VALUE_GRAD slot 0; with zero >= 2 on its own */
    RF_VALUE_GRAD_PART, /* piece, zero >= 2: in tree order the partial sums of the shard, by level;
                         * in ring order what one round adds to it */
    RF_VALUE_GRAD_NARROW,       /* piece: RF_VALUE_GRAD in policy.reduce_dtype, as it travels */
    RF_VALUE_GRAD_NARROW_SHARD, /* piece: RF_VALUE_GRAD_SHARD or _PART, as it has travelled */
    RF_VALUE_GRAD_TIED,         /* piece, slot: RF_VALUE_GRAD_SHARD of a tied use on another rank */
    RF_VALUE_HOST_GRAD, /* piece: RF_VALUE_GRAD_SHARD in memory of the host, for its optimizer */
    RF_VALUE_STATE,     /* piece; slot = enum rf_optimizer_state */
    RF_VALUE_TOKENS,    /* micro_batch: inputs of the first block */
    RF_VALUE_TARGETS,   /* micro_batch */
    RF_VALUE_LOSSES,    /* micro_batch: of each token */
    RF_VALUE_OUT,       /* block, micro_batch: a block's output */
    RF_VALUE_DOUT,      /* block, micro_batch: the gradient of a block's output */
    RF_VALUE_SAVED,     /* block, micro_batch: from forward to backward */
    RF_VALUE_SAVED_FOR_WEIGHT, /* block, micro_batch: from backward_input to backward_weight */
    RF_VALUE_EXCHANGE, /* block, micro_batch; slot: which exchange of which call of the block */
    /* The same as RF_VALUE_OUT and RF_VALUE_SAVED, in memory of the host. What comes back from
     * there has slot 1 of these two kinds. */
    RF_VALUE_HOST_OUT,
    RF_VALUE_HOST_SAVED,
    RF_VALUE_SCALARS,   /* struct rf_step_scalars */
    RF_VALUE_NORM,      /* the sum of squares of all gradients */
    RF_VALUE_PARTIALS,  /* of the chunks of the norm */
    RF_VALUE_CHUNKS,    /* table: the chunks of the norm */
    RF_VALUE_DECAY,     /* table: where weight decay applies */
    RF_VALUE_SCRATCH,   /* working memory of one call of a block */
    RF_VALUE_WORKSPACE, /* working memory of products */
    RF_VALUE_KINDS
};

/* A piece of memory. What does not apply is -1. */
struct rf_value {
    enum rf_value_kind kind;
    int block, micro_batch; /* micro_batch: global index within the step */
    int slot, piece;
    int region;      /* of the run's memory */
    uint64_t offset; /* in it, bytes */
    uint64_t bytes;  /* 0: the value is empty; its order is kept all the same */
};

/* ---- instructions ---------------------------------------------------------------------------- */

enum rf_verb {
    RF_VERB_LOAD = 0, /* inputs and the step's scalars, by the host */
    RF_VERB_ZERO,     /* gradients of a slot */
    RF_VERB_FORWARD,
    RF_VERB_RECOMPUTE, /* a forward pass once more, for what was not kept */
    RF_VERB_BACKWARD_INPUT,
    RF_VERB_BACKWARD_WEIGHT,
    RF_VERB_MERGE,        /* gradients += others: sibling subtrees of micro-batches, or a round's */
    RF_VERB_REDUCE,       /* gradients of a piece, over the ranks */
    RF_VERB_LOSS,         /* share losses and token counts; by the host */
    RF_VERB_TIE,          /* gradients of a parameter += those of a tied use */
    RF_VERB_NORM_PARTIAL, /* sums of squares of the chunks of this rank's gradients */
    RF_VERB_NORM_SHARE,   /* those of all ranks */
    RF_VERB_NORM,         /* their sum */
    RF_VERB_BEGIN_STEP,   /* norm, clipping, overflow, bias correction */
    RF_VERB_STEP,         /* optimizer */
    RF_VERB_END_STEP,     /* the loss scale moves */
    RF_VERB_GATHER,       /* parameters of a piece, from the ranks that have updated them */
    RF_VERB_BROADCAST,    /* rank 0's values, to all */
    RF_VERB_CAST,         /* parameters to 16 bits; gradients to 16 bits and back */
    RF_VERB_FETCH,        /* parameters of a piece, or activations, from memory of the host */
    RF_VERB_EVICT,        /* gradients of a piece, or activations, to memory of the host */
    RF_VERB_HOST_STEP,    /* optimizer, by the host */
    RF_VERB_SEND,         /* a value, to another rank */
    RF_VERB_RECV,         /* from there */
    RF_VERB_EXCHANGE,     /* of the tensor ranks, between two phases of a call */
    RF_VERB_HOLD,         /* 2bw: gradients of a step are copied, and wait for its update */
    RF_VERB_COUNT
};

/* Where instructions run. Each lane runs its own in list order; between lanes only waits order. */
enum rf_lane {
    RF_LANE_HOST = 0,
    RF_LANE_COMPUTE,
    RF_LANE_DATA,      /* collectives of the data-parallel ranks */
    RF_LANE_SHARD,     /* of the ranks that share one copy of the shards, if not all do */
    RF_LANE_REPLICATE, /* of the ranks that have the same shard, if there are several */
    RF_LANE_TENSOR,    /* of the ranks that share the same blocks */
    RF_LANE_PIPELINE,  /* of the ranks that have the stages of one pipeline */
    RF_LANE_JOB,       /* of all ranks, where they are not those of RF_LANE_DATA */
    /* Messages, each kind with a lane to send and one to receive: outputs to the rank with the next
     * block, gradients of these to the rank with the block before, and of tied parameters. */
    RF_LANE_SEND_OUT,
    RF_LANE_RECV_OUT,
    RF_LANE_SEND_GRAD,
    RF_LANE_RECV_GRAD,
    /* The same for the second chunks of a pipeline that goes there and back (zbv), whose peers are
     * the other way round. */
    RF_LANE_SEND_OUT_BACK,
    RF_LANE_RECV_OUT_BACK,
    RF_LANE_SEND_GRAD_BACK,
    RF_LANE_RECV_GRAD_BACK,
    RF_LANE_FETCH, /* copies to the device */
    RF_LANE_EVICT, /* copies to the host */
    RF_LANE_COUNT
};

/* The lane has passed this place: 0 is its first instruction. */
struct rf_wait {
    int lane, position;
};

/* What an instruction sends and receives. Counts are elements. */
struct rf_transfer {
    enum rf_coll_op op;
    size_t count;
    enum rf_dtype dtype;
    enum rf_order order;
    int root;              /* of a rooted operation */
    const char *algorithm; /* NULL: chosen by size */
    const size_t *counts;  /* of each rank, where they have shards; else NULL */
    int round;             /* of RF_COLL_PREFIX_REDUCE_SCATTER */
    int peer, tag;         /* of RF_COLL_SEND and RF_COLL_RECV: rank of the job */
    enum rf_lane group;    /* between which ranks: the lane that it runs on */
};

struct rf_instruction {
    enum rf_verb verb;
    enum rf_lane lane;
    int block, micro_batch; /* -1: none; micro_batch: global index within the step */
    int phase;              /* of a call of a block, or the one that an exchange follows */
    int behind;        /* 2bw: 1: of the step before the one whose inputs the list loads; else 0 */
    enum rf_verb call; /* RF_VERB_EXCHANGE: of which call */
    int first_operand, ins, outs; /* operands: values that are read, then values that are written */
    int first_wait, waits;
    int transfer; /* -1: none */
    bool posts;   /* work of its lane is handed over here, and others may wait for it */
};

/* Builds the plan of `rank`. blocks are borrowed and must outlive the plan. Errors: RF_EINVAL for a
 * mesh that does not fit, a batch that cannot be divided, a policy this version does not
 * have: the message says what to change. */
RF_API int rf_plan_build(const struct rf_block *blocks, int block_count, const struct rf_mesh *mesh,
                         const struct rf_policy *policy, int rank, struct rf_plan **out);

RF_EXPORT void rf_plan_destroy(struct rf_plan *plan);

/* The list of a training step (with forward_only: of a forward pass), borrowed from the plan. */
RF_EXPORT const struct rf_instruction *rf_plan_instructions(const struct rf_plan *plan, int *count);

/* The rank of the job that the plan is of. */
RF_EXPORT int rf_plan_rank(const struct rf_plan *plan);

/* All values of the plan; operands are indices of them. */
RF_EXPORT const struct rf_value *rf_plan_values(const struct rf_plan *plan, int *count);

/* The operands, waits and transfer (NULL: none) of one instruction of the plan; borrowed. */
RF_EXPORT const int *rf_plan_operands(const struct rf_plan *plan,
                                      const struct rf_instruction *instruction);
RF_EXPORT const struct rf_wait *rf_plan_waits(const struct rf_plan *plan,
                                              const struct rf_instruction *instruction);
RF_EXPORT const struct rf_transfer *rf_plan_transfer(const struct rf_plan *plan,
                                                     const struct rf_instruction *instruction);

/* Checks the plans of all ranks of a job, plans[rank], against each other: conflicting accesses are
 * ordered, nothing waits for ever, every value holds what its reader needs, transfers agree, every
 * gradient is counted exactly once, and all parameters are updated. For tests, and for passes of
 * one's own: a plan of rf_plan_build has none of these faults. RF_EINVAL names rank, instruction,
 * the parameters that it is of, and fault. */
RF_API int rf_plan_check(const struct rf_plan *const *plans, int ranks);

/* Memory, and what one step sends. */
RF_EXPORT void rf_plan_bytes(const struct rf_plan *plan, struct rf_bytes *out);

/* The same memory by what it grows with; the three add up to all that is allocated. */
struct rf_scaling {
    uint64_t params; /* parameters, gradients, the optimizer's states, tables of the update */
    uint64_t tokens; /* of a micro-batch: activations, and working memory of blocks; inputs and
                        losses, which are of all micro-batches of the rank */
    uint64_t fixed;  /* neither: the step's scalars, and the workspace of products */
};
RF_EXPORT void rf_plan_scaling(const struct rf_plan *plan, struct rf_scaling *out);

/* Idle share of a step by the order of calls, where all stages take the same time, forward and for
 * each half of backward, and messages none: 0 without pipeline stages. */
RF_EXPORT double rf_plan_bubble(const struct rf_plan *plan);

/* The number of blocks of each stage of the pipeline, *count of them, borrowed from the plan: how
 * rf_policy.stages or stage_blocks divides the model. Without a pipeline one stage has all. */
RF_EXPORT const int *rf_plan_stage_blocks(const struct rf_plan *plan, int *count);

/* Whether no rank has all parameters: with zero=3, with any stage where they are in 16 bits or in
 * memory of the host, with pipelines and with tensor ranks; on one rank never. Then rf_run_forward
 * and what reads and writes parameters are collectives. */
RF_EXPORT bool rf_plan_params_sharded(const struct rf_plan *plan);

/* rf_policy.recompute as the plan has it: the number of blocks of a segment, of which only the last
 * output is kept, and which RF_RECOMPUTE_SQRT and RF_RECOMPUTE_AUTO stand for; 0: all is kept. */
RF_EXPORT int rf_plan_recompute(const struct rf_plan *plan);

/* By how many updates the weights that a step's micro-batches see are behind: 0; 1 with
 * RF_PIPELINE_2BW. A micro-batch's forward and backward passes see the same; rf_plan_check refuses
 * lists in which they do not. */
RF_EXPORT int rf_plan_version_lag(const struct rf_plan *plan);

/* Logical elements, tied ones once. */
RF_EXPORT int64_t rf_plan_param_count(const struct rf_plan *plan);

/* ---- costs ----------------------------------------------------------------------------------- */

/* What a block amounts to for one micro-batch of the plan. backward_*[0]: of a micro-batch that
 * adds to gradients; [1]: of the first one, which writes those that are declared
 * RF_PARAM_OVERWRITE_GRAD. With forward_only only `forward` is filled, as of an evaluation. */
struct rf_block_cost {
    struct rf_work forward, backward_input[2], backward_weight[2];
};
/* Fills a cost for each block of the plan by calling it on a device that runs nothing and counts
 * (rf_device_open_counting), with the tensors that it gets in a run: no memory is needed for them,
 * and no driver. The costs are the same for all ranks of a plan. A block must not look at the
 * contents of tensors, as in a run. Errors: the block's own, such as RF_ENOTSUP for tensors that
 * are too large for a kernel. */
RF_API int rf_block_costs(const struct rf_plan *plan, struct rf_block_cost *out);
/* What one step of the plan amounts to on its rank: blocks by `costs`, and what the plan does with
 * gradients and parameters (clearing, adding, the norm, the optimizer) by rule. Without what
 * communication copies and adds. For model FLOPs take `repeated` off `flops`. */
RF_EXPORT void rf_plan_work(const struct rf_plan *plan, const struct rf_block_cost *costs,
                            struct rf_work *out);

/* Bytes, and with `costs` work, of every rank of the plan's mesh: bytes[dp], work[dp] (NULL: not
 * wanted), in the order of ranks, each as of that rank's own plan; but the work of updating a shard
 * (zero=1) is that of another rank with as many micro-batches. Ranks that are alike are planned
 * once, so thousands take little longer than one. Errors: those of rf_plan_build; what is in them
 * then means nothing. Pure; any thread. */
RF_API int rf_plan_all_ranks(const struct rf_plan *plan, const struct rf_block_cost *costs,
                             struct rf_bytes *bytes, struct rf_work *work);

/* ---- predicted time -------------------------------------------------------------------------- */

/* What a device and a link reach. Rates are more than 0, and may be infinite: what they are of
 * takes no time then. Seconds are finite and not negative. */
struct rf_sim_rates {
    double block_flops_per_s; /* of what blocks compute: products in their type */
    double flops_per_s;       /* f32: of all else */
    double bytes_per_s;       /* the device's memory, read and written */
    double host_bytes_per_s;  /* the host's memory, and between it and the device's */
    double launch_s;          /* each launch */
    double link_bytes_per_s;  /* of each rank, in each direction */
    double link_latency_s;    /* a short message, until it has arrived */
    /* So many ranks that follow each other are on one host, and reach each other by these; the
     * links above are those between hosts. What is between ranks of several hosts takes as long as
     * if all of it went between hosts, or, where a collective is quicker by hosts, as that. Where
     * hosts hold neither whole tensor groups nor equal parts of each, all that tensor groups
     * exchange goes between hosts. 0: all links are as above, and these are not read. */
    int host_ranks;
    double near_bytes_per_s, near_latency_s;
};

/* By what instructions are said to take time. One with a transfer: link_latency_s for each of its
 * algorithm's rounds, and the bytes of the rank that carries most over link_bytes_per_s. Any other:
 * the longer of its arithmetic and its memory traffic, and launch_s for each launch; one whose work
 * no rule knows: the bytes of its operands in that memory, the host's or the device's, which has
 * more of them, over host_bytes_per_s if it is not on RF_LANE_COMPUTE.
 */
struct rf_sim_opts {
    const struct rf_block_cost *costs; /* of each block (rf_block_costs); NULL: work not known */
    struct rf_sim_rates rates;
    /* Seconds by verb, RF_VERB_COUNT of them, instead; negative: as above. NULL: all as above. */
    const double *verb_s;
};

/* Of one instruction, in seconds from the beginning of the step. */
struct rf_sim_time {
    double ready_s; /* its lane and all that it waits for have come so far */
    double begin_s; /* a transfer: all ranks of its group are ready; else: ready_s */
    double end_s;
};

enum rf_bound {
    RF_BOUND_COMPUTE = 0, /* arithmetic */
    RF_BOUND_MEMORY,      /* the device's */
    RF_BOUND_LAUNCH,
    RF_BOUND_HOST, /* what neither the device nor the network does */
    RF_BOUND_NETWORK,
    RF_BOUND_COUNT
};

struct rf_sim_result {
    double step_s;                /* until all ranks have ended */
    double busy_s[RF_LANE_COUNT]; /* of each lane of this rank */
    double exposed_s;             /* a transfer is ready or under way, and nothing else runs */
    double idle;                  /* the share of step_s in which RF_LANE_COMPUTE runs nothing */
    /* Of the instructions that the step waits for, each of which begins when the one before it (on
     * any rank) ends: what each of them takes longest for. These add up to step_s. */
    double path_s[RF_BOUND_COUNT];
    enum rf_bound bound; /* the largest of them */
    double mfu; /* (flops - repeated) of this rank / step_s / block_flops_per_s; 0: not known */
};

struct rf_sim;

/* Runs the lists of some ranks of one job on costs instead of a device: lanes in list order, after
 * their waits; a transfer begins when all of its group that are among these ranks have come to it,
 * and takes as long on each. Ranks that are not given are as those that are. Plans are borrowed and
 * must outlive *out. Not in it: that transfers and kernels slow each other down, and the host's own
 * time. Pure; any thread. Errors: RF_EINVAL for rates that are none, and for lists that wait for
 * ever, with rank and instruction. */
RF_API int rf_plan_simulate(const struct rf_plan *const *plans, int count,
                            const struct rf_sim_opts *opts, struct rf_sim **out);
/* The same of a whole job, of which this is any rank's plan, and then number 0 of *out: of ranks
 * that are alike but for their shards one is planned, so thousands take little longer than one.
 * Errors: also those of rf_plan_build. */
RF_API int rf_plan_simulate_job(const struct rf_plan *plan, const struct rf_sim_opts *opts,
                                struct rf_sim **out);
RF_EXPORT void rf_sim_destroy(struct rf_sim *sim);

/* Plan `number` of the simulation, from 0; valid as long as sim and the plan that it was made of.
 * NULL: there are no more. */
RF_EXPORT const struct rf_plan *rf_sim_plan(const struct rf_sim *sim, int number);

/* Of the list of plan `number`; borrowed from sim. */
RF_EXPORT const struct rf_sim_time *rf_sim_times(const struct rf_sim *sim, int number, int *count);
RF_EXPORT void rf_sim_get_result(const struct rf_sim *sim, int number, struct rf_sim_result *out);

/* "compute", "memory", "launches", "host", "network" */
RF_EXPORT const char *rf_bound_name(enum rf_bound bound);

/* "naive", "gpipe", "1f1b", "interleaved", "zbh1", "zbv", "2bw"; "?" for what is none. */
RF_EXPORT const char *rf_pipeline_name(enum rf_pipeline_kind kind);

/* The kind of this name. RF_EINVAL: there is none; the message lists the names. */
RF_API int rf_pipeline_find(const char *name, enum rf_pipeline_kind *out);

/* ---- text ------------------------------------------------------------------------------------ */

/* "backward input"; "?" for what is none. */
RF_EXPORT const char *rf_verb_name(enum rf_verb verb);

/* "host", "compute", "data", ...; "?" for what is none. */
RF_EXPORT const char *rf_lane_name(enum rf_lane lane);

/* One instruction as text, "forward block 3 micro-batch 1"; returns text. */
RF_EXPORT const char *rf_instruction_text(const struct rf_plan *plan,
                                          const struct rf_instruction *instruction, char *text,
                                          size_t bytes);

/* Why an instruction sends or receives: the declaration that its transfer follows from (a block's
 * exchange and the split of its parameters, an axis of the mesh, a stage of sharding), as a
 * sentence without an end; "" for an instruction without a transfer. Returns text. */
RF_EXPORT const char *rf_instruction_reason(const struct rf_plan *plan,
                                            const struct rf_instruction *instruction, char *text,
                                            size_t bytes);

/* One value as text, "gradients piece 2 slot 0"; returns text. */
RF_EXPORT const char *rf_value_text(const struct rf_value *value, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
