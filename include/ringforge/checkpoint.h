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

struct rf_run;

/* How far a run has come. */
struct rf_progress {
    int64_t step;
    uint64_t seed;
    int64_t samples;    /* consumed, of all ranks: the next batch begins at this one (data.h) */
    int64_t batch, seq; /* of the run that has saved; a load sets them, a save does not read them */
    /* What else the caller has to know to go on, such as the learning rate's schedule: at most 16
     * KiB of text, which a save of rank 0 keeps, and rf_checkpoint_settings returns; NULL: none. A
     * load sets it to NULL. */
    const char *settings;
};

/* ---- saving ---------------------------------------------------------------------------------- */

/* Locks dir for the checkpoints of this run, and creates it if needed, until rf_run_close or until
 * another folder is reserved. Meanwhile no other run, of this process or another, can reserve it or
 * save to it: RF_EBUSY, with the process that has it. The lock is on the file dir/lock, which stays
 * there, and ends with the process. Loading needs no lock. On a file system without locks a warning
 * is logged. Waits for a save in progress. Collective; rank 0 takes the lock. */
RF_API int rf_run_reserve(struct rf_run *run, const char *dir);

/* Writes dir/step-N.tmp (model and optimizer, each as .safetensors and .hashes; state.json), syncs
 * it, renames it to dir/step-N, then replaces the file dir/latest. The tensors are whole, and
 * independent of the number of ranks. Every rank writes its share, a few MiB at a time. Ranks that
 * do not see the folder that rank 0 has created send their share to rank 0. After an interrupted or
 * failed save the last good checkpoint is intact. All ranks get the error, and the message, of the
 * rank that failed. A folder that was not reserved is locked during the save. Blocking; collective.
 * Errors: RF_EIO (the disk is full, the folder cannot be created, ...), RF_EBUSY, RF_ENOMEM,
 * RF_EINVAL, those of the communicator. */
RF_API int rf_run_save(struct rf_run *run, const char *dir, const struct rf_progress *progress);

struct rf_save_opts {
    /* > 0: afterwards remove the checkpoints of earlier steps in dir, except for the last `keep`,
     * this one included. Later steps stay. 0: keep all. */
    int keep;
};

/* Begins a save, and returns when this rank's share has been copied to host memory: the bytes of
 * parameters and optimizer states, divided by the number of ranks. A thread writes the copy while
 * training continues. Ranks that do not see the folder send their share before this returns; the
 * thread itself never communicates. If an earlier save is in progress, it is waited for, and if
 * that failed, its error is returned and no new save begins. Later errors are returned by the call
 * that ends the save. rf_run_close abandons a save that was not waited for. opts may be NULL.
 * Collective. */
RF_API int rf_run_save_begin(struct rf_run *run, const char *dir,
                             const struct rf_progress *progress, const struct rf_save_opts *opts);

struct rf_save_progress {
    bool ended;
    uint64_t written, bytes; /* of all ranks that write */
};

/* How far the save is on all ranks. If all have written, it ends the save: replaces dir/latest, and
 * returns what rf_run_save_wait would. Without a save: ended. Does not wait for files. Collective
 * (one short message to each rank): call it after each step. */
RF_API int rf_run_save_test(struct rf_run *run, struct rf_save_progress *progress);

/* Waits for the save in progress, ends it, and returns its status; RF_OK without one. Blocking;
 * collective. */
RF_API int rf_run_save_wait(struct rf_run *run);

/* ---- loading --------------------------------------------------------------------------------- */

/* Loads dir/latest, or dir itself if it is a step-N, whatever the number of ranks that has saved
 * it. Each rank passes its path of the same folder. Ranks that see it share the work of verifying
 * all bytes; then each reads what it needs, a few MiB at a time. Rank 0 sends it to the others.
 * Blocking; collective. May differ from the run that has saved: ranks, mesh, micro-batches, order,
 * types, learning rates and the numbers of the optimizer. This run may freeze more parameters;
 * their optimizer states are then not read. Errors: RF_ECORRUPT (file and fault). RF_EINVAL (what
 * belongs to another model or setting: the blocks' config, names and shapes of parameters; if the
 * run trains also the optimizer's rule, batch and seq, unless rf_run_opts.other_batch is set).
 * After an error the run is unchanged, unless files that were verified cannot be read a moment
 * later, or the communicator fails. Then parameters may be of two steps, and other calls return
 * RF_EABORT (rf_run_step): load again, or close the run. */
