/* SPDX-License-Identifier: MIT
 *
 * Plans: a training step of one rank as a list of instructions. An instruction names the values
 * (ranges of memory) that it reads and writes, its lane, the instructions that it waits for, and
 * its transfer. All bytes of memory and messages follow from the list.
 *
 * Planning is pure: it allocates nothing on a device and sends nothing, so a laptop can plan for
 * 4,096 ranks. All functions are thread-safe.
 */
#ifndef RINGFORGE_PARALLEL_H
#define RINGFORGE_PARALLEL_H

#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values ---------------------------------------------------------------------------------- */

/* The kinds of values. Each comment begins with the fields of struct rf_value that it uses. A piece
 * is the unit of reductions, updates and gathers (docs/design.md). */
enum rf_value_kind {
    /* With sharded parameters it exists from RF_VERB_GATHER to its last reader only. */
    RF_VALUE_PARAM = 0, /* piece: the f32 parameters */
    RF_VALUE_COPY,      /* piece: the same in 16 bits, for blocks with 16-bit parameters */
    RF_VALUE_GRAD,      /* piece, slot: a sum of gradients over micro-batches */
    /* The shard of a piece that this rank updates: the whole piece without sharding; it may be
     * empty. */
    RF_VALUE_PARAM_SHARD, /* piece: a part of RF_VALUE_PARAM */
    RF_VALUE_COPY_SHARD,  /* piece: a part of RF_VALUE_COPY */
    RF_VALUE_GRAD_SHARD, /* piece: a part of RF_VALUE_GRAD slot 0; with zero >= 2 separate memory */
    RF_VALUE_GRAD_PART,  /* piece, zero >= 2: in tree order the partial sums of the shard by level;
                          * in ring order the term that one round adds to it */
    RF_VALUE_GRAD_NARROW,       /* piece: RF_VALUE_GRAD in policy.reduce_dtype, as it is sent */
    RF_VALUE_GRAD_NARROW_SHARD, /* piece: RF_VALUE_GRAD_SHARD or _PART, as it is received */
    RF_VALUE_GRAD_TIED,         /* piece, slot: RF_VALUE_GRAD_SHARD of a tied use on another rank */
    RF_VALUE_HOST_GRAD,         /* piece: RF_VALUE_GRAD_SHARD in host memory, for its optimizer */
    /* piece; slot = enum rf_optimizer_state. On a disk: one block of it, and slot = the number of
     * the block * RF_STATE_STRIDE + enum rf_optimizer_state. */
    RF_VALUE_STATE,
    RF_VALUE_HOST_STATE,       /* piece, slot: a block of RF_VALUE_STATE in host memory */
    RF_VALUE_TOKENS,           /* micro_batch: inputs of the first block */
    RF_VALUE_TARGETS,          /* micro_batch */
    RF_VALUE_LOSSES,           /* micro_batch: of each token */
    RF_VALUE_OUT,              /* block, micro_batch: a block's output */
    RF_VALUE_DOUT,             /* block, micro_batch: the gradient of a block's output */
    RF_VALUE_SAVED,            /* block, micro_batch: from forward to backward */
    RF_VALUE_SAVED_FOR_WEIGHT, /* block, micro_batch: from backward_input to backward_weight */
    RF_VALUE_EXCHANGE, /* block, micro_batch; slot: the exchange and the call of the block */
    /* Copies of RF_VALUE_OUT and RF_VALUE_SAVED in host memory, and of these on a disk. Slot 1 of
     * the first four kinds is the copy back. */
    RF_VALUE_HOST_OUT,
    RF_VALUE_HOST_SAVED,
    RF_VALUE_DISK_OUT,
    RF_VALUE_DISK_SAVED,
    RF_VALUE_SCALARS,   /* struct rf_step_scalars */
    RF_VALUE_NORM,      /* the sum of squares of all gradients */
    RF_VALUE_PARTIALS,  /* the same exactly, summed over the ranks that share it */
    RF_VALUE_SQUARES,   /* for the chunks of the norm that this rank has; piece: for those of it */
    RF_VALUE_CHUNKS,    /* table: these chunks */
    RF_VALUE_DECAY,     /* table: the elements with weight decay */
    RF_VALUE_PLACES,    /* table: the numbers by which elements draw, for stochastic rounding */
    RF_VALUE_SCRATCH,   /* working memory of one call of a block */
    RF_VALUE_WORKSPACE, /* working memory of products */
    RF_VALUE_KINDS
};

