/* SPDX-License-Identifier: MIT
 *
 * Training: blocks, their parameters, and runs. A model is a list of blocks; a run trains it on a
 * mesh of ranks by a plan that is known to the byte before anything is allocated (parallel.h).
 *
 * A block is a transformer layer, the embedding, the head: the unit that is checkpointed, sharded,
 * placed on a pipeline stage, bucketed and offloaded. There is no autograd tape: a block computes
 * its own backward pass, split into the half that its predecessor waits for (input) and the half
 * that nobody waits for (weight).
 */
#ifndef RINGFORGE_TRAIN_H
#define RINGFORGE_TRAIN_H

#include "comm.h"
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- blocks ---------------------------------------------------------------------------------- */

enum rf_param_flags {
    RF_PARAM_DECAY = 1,  /* weight decay applies (matrices; not biases and norms) */
    RF_PARAM_FROZEN = 2, /* no gradient, no optimizer state */
    /* Its block writes the whole gradient where ctx->overwrite_grad says so, instead of adding to
     * it: it is not cleared before. For the large ones, which mostly are products. */
    RF_PARAM_OVERWRITE_GRAD = 4
};
enum rf_split_kind { RF_SPLIT_NONE = 0, RF_SPLIT_ROWS, RF_SPLIT_COLUMNS };
/* How tensor parallelism cuts the parameter, along its rows (first dimension) or columns (last):
 * into segments (3 for a fused q,k,v; 0 means 1), each of which is cut on its own, in whole units
 * (of `unit` rows: a head; 0 means 1). Rank k of t has of a segment with n units those from k * n /
 * t to (k + 1) * n / t, rounded down, behind each other. A segment of rows with fewer units than
 * ranks, which divide these, is copied: rank k has unit k * n / t. Its block makes the gradients of
 * copies equal to the bit, each that of the whole. */
#define RF_MAX_SEGMENTS 4
struct rf_split {
    enum rf_split_kind kind;
    int segments;
    int unit;
    int64_t sizes[RF_MAX_SEGMENTS]; /* rows or columns of each segment; all 0: they are equal */
};

/* A parameter, declared once; initialization, norm, tied sums, checkpoints derive from it. */
struct rf_param_desc {
    const char *name;      /* global and unique: "blocks.3.attention.qkv.weight" */
    struct rf_shape shape; /* logical, whole */
    /* RF_F32; or RF_F16 or RF_BF16, the same for all that are not f32: the block sees a copy in
     * this type, rounded to the nearest after each update. What is trained, its gradient, the
     * optimizer's states and checkpoints are f32 all the same. */
    enum rf_dtype dtype;
    uint32_t flags; /* enum rf_param_flags */
    struct rf_split split;
    const char *tied_to; /* name of an earlier parameter whose storage this use shares; or NULL */
    float init_std;      /* normal(0, std), by Philox over the global element index; 0 = constant */
    float init_value;    /* for std 0 */
};

/* Tensor parallelism (Shoeybi et al. 2019): several ranks share every block. Each has its part of
 * the parameters that are declared to be split, and the others whole. A call of a block is a
 * sequence of phases; between two of them the ranks exchange one tensor. */
enum rf_exchange_kind {
    RF_EXCHANGE_NONE = 0,
    RF_EXCHANGE_SUM,    /* all ranks' tensors, added; each rank gets all of it */
    RF_EXCHANGE_MAX,    /* of each element the largest; each rank gets all of it */
    RF_EXCHANGE_GATHER, /* rank k has written part k of the tensor; each rank gets all of it */
    RF_EXCHANGE_SCATTER /* as SUM, but rank k gets part k; the rest has no meaning then */
};

/* Parts are of equal size, along the first dimension. */
struct rf_exchange {
    enum rf_exchange_kind kind;
    struct rf_shape shape; /* of the whole tensor */
    enum rf_dtype dtype;   /* f32, f16 or bf16; MAX: f32 */
};

/* Of one call: up to the first RF_EXCHANGE_NONE. Exchange k lies between phases k and k + 1. */
#define RF_MAX_EXCHANGES 6

/* Which of the ranks that share a block this one is. */
struct rf_tensor_part {
    int ranks, rank;
    /* Sequence parallelism (Korthikanti et al. 2022): what passes between blocks is cut, too. Rank
     * k has rows k * rows / ranks and on of each output and its gradient. Gradients of parameters
     * that are not split are then of a rank's own rows alone; they are added over the ranks once a
     * step. Without it those gradients are the same on all ranks, to the bit. */
    bool sequence;
};

