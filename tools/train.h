/* SPDX-License-Identifier: MIT
 *
 * What the files of `ringforge train` share. One struct trainer per rank; rank 0 alone prints and
 * writes files.
 */
#ifndef RF_TOOLS_TRAIN_H
#define RF_TOOLS_TRAIN_H

#include <ringforge/data.h>

#include "from.h"

struct train_options {
    struct setup setup;
    struct export_options export;
    const char *export_adapter; /* a folder, or NULL */
    struct tool_ranks ranks;
    int64_t steps, warmup, seed, save_every, keep, eval_every, eval_sequences, sample, audit;
    int64_t accept;               /* the port at which newcomers wait; 0 = nobody may join */
    double lr, temperature, peak; /* peak: FLOP/s of a device / 1e12; 0 = not given */
    bool seed_given, record_each_step, trace_kernels, elastic;
    const char *join;   /* HOST:PORT of the job that this process joins, or NULL */
    char *terms;        /* of train_terms */
    char *terms_of_job; /* those that a newcomer may leave to the job */
    const char *data, *save, *resume, *log_path, *trace_path, *plot_path, *device, *decay, *prompt;
    const char *scale_lr; /* none, linear, sqrt */
    bool packing;         /* several documents in a row */
    const char *chat;     /* the form of conversations; NULL: that of the model */
    const char *date;     /* that templates write; NULL: not given, and no template is used */
    int64_t now;          /* the same in seconds since 1970 */
    char today[16];       /* the date, if none is given */
    /* ---- train_settings.c ---- */
    struct tool_option *table;
    const char *sync; /* the rule by which workers exchange parameters; NULL: one worker */
    int workers;      /* with --sync: how many there are */
    const char *change; /* names of what may differ from the checkpoint's; NULL: nothing */
    int64_t rate_end;   /* the step at which a cosine ends */
    char *settings;     /* of the checkpoint as this process sees it; NULL: none */
    bool has_settings;
    uint64_t data_hash;   /* of the text, where ranks or checkpoints compare it; else 0 */
    char inherited[1024]; /* words that were not given, and are the checkpoint's */
};

/* ---- train_expect.c: what a step is, and what it should take --------------------------------- */

/* Of rank 0; 0 and NULL = not known. */
struct train_expected {
    double flops;                  /* of the model, in a step on this rank */
    double peak;                   /* FLOP/s of its device */
    double step_s;                 /* predicted */
    const char *bound;             /* by what, as predicted */
    double path_s[RF_BOUND_COUNT]; /* of step_s, by what it is spent on */
};
/* block_count: of the plan. What is not known is no reason not to train. */
void train_expect(const struct train_options *options, const struct rf_device *device,
                  const struct rf_comm *comm, const struct rf_plan *plan, int block_count,
                  struct train_expected *out);

/* ---- train_settings.c: what a checkpoint goes on with ---------------------------------------- */

/* Takes from the checkpoint of --resume, if this process sees it, what is not given. A usage error
 * if what is given differs, and --change does not name it. Called before options are checked. */
int train_settings_resume(const struct tool_command *command, struct train_options *options);
/* The same by a text, as another rank has it. */
int train_settings_take(const struct tool_command *command, struct train_options *options,
                        const char *text);
/* Likewise for the text to learn from. */
int train_settings_check_data(const struct tool_command *command,
                              const struct train_options *options,
                              const struct rf_dataset *dataset);
/* What a checkpoint of this run keeps; lr: the rate in use. To be freed; NULL: out of memory. */
char *train_settings_text(const struct train_options *options, const struct rf_dataset *dataset,
                          double lr);
/* Once a text is opened: its hash, if it is compared with that of other ranks or of a checkpoint.
 */
void train_settings_hash(struct train_options *options, const struct rf_dataset *dataset);
/* Rank 0: what was taken, in words. */
void train_settings_print(const struct train_options *options);

/* ---- train_check.c ----------------------------------------------------------------------------
 */

/* Checks what can be checked before a rank is started; again, once options have changed. */
int train_check(const struct tool_command *command, struct train_options *options);
int train_open_data(const struct tool_command *command, const struct train_options *options,
                    struct rf_dataset **out);

/* ---- train_sync.c ----------------------------------------------------------------------------- */

/* Checks --sync for so many workers, and what it cannot be combined with. */
int train_sync_check(const struct tool_command *command, const struct train_options *options,
                     int workers);

/* ---- train_report.c: progress, log and plot; all of it does nothing on ranks other than 0 ---- */

struct report;
/* What training begins with, once it is known: progress and the learning rate for its batch. */
void report_begin(struct report *report, const struct rf_dataset *dataset,
                  const struct rf_progress *progress, double lr, int ranks);
struct report_step {
    int64_t step;    /* from 1 */
    int64_t samples; /* consumed with it */
    struct rf_step_stats stats;
    double lr, seconds;
    bool evaluated;
    double held_out;
    struct rf_save_progress save;
};
struct report_end {
    int64_t step;
    double loss, held_out;
    bool evaluated;
    int signal; /* that ended training before its last step; 0 = none */
    const char *sha256;
    struct rf_bytes planned, measured;
    const int64_t *tokens_local; /* per rank */
    int ranks;
};
/* go_on: behind what another rank 0 has logged. */
int report_open(const struct tool_command *command, const struct train_options *options,
                const struct train_expected *expected, bool go_on, struct report **out);