/* The slot of a state on a disk is block * RF_STATE_STRIDE + the number of the state. */
#define RF_STATE_STRIDE 8

/* A range of memory. Fields that do not apply are -1. */
struct rf_value {
    enum rf_value_kind kind;
    int block, micro_batch; /* micro_batch: global index within the step */
    int slot, piece;
    int region;           /* index of the run's allocation */
    uint64_t offset;      /* bytes, within the region */
    uint64_t bytes;       /* 0: the value is empty; instructions on it are still ordered */
    bool may_stay_unread; /* a pass removed its readers; rf_plan_check then requires none */
};

/* ---- instructions ---------------------------------------------------------------------------- */

enum rf_verb {
    RF_VERB_LOAD = 0, /* the host writes inputs and scalars of the step */
    RF_VERB_ZERO,     /* clear gradients of a slot, except those that its calls overwrite */
    RF_VERB_FORWARD,
    RF_VERB_RECOMPUTE, /* a second forward pass, for values that were not saved */
    RF_VERB_INVERT,    /* the input of a reversible block, from its output; rf_policy.invert */
    RF_VERB_BACKWARD_INPUT,
    RF_VERB_BACKWARD_WEIGHT,
    RF_VERB_MERGE,        /* gradients += others: a sibling subtree of micro-batches, or a round */
    RF_VERB_REDUCE,       /* reduce gradients of a piece over the ranks */
    RF_VERB_LOSS,         /* the host shares losses and token counts */
    RF_VERB_TIE,          /* gradients of a parameter += those of a tied use */
    RF_VERB_SQUARES,      /* update_in_backward: the sums of squares of a piece's gradients */
    RF_VERB_NORM_PARTIAL, /* the sum of squares of this rank's gradients, exactly */
    RF_VERB_NORM_SHARE,   /* add the sums of all ranks */
    RF_VERB_NORM,         /* round the sum */
    RF_VERB_BEGIN_STEP,   /* norm, clipping, overflow, bias correction */
    RF_VERB_STEP,         /* optimizer update */
    RF_VERB_END_STEP,     /* update the loss scale */
    RF_VERB_GATHER,       /* all-gather parameters of a piece */
    RF_VERB_BROADCAST,    /* copy values of rank 0 to all ranks */
    RF_VERB_CAST,         /* convert parameters to 16 bits, gradients to 16 bits and back */
    RF_VERB_FETCH,        /* copy parameters of a piece, or activations, from host memory */
    RF_VERB_EVICT,        /* copy gradients of a piece, or activations, to host memory */
    RF_VERB_HOST_STEP,    /* optimizer update, by the host */
    RF_VERB_SEND,         /* send a value to another rank */
    RF_VERB_RECV,         /* receive one */
    RF_VERB_EXCHANGE,     /* exchange of the tensor ranks between two phases of a call */
    RF_VERB_HOLD,         /* 2bw: copy gradients of a step, kept for its update */
    RF_VERB_ZERO_WHOLE,   /* clear all gradients of a piece: no call writes them before they are
                           * reduced, because the rank has no micro-batch in the round */
    RF_VERB_READ,         /* copy a block of states, or activations, from the disk to host memory */
    RF_VERB_WRITE,        /* copy it back */
    RF_VERB_COUNT
};

/* The role of an operand in an instruction. The pass that writes an instruction gives each operand
 * a role; the executor and the checker find operands by their roles. Operands of one side (read, or
 * written) with the same role are adjacent. */