/* Context parallelism: several ranks share every sequence, and have all of the blocks and of their
 * parameters. A sequence is 2 * ranks chunks of equal length; rank k has chunks k and 2 * ranks - 1
 * - k, in this order, so that causal attention is as much work for each. What passes between blocks
 * is of these rows alone, and what a block computes of other rows, as attention does of keys, it
 * exchanges between phases. Gradients of parameters are of a rank's own rows, and are added over
 * the ranks once a step. */
struct rf_context_part {
    int ranks, rank;
};
/* Where in the sequence the part's first (half 0) or second chunk of `chunk` tokens begins. */
static inline int64_t rf_context_first(const struct rf_context_part *part, int half, int64_t chunk)
{
    return (half ? 2 * part->ranks - 1 - part->rank : part->rank) * chunk;
}

/* What a block needs to run on `rows` rows (tokens). */
struct rf_block_sizes {
    uint64_t saved;            /* bytes kept from forward to backward */
    uint64_t saved_for_weight; /* bytes kept from backward_input to backward_weight */
    uint64_t scratch;          /* bytes of working memory inside one call */
    struct rf_shape out;       /* shape of the output for these rows */
    enum rf_dtype dtype;       /* of the output and its gradient: f32 (0), f16 or bf16 */
    int64_t classes;    /* of a last block whose output is no logits: targets are below it; 0: they
                           are logits, and targets are below their columns */
    int64_t vocabulary; /* of a first block: tokens are 0 to vocabulary - 1, and a call with another
                           is refused before anything runs; 0: it takes any i32 */
    /* Of each call, by tensor_sizes() and context_sizes() alone. */
    struct rf_exchange forward[RF_MAX_EXCHANGES];
    struct rf_exchange backward_input[RF_MAX_EXCHANGES];
    struct rf_exchange backward_weight[RF_MAX_EXCHANGES];
    char fault[120]; /* of tensor_sizes(): "3 tensor ranks do not divide 4 heads; use 2 or 4" */
};

/* Everything a block sees during a call. Tensors are borrowed, valid during the call; record on
 * `stream` and return: do not wait. */
struct rf_ctx {
    struct rf_stream *stream;
    int64_t step;        /* from 0 */
    int64_t micro_batch; /* GLOBAL index within the step */
    uint64_t
        seed; /* of the run; with step, micro_batch and an element index it makes random numbers */
    int64_t rows;  /* tokens in this micro-batch: sequences * sequence length */
    int64_t seq;   /* sequence length T; both of this rank's part (struct rf_context_part) */
    bool evaluate; /* forward only: dlogits are not wanted */
    int param_count;
    const struct rf_tensor *params; /* in the order of the block's declaration */
    const struct rf_tensor *grads;  /* same order; accumulate into them */
    /* Same order, in backward: write this gradient, whose old values have no meaning. True only of
     * those declared RF_PARAM_OVERWRITE_GRAD. */
    const bool *overwrite_grad;
    struct rf_tensor saved; /* u8; as many bytes as sizes() said; 256-aligned */
    struct rf_tensor saved_for_weight;
    struct rf_tensor scratch;
    struct rf_tensor
        workspace; /* f32, opts->scratch of products: struct rf_policy; NULL buffer: none */
    /* f32: struct rf_step_scalars of this step. A kernel that needs the step or the rate reads
     * them here, and not from its push constants, so that it can be replayed. inv_tokens is not
     * known before the losses are. */
    struct rf_tensor scalars;
    struct rf_tensor loss_scale;  /* (1) f32, in scalars: see struct rf_block; NULL buffer: none */
    struct rf_tensor targets;     /* (rows) i32; negative = ignored */
    struct rf_tensor losses;      /* (rows) f32: the last block writes it in forward; in training it
                                     may do so in backward_input. Each tensor rank writes all */
    struct rf_tensor_part tensor; /* ranks 1 where blocks are not shared */
    struct rf_context_part context; /* ranks 1 where sequences are not shared */
    /* Of the call, from 0. All phases of a call see the same tensors, but for scratch and
     * workspace, which keep nothing from one to the next, and the two exchanges, which never share
     * memory. */
    int phase;
    struct rf_tensor exchanged; /* what the exchange before this phase gave; NULL buffer: none */
    struct rf_tensor exchange;  /* what this phase writes for the next one; NULL buffer: none */
};

