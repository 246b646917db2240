/* SPDX-License-Identifier: MIT
 *
 * The mesh of ranks, and the policy of a run: batch, optimizer, precision, and the techniques of
 * parallelism and memory. docs/parallelism.md and docs/memory.md explain them. train.h includes
 * this.
 */
#ifndef RINGFORGE_POLICY_H
#define RINGFORGE_POLICY_H

#include "ops.h"
#include "rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ranks as a grid. 0 means 1. The number of ranks is dp * tp * cp * pp. Tensor or context ranks
 * vary fastest, then data-parallel ranks, then pipeline stages. */
struct rf_mesh {
    int dp; /* data parallel: parts of the batch; rank r has part r / (tp * cp) % dp */
    int tp; /* tensor parallel: ranks that share every block (struct rf_tensor_part) */
    int pp; /* pipeline stages: parts of the model; rank r has part r / (tp * cp * dp) */
    /* With policy.zero: the number of neighbouring dp ranks that one copy of the sharded data is
     * divided among. It divides dp; dp / shard groups have copies (hybrid sharding: shard within a
     * host, replicate between hosts). 0 = dp. */
    int shard;
    int cp; /* context parallel: ranks that share every sequence (struct rf_context_part); not with
               tp */
};

/* rf_policy.offload: the data in pinned host memory. With any of the first three flags the f32
 * parameters are there too, and blocks use copies of them on the device. */
enum {
    /* Optimizer states. The host updates them and the parameters, which are copied to the device
     * once a step (Ren et al. 2021, ZeRO-Offload). Results equal those of the device up to
     * rounding. */
    RF_OFFLOAD_OPTIMIZER = 1,
    /* Parameters of a block are copied to the device one block ahead, and dropped after it. */
    RF_OFFLOAD_PARAMS = 2,
    /* This rank's sums of gradients; zero >= 2. */
    RF_OFFLOAD_GRADS = 4,
    /* The values that blocks save for the backward pass, and their outputs. They are copied to the
     * host while the next block runs, and back one block ahead of the backward pass (Rhu et al.
     * 2016, vDNN). Values that the backward pass needs at once stay on the device. The bits are the
     * same. This flag alone moves no parameters. */
    RF_OFFLOAD_ACTIVATIONS = 8
};

/* Pipeline schedules: docs/parallelism.md. */
enum rf_pipeline_kind {
    RF_PIPELINE_1F1B = 0,    /* one forward, one backward, with a flush: Narayanan et al. 2019 */
    RF_PIPELINE_GPIPE,       /* all forward, then all backward: Huang et al. 2019 */
    RF_PIPELINE_INTERLEAVED, /* 1F1B with several chunks per rank: Narayanan et al. 2021b */
    RF_PIPELINE_ZBH1,        /* 1F1B with delayed backward_weight: Qi et al. 2023, ZB-H1 */
    RF_PIPELINE_ZBV,         /* two chunks per rank in the shape of a V: Qi et al. 2024, ZB-V */
    RF_PIPELINE_NAIVE,       /* one micro-batch after the other: one rank at a time computes */
    RF_PIPELINE_2BW, /* 1F1B without a flush: Narayanan et al. 2021a, PipeDream-2BW. Weights lag one
                      * update behind (rf_run_drain) */
    RF_PIPELINE_COUNT
};

/* The division of the blocks into pipeline stages. Each stage has consecutive blocks, at least one.
 */
enum rf_stage_split {
    RF_STAGES_EVEN = 0, /* equal numbers; if that is not possible, the last stages have one more */
    /* Minimizes the FLOPs of the largest stage, forward and backward (rf_block_costs). The same as
     * RF_STAGES_EVEN if no block declares FLOPs. */
    RF_STAGES_COST
};

/* rf_policy.recompute: every K blocks, K nearest to the square root of the number of blocks. */
#define RF_RECOMPUTE_SQRT (-1)

/* rf_policy.recompute: every K blocks, with the K that needs the least memory for the activations
 * of a micro-batch, by the blocks' sizes; if several do, the one that recomputes the fewest blocks.
 * If blocks keep only their outputs, K is the square root of their number (Chen et al. 2016). For
 * transformers, which keep much more inside a block, K is 1 up to some tens of blocks. */
#define RF_RECOMPUTE_AUTO (-2)

/* rf_policy.state_dtype */
#define RF_STATE_LEAST 4096

