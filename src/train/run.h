/* SPDX-License-Identifier: MIT
 *
 * A run: the memory of a plan, and the state from step to step. Shared by the files of train/. No
 * other file accesses its members, except tests that change a plan before it is run.
 */
#ifndef RF_TRAIN_RUN_H
#define RF_TRAIN_RUN_H

#include "../device/arena.h"
#include "../io/checkpoint.h"
#include "../io/lock.h"
#include "../parallel/plan/plan.h"
#include "disk.h"

/* Commands recorded between two submissions. They are recorded once and replayed if they do not
 * depend on the step. */
struct rf_segment {
    struct rf_recording *recording;
    int64_t step, micro_batch;      /* of the recording */
    bool any_step, any_micro_batch; /* unchanged in another one */
    bool varies;                    /* changed, or its block sets varies: recorded each time */
};
enum rf_segment_mode {
    RF_SEGMENT_CLOSED = 0,
    RF_SEGMENT_RECORD, /* record, and submit once */
    RF_SEGMENT_KEEP,   /* record, and compare with the kept recording */
    RF_SEGMENT_REPLAY  /* record nothing */
};

/* The submission after instruction `before` waits for a transfer. */
struct rf_stall {
    struct rf_point before, transfer;
    uint64_t begin_ns; /* when the host saw the device wait; 0: not yet */
};

/* How a run reads and writes files. rf_run_open fills it in; it may be replaced between calls. */
struct rf_run_files {
    size_t piece_bytes;              /* read, sent or written at once */
    struct rf_checkpoint_hook saves; /* is told the stages of saves: writes them to the log */
    /* Whether this rank sees a folder of rank 0: rf_checkpoint_sees, rf_checkpoint_is. */
    bool (*sees)(const char *dir, const char *name, const char *token, char folder[4096]);
    bool (*has)(const char *dir, const char *name, const char *hash);
};

struct rf_run {
    struct rf_device *device;
    struct rf_comm *comm;                 /* NULL: one rank */
    struct rf_comm *comms[RF_LANE_COUNT]; /* of the lanes with transfers; some are run->comm */
    const struct rf_plan *plan;
    uint64_t seed;
    int64_t step;    /* number of steps, including the current one */
    int64_t updates; /* number of steps that were not skipped, counted on the device: Adam's t */
    bool under_way;  /* 2bw: the backward passes and the update of the last step are not done yet */
    float lr;        /* of that step */
    struct rf_stream *stream;
    struct rf_stream *copies[RF_LANE_COUNT]; /* of the lanes that copy between host and device */
    int host_threads;                        /* threads of the optimizer on the host */
    struct rf_disk *disk;                    /* NULL: nothing is on a disk */

    struct rf_arena *arenas[RF_CATEGORY_COUNT][2]; /* by category and memory kind */
    /* By region id, as bytes. Of regions on a disk the offset is that in the file. */
    struct rf_tensor *regions;
    /* The arguments of a block's call, in the order of its declaration. */
    struct rf_tensor *call_params, *call_grads;
    bool *call_overwrite_grad;
    int32_t *tokens, *targets; /* mapped */
    int32_t *starts;           /* mapped; NULL: sequences are one document each */
    float *losses;             /* mapped */
    /* The loss and the token count of each micro-batch, by global index; then the request to stop.
     */
    uint64_t list_sent[RF_LIST_COUNT]; /* bytes that this rank sends in one run of each list */
    uint64_t list_disk[RF_LIST_COUNT]; /* and copies from the disk and to it */
    double *loss_sums;
    int64_t loss_capacity;    /* micro-batches that fit in loss_sums */
    const volatile int *stop; /* owned by the caller; NULL: none */
    bool other_batch;         /* a checkpoint of another batch may be loaded */