struct rf_block_ops {
    /* in: the first block's is (rows) i32 tokens (struct rf_block_sizes, vocabulary). The last
     * block's out is the logits, or what it likes (struct rf_block_sizes, classes). */
    int (*forward)(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out);
    /* din = gradient of in (NULL buffer for the first block). grads are there, too, for gradients
     * that come for free. `in` is the forward input, still
     * there. The last block's dout is its own out buffer, in which forward may have left what it
     * likes (dlogits). dout may be overwritten. */
    int (*backward_input)(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din);
    /* grads += (or =, where ctx->overwrite_grad says so); after backward_input of the same
     * micro-batch, with the same dout. */
    int (*backward_weight)(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout);
    /* Pure. */
    int (*sizes)(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out);
    /* The same where tensor ranks share the block: bytes and output of this rank, and the
     * exchanges of each call. rows is of the whole micro-batch, also with part->sequence. Pure.
     * What cannot be divided is RF_EINVAL, and out->fault says what and what to change. NULL: each
     * of the ranks computes all of the block, with all of its parameters whatever their split; not
     * with sequence parallelism. */
    int (*tensor_sizes)(const void *self, const struct rf_tensor_part *part, int64_t rows,
                        int64_t seq, struct rf_block_sizes *out);
    /* The same where context ranks share the sequences: rows and seq are what this rank has of a
     * micro-batch and of a sequence. A block whose rows have nothing to do with each other gives
     * what sizes() gives. NULL: a mesh with cp is refused. */
    int (*context_sizes)(const void *self, const struct rf_context_part *part, int64_t rows,
                         int64_t seq, struct rf_block_sizes *out);
};

struct rf_block {
    const char *name;
    const struct rf_block_ops *ops;
    void *self;
    const struct rf_param_desc *params;
    int param_count;
    /* A step whose commands stay the same is replayed without calling the blocks (struct
     * rf_run_opts). True: this block does not record the same in every step, or does something on
     * the host, so it is always called. That launches differ with ctx->step is noticed by itself.
     * That they change at some later time is an error at the next spot check: steps 16, 32, 64,
     * ..., or every step with RF_CHECK_REPLAY=1. */
    bool varies;
    /* As the last block it multiplies what it passes back by ctx->loss_scale, where there is one.
     */
    bool scales_loss;
    /* What makes the block compute what it does, besides the shapes of its parameters: "name=value"
     * separated by spaces, printable ASCII without quotes and backslashes ("heads=4 eps=1e-05"); or
     * NULL. Types and amounts of memory do not belong here. All blocks of a model may give the same
     * text, that of the model; values of one name that differ from block to block are joined by
     * commas. It must be the same on all ranks; a checkpoint holds it, and is loaded only by a run
     * that has the same. */
    const char *config;
};

/* Cuts a 256-aligned f32 (or other) tensor off the front of a u8 region such as ctx->saved; *offset
 * moves on. Errors: RF_EINVAL when the region is too small. */
RF_API int rf_suballocate(struct rf_tensor region, uint64_t *offset, struct rf_shape shape,
                          enum rf_dtype dtype, struct rf_tensor *out);
/* What rf_suballocate takes for it: for sizes(). */
RF_EXPORT uint64_t rf_suballocate_bytes(struct rf_shape shape, enum rf_dtype dtype);

/* ---- mesh and policy ------------------------------------------------------------------------- */

/* The ranks as a grid. Zero means one. dp * tp * cp * pp is the number of ranks.
 * tp: ranks that share every block (struct rf_tensor_part); they are neighbours.
 * cp: ranks that share every sequence (struct rf_context_part); they are neighbours. Not with tp.
 * dp: parts of the batch. Rank r has part r / (tp * cp) % dp.
 * pp: parts of the model, as stages of a pipeline: r / (tp * cp * dp).
 * shard (with policy.zero): over how many of the dp ranks, side by side, one copy of what is
 * sharded is spread; it divides dp, and dp / shard groups hold copies (hybrid sharding: shard
 * inside a host, replicate between hosts). 0 = all. */
struct rf_mesh {
    int dp, tp, pp;
    int shard;
    int cp;
};

