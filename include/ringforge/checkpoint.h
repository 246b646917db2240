/* SPDX-License-Identifier: MIT
 *
 * Checkpoints of a run on disk, copies in memory for jobs that lose ranks, and comparison of the
 * copies that ranks have of each other. Format of the files: docs/checkpoints.md. train.h includes
 * this.
 */
#ifndef RINGFORGE_CHECKPOINT_H
#define RINGFORGE_CHECKPOINT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_comm;
struct rf_run;

/* The progress of a run. */
struct rf_progress {
    int64_t step;
    uint64_t seed;
    int64_t samples;    /* consumed, by all ranks: the next batch begins with this one (data.h) */
    int64_t batch, seq; /* of the run that saved; a load sets them, a save ignores them */
    /* Other state that the caller needs to continue, such as the learning rate's schedule: at most
     * 16 KiB of text. rank 0's is saved, and rf_checkpoint_settings returns it; NULL: none. A load
     * sets it to NULL. */
    const char *settings;
};

/* ---- saving ---------------------------------------------------------------------------------- */

/* Locks dir for the checkpoints of this run, and creates it if needed, until rf_run_close or until
 * another folder is reserved. Meanwhile no other run, of this process or another, can reserve it or
 * save to it: RF_EBUSY, naming the process that holds it. The lock is on the file dir/lock, which
 * is never removed, and ends with the process; a holder that is ending is waited for. Loading
 * needs no lock. On a file system without locks a warning is logged. Waits for a save in progress.
 * Collective; rank 0 takes the lock. */
RF_API int rf_run_reserve(struct rf_run *run, const char *dir);
/* Abandons a save in progress, and releases the folder: others, to whom this run is lost, may
 * reserve it. Not collective. NULL is allowed. */
RF_EXPORT void rf_run_release(struct rf_run *run);

/* Writes dir/step-N.tmp (model and optimizer, each as .safetensors and .hashes; state.json), syncs
 * it, renames it to dir/step-N, then replaces the file dir/latest. The tensors are whole,
 * independent of the number of ranks. Every rank writes its share, a few MiB at a time. Ranks that
 * do not see the folder that rank 0 has created send their share to rank 0. After an interrupted or
 * failed save the last good checkpoint is intact. All ranks get the error, and the message, of the
 * rank that failed. A folder that was not reserved is locked during the save. Blocking; collective.
 * Errors: RF_EIO (the disk is full, the folder cannot be created, ...), RF_EBUSY, RF_ENOMEM,
 * RF_EINVAL, those of the communicator. */
RF_API int rf_run_save(struct rf_run *run, const char *dir, const struct rf_progress *progress);

struct rf_save_opts {
    /* > 0: afterwards removes the checkpoints of earlier steps in dir, except the last `keep`, this
     * one included. Later steps stay. 0: keeps all. */
    int keep;
};

/* Begins a save, and returns when this rank's share has been copied to host memory: the bytes of
 * parameters and optimizer states, divided by the number of ranks. A thread writes the copy while
 * training continues. Ranks that do not see the folder send their share before this returns; the
 * thread itself never communicates. Waits for an earlier save in progress; if that failed, returns
 * its error and begins no new save. Later errors are returned by the call that ends the save.
 * rf_run_close abandons a save that was not waited for. With optimizer states on a disk
 * (rf_policy.disk) nothing is copied, and it returns when this rank has written its share. opts may
 * be NULL. Collective. */
RF_API int rf_run_save_begin(struct rf_run *run, const char *dir,
                             const struct rf_progress *progress, const struct rf_save_opts *opts);

struct rf_save_progress {
    bool ended;
    uint64_t written, bytes; /* of all ranks that write */
};

/* Reports the progress of the save on all ranks. If all have written, ends the save: replaces
 * dir/latest, and returns what rf_run_save_wait would. Without a save: ended. Does not wait for
 * files. Collective (one short message to each rank): call it after each step. */
RF_API int rf_run_save_test(struct rf_run *run, struct rf_save_progress *progress);

/* Waits for the save in progress, ends it, and returns its status; RF_OK without one. Blocking;
 * collective. */
RF_API int rf_run_save_wait(struct rf_run *run);

/* Abandons the save in progress, as rf_run_close does: dir/latest stays. Does nothing without one.
 * Every rank calls it, or the next call that ends a save fails. Not collective. */
RF_EXPORT void rf_run_save_abandon(struct rf_run *run);

/* ---- loading --------------------------------------------------------------------------------- */

/* Loads dir/latest, or dir itself if it is a step-N, from any number of ranks. Each rank passes its
 * path of the same folder. Ranks that see the folder share the work of verifying all bytes. Then
 * each reads the data it needs, a few MiB at a time; rank 0 sends the data to ranks that do not see
 * it. Blocking; collective. These may differ from the run that saved: ranks, mesh, micro-batches,
 * order, types, learning rates and the numeric options of the optimizer. This run may freeze more
 * parameters; their optimizer states are then not read. Errors: RF_ECORRUPT (file and fault).
 * RF_EINVAL (another model or setting: the blocks' config, names and shapes of parameters; if the
 * run trains, also the optimizer's rule, batch and seq, unless rf_run_opts.other_batch is set).
 * After an error the run is unchanged, unless verified files become unreadable during the load, or
 * the communicator fails. Then parameters may be of two steps, and other calls return RF_EABORT
 * (rf_run_step): load again, or close the run. */
