/* SPDX-License-Identifier: MIT
 *
 * One rank of `ringforge train`, as shared by train_rank.c (its run), train_move.c (which ranks are
 * in it) and train_session.c (what both need). A function that returns an int without further
 * comment returns an exit status, and has reported the failure.
 */
#ifndef RF_TOOLS_TRAINER_H
#define RF_TOOLS_TRAINER_H

#include <ringforge/federated.h>

#include "train.h"

struct trainer {
    const struct tool_command *command;
    struct train_job *job;
    const struct train_options *o;
    const struct rf_dataset *dataset;
    struct rf_comm *comm;
    struct rf_comm *first; /* the given one, which is closed last; NULL: it has been */
    struct rf_comm *grown; /* for which all leave comm */
    struct rf_join_listener *join_listener; /* rank 0's, where newcomers wait; or NULL */
    int rank, ranks;
    int joined; /* ranks of this run that the previous one did not have */
    struct rf_mesh mesh;
    struct model model;
    struct from from; /* the initial weights; closed once the run has them */
    struct rf_plan *plan;
    struct rf_device *device;
    struct rf_run *run;
    struct report *report;
    struct rf_progress progress;
    bool under_way;                      /* a step after progress.step is in progress (2bw) */
    bool placed;                         /* the run has the parameters of progress.step */
    struct rf_snapshot *snapshot;        /* this rank's state of the previous run; NULL: none */
    bool again;                          /* there was a run before */
    bool newcomer;                       /* this rank was not in it */
    bool lost;                           /* the last failure is about a lost rank */
    double lr;                           /* for this batch */
    int32_t *tokens, *targets;           /* one global batch */
    int32_t *eval_tokens, *eval_targets; /* all held-out sequences that are used */
    int64_t eval_micro_batches;
    int64_t tokens_local;
    int64_t made, skipped; /* steps of this process, and those of them without an update */
    int64_t learned;       /* tokens with a target, over all ranks */
    double loss, held_out;
    bool evaluated, diverged;
    struct {
        double step, exposed, busy;
    } disk_s; /* of the steps that train_disk.c measures */
    int stop; /* why all ranks end before the last step; 0 = they do not */
    /* With --sync: which worker this rank belongs to, by which it takes its part of the data; its
     * number among those that are left, the first of which alone prints and writes; and since the
     * last exchange its tokens and the bytes that it had sent. */
    struct train_sync *sync;
    int worker, number;
    int parts; /* into which the data of a step is divided: one for each worker */
    double round_tokens;
    uint64_t round_bytes;
    bool ended;          /* by the coordinator */
    int64_t rounds_sent; /* to it */
};

/* ---- train_session.c ------------------------------------------------------------------------- */

/* Says why the last call of the library failed, and notes whether a rank was lost without which the
 * others can continue. */
int trainer_failed(struct trainer *t);
void trainer_note_loss(struct trainer *t);
/* The plan of this rank on that mesh. A status of the library. */
int trainer_build_plan(const struct trainer *t, const struct rf_mesh *mesh, struct rf_plan **out);
/* The run and its plan. */
void trainer_close_session(struct trainer *t);
/* Collective over t->comm: all ranks continue with the settings of rank 0 (train_settings.c). A
 * rank that has other options by then, as it does not see rank 0's checkpoint, or has just joined,
 * takes them over. */
int trainer_share_settings(struct trainer *t);

/* ---- train_sync.c: workers that exchange parameters now and then ----------------------------- */

/* Divides the ranks into workers, if --sync is given. Collective. */
int train_sync_place(struct trainer *t);
/* Opens what there is to exchange with, unless it is open. Collective. */
int train_sync_open(struct trainer *t);
/* After each step, of this rate: adds to its stats what an exchange has sent and waited for. With
 * --elastic the workers that are left continue after a loss. */
int train_sync_step(struct trainer *t, double lr, struct rf_step_stats *stats);
/* After the last step: all workers have one model. Collective. */
int train_sync_end(struct trainer *t);
/* Before the run is opened again. */
void train_sync_shut(struct trainer *t);
/* Waits for all workers. */
int train_sync_leave(struct trainer *t);
/* Ends the other workers, which would wait for this one. */
void train_sync_abort(struct trainer *t, const char *why);
void train_sync_close(struct trainer *t);

/* ---- train_store.c ----------------------------------------------------------------------------
 */

/* Whether this rank is a server of a store, which trains nothing; its work. */
bool train_sync_serves(const struct trainer *t);
int train_sync_serve(struct trainer *t);
/* Of a store, if there is one: out->rule is not NULL. Between train_sync_end and train_sync_leave.
 */
int train_sync_report(struct trainer *t, struct report_store *out);

/* ---- train_sync_lost.c ----------------------------------------------------------------------- */

/* Behind rf_rounds_step, which returned rc. With --elastic, if a worker was lost, those that are
 * left continue, and what was being exchanged has been exchanged by the time of return. Collective
 * over the ranks of a worker, and after a loss over all that are left. */
int train_sync_survive(struct trainer *t, int rc);

/* ---- train_sync_join.c ----------------------------------------------------------------------- */

/* Behind a step: takes in those that wait, as all workers have heard. Collective over the workers.
 */
int train_sync_grow(struct trainer *t);
/* A newcomer that has opened its run and rounds takes the state of the others. */
int train_sync_arrive(struct trainer *t);

/* ---- train_sync_save.c: checkpoints, also without --sync --------------------------------------
 */

/* Locks the folder of this worker's checkpoints. Collective. */
int train_sync_reserve(struct trainer *t);
/* From now on checkpoints of the run keep the arrays of its rounds. */
int train_sync_keep(struct trainer *t);
/* Loads the checkpoint of --resume, and continues its rounds. Collective. */
int train_sync_load(struct trainer *t);
/* Begins a save, after the end of an earlier one. Collective. */
int train_sync_save(struct trainer *t);
/* train_disk.c. After each step: an error if the disk of --disk is slower than --disk-slowdown
 * allows. */
int train_disk_step(struct trainer *t, const struct rf_step_stats *stats);
/* After each step: as rf_run_save_test. */
int train_sync_save_test(struct trainer *t, struct rf_save_progress *progress);
/* Waits for the save in progress. Collective. */
int train_sync_save_wait(struct trainer *t);
/* Both, after the last step. */
int train_sync_save_last(struct trainer *t);

/* ---- train_move.c ---------------------------------------------------------------------------- */

void trainer_be_in(struct trainer *t, struct rf_comm *comm);
/* Takes the order of ranks that suits the mesh. Collective. */
int trainer_place(struct trainer *t);
/* At a save: accepts the waiting newcomers that fit. t->grown: the larger communicator, if there is
 * one. Collective. */
int trainer_take_newcomers(struct trainer *t);
/* Leaves the run, after taking this rank's state, for that of t->grown. Collective. */
int trainer_move(struct trainer *t);
/* Collective over t->comm, of which rank 0 is an old rank: newcomers get what they need to open the
 * run. */
int trainer_share_job_state(struct trainer *t, struct train_job_state *state);
/* A process that joins a running job: it has no run yet, and continues as the others do. */
int trainer_join(struct trainer *t, struct train_options *o);
/* Leaves the run that lost a rank, with this rank's state of it, and meets the others. */
int trainer_shrink(struct trainer *t);
/* Closes the remaining communicators of t; returns status, or the error of closing. */
int trainer_close_comms(struct trainer *t, int status);

#endif