/* policy.offload: what lies in memory of the host (pinned: the device can reach it). With any of
 * the first three the f32 parameters do; blocks see parameters that were brought to the device. */
enum {
    /* The optimizer's states; the host updates them and the parameters (Ren et al. 2021,
     * ZeRO-Offload), which come to the device once a step. Numbers agree with the device's up to
     * rounding. */
    RF_OFFLOAD_OPTIMIZER = 1,
    /* Parameters of a block come to the device before it runs, one block ahead, and are dropped
     * after it. */
    RF_OFFLOAD_PARAMS = 2,
    RF_OFFLOAD_GRADS = 4, /* zero >= 2: this rank's sums of gradients */
    /* What blocks keep from forward to backward, and their outputs: copied to the host while the
     * next block runs, and back one block ahead of the backward pass (Rhu et al. 2016, vDNN). What
     * the backward pass wants at once stays on the device. The bits are the same. Alone it moves no
     * parameters. */
    RF_OFFLOAD_ACTIVATIONS = 8
};

/* Order of the forward and backward passes of micro-batches where blocks are spread over ranks
 * (mesh.pp): docs/parallelism.md. */
enum rf_pipeline_kind {
    RF_PIPELINE_1F1B = 0,    /* one forward, one back: Narayanan et al. 2019, with a flush */
    RF_PIPELINE_GPIPE,       /* all forward, then all back: Huang et al. 2019 */
    RF_PIPELINE_INTERLEAVED, /* as 1F1B, with several chunks a rank: Narayanan et al. 2021b */
    RF_PIPELINE_ZBH1,        /* 1F1B with weight halves put off: Qi et al. 2023, ZB-H1 */
    RF_PIPELINE_ZBV,         /* two chunks a rank, placed as a V: Qi et al. 2024, ZB-V */
    RF_PIPELINE_NAIVE,       /* one micro-batch after the other: one rank at a time computes */
    RF_PIPELINE_2BW, /* 1F1B without a flush: Narayanan et al. 2021a, PipeDream-2BW. Weights are one
                      * update behind: see rf_run_drain */
    RF_PIPELINE_COUNT
};

/* How blocks are divided into the stages of a pipeline (mesh.pp): in order, each stage at least
 * one.
 */
enum rf_stage_split {
    RF_STAGES_EVEN = 0, /* as many in each, the last stages one more where that does not divide */
    /* The largest arithmetic of a stage is as small as it can be: the FLOPs of a micro-batch,
     * forward and back, as rf_block_costs counts them. Where no block declares any: evenly. */
    RF_STAGES_COST
};

/* policy.recompute: every K blocks, K nearest to the root of the number of blocks. */
#define RF_RECOMPUTE_SQRT (-1)
/* Every K blocks, K with which a micro-batch needs the least memory for activations by the sizes
 * that the blocks give; of several the one that computes the fewest blocks again. For blocks whose
 * outputs are all that they keep that is the root of their number (Chen et al. 2016); for
 * transformers, which keep much more inside a block than they pass on, 1 up to some tens of blocks.
 */
#define RF_RECOMPUTE_AUTO (-2)

