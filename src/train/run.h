/* SPDX-License-Identifier: MIT
 *
 * A run: the memory of a plan, and what is remembered from step to step. Shared by the files of
 * train/; nobody else looks inside, except tests that change a plan before it is run.
 */
#ifndef RF_TRAIN_RUN_H
#define RF_TRAIN_RUN_H

#include "../io/checkpoint.h"
#include "../io/lock.h"
#include "../memory/arena.h"
#include "../parallel/plan.h"

/* What is recorded between two handovers to the device: recorded once and replayed, when its
 * commands do not depend on the step. */
struct rf_segment {
    struct rf_recording *recording;
    int64_t step, micro_batch;      /* when it was recorded */
    bool any_step, any_micro_batch; /* was the same when recorded in another */
    bool varies;                    /* was not, or is said not to be: recorded each time */
};
enum rf_segment_mode {
    RF_SEGMENT_CLOSED = 0,
    RF_SEGMENT_RECORD, /* to be run once */
    RF_SEGMENT_KEEP,   /* to be kept, and compared with what is kept */
    RF_SEGMENT_REPLAY  /* nothing is to be recorded */
};

/* What is handed to the device after `before` waits for a transfer. */
struct rf_stall {
    struct rf_point before, transfer;
    uint64_t begin_ns; /* when the host saw the device stand still; 0: it has not */
};

struct rf_run {
    struct rf_device *device;
    struct rf_comm *comm; /* NULL: one rank */
    struct rf_comm
        *comms[RF_LANE_COUNT]; /* of the lanes with transfers; but for comm, the run's own */
    const struct rf_plan *plan;
    uint64_t seed;
    int64_t step;    /* steps taken, with the one that is under way */
    int64_t updates; /* of these, not skipped, as the device counted them: Adam's t */
    bool under_way;  /* 2bw: backward passes and the update of the last step are still to come */
    float lr;        /* of that step */
    struct rf_stream *stream;
    struct rf_stream *copies[RF_LANE_COUNT]; /* of the lanes that copy between host and device */
    int host_threads;                        /* of the host's optimizer */

    struct rf_arena *arenas[RF_CATEGORY_COUNT][2]; /* by category and memory kind */
    struct rf_tensor *regions;                     /* by region id, as bytes */
    /* What a block is called with, in the order of its declaration. */
    struct rf_tensor *call_params, *call_grads;
    bool *call_overwrite_grad;
    int32_t *tokens, *targets; /* mapped */
    float *losses;             /* mapped */
    double *loss_sums; /* loss and token count of each micro-batch, by global index; then stop */
    int64_t loss_capacity;    /* micro-batches that fit in loss_sums */
    const volatile int *stop; /* of the caller; NULL: none */
    bool other_batch;         /* a checkpoint of another batch may be loaded */

    struct rf_point *points; /* by lane and place in the list that runs: when it has been passed */
    struct rf_stall *stalls; /* of the list that runs, in order */
    bool one_by_one;         /* each transfer is waited for at once */
    bool record_each_step, check_replay;
    struct rf_segment *segments[RF_LIST_COUNT]; /* by the instruction that ends them */
    struct rf_segment *segment;                 /* the open one */
    enum rf_segment_mode mode;
    int64_t segment_micro_batch;
    uint64_t segment_start_ns, record_ns;
    int recorded, replayed; /* segments, since the step began */
    bool gave_up;           /* a call has failed, and with it all communicators */
    /* Status < 0: parameters may be of two steps; and why. */
    struct rf_error inconsistent;
    /* With `inconsistent`: the update of the failed step has ended on this rank, which needs
     * nothing of others and has all of its own state of the next step. */
    bool ahead;

    struct rf_memory_stats memory_before;
    uint64_t sent_before, planned_sent;
    char *config;               /* what all blocks say: rf_config_merge */
    struct rf_folder_lock lock; /* rank 0: of the folder that was reserved */
    struct rf_save *save;       /* that goes on; NULL: none */
    /* Tests stop a save half-way, make pieces small (0: 4 MiB), and hide folders from this rank. */
    struct rf_checkpoint_hook save_hook;
    size_t piece_bytes;
    bool hide_folders;
};

/* One run through a list. */
struct rf_pass {
    struct rf_run *run;
    enum rf_list_id list;
    const int32_t *tokens,
        *targets;  /* of a step: of the whole batch; else of this call's micro-batches */
    int64_t first; /* evaluation: global index of the first micro-batch of the call */
    float lr;
    int next[RF_LANE_COUNT];              /* place of each lane's next instruction */
    int base[RF_LANE_COUNT];              /* of its points */
    struct rf_point after[RF_LANE_COUNT]; /* when the last transfer of a lane may begin */
    struct rf_point computed;             /* all that was handed to the device */
    bool updated;                         /* all of the list has run on this rank */
    bool transferring;                    /* something may be under way in the communicator */
    int stalls, stalls_seen;              /* so far; those that are over */
    struct rf_step_stats stats;
};

