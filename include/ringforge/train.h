/* SPDX-License-Identifier: MIT
 *
 * Runs: training of a model, a list of blocks (block.h), on a mesh of ranks with a policy
 * (policy.h). A run executes a plan (parallel.h), so all of its memory and messages are known
 * before anything is allocated. Checkpoints of a run: checkpoint.h. This header includes block.h,
 * policy.h, checkpoint.h, comm.h and rounds.h.
 */
#ifndef RINGFORGE_TRAIN_H
#define RINGFORGE_TRAIN_H

#include "block.h"
#include "checkpoint.h"
#include "comm.h"
#include "ops.h"
#include "policy.h"
#include "rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_plan;
struct rf_run;

/* ---- opening --------------------------------------------------------------------------------- */

struct rf_run_opts {
    uint64_t seed;
    /* A step, or evaluation, is recorded twice. Parts with the same commands and arguments both
     * times are replayed from then on. true: every step is recorded. The bits are the same. */
    bool record_each_step;
    /* The caller's reason to stop training: 0 (none), or 1 to 3, with the caller's meaning. It may
     * be written at any time, also by a signal handler. Each step reads it once; rf_step_stats.stop
     * of the same step has the maximum over all ranks. NULL: none. */
    const volatile int *stop;
    /* true: rf_run_load accepts checkpoints with another batch or sequence length, which it returns
     * in struct rf_progress. For callers that adapt the learning rate (rf_lr_scale_linear,
     * rf_lr_scale_sqrt). */
    bool other_batch;
    /* The folder on whose disk the file of rf_policy.disk is. The rank creates the file with all of
     * its bytes reserved and unlinks it at once, so it has no name, and ends with the process.
     * RF_EIO: the folder cannot be written, or the disk has too little space. NULL: none. */
    const char *disk;
};

/* Allocates all memory of the plan, and fills the parameters with their initial values (Philox by
 * seed and global index). Collective over comm (NULL: one rank); blocking. Plan, blocks and library
 * version must be equal on all ranks: RF_EMISMATCH names the difference. device, comm, plan and
 * blocks must outlive the run. opts may be NULL. */
RF_API int rf_run_open(struct rf_device *device, struct rf_comm *comm, const struct rf_plan *plan,
                       const struct rf_run_opts *opts, struct rf_run **out);

/* NULL is allowed. */
RF_EXPORT void rf_run_close(struct rf_run *run);

/* ---- steps ----------------------------------------------------------------------------------- */

struct rf_step_stats {
    double loss;          /* mean over the tokens of the global batch; 0 without tokens */
    int64_t tokens;       /* with a valid target, of all ranks */
    int64_t local_tokens; /* of these, on this rank */
    float grad_norm;      /* before clipping; the largest f32 if it is larger */
    bool skipped;         /* no update was made, because a gradient was not finite */
    float loss_scale;     /* of the next step; 0 = none */
    int stop;             /* the largest rf_run_opts.stop of all ranks, equal on all */
    uint64_t sent_bytes;  /* by this rank in this step */
    /* The time in which the rank waited for communication and had nothing to compute. Waits of the
     * device that ended before all work was recorded are not included. */
    uint64_t exposed_comm_ns;
    uint64_t exposed_disk_ns; /* likewise for the disk; 0 without rf_policy.disk */
    uint64_t disk_ns;         /* in which the disk was read and written */
    uint64_t step_ns;
    uint64_t record_ns;     /* of step_ns: host time for recording or replaying */
    int recorded, replayed; /* parts of the step that were recorded, and replayed */
    /* The step, from 0, that loss, tokens, norm, skipped and loss scale belong to: the step of the
     * call. With RF_PIPELINE_2BW the previous one; -1: none. */
    int64_t of_step;
    /* The number of updates by which the weights of its micro-batches lag behind: 0; with 2BW 1. */
    int version_lag;
};