struct rf_policy {
    int64_t batch;                      /* sequences in a global batch */
    int64_t seq;                        /* tokens in a sequence */
    int64_t micro_batches;              /* global; divides batch; at least dp; 0 = dp */
    enum rf_order order;                /* RF_ORDER_RING or RF_ORDER_TREE; ANY means RING */
    uint64_t bucket_bytes;              /* 0 = 25 MiB; */
    uint64_t first_bucket_bytes;        /* 0 = 1 MiB: the first to be ready, hence to overlap */
    struct rf_optimizer_opts optimizer; /* zero: the customary value (rf_optimizer_get_info) */
    float clip;                         /* global norm; 0 = none */
    float loss_scale; /* the first of a dynamic loss scale; 0 = none. The last block multiplies */
    struct rf_loss_scale_opts loss_scaling; /* how it moves; zero: the customary values */
    /* Parameters that blocks want in 16 bits have f32 masters, which the optimizer updates (mixed
     * precision, Micikevicius et al. 2018). True: they have none, and are updated in 16 bits
     * ("true" bf16 or f16): a third of the memory. An update smaller than half the distance between
     * two numbers of the type is lost, unless optimizer.stochastic_rounding. Needs all parameters
     * in the same 16-bit type. Checkpoints are f32 all the same, and exact. */
    bool no_masters;
    /* RF_F16 or RF_BF16: gradients travel as these and are added over the ranks in these; sums over
     * micro-batches stay f32. Half the bytes. RF_F32 (0): as they are. Not in tree order, whose
     * bits are those of one process, which rounds nothing. */
    enum rf_dtype reduce_dtype;
    /* Stage of sharding (Rajbhandari et al. 2020, ZeRO). 0: every rank holds everything. 1: each
     * rank holds the optimizer's states of a part of the parameters, and updates that; and where
     * blocks want parameters in 16 bits, the f32 ones of that part only. 2: and
     * the gradients of that part, which are added over the ranks after every micro-batch. 3: and
     * the parameters (Zhao et al. 2023, FSDP): those of a block are gathered before it runs, one
     * block ahead, and dropped after it. With 2 and 3 micro-batches go to ranks round-robin. */
    int zero;
    bool keep_gathered; /* zero=3: what was gathered stays until the end of the step */
    bool no_prefetch;   /* zero=3: a block's parameters are gathered only when it is to run; its
                         * activations come back from the host only then, too */
    /* Only the outputs of every N-th block are kept for the backward pass, which computes the rest
     * again (Chen et al. 2016). 0: all is kept; 1: every output; or RF_RECOMPUTE_SQRT or
     * RF_RECOMPUTE_AUTO. Gradients have the same bits. */
    int recompute;
    bool sequence_parallel; /* mesh.tp > 1: rf_tensor_part.sequence */
    /* Every block is computed in this many parts, whose sums are added as a tree: a power of two
     * and a multiple of mesh.tp. The bits of a run are then the same with 1, 2, 4, ... tensor
     * ranks, up to that number. A rank with several parts calls a block once for each of them, so
     * it computes what is not split, and keeps outputs, as often: for comparison. Not with
     * sequence_parallel. 0: as many as tensor ranks, added in ring order. */
    int tensor_parts;
    enum rf_pipeline_kind pipeline; /* mesh.pp > 1 */
    int chunks;                     /* of a rank, with RF_PIPELINE_INTERLEAVED; 0 = 2 */
    enum rf_stage_split stages;     /* mesh.pp > 1 */
    /* Instead of a rule: the number of blocks of each stage, stage_count of them: mesh.pp, times
     * the chunks of a rank (zbv: 2). Chunk c of rank r of the pipeline is stage c * pp + r; with
     * zbv the second one is stage 2 pp - 1 - r. Read by rf_plan_build alone. NULL: by the rule. */
    const int *stage_blocks;
    int stage_count;
    int offload; /* RF_OFFLOAD_* or 0 */
    /* What the plan may take on the device, without memory of the host; 0 = no limit. A plan that
     * needs more is RF_ENOMEM, with the cheapest change of the policy that makes it fit. */
    uint64_t device_bytes;
    bool forward_only; /* no gradients, no optimizer */
    /* For products with a long sum and few results (weight gradients above all): the device works
     * on parts of it at once. 0: none. Tens of MiB for a GPU, 0 for a CPU. Bits depend on it. */
    uint64_t workspace_bytes;
    bool no_overlap; /* wait for each reduction before computing on: for comparison */
    /* Gradients are summed on rank 0, which alone updates, and sends the weights to all: the same
     * bits, all bytes through one rank. For comparison; in ring order only. Other ranks keep no
     * optimizer state, and their gradients stay their own. */
    bool update_on_rank_0;
};

/* ---- runs ------------------------------------------------------------------------------------ */

struct rf_plan;
struct rf_run;

/* Allocates everything the plan says, once, and fills the parameters (Philox by name-independent
 * global index, seed). Collective over comm (NULL: one rank): checks that plan, blocks and versions
 * agree on all ranks (RF_EMISMATCH names what differs). device, comm, plan and blocks stay the
 * caller's and must outlive the run. */
struct rf_run_opts {
    uint64_t seed;
    /* Steps (and evaluations) are recorded twice; what had the same commands with the same
     * arguments both times is replayed from then on. True: they are recorded each time. The
     * results are the same bits. */
    bool record_each_step;
    /* NULL, or where the caller says that training is to end, and why: 0, or a reason from 1 to 3
     * whose meaning is the caller's. May be written at any time, by a signal handler too. Each step
     * reads it once; what all ranks said is rf_step_stats.stop, in the same step on each. */
    const volatile int *stop;
    /* rf_run_load may also load a checkpoint of another batch or seq: struct rf_progress has those.
     * For a caller that has adapted the learning rate (rf_lr_scale_linear, rf_lr_scale_sqrt). */
    bool other_batch;
};
RF_API int rf_run_open(struct rf_device *device, struct rf_comm *comm, const struct rf_plan *plan,
                       const struct rf_run_opts *opts, struct rf_run **out);