RF_API int rf_run_load(struct rf_run *run, const char *dir, struct rf_progress *progress);

/* The settings that were saved with the checkpoint which rf_run_load would load from this path:
 * *out is freed with free(); NULL if it has none, as those of versions before have not. Reads
 * state.json alone. Errors: RF_EIO (there is no checkpoint), RF_ECORRUPT, RF_ENOTSUP (a later
 * version's). */
RF_API int rf_checkpoint_settings(const char *dir, char **out);

/* Values of parameters from a caller: files of another program, or whatever has them. */
struct rf_param_source {
    void *self;
    /* Elements first to first + count - 1 of the whole parameter `name`, row-major, as f32;
     * of a parameter of u8 its bytes, from a multiple of 4 on.
     * Called for what a rank stores, in the order of the parameters, for at most a few MiB at a
     * time, and for tied parameters once. A negative status ends the fill. */
    int (*read)(void *self, const char *name, uint64_t first, uint64_t count, void *values);
};

/* Fills the parameters of a run that has made no step yet. Every rank calls its own source for what
 * it stores itself: its shards, parts of tensor ranks and pipeline stages. Ranks send nothing but
 * their status. Needs host memory for two pieces of 4 MiB. Copies in 16 bits are brought up to
 * date; optimizer states stay zero. Blocking; collective. An error of one rank is returned on all
 * ranks. The parameters are then partly filled, and other calls return RF_EABORT as after a failed
 * load, until a fill or a load succeeds. Errors: those of the source, RF_EINVAL (a step was made),
 * RF_ENOMEM, those of the communicator. */
RF_API int rf_run_fill(struct rf_run *run, const struct rf_param_source *source);

/* ---- comparing and sharing ------------------------------------------------------------------- */

/* Checks that ranks with copies of the same data have the same bits. It compares hashes (128 bits,
 * BLAKE2b) of parameters, of the 16-bit copies that blocks use, and of optimizer states, whole or
 * in shards, also of tied parameters on other pipeline stages. It also compares the numbers of
 * steps and updates, the seed, the loss scale, and *progress (NULL: not compared). It cannot find
 * what all ranks have computed wrongly in the same way. RF_ECORRUPT: there is a difference. The
 * message, equal on all ranks, names the first one (numbers, then parameters in the order of their
 * declaration, copies, states), and the ranks that differ from the majority. The run can continue.
 *   Each rank reads and hashes all its data, and sends 32 bytes for each tensor. Between steps;
 * blocking; collective. Other errors: RF_EABORT (as rf_run_step), RF_ENOMEM, those of the
 * communicator. */
RF_API int rf_run_audit(struct rf_run *run, const struct rf_progress *progress);

/* Copies `bytes` of rank 0 to all ranks: what the callers of a run have to agree on. The run counts
 * it as sent. Between steps; blocking; collective. Errors: RF_EINVAL, those of the communicator. */
RF_API int rf_run_share(struct rf_run *run, void *data, size_t bytes);

/* ---- copies in memory ------------------------------------------------------------------------ */

/* What one rank has of a run, in host memory: its parameters and optimizer states as f32. */
struct rf_snapshot;

/* Copies what this rank has, for a run on another mesh after a rank was lost. It also works after a
 * step has failed, if the parameters are of one step. Of *progress only the samples are read.
 * Destroy the snapshot with rf_snapshot_destroy. Blocking; not collective. Errors: RF_EABORT
 * (parameters may be of two steps), RF_ENOMEM, RF_EINVAL. */
RF_API int rf_run_snapshot(struct rf_run *run, const struct rf_progress *progress,
                           struct rf_snapshot **out);

/* NULL is allowed. */
RF_EXPORT void rf_snapshot_destroy(struct rf_snapshot *snapshot);

/* Restores the newest step that the snapshots of all ranks contain completely between them,
 * whatever the meshes of the two runs. A rank without a snapshot passes NULL. Blocks and the
 * optimizer's rule must be the same. Nothing is sent if every rank has everything. *progress
 * receives that of the step. Blocking; collective. Errors: RF_ECORRUPT (some data are in no
 * snapshot: the message names them, and nothing was changed; load a checkpoint), RF_EINVAL (another
 * model), RF_ENOMEM, those of the communicator. After the last two parameters may be of two steps,
 * as after a failed load. */
RF_API int rf_run_restore(struct rf_run *run, const struct rf_snapshot *snapshot,
                          struct rf_progress *progress);

#ifdef __cplusplus
}
#endif
#endif