enum rf_role {
    /* Calls of blocks. Values that a call keeps from phase to phase are read and written. */
    RF_ROLE_INPUT = 0,   /* tokens, or the output of the block before */
    RF_ROLE_OUTPUT,      /* also of a message */
    RF_ROLE_OUTPUT_GRAD, /* also of a message */
    RF_ROLE_INPUT_GRAD,
    RF_ROLE_SAVED,
    RF_ROLE_SAVED_FOR_WEIGHT,
    RF_ROLE_EXCHANGED, /* the previous phase's output, exchanged between ranks */
    RF_ROLE_EXCHANGE,  /* this phase's output, to be exchanged */
    RF_ROLE_TARGETS,
    RF_ROLE_LOSSES,
    RF_ROLE_SCRATCH,
    RF_ROLE_WORKSPACE,
    /* Parameters and their gradients: by pieces, each once, in the order of the block's parameters.
     * The version is the one that the call must see. */
    RF_ROLE_PARAM, /* f32; in an update: the updated parameters, of any stored type */
    RF_ROLE_COPY,  /* in 16 bits; in an update: the copy that is written, too */
    RF_ROLE_GRAD,
    RF_ROLE_SCALARS,      /* of an update, or those that blocks read */
    RF_ROLE_STEP_SCALARS, /* 2bw: those of the step whose inputs are loaded */
    /* Updates */
    RF_ROLE_STATE, /* of the optimizer: RF_ROLE_STATE + enum rf_optimizer_state */
    RF_ROLE_STATE_END = RF_ROLE_STATE + RF_STATE_COUNT - 1,
    RF_ROLE_PARAM_BEFORE, /* 2bw: keeps the version before this update */
    RF_ROLE_COPY_BEFORE,
    RF_ROLE_DECAY,
    RF_ROLE_PLACES,
    RF_ROLE_CHUNKS,
    RF_ROLE_SQUARES,
    RF_ROLE_PARTIALS,
    RF_ROLE_NORM,
    /* Sums */
    RF_ROLE_SUM,
    RF_ROLE_TERM,       /* a summand: whole pieces */
    RF_ROLE_SHARD_TERM, /* the same: this rank's shard of one piece */
    RF_ROLE_USE_TERM,   /* the same: a tied use's gradient, inside the piece of the sum */
    /* Gradients in policy.reduce_dtype */
    RF_ROLE_SENT,
    RF_ROLE_RECEIVED,
    /* Copies and transfers of values without another role */
    RF_ROLE_FROM,
    RF_ROLE_TO,
    RF_ROLE_COUNT
};

/* The lanes on which instructions run. A lane runs its instructions in the order of the list. Only
 * waits order instructions of different lanes. */
enum rf_lane {
    RF_LANE_HOST = 0,
    RF_LANE_COMPUTE,
    RF_LANE_DATA,      /* collectives of the data-parallel ranks */
    RF_LANE_SHARD,     /* of the ranks that share one copy of sharded data, if these are not all
                        * ranks */
    RF_LANE_REPLICATE, /* of the ranks that have copies of the same shard */
    RF_LANE_TENSOR,    /* of the ranks that share blocks */
    RF_LANE_PIPELINE,  /* of the stages of one pipeline */
    RF_LANE_JOB,       /* of all ranks, if these are not the ranks of RF_LANE_DATA */
    /* Messages between pipeline stages. OUT: outputs, to the rank with the next block. GRAD:
     * gradients of outputs, to the rank with the block before, and gradients of tied parameters. */
    RF_LANE_SEND_OUT,
    RF_LANE_RECV_OUT,
    RF_LANE_SEND_GRAD,
    RF_LANE_RECV_GRAD,
    /* The same for the second chunks of zbv, which pass the ranks in the opposite direction. */
    RF_LANE_SEND_OUT_BACK,
    RF_LANE_RECV_OUT_BACK,
    RF_LANE_SEND_GRAD_BACK,
    RF_LANE_RECV_GRAD_BACK,
    RF_LANE_FETCH, /* copies from host memory to the device */
    RF_LANE_EVICT, /* copies from the device to host memory */
    RF_LANE_DISK,  /* copies between host memory and the disk */
    RF_LANE_COUNT
};

/* Wait until `lane` has ended its instruction number `position`, from 0. */
struct rf_wait {
    int lane, position;
};

/* A collective or message. Counts are elements. */
struct rf_transfer {
    enum rf_coll_op op;
    size_t count;
    enum rf_dtype dtype;
    enum rf_order order;
    int root;              /* of an operation with a root */
    const char *algorithm; /* NULL: chosen by size */
    const size_t *counts;  /* of each rank, for shards; else NULL */
    int round;             /* of RF_COLL_PREFIX_REDUCE_SCATTER */
    int peer, tag;         /* of RF_COLL_SEND and RF_COLL_RECV: rank of the job */
    enum rf_lane group;    /* the participating ranks: those of this lane */
    int compressed;        /* 1 + the piece whose gradients are sent in policy.compress; 0: none */
};