/* The settings of a run. Zero is the default, except for batch and seq. RF_ZERO is the number 0. */
struct rf_policy {
    int64_t batch; /* sequences in a global batch */
    int64_t seq;   /* tokens in a sequence */
    /* Sequences hold several documents. A target of RF_TARGET_LAST ends a document, and the next
     * token of the sequence begins another, at position 0. Attention does not cross documents
     * (rf_ctx.starts). Not with mesh.cp > 1. */
    bool packed;
    int64_t micro_batches;       /* of all ranks; divides batch; at least dp; 0 = dp */
    enum rf_order order;         /* of gradient sums: RF_ORDER_RING or RF_ORDER_TREE; ANY = RING */
    uint64_t bucket_bytes;       /* 0 = 25 MiB */
    uint64_t first_bucket_bytes; /* of the first complete bucket; 0 = 1 MiB */
    struct rf_optimizer_opts
        optimizer; /* fields of 0: the customary value (rf_optimizer_get_info); RF_ZERO: 0 */
    /* The type of its states: RF_F32 (0), RF_BF16, or RF_U8 (ops_optimizer.h) for parameters of at
     * least RF_STATE_LEAST elements, counted over all ranks; the others keep f32. Blocks begin anew
     * in every parameter, and in every part of it that a tensor rank has. Checkpoints keep 8 bits
     * as they are, and other types as f32. */
    enum rf_dtype state_dtype;
    float clip; /* global norm; 0 = no clipping */
    float
        loss_scale; /* initial value of a dynamic loss scale; 0 = none. The last block applies it */
    struct rf_loss_scale_opts loss_scaling; /* how it changes */

    /* Parameters that blocks use in 16 bits normally have f32 masters, which the optimizer updates
     * (mixed precision, Micikevicius et al. 2018). true: no masters; parameters are updated in 16
     * bits, which takes a third of the memory. An update smaller than half the spacing of the
     * type's numbers is lost, unless optimizer.stochastic_rounding is set. All parameters must have
     * the same 16-bit type. Checkpoints are f32 and exact. */
    bool no_masters;
    /* RF_F16 or RF_BF16: gradients are sent and added over the ranks in this type, half the bytes.
     * Sums over micro-batches stay f32. In f16, steps of more than 256 tokens send sums divided by
     * a power of two such that they are at most 256 times the mean, so the number of tokens is not
     * limited. RF_F32 (0): unchanged. Not in tree order. */
    enum rf_dtype reduce_dtype;
    /* The gradients of data-parallel ranks are sent in this form (rounds.h), by the host and
     * without overlap, and what a form loses is added to those of the next step (error feedback,
     * which checkpoints keep). A gradient that is not finite ends the job: RF_EINVAL. In ring order
     * only, and not with sharding, other axes of the mesh, offload of parameters, reduce_dtype or a
     * loss scale. RF_FORM_F32 (0): as they are. */
    struct rf_compression {
        enum rf_form form;
        float fraction; /* RF_FORM_TOP; 0 = 1/64 */
        int rank;       /* RF_FORM_POWERSGD; 0 = 1 */
    } compress;

    /* Stage of sharding (Rajbhandari et al. 2020, ZeRO). 0: none. 1: a rank holds and updates the
     * optimizer states of a part of the parameters, and, if blocks use 16 bits, the f32 parameters
     * of that part only. 2: also the gradients of that part only, which are reduced after every
     * micro-batch. 3: also the parameters (Zhao et al. 2023, FSDP): a block's are gathered one
     * block ahead, and dropped after it. With 2 and 3 micro-batches are assigned to ranks
     * round-robin. */
    int zero;
    bool keep_gathered; /* zero=3: gathered parameters stay until the end of the step */
    /* zero=3: parameters are gathered, and offloaded activations are fetched, only when their block
     * is about to run. */
    bool no_prefetch;
    /* Activation recomputation (Chen et al. 2016): only the outputs of every N-th block are kept,
     * and the backward pass computes the rest again. 1: every output. 0: no recomputation. Or
     * RF_RECOMPUTE_SQRT or RF_RECOMPUTE_AUTO. The gradients have the same bits. */
    int recompute;
    /* Blocks with rf_block_ops.invert keep neither their input nor anything else from forward to
     * backward: the backward pass computes both from the block's output (Gomez et al. 2017). The
     * memory of activations then does not depend on the number of these blocks, at the arithmetic
     * of recompute = 1. Not with recompute, offload of activations, or a pipeline without a flush.
     */
    bool invert;

    /* Parameters of a block are updated during the backward pass, as soon as their gradients are
     * complete, so that the gradients of a few blocks only are in memory. The bits are the same in
     * tree order, and in ring order with zero >= 2. One micro-batch for each data-parallel rank;
     * with zero=1 gradients are sharded, too. Not with what needs all gradients before the first
     * update: clip, loss_scale. Not with a pipeline, compress, update_on_rank_0, or offload of the
     * optimizer or of gradients. A step with a gradient that is not finite fails. */
    bool update_in_backward;