/* agree.c: collective; fails on all ranks alike when they would not train the same model. local:
 * status of this rank's own checks. */
RF_MUST_CHECK int rf_run_agree(struct rf_run *run, int local);
/* Begins a collective call other than a step (the label says which): ranks that make another one,
 * and wait for this one in their groups or for its messages, detect it and report it to all, which
 * the collectives of the call itself would not bring about before the deadline. Nothing without
 * groups and messages. */
RF_MUST_CHECK int rf_run_begin_call(struct rf_run *run, const char *label);
/* Ends a collective call whose inputs this rank refuses, before anything has run: returns status
 * with the sentence that was left. Where all ranks refuse theirs, the run goes on; ranks that do
 * not get an error, and do not wait: also in the groups in which this list transfers. */
int rf_run_refuse(struct rf_run *run, int status, enum rf_list_id list);

/* config.c. The settings of all blocks as one text "name=value name=value", in the order in which
 * they come; free with rf_free. RF_EINVAL names a block whose config is no such list. */
RF_MUST_CHECK int rf_config_merge(const struct rf_block *blocks, int count, char **out);
/* Whether two such texts differ; writes which settings do, as a piece of a sentence. */
bool rf_config_differs(const char *theirs, const char *ours, char *text, size_t bytes);

/* host_comm.c: collectives and messages on host memory whose bytes are added to the plan's
 * account.
 * Collectives do nothing with one rank. */
int rf_run_ranks(const struct rf_run *run);
uint64_t rf_run_sent(const struct rf_run *run); /* so far, by all of its communicators */
RF_MUST_CHECK int rf_run_all_gather(struct rf_run *run, const void *in, void *out, size_t bytes,
                                    const char *label);
/* `bytes` to each rank. */
RF_MUST_CHECK int rf_run_all_to_all(struct rf_run *run, const void *in, void *out, size_t bytes,
                                    const char *label);
RF_MUST_CHECK int rf_run_broadcast(struct rf_run *run, void *data, size_t bytes, int root,
                                   const char *label);
RF_MUST_CHECK int rf_run_send(struct rf_run *run, const void *data, size_t bytes, int peer,
                              const char *label);
RF_MUST_CHECK int rf_run_recv(struct rf_run *run, void *data, size_t bytes, int peer,
                              const char *label);
/* Collective; sends what rank `root` met to all: its status and sentence. A rank that has failed
 * itself keeps its own. */
RF_MUST_CHECK int rf_run_status_of(struct rf_run *run, int status, int root, const char *label);
/* Collective; a failure of one rank becomes an error on all, with the sentence of the first that
 * failed. Where the communicator fails, its error comes first. */
RF_MUST_CHECK int rf_run_agree_status(struct rf_run *run, int local, const char *label);

/* init.c */
RF_MUST_CHECK int rf_run_init_params(struct rf_run *run);
RF_MUST_CHECK int rf_run_upload_tables(struct rf_run *run);

/* block.c: one call of one block, on the operands of an instruction. micro_batch: global index. */
RF_MUST_CHECK int rf_run_call_block(struct rf_run *run, const struct rf_instruction *i,
                                    int64_t micro_batch, bool evaluate);

/* One of this rank's parts of a value that is a block's output, or its gradient; shape and type are
 * set. */
struct rf_tensor rf_run_part_of_output(const struct rf_plan *plan, int block, int part,
                                       struct rf_tensor output);

/* exposed.c: time that computing waits for transfers, in the pass's statistics. What was over
 * before the host looked is not seen. */
RF_MUST_CHECK int rf_stalls_open(struct rf_run *run);
void rf_stalls_close(struct rf_run *run);
/* What is handed to the device next waits for this transfer. */
void rf_stalls_add(struct rf_pass *p, struct rf_point transfer);
/* Adds those that are over; does not block. */
void rf_stalls_poll(struct rf_pass *p);
/* Waits for all. */
RF_MUST_CHECK int rf_stalls_wait(struct rf_pass *p);
/* Blocks until the point is reached, or the job's communicator has failed: its error, then. */
RF_MUST_CHECK int rf_run_wait(struct rf_pass *p, struct rf_point point);