struct rf_instruction {
    enum rf_verb verb;
    enum rf_lane lane;
    int block, micro_batch; /* -1: none; micro_batch: global index within the step */
    int phase;              /* of a call of a block; of an exchange, the phase before it */
    int behind;        /* 2bw: 1: belongs to the step before the one whose inputs the list loads */
    enum rf_verb call; /* RF_VERB_EXCHANGE: the call that it belongs to */
    int first_operand, ins, outs; /* operands: values read, then values written */
    int first_wait, waits;
    int transfer; /* -1: none */
    bool posts;   /* submits the work of its lane here, so that other lanes can wait for it */
};

/* Builds the plan of `rank`. blocks must outlive it. The caller destroys *out. Errors: RF_EINVAL (a
 * mesh or batch that cannot be divided, policies that cannot be combined), RF_ENOMEM (more memory
 * than policy->device_bytes); the message says what to change. */
RF_API int rf_plan_build(struct rf_blocks blocks, const struct rf_mesh *mesh,
                         const struct rf_policy *policy, int rank, struct rf_plan **out);

/* NULL is allowed. */
RF_EXPORT void rf_plan_destroy(struct rf_plan *plan);

/* The list of a training step; with forward_only, of a forward pass. Owned by the plan. */
RF_EXPORT const struct rf_instruction *rf_plan_instructions(const struct rf_plan *plan, int *count);

/* The rank that the plan was built for. */
RF_EXPORT int rf_plan_rank(const struct rf_plan *plan);

/* All values. Operands are indices of this array. Owned by the plan. */
RF_EXPORT const struct rf_value *rf_plan_values(const struct rf_plan *plan, int *count);

/* Operands, their roles (enum rf_role), waits and transfer (NULL: none) of an instruction. Owned by
 * the plan. */
RF_EXPORT const int *rf_plan_operands(const struct rf_plan *plan,
                                      const struct rf_instruction *instruction);

RF_EXPORT const uint8_t *rf_plan_roles(const struct rf_plan *plan,
                                       const struct rf_instruction *instruction);

RF_EXPORT const struct rf_wait *rf_plan_waits(const struct rf_plan *plan,
                                              const struct rf_instruction *instruction);

RF_EXPORT const struct rf_transfer *rf_plan_transfer(const struct rf_plan *plan,
                                                     const struct rf_instruction *instruction);

/* Checks the plans of all ranks of a job, plans[rank], together: conflicting accesses are ordered,
 * there is no deadlock, every value holds what its reader needs, transfers agree, every gradient is
 * counted exactly once, and all parameters are updated. For tests, and for your own passes: plans
 * of rf_plan_build pass the check. RF_EINVAL names rank, instruction, parameters and fault. */
RF_API int rf_plan_check(const struct rf_plan *const *plans, int ranks);

/* The memory of the plan, and the bytes sent per step. */
RF_EXPORT void rf_plan_bytes(const struct rf_plan *plan, struct rf_bytes *out);

/* The same memory by the quantity that it is proportional to. The sum is all allocated memory. */
struct rf_scaling {
    uint64_t params; /* parameters, gradients, the optimizer's states, tables of the update */
    uint64_t tokens; /* activations, and scratch of blocks (tokens of a micro-batch); inputs and
                        losses (tokens of all micro-batches of the rank) */
    uint64_t fixed;  /* scalars of the step, and the workspace of products */
};

RF_EXPORT void rf_plan_scaling(const struct rf_plan *plan, struct rf_scaling *out);

/* What device memory holds: ROW(constant, name). */
#define RF_HELD_KINDS(ROW)                                                                         \
    ROW(RF_HELD_PARAMS, "trained parameters in f32")                                               \
    ROW(RF_HELD_COPIES, "trained parameters in 16 bits")                                           \
    ROW(RF_HELD_FROZEN, "frozen parameters")                                                       \
    ROW(RF_HELD_GATHERED, "parameters gathered or fetched for blocks")                             \
    ROW(RF_HELD_GRADS, "gradients")                                                                \
    ROW(RF_HELD_SENT, "gradients as they are sent")                                                \
    ROW(RF_HELD_STATES, "optimizer states")                                                        \
    ROW(RF_HELD_OUTPUTS, "outputs of blocks, and their gradients")                                 \
    ROW(RF_HELD_LAST_OUTPUT, "output of the last block")                                           \
    ROW(RF_HELD_KEPT, "what blocks keep for the backward pass")                                    \
    ROW(RF_HELD_HEAD, "what the last block keeps for the backward pass")                           \
    ROW(RF_HELD_FOR_WEIGHT, "what a block keeps for gradients of weights")                         \
    ROW(RF_HELD_EXCHANGED, "exchanges of tensor ranks")                                            \
    ROW(RF_HELD_SCRATCH, "scratch of blocks")                                                      \
    ROW(RF_HELD_WORKSPACE, "workspace of products")                                                \
    ROW(RF_HELD_TABLES, "tables of the update")                                                    \
    ROW(RF_HELD_UNUSED, "memory that only other moments use")
