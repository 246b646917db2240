/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of `ringforge train`. One struct trainer per rank; rank 0 alone prints and
 * writes files.
 */
#ifndef RF_TOOLS_TRAIN_H
#define RF_TOOLS_TRAIN_H

#include <ringforge/data.h>
#include <ringforge/store.h>

#include "from.h"

struct train_options {
    struct setup setup;
    struct export_options export;
    const char *export_adapter; /* a folder, or NULL */
    struct tool_ranks ranks;
    int64_t steps, warmup, seed, save_every, keep, eval_every, eval_sequences, sample, audit;
    int64_t accept;               /* the port for newcomers; 0 = nobody may join */
    double lr, temperature, peak; /* peak: FLOP/s of a device / 1e12; 0 = not given */
    bool seed_given, record_each_step, trace_kernels, elastic;
    const char *join;   /* HOST:PORT of the job that this process joins, or NULL */
    char *terms;        /* of train_terms */
    char *terms_of_job; /* those that a newcomer may leave to the job */
    const char *data, *save, *resume, *log_path, *trace_path, *plot_path, *plot_staleness, *device,
        *decay, *prompt;
    const char *scale_lr; /* none, linear, sqrt */
    bool packing;         /* several documents in a row */
    const char *chat;     /* the form of conversations; NULL: the model's */
    const char *disk;     /* the folder of --offload optimizer=disk */
    double disk_slowdown; /* refused above; 0: no limit */
    const char *date;     /* printed by templates; NULL: not given, and no template is used */
    int64_t now;          /* the same in seconds since 1970 */
    char today[16];       /* the date, if none is given */
    /* ---- train_settings.c -------------------------------------------------------------------- */
    struct tool_option *table;
    const char *coordinator, *client; /* HOST:PORT, and the name of this client; or NULL */
    double update_clip, update_noise; /* of this client */
    int64_t secure;                   /* its least threshold of secure aggregation; 0: any */
    const char *peers;                /* the list of the other clients' identities; or NULL */
    const char *sync;   /* the rule by which workers exchange parameters, or "none": one worker */
    int workers;        /* with --sync: how many there are */
    const char *change; /* names of settings that may differ from the checkpoint's; NULL: none */
    int64_t rate_end;   /* the step at which a cosine ends */
    char *settings;     /* the checkpoint's, as seen by this process; NULL: none */
    bool has_settings;
    uint64_t data_hash;   /* of the text, if ranks or checkpoints compare it; otherwise 0 */
    char inherited[1024]; /* options taken from the checkpoint because they were not given */
};

/* ---- train_expect.c: the work of a step, and its expected time ---------------------------------
 */

/* What is expected of rank 0; 0 and NULL = not known. */
struct train_expected {
    double flops;                  /* of the model, in a step on this rank */
    double peak;                   /* FLOP/s of its device */
    double step_s;                 /* predicted */
    const char *bound;             /* the predicted bound */
    double path_s[RF_BOUND_COUNT]; /* parts of step_s by bound */
};
/* block_count: of the plan. Unknown values do not prevent training. */
void train_expect(const struct train_options *options, const struct rf_device *device,
                  const struct rf_comm *comm, const struct rf_plan *plan, int block_count,
                  struct train_expected *out);

/* A line of a checkpoint's settings that train_sync_save.c writes. */
#define TRAIN_SYNC_LINE "sync-state"

/* ---- train_settings.c: what a checkpoint continues with -------------------------------------- */

/* Takes missing settings from the checkpoint of --resume, if this process sees it. A usage error if
 * a given one differs, and --change does not name it. Called before options are checked. */
int train_settings_resume(const struct tool_command *command, struct train_options *options);
/* The same with the text of another rank. */
int train_settings_take(const struct tool_command *command, struct train_options *options,
                        const char *text);
/* The same for the text to learn from. */
int train_settings_check_data(const struct tool_command *command,
                              const struct train_options *options,
                              const struct rf_dataset *dataset);
/* The settings that a checkpoint of this run keeps; lr: the rate in use. To be freed; NULL: out of
 * memory. */
char *train_settings_text(const struct train_options *options, const struct rf_dataset *dataset,
                          double lr);
/* After a text is opened: its hash, if it is compared with that of other ranks or of a checkpoint.
 */
