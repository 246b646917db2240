/* SPDX-License-Identifier: MIT
 *
 * Shared by all subcommands of the program: options, errors, tables, JSON files, plots, and the
 * ways to start ranks. It sees the library through its public headers only.
 */
#ifndef RF_TOOLS_TOOL_H
#define RF_TOOLS_TOOL_H

#include <cjson/cJSON.h>
#include <ringforge/ringforge.h>
#include <stdio.h>
#include <stdlib.h>

/* Exit statuses; TOOL_DONE: --help was printed, nothing is left to do. TOOL_BY_SIGNAL plus a
 * signal's number: the signal ended the work in good order, and main ends the process by it. */
enum tool_exit {
    TOOL_DONE = -1,
    TOOL_OK = 0,
    TOOL_ERROR = 1,
    TOOL_USAGE = 2,
    TOOL_BY_SIGNAL = 256
};

struct tool_command {
    const char *name, *summary, *usage; /* usage: the line after the command's name */
    int (*main)(const struct tool_command *command, int argc, char **argv);
    const char *notes; /* lines after the options in the help; NULL = none */
};
extern const struct tool_command tool_info, tool_run, tool_bench, tool_plan, tool_train, tool_tune,
    tool_schedule, tool_flight, tool_tokenize, tool_merge, tool_generate, tool_coordinate;

/* ---- errors.c: one sentence on stderr; each returns the exit status -------------------------- */

int tool_usage_error(const struct tool_command *command, const char *format, ...) RF_PRINTF(2, 3);
int tool_error(const struct tool_command *command, const char *format, ...) RF_PRINTF(2, 3);
/* The reason given when a failing rank aborts the others of its process. */
#define TOOL_ABORTED "another rank of this process failed"
/* The library's last error, with `rank` in front when it is not negative. */
int tool_library_error(const struct tool_command *command, int rank);
/* A message of several ranks is printed by one of them: from now on errors of this thread are kept,
 * until they are printed or dropped. */
#define TOOL_HELD_BYTES 2048
void tool_errors_hold(void);
const char *tool_errors_held(void);
void tool_errors_release(const struct tool_command *command);
void tool_errors_drop(void);

/* ---- numbers.c: numbers in options, in lists and in environment variables ---------------------
 */

enum tool_number { TOOL_NUMBER_OK, TOOL_NUMBER_JUNK, TOOL_NUMBER_RANGE };
/* Pure. A whole number in text[0, bytes), from least to most; K, M, G and T count in 1024, and
 * "1e6" is allowed. Numbers beyond 2^53 are always out of range. */
enum tool_number tool_read_int(const char *text, size_t bytes, int64_t least, int64_t most,
                               int64_t *out);
/* Pure. "AxB", both from 1 to most. */
enum tool_number tool_read_pair(const char *text, int64_t most, int64_t *a, int64_t *b);
/* Pure. A finite number, from least to most. */
enum tool_number tool_read_real(const char *text, size_t bytes, double least, double most,
                                double *out);
/* A usage error: names the fault of the number in text[0, bytes) of `what`, such as "--mesh dp". */
int tool_number_error(const struct tool_command *command, const char *what, const char *text,
                      size_t bytes, enum tool_number fault, double least, double most);
/* tool_read_int, and a usage error if it fails. */
int tool_take_int(const struct tool_command *command, const char *what, const char *text,
                  size_t bytes, int64_t least, int64_t most, int64_t *out);
/* "1 to 8", "at least 1", "0 or more"; returns text. */
const char *tool_range_text(double least, double most, char text[64]);
/* The shortest text that is read as this value; returns text. */
const char *tool_real_text(double value, char text[32]);
const char *tool_float_text(float value, char text[32]);

/* ---- options.c ------------------------------------------------------------------------------- */