/* Other ranks go on: at this step, with what was taken from `source`, "memory" or a folder. joined:
 * how many are new. */
void report_resized(struct report *report, const struct train_expected *expected,
                    const struct rf_progress *progress, const struct rf_mesh *mesh, int joined,
                    const char *source);
void report_step(struct report *report, const struct report_step *step);
/* Writes the summary and the plot, prints the last lines; an exit status. */
int report_end(struct report *report, const struct report_end *end);
void report_destroy(struct report *report);

/* ---- train_stop.c ---------------------------------------------------------------------------- */

/* From now on SIGTERM and SIGINT only set the flag, once, where they are not ignored. */
void train_stop_listen(void);
/* For rf_run_opts.stop; one for all ranks of this process. */
const volatile int *train_stop_flag(void);
int train_stop_signal(int reason); /* the signal that a reason stands for */

/* ---- train_sample.c -------------------------------------------------------------------------- */

/* Draws options->sample bytes that the model continues the prompt with, and prints them if this
 * rank is to. Forward passes, which are collective where parameters are sharded. */
int train_sample(const struct tool_command *command, const struct train_options *options,
                 struct rf_run *run, bool print);

/* ---- train_place.c --------------------------------------------------------------------------- */

/* The ranks of comm in an order in which tensor or context ranks, or else shards of one copy, lie
 * within hosts as far as that goes; *out NULL: they do already. Rank 0 says so. An exit status. */
int train_place(const struct tool_command *command, struct rf_comm *comm,
                const struct rf_mesh *mesh, struct rf_comm **out);

/* ---- train_elastic.c ------------------------------------------------------------------------- */

/* Whether the last error of this thread is that of a rank that is lost, or has given up. */
bool train_lost_a_rank(void);
/* The mesh of so many ranks: as `from` with fewer data-parallel ranks; where these ranks cannot be
 * divided into its stages, or all would not get a micro-batch, with fewer stages; likewise with
 * fewer tensor ranks, and with shards over fewer ranks. An exit status. */
int train_mesh_left(const struct tool_command *command, const struct rf_mesh *from,
                    int64_t micro_batches, int ranks, struct rf_mesh *out);
/* Takes out of a policy what is for another number of stages, or for tensor ranks. */
void train_policy_left(const struct rf_mesh *from, const struct rf_mesh *mesh,
                       struct rf_policy *policy);
/* The communicator of those that are left; comm is still to be closed. An exit status. */
int train_shrink(const struct tool_command *command, struct rf_comm *comm, struct rf_comm **out);

/* ---- train_terms.c: what newcomers must have as the job has it --------------------------------
 */

/* Adds to the lines of tool_terms what is in the files that the options name, and the text. An exit
 * status. */
int train_terms(const struct tool_command *command, const struct train_options *options,
                const struct rf_dataset *dataset, char **terms);
/* For the ranks at the start; for newcomers, and of them, where of what depends on the ranks at the
 * start the job has its own, and a newcomer what is given. To be freed; NULL: out of memory. */
char *train_terms_at_start(const struct train_options *options);
char *train_terms_of_job(const struct train_options *options);
char *train_terms_of_newcomer(const struct train_options *options);

/* ---- train_grow.c: newcomers ------------------------------------------------------------------
 */

/* The mesh of so many ranks that has the other axes of --mesh, or else those of `from`, and a
 * micro-batch for everybody; false: there is none. */
bool train_mesh_grown(const struct train_options *options, const struct rf_mesh *from, int ranks,
                      struct rf_mesh *out);
/* Rank 0: where newcomers wait. An exit status. */
int train_join_listener_open(const struct tool_command *command,
                             const struct train_options *options, const struct rf_comm *comm,
                             struct rf_join_listener **out);
void train_join_listener_set_status(struct rf_join_listener *join_listener,
                                    const struct train_options *options);
/* How many of those who wait the job takes in now. Tells them why, if none. */
int train_newcomers(struct rf_join_listener *join_listener, const struct train_options *options,
                    const struct rf_mesh *mesh, int ranks);
/* As rf_comm_grow, with the job's options. */
int train_grow(const struct train_options *options, struct rf_comm *comm,
               struct rf_join_listener *join_listener, int count, struct rf_comm **out);
/* The other side: waits until the job takes this process in. An exit status. */
int train_join(const struct tool_command *command, struct train_options *options,
               struct rf_comm **out);
/* What newcomers do not know. */
struct train_job_state {
    struct rf_mesh wanted, mesh; /* at the start, and now */
    int64_t batch, micro_batches;
    uint64_t seed;
    double lr;
};
/* Collective over the larger communicator: rank 0's goes to all. A status of the library. */
int train_share_job_state(struct rf_comm *comm, struct train_job_state *state);
void train_take_job_state(struct train_options *options, const struct train_job_state *state);

/* ---- train_rank.c ---------------------------------------------------------------------------- */

struct train_job {
    const struct tool_command *command;
    /* Of all ranks of this process; changed by a newcomer, and by a rank that does not see the
     * checkpoint of the others, which are alone in theirs. */
    struct train_options *options;
    struct rf_dataset *dataset;
};
/* One rank's whole run; `user` is a struct train_job. Closes comm; NULL: joins a running job. */
int train_rank(struct rf_comm *comm, void *user);

#endif