#define RF_HELD_CONSTANT(constant, name) constant,
enum rf_held_kind { RF_HELD_KINDS(RF_HELD_CONSTANT) RF_HELD_COUNT };

struct rf_held {
    int values; /* alive at once; 1 for memory that lives as long as the run; 0: none */
    uint64_t bytes;
    uint64_t largest;    /* bytes of the largest of them */
    char largest_of[96]; /* and its name; empty if it has none */
};

/* What is in device memory when a list of the plan has most temporary values: by kind. The sum is
 * all device memory of the plan. */
RF_API int rf_plan_peak(const struct rf_plan *plan, struct rf_held out[RF_HELD_COUNT]);
RF_EXPORT const char *rf_held_name(enum rf_held_kind kind);

/* The idle share of a step due to the pipeline schedule (bubble). Assumes that forward,
 * backward_input and backward_weight take the same time on all stages, and that messages take none.
 * 0 without pipeline stages. */
RF_EXPORT double rf_plan_bubble(const struct rf_plan *plan);

/* The number of blocks of each pipeline stage, *count entries, by rf_policy.stages or stage_blocks.
 * Without a pipeline one stage has all blocks. Owned by the plan. */
RF_EXPORT const int *rf_plan_stage_blocks(const struct rf_plan *plan, int *count);

/* Whether parameters are divided among ranks, so that no rank has all of them: with several ranks
 * and zero=3, any stage of zero with parameters in 16 bits or in host memory, pipelines, or tensor
 * ranks. Then rf_run_forward, and the calls that read and write parameters, are collective. */
RF_EXPORT bool rf_plan_params_sharded(const struct rf_plan *plan);

/* rf_policy.recompute as a number of blocks, resolved for RF_RECOMPUTE_SQRT and RF_RECOMPUTE_AUTO;
 * 0: no recomputation. */
RF_EXPORT int rf_plan_recompute(const struct rf_plan *plan);

/* The number of updates by which the weights of a step lag behind: 0; 1 with RF_PIPELINE_2BW. The
 * forward and backward pass of a micro-batch use the same weights, which rf_plan_check verifies. */
RF_EXPORT int rf_plan_version_lag(const struct rf_plan *plan);

/* The number of parameter elements of the whole model; tied ones count once. */
RF_EXPORT int64_t rf_plan_param_count(const struct rf_plan *plan);

/* The number of trained parameter elements that this rank stores: all of its part of the model, or,
 * if parameters are sharded, its shard. Without padding; tied ones count once. */
RF_EXPORT int64_t rf_plan_trained_count(const struct rf_plan *plan);

/* Their shapes, as rf_run_rounds_params has them: matrices of whole rows along the first dimension,
 * and vectors. *out: freed with free(). RF_ENOMEM. */
RF_API int rf_plan_trained_shapes(const struct rf_plan *plan, struct rf_round_shape **out,
                                  int *count);

/* The number of trained elements of the whole model, tied ones once. The elements of a parameter
 * are consecutive, and parameters in the order in which they are declared. */
RF_EXPORT int64_t rf_plan_trained_all(const struct rf_plan *plan);
/* Range `index`, from 0, of these whose gradients lack those of another use of a tied parameter,
 * with policy.uses_apart. A parameter has a range for each such use; they are added in this order.
 * RF_EINVAL: there are no more. */
RF_API int rf_plan_trained_use(const struct rf_plan *plan, int index, int64_t *first,
                               int64_t *count);
/* Range `index`, from 0, of these to which weight decay does not apply. RF_EINVAL: there are no
 * more. Ranges ascend. */
RF_API int rf_plan_trained_undecayed(const struct rf_plan *plan, int index, int64_t *first,
                                     int64_t *count);

/* ---- costs ----------------------------------------------------------------------------------- */