    /* By lane and position in the current list: reached when that instruction is done. */
    struct rf_point *points;
    struct rf_stall *stalls; /* of the current list, in order */
    bool flush;              /* the host treats subnormal numbers as 0, like the ranks' devices */
    bool one_by_one;         /* the host waits for each transfer at once */
    bool record_each_step, check_replay;
    struct rf_segment *segments[RF_LIST_COUNT]; /* by the last instruction of each */
    struct rf_segment *segment;                 /* the open one */
    enum rf_segment_mode mode;
    int64_t segment_micro_batch;
    uint64_t segment_start_ns, record_ns;
    int recorded, replayed; /* number of segments since the step began */
    bool gave_up;           /* a call has failed, and all communicators with it */
    /* Status < 0: parameters may be of two different steps; the message has the reason. */
    struct rf_error inconsistent;
    bool half_filled; /* the reason is a fill, which may be repeated */
    /* Only with `inconsistent`: the update of the failed step has completed on this rank, and needs
     * nothing from other ranks. So this rank has all of its own state of the next step. */
    bool ahead;

    struct rf_memory_stats memory_before;
    uint64_t sent_before, planned_sent, planned_disk;
    char *config;               /* the merged config of all blocks: rf_config_merge */
    struct rf_folder_lock lock; /* rank 0: of the reserved folder */
    struct rf_save *save;       /* the save in progress; NULL: none */
    struct rf_run_kept *kept;   /* rf_run_keep; values are the caller's */
    int kept_count;
    struct rf_compressed *compressed; /* of each trained piece (compress.c); NULL: none */
    struct rf_run_files files;
};

/* One execution of a list. */
struct rf_execution {
    struct rf_run *run;
    enum rf_list_id list;
    const int32_t *tokens,
        *targets;  /* of a step: of the whole batch; otherwise of this call's micro-batches */
    int64_t first; /* evaluation: global index of the first micro-batch of the call */
    float lr;
    int next[RF_LANE_COUNT];              /* position of each lane's next instruction */
    int base[RF_LANE_COUNT];              /* index of its first point */
    struct rf_point after[RF_LANE_COUNT]; /* the last transfer of a lane may begin at this point */
    struct rf_point computed;             /* reached when all submitted compute has finished */
    bool updated;                         /* this rank has completed the whole list */
    bool transferring;                    /* the communicators may have transfers in flight */
    int stalls, stalls_seen;              /* the number so far, and the number of finished ones */
    struct rf_step_stats stats;
};

/* agree.c. Collective. Fails on all ranks if they would not train the same model. local: the status
 * of this rank's own checks. */
RF_MUST_CHECK int rf_run_agree(struct rf_run *run, int local);
/* Begins a collective call other than a step; the label names it. A rank in another call that waits
 * for this rank, in a group or for a message, detects the mismatch and reports it to all. Without
 * this, it would only fail at the deadline. No effect in a run without groups and messages. */
RF_MUST_CHECK int rf_run_begin_call(struct rf_run *run, const char *label);
/* Ends a collective call whose inputs this rank refuses before any instruction has run. Returns
 * status; the last error is unchanged. If all ranks refuse theirs, the run can be used further.
 * Ranks that do not refuse get an error and do not wait, not even in the groups in which this list
 * transfers. */
int rf_run_refuse(struct rf_run *run, int status, enum rf_list_id list);

/* config.c. Merges the settings of all blocks into one text "name=value name=value", in the order
 * of the blocks. Freed with rf_free. RF_EINVAL, with the block's name in the message, if a config
 * is not such a list. */
RF_MUST_CHECK int rf_config_merge(const struct rf_block *blocks, int count, char **out);
/* Whether two such texts differ. Writes the differing settings as a part of a sentence. */
bool rf_config_differs(const char *theirs, const char *ours, char *text, size_t bytes);

/* host_comm.c: collectives and messages on host memory. Their bytes are added to the plan's
 * account. On one rank, collectives do nothing. */
int rf_run_ranks(const struct rf_run *run);
uint64_t rf_run_sent(const struct rf_run *run); /* by all of its communicators so far */
RF_MUST_CHECK int rf_run_all_gather(struct rf_run *run, const void *in, void *out, size_t bytes,
                                    const char *label);