/* One optimizer step on one global batch. Blocking; collective.
 *   tokens, targets: host arrays (batch * seq) i32 of the whole global batch. Each rank reads its
 * own rows. Negative targets are ignored. lr: the learning rate of this step. Without any valid
 * target, loss and gradients are 0. The step is still an update: weights and optimizer states
 * decay, and it is counted, as in torch.optim with zero gradients. RF_EINVAL: a token outside the
 * vocabulary of the first block, or a target that is not below the classes. The message has its
 * index. Nothing has run. If all ranks passed that batch, all get this error, and the run can
 * continue. If only some did, the others get RF_EMISMATCH or RF_EABORT, and the communicator has
 * failed. After any other error the communicator has failed too. Parameters and optimizer states
 * are unchanged, unless the step's update had begun. In that case, if ranks gather parameters from
 * each other, parameters may be of two different steps, even on a rank whose own update is
 * complete. Later steps, evaluations, forward passes and saves of the run then return RF_EABORT,
 * until a checkpoint is loaded; if the communicator has failed, into another run. */
RF_API int rf_run_step(struct rf_run *run, const int32_t *tokens, const int32_t *targets, float lr,
                       struct rf_step_stats *stats);

/* For RF_PIPELINE_2BW (rf_policy.pipeline), in which rf_run_step leaves its step in progress,
 * finishes the previous step with that step's lr, and returns the previous step's *stats. Step t
 * uses the weights from before the latest update: W(t+1) = optimizer(W(t), gradients at W(t-1));
 * step 0 uses the initial weights. Calls of this function do not change that. Finishes the step in
 * progress; without one it has no effect (of_step is -1). Required before evaluations, forward
 * passes, writes of parameters, snapshots and saves, which otherwise fail with RF_EINVAL. Reads of
 * parameters return those of the newest update. If the step in progress fails it is lost: the run
 * has made one step less. Blocking; collective. Errors: as rf_run_step. */
RF_API int rf_run_drain(struct rf_run *run, struct rf_step_stats *stats);

/* The mean loss of `micro_batches` micro-batches, without an update. They have the size of the
 * run's micro-batches, and are divided among the ranks. tokens, targets: (micro_batches * rows)
 * i32; if the text does not fill them, the other targets are RF_TARGET_NONE. Blocking; collective.
 * Errors: as rf_run_step; RF_EINVAL if no target is a token. */
RF_API int rf_run_evaluate(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                           int64_t micro_batches, double *loss);

/* The logits of one micro-batch of this rank: (rows, V) f32 in host memory. Blocking.
 *   Not collective, unless parameters are sharded (rf_plan_params_sharded). Then all ranks call it.
 * Ranks of one pipeline, and tensor ranks, pass the same tokens, and get all their logits; other
 * ranks pass their own tokens.
 *   RF_ENOTSUP: the last block gives no logits, or the mesh has context ranks. RF_EINVAL: a token
 * outside the vocabulary; if only some ranks of a collective call have one, the others fail as in
 * rf_run_step. */
RF_API int rf_run_forward(struct rf_run *run, const int32_t *tokens, float *logits,
                          uint64_t logits_bytes);

/* ---- parameters ------------------------------------------------------------------------------ */

/* Copies a whole parameter, by name, to host memory, as f32. Blocking; between steps. Collective if
 * parameters are sharded. RF_EINVAL: unknown name, or bytes is not its size. */
RF_API int rf_run_read_param(struct rf_run *run, const char *name, void *dst, uint64_t bytes);

/* The same in the other direction. All ranks pass the same values. */
RF_API int rf_run_write_param(struct rf_run *run, const char *name, const void *src,
                              uint64_t bytes);

/* The gradient of the last step: the sum over the tokens of the global batch, neither divided nor
 * clipped. For a tied parameter it is the sum over its uses. Collective over the tensor or context
 * ranks, which all get the whole gradient. RF_ENOTSUP: states are sharded over several ranks, so no
 * rank has all of it; or, in a pipeline, this rank lacks the block. */
RF_API int rf_run_read_grad(struct rf_run *run, const char *name, void *dst, uint64_t bytes);

/* SHA-256 of the parameters, sorted by name: the name, dtype, shape and little-endian bytes of
 * each. hex: 65 bytes, as text. Collective if parameters are sharded. */
RF_API int rf_run_params_sha256(struct rf_run *run, char hex[65]);