RF_API int rf_run_load(struct rf_run *run, const char *dir, struct rf_progress *progress);

/* The settings saved with the checkpoint that rf_run_load would load from this path. Free *out with
 * free(); NULL: none, as in checkpoints of earlier versions. Reads only state.json. Errors: RF_EIO
 * (no checkpoint), RF_ECORRUPT, RF_ENOTSUP (a later version). */
RF_API int rf_checkpoint_settings(const char *dir, char **out);

/* A caller's source of parameter values, such as files of another program. */
struct rf_param_source {
    void *self;
    /* Elements first to first + count - 1 of the whole parameter `name`, row-major, as f32; for a
     * parameter of u8 its bytes, from a multiple of 4 on. Called for the data that a rank stores,
     * in the order of the parameters, a few MiB at a time, and once for tied parameters. A negative
     * status ends the fill. */
    int (*read)(void *self, const char *name, uint64_t first, uint64_t count, void *values);
};

/* Fills the parameters of a run that has made no step yet. Every rank calls its own source for the
 * data that it stores: its shards, parts of tensor ranks and pipeline stages. Ranks exchange only
 * their status. Needs host memory for two pieces of 4 MiB. 16-bit copies are updated; optimizer
 * states stay zero. Blocking; collective. An error of one rank is returned on all ranks. The
 * parameters are then partly filled, and other calls return RF_EABORT as after a failed load, until
 * a fill or a load succeeds. Errors: those of the source, RF_EINVAL (a step was made), RF_ENOMEM,
 * those of the communicator. */
RF_API int rf_run_fill(struct rf_run *run, const struct rf_param_source *source);

/* ---- comparing and sharing ------------------------------------------------------------------- */

/* Checks that ranks with copies of the same data have the same bits. It compares hashes (128 bits,
 * BLAKE2b) of parameters, of the 16-bit copies that blocks use, and of optimizer states, whole or
 * in shards, also of tied parameters on other pipeline stages. It also compares the numbers of
 * steps and updates, the seed, the loss scale, and *progress (NULL: not compared). It cannot find
 * an error that all ranks have made in the same way. RF_ECORRUPT: there is a difference. The
 * message, equal on all ranks, names the first one (numbers, then parameters in the order of their
 * declaration, copies, states), and the ranks that differ from the majority. The run can continue.
 *   Each rank reads and hashes all its data, and sends 32 bytes for each tensor. Between steps;
 * blocking; collective. Other errors: RF_EABORT (as rf_run_step), RF_ENOMEM, those of the
 * communicator. */
RF_API int rf_run_audit(struct rf_run *run, const struct rf_progress *progress);

/* Copies `bytes` from rank 0 to all ranks: for data that the callers of a run must agree on. The
 * run counts it as sent. Between steps; blocking; collective. Errors: RF_EINVAL, those of the
 * communicator. */
RF_API int rf_run_share(struct rf_run *run, void *data, size_t bytes);

/* ---- copies in memory ------------------------------------------------------------------------ */

/* One rank's data of a run, in host memory: its parameters and optimizer states as f32. */
struct rf_snapshot;

/* Copies this rank's data, for a run on another mesh after a rank was lost. It also works after a
 * step has failed, if the parameters are of one step. Only the samples of *progress are read.
 * Destroy the snapshot with rf_snapshot_destroy. Blocking; not collective. Errors: RF_EABORT
 * (parameters may be of two steps), RF_ENOMEM, RF_EINVAL. */
RF_API int rf_run_snapshot(struct rf_run *run, const struct rf_progress *progress,
                           struct rf_snapshot **out);

/* NULL is allowed. */
RF_EXPORT void rf_snapshot_destroy(struct rf_snapshot *snapshot);

/* Restores the newest step that the snapshots of all ranks together contain completely, whatever
 * the meshes of the two runs. A rank without a snapshot passes NULL. Blocks and the optimizer's
 * rule must be the same. Nothing is sent if every rank has everything. *progress receives the
 * progress of that step. Blocking; collective. Errors: RF_ECORRUPT (some data are in no snapshot:
 * the message names them, and nothing was changed; load a checkpoint), RF_EINVAL (another model),
 * RF_ENOMEM, those of the communicator. After the last two, parameters may be of two steps, as
 * after a failed load. */
RF_API int rf_run_restore(struct rf_run *run, const struct rf_snapshot *snapshot,
                          struct rf_progress *progress);

/* The same of the snapshots of the ranks of another communicator, of whom some have a run and no
 * snapshot: those of other runs of equal plans, for example. NULL: the run's own ranks. Bytes that
 * are sent are not the run's. */
RF_API int rf_run_restore_from(struct rf_run *run, struct rf_comm *comm,
                               const struct rf_snapshot *snapshot, struct rf_progress *progress);

#ifdef __cplusplus
}
#endif
#endif