RF_EXPORT void rf_run_close(struct rf_run *run);

struct rf_step_stats {
    double loss;              /* mean over the tokens of the global batch */
    int64_t tokens;           /* counted in it, all ranks */
    int64_t local_tokens;     /* of these, on this rank */
    float grad_norm;          /* before clipping; the largest f32 where it is larger */
    bool skipped;             /* the update was skipped: a gradient was not finite */
    float loss_scale;         /* of the next step; 0 without */
    int stop;                 /* the highest rf_run_opts.stop of all ranks, the same on all */
    uint64_t sent_bytes;      /* by this rank in this step */
    uint64_t exposed_comm_ns; /* time the rank waited for communication with nothing to compute, but
                                 for waits of the device that ended before all was recorded */
    uint64_t step_ns;
    uint64_t record_ns;     /* of these, the host's time for recording or replaying the step */
    int recorded, replayed; /* pieces of the step that were recorded anew, and replayed */
    /* Of which step, counted from 0, loss, tokens, norm, skipped and loss scale are: the one that
     * the call was given; with RF_PIPELINE_2BW the one before, or -1: of none. */
    int64_t of_step;
    /* Updates by which the weights of all its micro-batches are behind: 0; with 2BW 1. */
    int version_lag;
};
/* One optimizer step on one global batch. tokens and targets: host arrays (batch * seq) i32 of the
 * WHOLE global batch (each rank takes its own rows from it). lr is the step's learning rate.
 * Without any valid target (all are negative) the loss and the gradients are 0 and the step is an
 * update like any other: weights and the optimizer's states decay, and it is counted, as
 * torch.optim does with gradients that are 0. Blocking. RF_EINVAL: a token outside the first
 * block's vocabulary, or a target not below the classes; the message has its position in the array.
 * Nothing has run then, and where all ranks got that batch, all fail so and the run goes on. Where
 * only some did, the others fail with RF_EMISMATCH or RF_EABORT, and the communicator with them.
 * After any other error the communicator has failed, too, and the parameters and the optimizer's
 * states are those of before the step; but where its update had begun, which is so where ranks
 * are gathering parameters, they may be of two steps: also where this rank's own part had ended by
 * then, as others may have given up theirs. Then RF_EABORT is what any later step,
 * evaluation, forward pass and save of the run returns, until a checkpoint has been loaded: into
 * another run, where the communicator has failed. */
RF_API int rf_run_step(struct rf_run *run, const int32_t *tokens, const int32_t *targets, float lr,
                       struct rf_step_stats *stats);
/* With RF_PIPELINE_2BW (rf_policy.pipeline) a call of rf_run_step leaves its step under way: it
 * ends the one before, with its lr, and *stats is of that. Every step computes its gradients with
 * the weights of before the last update, W(t+1) = optimizer(W(t), gradients at W(t-1)), the first
 * one with the initial weights, whatever is drained when. This ends the step that is under way, and
 * does nothing where there is none (of_step is -1). Needed before evaluation, forward passes,
 * writing parameters, snapshots and saves, which else fail with RF_EINVAL. What reads parameters
 * finds those of the newest update. After an error a step that was under way is lost: the run has
 * taken one step less. Blocking; collective. Errors: as rf_run_step. */
RF_API int rf_run_drain(struct rf_run *run, struct rf_step_stats *stats);
/* Mean loss without an update, on `micro_batches` micro-batches of the run's size; they are shared
 * out over the ranks. tokens, targets: (micro_batches * rows). Collective. Refuses tokens and
 * targets as rf_run_step does. */
RF_API int rf_run_evaluate(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                           int64_t micro_batches, double *loss);
/* The last block's output for one micro-batch of this rank (rows, V), host f32. Without
 * communication; but where parameters are sharded (rf_plan_params_sharded) it is a collective: all
 * ranks call it, each with tokens of its own; ranks of one pipeline, and tensor ranks, with the
 * same, of which all get all logits. RF_ENOTSUP: it gives no logits.
 * RF_ENOTSUP: with context ranks (rf_mesh.cp). RF_EINVAL: a token outside the vocabulary. Where the
 * call is a collective and only some ranks got such a token, the others fail as those of
 * rf_run_step do. */