    bool sequence_parallel; /* mesh.tp > 1: rf_tensor_part.sequence */
    /* Every block is computed in this many parts, whose results are added as a tree. A power of
     * two, and a multiple of mesh.tp. The bits of a run are then equal for 1, 2, 4, ... tensor
     * ranks, up to this number. A rank with several parts calls a block for each, so it repeats the
     * unsplit computation, and keeps that many outputs: for comparisons. Not with
     * sequence_parallel. 0: mesh.tp parts, added in ring order. */
    int tensor_parts;

    enum rf_pipeline_kind pipeline; /* mesh.pp > 1 */
    int chunks;                     /* per rank, with RF_PIPELINE_INTERLEAVED; 0 = 2 */
    enum rf_stage_split stages;     /* mesh.pp > 1 */
    /* The number of blocks of each stage, instead of `stages`; stage_count entries: mesh.pp times
     * the chunks of a rank (zbv: 2). Chunk c of rank r of the pipeline is stage c * pp + r; with
     * zbv the second chunk is stage 2 pp - 1 - r. Read by rf_plan_build only. NULL: by `stages`. */
    const int *stage_blocks;
    int stage_count;

    int offload; /* RF_OFFLOAD_* or 0 */
    /* The part of `offload` that is in a file on a disk, not in host memory: RF_OFFLOAD_OPTIMIZER,
     * for the optimizer's states, RF_OFFLOAD_ACTIVATIONS, or 0. Each rank has a file
     * (rf_run_opts.disk). Blocks of states are read into one of two buffers in host memory while
     * the host updates the block before, and written back (Rajbhandari et al. 2021, ZeRO-Infinity).
     * Activations pass through host memory on their way. The bits are those of offload alone. */
    int disk;
    uint64_t disk_block_bytes; /* of all states of a block, at most; 0 = 8 MiB */
    /* Limit of device memory, without host memory; 0 = none. If a plan needs more: RF_ENOMEM, and
     * the message has the cheapest change of the policy that makes it fit. */
    uint64_t device_bytes;
    bool forward_only; /* no gradients, no optimizer */
    /* Scratch for splitting products with a long k and few results, mostly weight gradients
     * (rf_matmul_opts.scratch). Tens of MiB for a GPU, 0 for a CPU. The bits depend on it, so it
     * must be equal on all ranks with the same driver. */
    uint64_t workspace_bytes;

    bool no_overlap; /* wait for each reduction before continuing to compute: for comparisons */
    /* Gradients are summed on rank 0, which updates the weights and broadcasts them: for
     * comparisons. The bits are the same. In ring order only. Other ranks have no optimizer states,
     * and their gradients are not reduced. */
    bool update_on_rank_0;
    /* In tree order the gradients of the uses of a tied parameter stay apart, for a caller who adds
     * each over several runs (rf_plan_trained_use). Steps have a rate of 0, and their norm lacks
     * further uses on this rank. */
    bool uses_apart;
};

/* Fields that must be equal on all ranks: ROW(field, name in messages). rf_run_open compares them.
 * It compares fields of other types, and those that some ranks may differ in, by rules of their
 * own. */
#define RF_POLICY_EQUAL(ROW)                                                                       \
    ROW(update_in_backward, "update in the backward pass")                                         \
    ROW(tensor_parts, "parts of tensor sums")                                                      \
    ROW(batch, "batch")                                                                            \
    ROW(seq, "sequence length")                                                                    \
    ROW(packed, "several documents in a sequence")                                                 \
    ROW(micro_batches, "micro-batches")                                                            \
    ROW(order, "order")                                                                            \
    ROW(update_on_rank_0, "update on rank 0")                                                      \
    ROW(uses_apart, "uses of tied parameters apart")                                               \
    ROW(zero, "zero stage")                                                                        \
    ROW(state_dtype, "type of the optimizer's states")                                             \
    ROW(disk, "data on a disk")                                                                    \
    ROW(disk_block_bytes, "blocks of data on a disk")                                              \
    ROW(invert, "inverted blocks")                                                                 \
    ROW(no_masters, "parameters without f32 masters")                                              \
    ROW(reduce_dtype, "type in which gradients travel")                                            \
    ROW(workspace_bytes, "workspace bytes")                                                        \
    ROW(forward_only, "forward only")

#ifdef __cplusplus
}
#endif
#endif