void train_settings_hash(struct train_options *options, const struct rf_dataset *dataset);
/* Whether --change names it. */
bool train_settings_changed(const struct train_options *options, const char *name);
/* Rank 0: prints the settings taken from the checkpoint. */
void train_settings_print(const struct train_options *options);

/* ---- train_check.c ----------------------------------------------------------------------------
 */

/* Checks what can be checked before a rank is started; again after options have changed. */
int train_check(const struct tool_command *command, struct train_options *options);
int train_open_data(const struct tool_command *command, const struct train_options *options,
                    struct rf_dataset **out);

/* ---- train_sync_check.c -----------------------------------------------------------------------
 */

/* Whether ranks are workers with a mesh of their own each; whether they have a store, and how many
 * of the ranks are its servers then. */
bool train_sync_on(const struct train_options *options);
bool train_store_on(const struct train_options *options);
int train_store_servers(const struct train_options *options);
/* With a store: as setup_store_policy. */
void train_store_policy(const struct train_options *options, struct rf_policy *policy);
/* Checks --sync for so many workers, and what it cannot be combined with. */
int train_sync_check(const struct tool_command *command, const struct train_options *options,
                     int workers);

/* ---- train_client_check.c -------------------------------------------------------------------- */

/* Reads HOST:PORT; the host of an IPv6 address has colons itself. */
bool train_client_address(const char *text, char host[256], int *port);
/* Checks --coordinator, and what it cannot be combined with. workers: the ranks by those of a mesh.
 */
struct rf_rounds_rule;
int train_client_check(const struct tool_command *command, const struct train_options *options,
                       int workers, const struct rf_rounds_rule *rule);

/* ---- train_report.c: progress, log and plot; does nothing on ranks other than 0 -------------- */

struct report;
/* The state at the beginning of training: progress and the learning rate for its batch. */
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
/* What a store has done; rule NULL: there is none. */
struct report_store {
    const char *rule;
    int servers;                         /* 0: the workers change the parameters themselves */
    struct rf_store_server_stats server; /* of the first one */
    uint64_t additions, lost;            /* without servers */
    char path[160];                      /* how parameters are reached */
};
/* ---- train_report_store.c: called by train_report.c ------------------------------------------ */

void report_store_print(const struct report_store *store);
/* A line of the log; to be freed. */
cJSON *report_store_json(const struct report_store *store);
/* The histograms of a server. An exit status. */
int report_store_draw(const struct tool_command *command, const char *path,
                      const struct rf_store_server_stats *stats);

struct report_end {
    struct report_store store;
    int64_t step;
    double loss, held_out;
    bool evaluated;
    int signal; /* the one that ended training early; 0 = none */
    const char *sha256;
    struct rf_bytes planned, measured;
    struct rf_held held[RF_HELD_COUNT]; /* rf_plan_peak */
    const int64_t *tokens_local;        /* per rank */
    int ranks;
};
/* go_on: appends to the log of a previous rank 0. */
int report_open(const struct tool_command *command, const struct train_options *options,
                const struct train_expected *expected, bool go_on, struct report **out);
/* Workers of --sync were lost, or have joined, and `now` are there. */
void report_workers(struct report *report, int64_t step, int lost, int joined, int now);
/* Other ranks continue: at this step, with what was taken from `source`, "memory" or a folder.
 * joined: how many are new. */
void report_resized(struct report *report, const struct train_expected *expected,
                    const struct rf_progress *progress, const struct rf_mesh *mesh, int joined,
                    const char *source);
void report_step(struct report *report, const struct report_step *step);
/* Writes the summary and the plot, prints the last lines; an exit status. */
int report_end(struct report *report, const struct report_end *end);
void report_destroy(struct report *report);

/* ---- train_stop.c ---------------------------------------------------------------------------- */

/* From now on SIGTERM and SIGINT only set the flag, once, unless they are ignored. */
void train_stop_listen(void);
/* For rf_run_opts.stop; one for all ranks of this process. */
const volatile int *train_stop_flag(void);
int train_stop_signal(int reason); /* the signal of a reason */

/* ---- train_sample.c -------------------------------------------------------------------------- */

/* Draws options->sample bytes that continue the prompt, and prints them if this rank is to. Forward
 * passes, which are collective if parameters are sharded. */