/* The work of a block for one micro-batch. backward_*[0]: for a micro-batch that adds to gradients.
 * [1]: for the first micro-batch, which overwrites gradients with RF_PARAM_OVERWRITE_GRAD. With
 * forward_only only `forward` is set. invert: of a block that the plan inverts. */
struct rf_block_cost {
    struct rf_work forward, backward_input[2], backward_weight[2], invert;
};

/* Fills out[block] for each block, by calling it on a counting device (rf_device_open_counting)
 * with tensors as in a run. It needs no driver, and no memory for the tensors. The costs are equal
 * for all ranks of a plan. As in a run, a block must not read the contents of tensors on the host.
 * Errors: those of the blocks, such as RF_ENOTSUP for tensors too large for a kernel. */
RF_API int rf_block_costs(const struct rf_plan *plan, struct rf_block_cost *out);

/* The work of one step of the plan: of blocks by `costs`, and of gradients and parameters
 * (clearing, adding, norm, optimizer) by formulas. Copies and sums of communication are not
 * included. Model FLOPs are `flops` minus `repeated`. */
RF_EXPORT void rf_plan_work(const struct rf_plan *plan, const struct rf_block_cost *costs,
                            struct rf_work *out);

/* Bytes of every rank of the plan's mesh, and, with `costs`, work of every rank. bytes, work: one
 * entry for each rank, or NULL. They equal those of each rank's own plan, except that the work of
 * updating a shard (zero=1) is taken from some rank with the same number of micro-batches. Ranks
 * with equal lists are planned once, so thousands take little longer than one. Errors: those of
 * rf_plan_build; the contents of the arrays are then undefined. */
RF_API int rf_plan_all_ranks(const struct rf_plan *plan, const struct rf_block_cost *costs,
                             struct rf_bytes *bytes, struct rf_work *work);

/* ---- predicted time -------------------------------------------------------------------------- */

/* Rates of devices and links. Rates are positive; an infinite rate takes no time. Times are finite
 * and not negative. */
struct rf_sim_rates {
    double block_flops_per_s; /* of blocks: products in their type */
    double flops_per_s;       /* of everything else, in f32 */
    double bytes_per_s;       /* device memory, read and written */
    double host_bytes_per_s;  /* host memory, and copies between host and device */
    double launch_s;          /* each launch */
    double link_bytes_per_s;  /* of each rank, in each direction */
    double link_latency_s;    /* a short message, until it has arrived */
    /* The number of consecutive ranks on one host. Their links have the two rates below; the two
     * above are for links between hosts. A transfer between ranks of several hosts takes the time
     * of the links between hosts, or that of a hierarchical collective if it is shorter. If hosts
     * hold neither whole tensor groups nor equal parts of each, all exchanges of tensor groups go
     * between hosts. 0: all links are alike; the rates below are ignored. */
    int host_ranks;
    double intra_host_bytes_per_s, intra_host_latency_s;
    double disk_bytes_per_s; /* read or written; ignored without rf_policy.disk */
};

/* How the time of an instruction is computed. A transfer: link_latency_s for each round of its
 * algorithm, plus the bytes of the busiest rank over link_bytes_per_s. Any other instruction: the
 * longer of its arithmetic and its memory traffic, plus launch_s for each launch. If its work is
 * unknown: the bytes of its operands in host or device memory, whichever are more, over the rate of
 * that memory; outside of RF_LANE_COMPUTE over host_bytes_per_s, on
 * RF_LANE_DISK over disk_bytes_per_s. */
struct rf_sim_opts {
    const struct rf_block_cost *costs; /* of each block (rf_block_costs); NULL: unknown */
    struct rf_sim_rates rates;
    /* Times by verb that override these, RF_VERB_COUNT entries; a negative one has no effect. Or
     * NULL. */
    const double *verb_s;
};

/* Times of an instruction, from the beginning of the step. */
struct rf_sim_time {
    double ready_s; /* its predecessor on the lane and all its waits have ended */
    double begin_s; /* of a transfer: all ranks of its group are ready; else ready_s */
    double end_s;
};

/* The limit on the speed of an instruction or step. */
enum rf_bound {
    RF_BOUND_COMPUTE = 0, /* arithmetic */
    RF_BOUND_MEMORY,      /* device memory */
    RF_BOUND_LAUNCH,      /* launches */
    RF_BOUND_HOST,        /* the host, and copies between host and device */
    RF_BOUND_NETWORK,
    RF_BOUND_DISK,
    RF_BOUND_COUNT
};