RF_API int rf_run_forward(struct rf_run *run, const int32_t *tokens, float *logits,
                          uint64_t logits_bytes);
/* Parameters by name, whole, host memory: for inspection, tests and checkpoints. Not while a step
 * is running. Where parameters are sharded all ranks call both, and give the same values to write.
 * RF_EINVAL: no such name or wrong size. */
RF_API int rf_run_read_param(struct rf_run *run, const char *name, void *dst, uint64_t bytes);
RF_API int rf_run_write_param(struct rf_run *run, const char *name, const void *src,
                              uint64_t bytes);
/* As the last step left it: summed over the tokens of the global batch, neither divided nor
 * clipped. A tied parameter's is the sum of its uses. A collective of the tensor or context ranks
 * (rf_mesh), which all get the whole. RF_ENOTSUP with sharded states on several ranks: no rank
 * has all of it; and of a pipeline on ranks whose blocks do not have it. */
RF_API int rf_run_read_grad(struct rf_run *run, const char *name, void *dst, uint64_t bytes);
/* SHA-256 over the logical parameters: sorted by name; name, dtype, shape, then little-endian
 * bytes. hex: 65 bytes. A collective where parameters are sharded. */
RF_API int rf_run_params_sha256(struct rf_run *run, char hex[65]);

/* Bytes by category: params, grads, optimizer, activations, comm, scratch (allocated); host: of
 * these, what lies in memory of the host; and sent. */
struct rf_bytes {
    uint64_t params, grads, optimizer, activations, comm, scratch, host, sent;
};
/* What was measured since rf_run_open: high water at vkAllocateMemory by category, bytes posted
 * in the transport. */
RF_EXPORT void rf_run_measured(const struct rf_run *run, struct rf_bytes *out);
/* What the plan says for the steps and evaluations that were run. */
RF_EXPORT void rf_run_planned(const struct rf_run *run, struct rf_bytes *out);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Takes dir for the checkpoints of this run, and makes it if need be, until rf_run_close or until
 * another folder is reserved. While it is held no other run, of this process or another, can
 * reserve it or save there: RF_EBUSY, which names the process that has it. The lock is one on the
 * file dir/lock, which stays there; it ends with the process. Loading needs no lock. Collective;
 * rank 0 takes it. On a file system without locks there is only a warning in the log. Waits for a
 * save that goes on. */
RF_API int rf_run_reserve(struct rf_run *run, const char *dir);

struct rf_progress {
    int64_t step;
    uint64_t seed;
    int64_t samples;    /* consumed, globally: the next batch begins at this one (data.h) */
    int64_t batch, seq; /* of the run that saved; set by a load, not read by a save */
};
/* Writes dir/step-N.tmp (model and optimizer, each as .safetensors and .hashes; state.json), syncs,
 * renames it to dir/step-N, then replaces the file dir/latest. Logical tensors, no ranks. Every
 * rank writes an own share, a few MiB at a time; ranks that do not see the folder that rank 0 has
 * made send theirs to rank 0. An interrupted or failed save leaves the last good checkpoint as it
 * was, and an error of one rank is that of all, with its sentence. A folder that was not reserved
 * is taken for the length of the save. Blocking; collective. Errors: RF_EIO (a disk that is full,
 * a folder that cannot be made), RF_EBUSY, RF_ENOMEM, RF_EINVAL, those of the communicator. */
RF_API int rf_run_save(struct rf_run *run, const char *dir, const struct rf_progress *progress);

/* The same in the background: begins, and returns when this rank's share has been copied to host
 * memory (bytes of the parameters and the optimizer's states, divided by the ranks). A thread
 * writes the copy while training goes on. Ranks that do not see the folder send theirs before this
 * returns. All communication is inside these calls, never on the thread. A save that still goes on
 * is waited for first; its error is returned, and nothing is begun then. What fails after the begin
 * is returned by the call that ends the save. rf_run_close gives up a save that nobody waited for.
 * Collective. */
struct rf_save_opts {
    int keep; /* > 0: afterwards remove the checkpoints of older steps in dir, but for the last
                 `keep` with this one. Steps after this one stay. 0: keep all */
};
RF_API int rf_run_save_begin(struct rf_run *run, const char *dir,
                             const struct rf_progress *progress, const struct rf_save_opts *opts);