/* values.c */
struct rf_tensor rf_run_value(const struct rf_run *run, int value); /* as bytes */

/* Of `count` operands those of this kind and slot (-1: any), which lie side by side, as one tensor
 * of bytes; a NULL buffer: there are none, or they are empty. */
struct rf_tensor rf_run_span(const struct rf_run *run, const int *operands, int count,
                             enum rf_value_kind kind, int slot);

/* The gradient of a parameter in a value of its piece. */
struct rf_tensor rf_run_grad_in(const struct rf_run *run, int value, int param);

/* The one value of this kind among the operands, or -1. */
int rf_run_find(const struct rf_run *run, const int *operands, int count, enum rf_value_kind kind);

struct rf_tensor rf_as(struct rf_tensor bytes, enum rf_dtype dtype); /* 1-D, as many as fit */
struct rf_tensor rf_run_scalars(const struct rf_run *run);

/* segment.c. Between begin and end the caller records, unless run->mode says that all is there
 * already. varies: whether it may not be kept. */
RF_MUST_CHECK int rf_segments_open(struct rf_run *run);
void rf_segments_close(struct rf_run *run);
RF_MUST_CHECK int rf_segment_begin(struct rf_run *run, struct rf_segment *segment,
                                   int64_t micro_batch, bool varies);
/* Hands over what was recorded, in an open segment or outside; done as in rf_stream_submit. */
RF_MUST_CHECK int rf_segment_end(struct rf_run *run, struct rf_point *done);
/* After an error. */
void rf_segment_give_up(struct rf_run *run);

/* loss.c */
/* Whether the blocks can take these; targets may be NULL. */
RF_MUST_CHECK int rf_run_check_batch(const struct rf_run *run, const int32_t *tokens,
                                     const int32_t *targets, int64_t count);
/* Copies micro-batch `from` of these into place `local` of the mapped inputs. targets NULL: all are
 * ignored. */
void rf_run_load_inputs(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                        int64_t from, int local);
/* Adds the losses of mapped micro-batch `local` to loss_sums[global]. */
void rf_run_take_loss(struct rf_run *run, int local, int64_t global);
RF_MUST_CHECK int rf_run_reserve_loss_sums(struct rf_run *run, int64_t micro_batches);
/* Sums loss_sums over the ranks; sum and token count of all micro-batches, in index order; and the
 * highest reason to stop that a rank has. */
RF_MUST_CHECK int rf_run_sum_losses(struct rf_run *run, int64_t micro_batches, double *sum,
                                    int64_t *tokens, int *stop);

/* step.c. `call` has failed with this thread's last error once it had begun to write parameters:
 * from now on rf_run_check_whole refuses, until a checkpoint has been loaded. */
void rf_run_mark_inconsistent(struct rf_run *run, const char *call);
RF_MUST_CHECK int rf_run_check_whole(const struct rf_run *run, const char *call);
/* And no step is under way. */
RF_MUST_CHECK int rf_run_check_idle(const struct rf_run *run, const char *call);

/* execute.c: runs the list of a pass and waits until all of it has ended. */
RF_MUST_CHECK int rf_run_execute(struct rf_pass *pass);
/* After an error: nothing of the step is left running, on this rank or waiting on others. Returns
 * the status of what this thread's last error is then: another one where a group's communicator has
 * failed, as that does not number the ranks as the run does. */
int rf_run_give_up(struct rf_run *run, int status);

/* load.c: after all spans were filled; what a run remembers besides. */
RF_MUST_CHECK int rf_run_apply_state(struct rf_run *run, const struct rf_checkpoint_state *state);

/* save.c: gives up what goes on, without a word to the other ranks. */
void rf_save_close(struct rf_save *save); /* NULL is allowed */

/* params.c */
/* After parameters were written: what blocks see in 16 bits follows. */
RF_MUST_CHECK int rf_run_refresh_copy(struct rf_run *run);
/* 2bw: the same of the version before; where there is none (level), it is that of now. */
RF_MUST_CHECK int rf_run_refresh_before(struct rf_run *run, bool level);
/* The first `count` elements of that copy; a NULL buffer where there is none. */
struct rf_tensor rf_run_copy(const struct rf_run *run, uint64_t count);
int rf_run_find_param(const struct rf_run *run, const char *name); /* -1: none */

/* What this rank has of a parameter (owner): elements first.. of its part (rf_plan_param.cut), and
 * where they lie in the memory of parameters, as they are stored there; count may be 0. */
struct rf_own_part {
    uint64_t first, count;
    struct rf_tensor tensor;
};
struct rf_own_part rf_run_own_part(const struct rf_run *run, int param);

#endif