/* ---- workers --------------------------------------------------------------------------------- */

/* The trained parameters that this rank has, for rf_rounds_open (rounds.h): a run is then one
 * worker of several, and exchanges parameters with the others between its steps. Each rank of a
 * worker opens rounds of its own, on a communicator with the ranks in the same place of the other
 * workers. The workers have equal plans. With RF_PIPELINE_2BW call rf_run_drain before
 * rf_rounds_step. Free it by rf_run_rounds_params_free before the run is closed. Errors: RF_EINVAL,
 * RF_ENOMEM. */
RF_API int rf_run_rounds_params(struct rf_run *run, struct rf_rounds_params *out);
RF_EXPORT void rf_run_rounds_params_free(struct rf_rounds_params *params);

/* An array of a caller, with a value for each of those of rf_run_rounds_params. Checkpoints keep it
 * with the states of the optimizer, as NAME.kept.LABEL of each parameter NAME. */
struct rf_run_kept {
    const char *label;
    float *values;
};

/* From now on saves of the run write these arrays, and loads fill them: of a checkpoint without
 * them a load is RF_EINVAL. A run that keeps none does not read what a checkpoint has of them.
 * Labels and values must stay until the run is closed or another call replaces them. Errors:
 * RF_EINVAL, RF_ENOMEM. */
RF_API int rf_run_keep(struct rf_run *run, const struct rf_run_kept *arrays, int count);

/* A run of one or more ranks as one worker with one copy of the trained parameters of the whole
 * model, in the order of the model's parameters, tied ones once (rf_plan_trained_all). Its first
 * rank reads and writes them; the others give and take what they have of them meanwhile. Collective
 * over the ranks of the run; blocking. Close it before the run. Errors: RF_ENOMEM, those of a
 * communicator. */
struct rf_run_group;
RF_API int rf_run_group_open(struct rf_run *run, struct rf_run_group **out);
RF_EXPORT void rf_run_group_close(struct rf_run_group *group); /* NULL is allowed */

/* On the first rank: the parameters, of which a read or a write takes all; for rf_client_open, for
 * example. Between steps. */
RF_EXPORT struct rf_rounds_params rf_run_group_params(struct rf_run_group *group);
/* On the first rank: the gradients of the last step, sums over the tokens, neither divided nor
 * clipped; and behind them those of the ranges of rf_plan_trained_use, one after the other. */
RF_API int rf_run_group_grads(struct rf_run_group *group, float *to);
/* On the other ranks: takes part in what the first one reads and writes, until that calls this
 * function, too. data: bytes that the first rank gives to all. Collective; the first rank may come
 * as late as it likes. Errors: those of a communicator, of a device. */
RF_API int rf_run_group_attend(struct rf_run_group *group, void *data, size_t bytes);

/* Bytes of values that this rank has sent to others of its worker. In a write the first rank
 * sends each other one as many as that has (rf_plan_trained_count). */
RF_EXPORT uint64_t rf_run_group_sent_bytes(const struct rf_run_group *group);

/* An array with a value for each parameter of the model, on the first rank, from or to those of
 * each rank's own parameters (rf_run_rounds_params). Collective; blocking. */
RF_API int rf_run_group_collect(struct rf_run_group *group, const float *mine, float *all);
RF_API int rf_run_group_deal(struct rf_run_group *group, const float *all, float *mine);

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Allocated bytes by category, and sent bytes. host: the part of the others in host memory. disk:
 * bytes of the file of rf_policy.disk, which are in no category; disk_moved: bytes read from it and
 * written to it by steps. */
struct rf_bytes {
    uint64_t params, grads, optimizer, activations, comm, scratch, host, sent, disk, disk_moved;
};

/* Measured since rf_run_open: the peak of vkAllocateMemory by category, payload that the transport
 * has sent, and the file. */
RF_EXPORT void rf_run_measured(const struct rf_run *run, struct rf_bytes *out);

/* The same as planned, for the steps and evaluations made. */
RF_EXPORT void rf_run_planned(const struct rf_run *run, struct rf_bytes *out);

#ifdef __cplusplus
}
#endif
#endif