/* How far all ranks are. Where all have written, it ends the save: dir/latest is replaced, and the
 * result is returned as of rf_run_save_wait. Without a save: ended. Does not wait for files;
 * collective (one short message to each rank): for a call after each step. */
struct rf_save_progress {
    bool ended;
    uint64_t written, bytes; /* of all ranks that write */
};
RF_API int rf_run_save_test(struct rf_run *run, struct rf_save_progress *progress);
/* Waits for the save that was begun, ends it, and returns how it went; RF_OK without one.
 * Blocking; collective. */
RF_API int rf_run_save_wait(struct rf_run *run);

/* Whether all ranks that should hold the same do: compares hashes (128 bits, BLAKE2b) of
 * parameters, of the 16-bit copies that blocks see, and of the optimizer's states, whole or by
 * shards, over the ranks that have copies of each other, tied parameters of other pipeline stages
 * included; and the numbers of steps and updates, the seed, the loss scale, and *progress (NULL:
 * not compared). RF_ECORRUPT: something differs; the message, the same on all ranks, names the
 * first that does (numbers, then parameters in the order of their declaration, copies, states), and
 * which ranks differ from the most that agree. The run can go on after it. What all ranks compute
 * wrongly alike differs nowhere. Each rank reads and hashes all that it has, and sends 32 bytes for
 * each tensor, however many ranks there are. Between steps; blocking; collective. Errors: also
 * RF_EABORT (as rf_run_step), RF_ENOMEM, those of the communicator. */
RF_API int rf_run_audit(struct rf_run *run, const struct rf_progress *progress);

/* Rank 0's `bytes` at data go to all ranks, between steps: what the callers of a run have to agree
 * about, in the run's account of what is sent. Blocking; collective. Errors: RF_EINVAL, those of
 * the communicator. */
RF_API int rf_run_share(struct rf_run *run, void *data, size_t bytes);

/* What this rank has of a run, in host memory (its parameters and states as f32, until it is
 * destroyed): for a run on another mesh, where a rank was lost and its communicator with it. Also
 * of a run whose step has failed, if its parameters are of one step. Blocking; not collective.
 * Of progress the samples are read. Errors: RF_EABORT (parameters may be of two steps), RF_ENOMEM,
 * RF_EINVAL. */
struct rf_snapshot;
RF_API int rf_run_snapshot(struct rf_run *run, const struct rf_progress *progress,
                           struct rf_snapshot **out);
RF_EXPORT void rf_snapshot_destroy(struct rf_snapshot *snapshot); /* NULL is allowed */
/* Puts into a run what the snapshots of its ranks (NULL: this one has none) hold together: the
 * newest step of which all is there, whatever meshes the two runs have; blocks and the optimizer's
 * rule must be the same. Where all ranks have all of it nothing is sent. *progress: of that step.
 * RF_ECORRUPT: something is in none of them; the message names it, and nothing was changed: load a
 * checkpoint. Blocking; collective. Errors: also RF_EINVAL (another model), RF_ENOMEM, those of the
 * communicator; after these parameters may be of two steps, as after a load. */
RF_API int rf_run_restore(struct rf_run *run, const struct rf_snapshot *snapshot,
                          struct rf_progress *progress);

/* Loads dir/latest (or dir itself when it is a step-N), whatever number of ranks has saved it.
 * Every rank gives its path of the same folder. Ranks that see it share out the work of verifying
 * all bytes, then each reads what it needs, a few MiB at a time; the others get that from rank 0.
 * RF_ECORRUPT names file and fault; RF_EINVAL names what is of another model or setting: the
 * blocks' config, names and shapes of parameters, and, where the run trains, the optimizer's rule,
 * batch and seq (unless rf_run_opts.other_batch). Ranks, mesh, micro-batches, order, types, rates
 * and the optimizer's numbers may be others. The run is unchanged after an error, unless files that
 * were verified cannot be read again a moment later, or the communicator fails: then parameters may
 * be of two steps, and other calls refuse, as after a step that failed (rf_run_step): load again,
 * or close the run. Collective. */
RF_API int rf_run_load(struct rf_run *run, const char *dir, struct rf_progress *progress);

#ifdef __cplusplus
}
#endif
#endif