enum tool_kind {
    TOOL_FLAG,  /* bool */
    TOOL_INT,   /* int64_t; K, M, G suffixes count in 1024 */
    TOOL_COUNT, /* double, more than 0; 7.5e9 is fine */
    TOOL_REAL,  /* double */
    TOOL_TEXT,  /* const char * */
    TOOL_FILE,  /* const char *; without a value "-", the standard output */
    TOOL_LIST   /* struct tool_list: may be repeated */
};
#define TOOL_LIST_MAX 64
struct tool_list {
    const char *item[TOOL_LIST_MAX];
    int count;
};
/* What an option's text names. */
enum tool_path {
    TOOL_NO_PATH,
    TOOL_READS,       /* a file, or a folder in which files of known names are read */
    TOOL_RESUMES,     /* a folder of checkpoints, or one of them */
    TOOL_READS_ALL,   /* a file, or a folder in which every file is read */
    TOOL_WRITES,      /* a file; "-" is the standard output */
    TOOL_WRITES_INTO, /* a folder to which files are added */
    TOOL_REPLACES     /* a folder that is replaced with everything in it */
};
/* Settings that must be alike on the ranks of a job, and are compared before any work. */
enum tool_share {
    TOOL_ALIKE,   /* the value */
    TOOL_GIVEN,   /* whether it is given; the value may differ: `why` */
    TOOL_CONTENT, /* the contents of the file or folder, which may have another name: `why` */
    TOOL_OWN      /* nothing: `why` */
};
struct tool_option {
    const char *name; /* without dashes; says its letter and its group, too (options_help.c) */
    enum tool_kind kind;
    void *value;
    const char *what; /* name of the value in the help, NULL for a flag */
    const char *help; /* a noun phrase; default in parentheses at its end */
    unsigned uses;    /* the caller's: set of users */
    bool *given;      /* set if the option is given, unless NULL */
    /* The range of a number; values outside are refused. most 0: no limit. */
    double least, most;
    /* Options of which one must be on, or this one has no effect and is refused: "search", or
     * "export|export-adapter". NULL: none. */
    const char *needs;
    enum tool_path path;
    const char *beside;  /* an option whose path it may share; NULL: none */
    const char *endings; /* TOOL_READS: of files that are read in a folder; NULL: a model's */
    enum tool_share ranks;
    const char *why; /* if not alike: why ranks, and newcomers to a running job, may differ */
    bool of_job;     /* a newcomer to a running job may leave it to the job */
    bool kept;       /* belongs to the settings that a checkpoint keeps */
    bool (*same)(const char *a, const char *b); /* whether two texts mean the same; NULL: equal */
    bool operand;     /* not an option: a word that the command reads itself, for its path */
    const char *said; /* set: the value as given, "" for a flag; NULL: not given */
};
/* Reasons shared by several commands. */
#define TOOL_JOINED "compared as ranks join; who names none takes what the others name"
#define TOOL_LAUNCHED "it has to be the launcher's own number"
#define TOOL_RANK_0_WRITES "rank 0 writes it"
#define TOOL_OWN_DEVICE "each rank opens its own device"
#define TOOL_OWN_PATIENCE "how long a rank waits is its own business"
#define TOOL_OWN_COPY "each host may have a copy of its own elsewhere"
/* Reads argv[1..] and stops at "--" or, if `rest` is given, at the first word that is not an
 * option. *rest is the index of the first word not read; without `rest` such a word is an error,
 * and finally tool_options_check is called. The table ends with a row whose name is NULL. Returns
 * TOOL_OK, TOOL_DONE or TOOL_USAGE. */
int tool_options(const struct tool_command *command, struct tool_option *table, int argc,
                 char **argv, int *rest);
/* After all options are read: a usage error if one has no effect, or if an output is also an input
 * or another output (paths.c). */
int tool_options_check(const struct tool_command *command, const struct tool_option *table);
/* options_help.c: the letter of an option, in all commands that have it, or 0; the group in which
 * the help lists it, or NULL; and the help. */
char tool_option_letter(const char *name);
const char *tool_option_group(const char *name);
void tool_options_help(const struct tool_command *command, const struct tool_option *table);
/* The row of that name, or NULL. */
struct tool_option *tool_option_find(struct tool_option *table, const char *name);
/* Whether an option has a value with an effect: a flag that is set, a number that is not 0, a text
 * other than "none". */