/* Sends `bytes` to each rank. */
RF_MUST_CHECK int rf_run_all_to_all(struct rf_run *run, const void *in, void *out, size_t bytes,
                                    const char *label);
RF_MUST_CHECK int rf_run_broadcast(struct rf_run *run, void *data, size_t bytes, int root,
                                   const char *label);
/* The same from rank 0, which may be late by as much as timeout_s. */
RF_MUST_CHECK int rf_run_await(struct rf_run *run, void *data, size_t bytes, double timeout_s,
                               const char *label);
RF_MUST_CHECK int rf_run_send(struct rf_run *run, const void *data, size_t bytes, int peer,
                              const char *label);
RF_MUST_CHECK int rf_run_recv(struct rf_run *run, void *data, size_t bytes, int peer,
                              const char *label);
/* Collective. Sends the status and the error message of rank `root` to all ranks. A rank that has
 * failed itself keeps its own. */
RF_MUST_CHECK int rf_run_status_of(struct rf_run *run, int status, int root, const char *label);
/* Collective. A failure of one rank becomes an error on all ranks, with the message of the lowest
 * rank that failed. If the communicator fails, its error has precedence. */
RF_MUST_CHECK int rf_run_agree_status(struct rf_run *run, int local, const char *label);

/* init.c */
RF_MUST_CHECK int rf_run_init_params(struct rf_run *run);
RF_MUST_CHECK int rf_run_upload_tables(struct rf_run *run);

/* block.c. Calls one block with the operands of an instruction. micro_batch: global index. */
RF_MUST_CHECK int rf_run_call_block(struct rf_run *run, const struct rf_instruction *i,
                                    int64_t micro_batch, bool evaluate);

/* One of this rank's parts of a value that is a block's output or its gradient. Its shape and type
 * are set. */
struct rf_tensor rf_run_part_of_output(const struct rf_plan *plan, int block, int part,
                                       struct rf_tensor output);

/* exposed.c. Adds the time that compute waits for transfers to the statistics of the execution. A
 * wait that began and ended between two checks of the host is not counted. */
RF_MUST_CHECK int rf_stalls_open(struct rf_run *run);
void rf_stalls_close(struct rf_run *run);
/* The next submission waits for this transfer. */
void rf_stalls_add(struct rf_execution *p, struct rf_point transfer);
/* Adds the waits that are over. Does not block. */
void rf_stalls_poll(struct rf_execution *p);
/* Blocks until all waits are over. */
RF_MUST_CHECK int rf_stalls_wait(struct rf_execution *p);
/* Blocks until the point is reached or the job's communicator has failed. Returns the
 * communicator's error in that case. */
RF_MUST_CHECK int rf_run_wait(struct rf_execution *p, struct rf_point point);

/* values.c */
struct rf_tensor rf_run_value(const struct rf_run *run, int value); /* as bytes */

/* Operands that are adjacent in memory, as one tensor of bytes. A NULL buffer: there are none, or
 * they are empty. */
struct rf_tensor rf_run_span(const struct rf_run *run, struct rf_operands operands);

/* The gradient of a parameter, inside the value of its piece. */
struct rf_tensor rf_run_grad_in(const struct rf_run *run, int value, int param);

struct rf_tensor rf_as(struct rf_tensor bytes, enum rf_dtype dtype); /* 1-D, of as many as fit */
struct rf_tensor rf_run_scalars(const struct rf_run *run);

/* segment.c. Between begin and end the caller records, unless run->mode is RF_SEGMENT_REPLAY.
 * varies: the recording must not be kept. */
RF_MUST_CHECK int rf_segments_open(struct rf_run *run);
void rf_segments_close(struct rf_run *run);
RF_MUST_CHECK int rf_segment_begin(struct rf_run *run, struct rf_segment *segment,
                                   int64_t micro_batch, bool varies);
/* Submits what was recorded, in an open segment or outside one. done is like that of
 * rf_stream_submit. */
RF_MUST_CHECK int rf_segment_end(struct rf_run *run, struct rf_point *done);
/* Discards the open segment after an error. */
void rf_segment_give_up(struct rf_run *run);