int train_sample(const struct tool_command *command, const struct train_options *options,
                 struct rf_run *run, bool print);

/* ---- train_place.c --------------------------------------------------------------------------- */

/* An order of comm's ranks that keeps tensor or context ranks, or otherwise the shards of one copy,
 * within hosts if possible; *out NULL: they are already. Rank 0 prints it. An exit status. */
int train_place(const struct tool_command *command, struct rf_comm *comm,
                const struct rf_mesh *mesh, struct rf_comm **out);

/* ---- train_elastic.c ------------------------------------------------------------------------- */

/* Whether the last error of this thread is about a rank that is lost, or has given up. */
bool train_lost_a_rank(void);
/* The mesh of `ranks` ranks: as `from` with fewer data-parallel ranks; where these ranks cannot be
 * divided into its stages, or all would not get a micro-batch, with fewer stages; likewise with
 * fewer tensor ranks, and with shards over fewer ranks. An exit status. */
int train_mesh_left(const struct tool_command *command, const struct rf_mesh *from,
                    int64_t micro_batches, int ranks, struct rf_mesh *out);
/* Removes settings of a policy for another number of stages, or for tensor ranks. */
void train_policy_left(const struct rf_mesh *from, const struct rf_mesh *mesh,
                       struct rf_policy *policy);
/* The communicator of the survivors; comm is still to be closed. An exit status. */
int train_shrink(const struct tool_command *command, struct rf_comm *comm, struct rf_comm **out);

/* ---- train_terms.c: settings of newcomers that must equal the job's
 * --------------------------------
 */

/* Adds to the lines of tool_terms the contents of the files that the options name, and the text. An
 * exit status. */
int train_terms(const struct tool_command *command, const struct train_options *options,
                const struct rf_dataset *dataset, char **terms);
/* For the ranks at the start; for newcomers, and on them: settings derived from the ranks at the
 * start are the job's own in the job, and in a newcomer the given ones. To be freed; NULL: out of
 * memory. */
char *train_terms_at_start(const struct train_options *options);
char *train_terms_of_job(const struct train_options *options);
char *train_terms_of_newcomer(const struct train_options *options);

/* ---- train_grow.c: newcomers ------------------------------------------------------------------
 */

/* The mesh of `ranks` ranks that has the other axes of --mesh, or else those of `from`, and a
 * micro-batch for everybody; false: there is none. */
bool train_mesh_grown(const struct train_options *options, const struct rf_mesh *from, int ranks,
                      struct rf_mesh *out);
/* Rank 0: the place for newcomers. An exit status. */
int train_join_listener_open(const struct tool_command *command,
                             const struct train_options *options, const struct rf_comm *comm,
                             struct rf_join_listener **out);
void train_join_listener_set_status(struct rf_join_listener *join_listener,
                                    const struct train_options *options);
/* The number of waiting newcomers that the job accepts now. Tells them why, if none. */
int train_newcomers(struct rf_join_listener *join_listener, const struct train_options *options,
                    const struct rf_mesh *mesh, int ranks);
/* As rf_comm_grow, with the job's options. */
int train_grow(const struct train_options *options, struct rf_comm *comm,
               struct rf_join_listener *join_listener, int count, struct rf_comm **out);
/* The other side: waits until the job accepts this process. An exit status. */
int train_join(const struct tool_command *command, struct train_options *options,
               struct rf_comm **out);
/* State that newcomers do not know. */
struct train_job_state {
    struct rf_mesh wanted, mesh; /* at the start, and now */
    int64_t batch, micro_batches;
    uint64_t seed;
    double lr;
};
/* Collective over the larger communicator: distributes rank 0's state. A status of the library. */
int train_share_job_state(struct rf_comm *comm, struct train_job_state *state);
void train_take_job_state(struct train_options *options, const struct train_job_state *state);

/* ---- train_rank.c ---------------------------------------------------------------------------- */

struct train_job {
    const struct tool_command *command;
    /* Shared by all ranks of this process; changed by a newcomer, and by a rank that does not see
     * the checkpoint of the others, which are alone in theirs. */
    struct train_options *options;
    struct rf_dataset *dataset;
};
/* One rank's whole run; `user` is a struct train_job. Closes comm; NULL: joins a running job. */
int train_rank(struct rf_comm *comm, void *user);

#endif