struct rf_sim_result {
    double step_s;                /* until the last rank has ended */
    double busy_s[RF_LANE_COUNT]; /* of each lane of this rank */
    double exposed_s;             /* a transfer is ready or in progress, and nothing else runs */
    double idle;                  /* share of step_s in which RF_LANE_COMPUTE runs nothing */
    /* The critical path: instructions, on any rank, each of which begins when the previous one
     * ends. Their times by limit; the sum is step_s. */
    double path_s[RF_BOUND_COUNT];
    enum rf_bound bound; /* the largest of path_s */
    double mfu; /* (flops - repeated) of this rank / step_s / block_flops_per_s; 0: unknown */
};

struct rf_sim;

/* Simulates the plans of some ranks of one job. A lane runs its instructions in the order of the
 * list, each after its waits. A transfer begins when all given ranks of its group are ready, and
 * takes the same time on each. Other ranks are assumed to behave like the given ones. The
 * simulation neglects contention between transfers and kernels, and the time of the host itself.
 * The plans must outlive *out; the caller destroys *out. Errors: RF_EINVAL (invalid rates; a
 * deadlock, with rank and instruction). */
RF_API int rf_plan_simulate(const struct rf_plan *const *plans, int count,
                            const struct rf_sim_opts *opts, struct rf_sim **out);

/* Simulates the whole job that `plan` belongs to; plan is number 0 of *out. Ranks that differ only
 * in their shards are planned once, so thousands take little longer than one. Errors: as
 * rf_plan_simulate and rf_plan_build. */
RF_API int rf_plan_simulate_job(const struct rf_plan *plan, const struct rf_sim_opts *opts,
                                struct rf_sim **out);

/* NULL is allowed. */
RF_EXPORT void rf_sim_destroy(struct rf_sim *sim);

/* Plan `number` of the simulation, from 0; NULL: the end. Valid as long as sim and the plan that it
 * was made from. */
RF_EXPORT const struct rf_plan *rf_sim_plan(const struct rf_sim *sim, int number);

/* The times of the instructions of plan `number`, *count entries. Owned by sim. */
RF_EXPORT const struct rf_sim_time *rf_sim_times(const struct rf_sim *sim, int number, int *count);

/* The result of the rank of plan `number`. */
RF_EXPORT void rf_sim_get_result(const struct rf_sim *sim, int number, struct rf_sim_result *out);

/* "compute", "memory", "launches", "host", "network", "disk" */
RF_EXPORT const char *rf_bound_name(enum rf_bound bound);

/* "naive", "gpipe", "1f1b", "interleaved", "zbh1", "zbv", "2bw"; "?" for another value. */
RF_EXPORT const char *rf_pipeline_name(enum rf_pipeline_kind kind);

/* The schedule of this name. RF_EINVAL: unknown; the message lists the names. */
RF_API int rf_pipeline_find(const char *name, enum rf_pipeline_kind *out);

/* ---- text ------------------------------------------------------------------------------------ */

/* "backward input", ...; "?" for another value. */
RF_EXPORT const char *rf_verb_name(enum rf_verb verb);

/* "input", "parameters", ...; "?" for another value. */
RF_EXPORT const char *rf_role_name(enum rf_role role);

/* "host", "compute", "data", ...; "?" for another value. */
RF_EXPORT const char *rf_lane_name(enum rf_lane lane);

/* Writes an instruction as text, "forward block 3 micro-batch 1", at most `bytes`; returns text. */
RF_EXPORT const char *rf_instruction_text(const struct rf_plan *plan,
                                          const struct rf_instruction *instruction, char *text,
                                          size_t bytes);

/* Writes the reason why an instruction transfers data: the declaration behind it, such as an
 * exchange of a block and the split of its parameters, an axis of the mesh, or a stage of sharding.
 * A phrase of at most `bytes`; "" without a transfer. Returns text. */
RF_EXPORT const char *rf_instruction_reason(const struct rf_plan *plan,
                                            const struct rf_instruction *instruction, char *text,
                                            size_t bytes);

/* Writes a value as text, "gradients piece 2 slot 0", at most `bytes`; returns text. */
RF_EXPORT const char *rf_value_text(const struct rf_value *value, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