/* loss.c */
/* Checks that all tokens and targets are in the vocabulary. targets may be NULL. */
RF_MUST_CHECK int rf_run_check_batch(const struct rf_run *run, const int32_t *tokens,
                                     const int32_t *targets, int64_t count);
/* Copies micro-batch `from` of the arguments to index `local` of the mapped inputs. targets NULL:
 * all targets are ignored. */
void rf_run_load_inputs(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                        int64_t from, int local);
/* Adds the losses of mapped micro-batch `local` to loss_sums[global]. */
void rf_run_take_loss(struct rf_run *run, int local, int64_t global);
/* Makes room for the sums of these many micro-batches: for a step when the run is opened, for more
 * in an evaluation. */
RF_MUST_CHECK int rf_run_reserve_loss_sums(struct rf_run *run, int64_t micro_batches);
void rf_run_clear_loss_sums(struct rf_run *run, int64_t micro_batches);
/* Sums loss_sums over the ranks. Returns the sum and the token count of all micro-batches, added in
 * the order of their index, and the highest reason to stop of any rank. */
RF_MUST_CHECK int rf_run_sum_losses(struct rf_run *run, int64_t micro_batches, double *sum,
                                    int64_t *tokens, int *stop);

/* step.c. `call` failed, with this thread's last error, after it had begun to write parameters.
 * From now on rf_run_check_whole fails, until a checkpoint is loaded. */
void rf_run_mark_inconsistent(struct rf_run *run, const char *call);
RF_MUST_CHECK int rf_run_check_whole(const struct rf_run *run, const char *call);
/* Like rf_run_check_whole; also fails if a step of 2bw is in progress. */
RF_MUST_CHECK int rf_run_check_idle(const struct rf_run *run, const char *call);

/* execute.c. Runs a list and waits for its end. */
RF_MUST_CHECK int rf_run_execute(struct rf_execution *execution);
/* Called after an error. Nothing of the step stays in flight on this rank, and no other rank keeps
 * waiting for this one. Returns the status of this thread's last error. This is a new error if a
 * group's communicator has failed, because the group numbers its ranks differently from the run. */
int rf_run_give_up(struct rf_run *run, int status);

/* load.c. Sets the other state of a run, after all spans were filled. */
RF_MUST_CHECK int rf_run_apply_state(struct rf_run *run, const struct rf_checkpoint_state *state);

/* save.c. Abandons a save in progress, without communication. */
void rf_save_close(struct rf_save *save); /* NULL is allowed */

/* copies.c */
/* The table of places from this rank's first element of a piece on. A NULL buffer: no table. */
struct rf_tensor rf_run_places(const struct rf_run *run, int piece);
/* Writes the copies that the last update has made of this rank's trained parameters, or, with
 * `before`, the update before it. Both tensors begin with the first of the rank's shards. */
RF_MUST_CHECK int rf_run_round_copies(const struct rf_run *run, struct rf_tensor params,
                                      struct rf_tensor copies, bool before);
/* Updates the 16-bit copies that blocks use, after parameters were written. */
RF_MUST_CHECK int rf_run_refresh_copy(struct rf_run *run);
/* 2bw: the same for the version before the last update. level: that version is set to the current
 * one. */
RF_MUST_CHECK int rf_run_refresh_before(struct rf_run *run, bool level);
/* The first `count` elements of the 16-bit copies. A NULL buffer if there are none. */
struct rf_tensor rf_run_copy(const struct rf_run *run, uint64_t count);
int rf_run_find_param(const struct rf_run *run, const char *name); /* -1: none */

/* This rank's (owner's) part of a parameter: elements from first on in that part
 * (rf_plan_param.cut), and their tensor in the memory of parameters, in the stored type. count may
 * be 0. */
struct rf_own_part {
    uint64_t first, count;
    struct rf_tensor tensor;
};
struct rf_own_part rf_run_own_part(const struct rf_run *run, int param);

#endif