bool tool_option_is_on(const struct tool_option *option);
/* The value as text, the same for equal values: "0.003", "yes", "not given". */
void tool_option_text(const struct tool_option *option, char *text, size_t bytes);
/* Sets the value from such a text. False: not a value of this option. */
bool tool_option_set(struct tool_option *option, const char *text);
/* options_json.c: the table as JSON on the standard output. */
void tool_options_json(const struct tool_command *command, const struct tool_option *table);
/* Index of text in the NULL-terminated list of names, or -1. */
int tool_choice(const char *text, const char *const *names);
/* A type ("f32", "float"), a reduction ("sum") or an order ("any") by name, or a usage error. */
int tool_read_dtype(const struct tool_command *command, const char *text, enum rf_dtype *out);
int tool_read_redop(const struct tool_command *command, const char *text, enum rf_redop *out);
int tool_read_order(const struct tool_command *command, const char *text, enum rf_order *out);
/* The local date: "2026-11-28". */
void tool_today(char text[16]);
/* Local noon of such a date, in seconds since 1970, or a usage error. */
int tool_read_date(const struct tool_command *command, const char *text, int64_t *out);

/* ---- files.c: output files ------------------------------------------------------------------- */

#define TOOL_PATH_BYTES 4096
/* Before any work: tests whether the outputs of the table's options can be written at the end.
 * Existing files stay unchanged; a missing folder is made, except one that is to be replaced, which
 * its writer checks. NULL: does nothing. */
int tool_outputs_check(const struct tool_command *command, const struct tool_option *table);
/* The temporary name for the contents of `path`: beside it, so that the existing file stays until
 * the new one is complete; or path itself, if it is a device, a pipe or a link. */
void tool_file_begin(const char *path, char name[TOOL_PATH_BYTES]);
/* A complete file gets its name; an incomplete one is removed. */
int tool_file_end(const struct tool_command *command, const char *path, const char *name,
                  bool whole);
/* Both, and the bytes between; "-" is the standard output. */
int tool_file_write(const struct tool_command *command, const char *path, const void *data,
                    size_t bytes);

/* ---- paths.c: outputs are not inputs --------------------------------------------------------- */

/* A usage error if the output of an option of the table is an input or output of another one: one
 * file by any two names, or a file in a folder that is read or replaced. Nothing is opened, and
 * paths need not exist. */
int tool_paths_check(const struct tool_command *command, const struct tool_option *table);
/* Whether two paths are one file or folder, or will be once it is made: by device and inode,
 * following links, also those to nothing. */
bool tool_paths_same(const char *a, const char *b);
/* Whether a path is somewhere in a folder. */
bool tool_path_within(const char *path, const char *folder);

/* ---- terms.c: settings that must be alike on all ranks
 * ----------------------------------------------
 */

/* Lines "--NAME=value" for rf_comm_check_terms, for the table's options that must be alike, or
 * given on all ranks or none; of_job: those that a newcomer may leave to the job, otherwise all
 * others. To be freed. Returns an exit status, like all of these. */
int tool_terms(const struct tool_command *command, const struct tool_option *table, bool of_job,
               char **out);
/* Adds a line to *terms; hash: compared but not shown, 0 = none. */
int tool_terms_add(const struct tool_command *command, char **terms, const char *name,
                   const char *value, uint64_t hash);
/* The line of an option of TOOL_CONTENT, by the contents of its file or folder. */
int tool_terms_add_content(const struct tool_command *command, char **terms,
                           const struct tool_option *option);
/* All of these. */
int tool_terms_whole(const struct tool_command *command, const struct tool_option *table,
                     char **out);

/* ---- output.c -------------------------------------------------------------------------------- */

/* Writes and frees `json`; "-" is the standard output. */
int tool_json_write(const struct tool_command *command, const char *path, cJSON *json);
/* Adds members as "name=%s ranks=%d time_us=%g checked=%hhd": texts (NULL: null), int, unsigned
 * (%u), double (not finite: null) and bool (%hhd). */
void tool_json_put(cJSON *object, const char *members, ...) RF_PRINTF(2, 3);
/* The same of a new object; and of a new one at the end of a list. */
cJSON *tool_json_new(const char *members, ...) RF_PRINTF(1, 2);
cJSON *tool_json_row(cJSON *list, const char *members, ...) RF_PRINTF(2, 3);
/* "12.3 MiB"; returns text. */
const char *tool_bytes_text(uint64_t bytes, char *text, size_t size);
/* "12.3 GFLOP"; returns text. */
const char *tool_flops_text(double flops, char *text, size_t size);
const char *tool_seconds_text(double seconds, char *text, size_t size);

struct tool_series {
    const char *title;
    const double *x, *y;
    int count;
};
struct tool_plot {
    const char *title, *x_label, *y_label;
    bool log_x, log_y;
    bool bars; /* from 0, those of several series side by side; x are whole numbers */
    const struct tool_series *series;
    int series_count;
};
/* chart.c: as SVG. */
int tool_plot_write(const struct tool_command *command, const char *path,
                    const struct tool_plot *plot);

/* ---- launch.c: processes --------------------------------------------------------------------- */

struct tool_launch {
    int ranks;
    int port;          /* 0 = a free one */
    bool prefix;       /* "[r] " before each line */
    bool elastic;      /* ranks that are lost or fail let the others continue */
    char *const *argv; /* of every rank, NULL-terminated */
};
/* Starts the ranks and waits for all; returns the exit status of the first that failed, or 0;
 * elastic: 0 if any rank ended well. SIGTERM and SIGINT are forwarded to the ranks, which get the
 * time they need; a second one ends them at once. If a signal ended the ranks: TOOL_BY_SIGNAL plus
 * the signal. */
int tool_launch(const struct tool_command *command, const struct tool_launch *launch);

/* ---- ranks.c: how a subcommand becomes several ranks ----------------------------------------- */

struct tool_ranks {
    int64_t ranks;                /* --ranks; 0 = not given */
    const char *provider;         /* --provider; NULL = the library chooses */
    double timeout_s;             /* --timeout; 0 = the library's */
    bool elastic;                 /* fn continues when ranks are lost */
    bool closes;                  /* fn closes its communicator */
    bool joins;                   /* fn gets NULL, and finds one itself; the same number of
                                   * processes */
    struct rf_loopback_opts link; /* of the loopback provider */
    /* The command's: compared, and rank 0's outputs are tested, before fn is called. NULL: none. */
    const struct tool_option *options;
    const char *terms; /* NULL: tool_terms_whole of the options */
};
/* If this process is one of several ranks of a launcher: its errors are kept from now on, and its
 * exit status must pass through tool_ranks_run or tool_ranks_refuse. Called first. */
void tool_ranks_begin(void);
/* Ends a rank that cannot take part, with an exit status other than TOOL_OK, which is returned:
 * prints the reason, unless rank 0 does, and tells the others, which need not wait for this one. */
int tool_ranks_refuse(const struct tool_command *command, int status);
/* Collective over comm: whether the ranks' options match, and rank 0 can write the outputs. */
int tool_ranks_agree(const struct tool_command *command, const struct tool_ranks *ranks,
                     struct rf_comm *comm);
/* Collective over comm: the status of all ranks. Rank 0 prints the errors kept since
 * tool_errors_hold, equal ones once; they are no longer kept. */
int tool_ranks_settle(const struct tool_command *command, struct rf_comm *comm, int status);
/* Runs fn on every rank, with a communicator: as threads for the loopback provider, as processes of
 * their own for --ranks, otherwise as the one rank that the environment assigns to this process. fn
 * returns an exit status, equal on all ranks if it is TOOL_BY_SIGNAL; the first nonzero one is
 * returned. If options that must be alike differ, or outputs cannot be written, rank 0 reports it
 * and fn is called on no rank. */
int tool_ranks_run(const struct tool_command *command, const struct tool_ranks *ranks,
                   char *const *argv, int (*fn)(struct rf_comm *comm, void *user), void *user);
/* The number of ranks before any is started; a usage error if options and environment disagree. */
int tool_ranks_count(const struct tool_command *command, const struct tool_ranks *ranks,
                     int *count);
/* Tests the outputs if this process is not a rank of a launcher: before work that precedes
 * tool_ranks_run, which tests them again in any case. */
int tool_ranks_outputs(const struct tool_command *command, const struct tool_ranks *ranks);
/* The device this rank opens: `select`, or the LOCAL_RANK-th usable GPU if there are several, or
 * NULL for the library's choice. text is memory for the result. */
const char *tool_rank_device(const char *select, char text[16]);

#endif
