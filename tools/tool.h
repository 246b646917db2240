/* SPDX-License-Identifier: MIT
 *
 * What every subcommand of the program shares: options, errors, tables, JSON files, plots, and
 * the ways to start ranks. It sees the library through its public headers only.
 */
#ifndef RF_TOOLS_TOOL_H
#define RF_TOOLS_TOOL_H

#include <cjson/cJSON.h>
#include <ringforge/ringforge.h>
#include <stdio.h>
#include <stdlib.h>

/* Exit statuses; TOOL_DONE: --help was printed, nothing is left to do. TOOL_BY_SIGNAL plus a
 * signal's number: the work was ended by it in good order, and main ends the process by it. */
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
    tool_schedule, tool_flight, tool_tokenize, tool_merge, tool_generate;

/* ---- errors.c: one sentence on stderr; each returns the exit status -------------------------- */

int tool_usage_error(const struct tool_command *command, const char *format, ...) RF_PRINTF(2, 3);
int tool_error(const struct tool_command *command, const char *format, ...) RF_PRINTF(2, 3);
/* Why a rank that fails aborts the others of its process. */
#define TOOL_ABORTED "another rank of this process failed"
/* The library's last error, with `rank` in front when it is not negative. */
int tool_library_error(const struct tool_command *command, int rank);

/* ---- options.c ------------------------------------------------------------------------------- */

enum tool_kind {
    TOOL_FLAG,  /* bool */
    TOOL_INT,   /* int64_t, not negative; K, M, G suffixes count in 1024 */
    TOOL_COUNT, /* double, positive, 7.5e9 is fine */
    TOOL_REAL,  /* double, not negative */
    TOOL_TEXT,  /* const char * */
    TOOL_FILE,  /* const char *; without a value "-", the standard output */
    TOOL_LIST   /* struct tool_list: may be repeated */
};
#define TOOL_LIST_MAX 64
struct tool_list {
    const char *item[TOOL_LIST_MAX];
    int count;
};
struct tool_option {
    const char *name; /* without dashes */
    char letter;      /* 0 = none */
    enum tool_kind kind;
    void *value;
    const char *what; /* name of the value in the help, NULL for a flag */
    const char *help;
    unsigned uses; /* the caller's: by whom it is used */
    bool *given;   /* set where the option is given, unless NULL */
};
/* Reads argv[1..] and stops at "--" or, when `rest` is given, at the first word that is no option.
 * *rest is the index of the first word not read; without `rest` such a word is an error. The table
 * ends with a row whose name is NULL. Returns TOOL_OK, TOOL_DONE or TOOL_USAGE. */
int tool_options(const struct tool_command *command, const struct tool_option *table, int argc,
                 char **argv, int *rest);
/* Index of text in the NULL-terminated list of names, or -1. */
int tool_choice(const char *text, const char *const *names);
/* A type ("f32", "float"), a reduction ("sum") or an order ("any") by name, or a usage error. */
int tool_read_dtype(const struct tool_command *command, const char *text, enum rf_dtype *out);
int tool_read_redop(const struct tool_command *command, const char *text, enum rf_redop *out);
int tool_read_order(const struct tool_command *command, const char *text, enum rf_order *out);
/* "2026-11-28": noon of that day here, in seconds since 1970, or a usage error. */
int tool_read_date(const struct tool_command *command, const char *text, int64_t *out);

/* ---- files.c: what the program leaves behind --------------------------------------------------
 */

#define TOOL_PATH_BYTES 4096
enum tool_output_kind { TOOL_OUTPUT_FILE, TOOL_OUTPUT_PLOT, TOOL_OUTPUT_FOLDER };
struct tool_output {
    const char *option; /* without dashes; NULL ends a list */
    const char *path;   /* NULL: not asked for; "-": the standard output */
    enum tool_output_kind kind;
};
/* Before any work: tries whether each can be written at the end. What is there stays as it is; a
 * folder that is missing is made. Of NULL: nothing. */
int tool_outputs_check(const struct tool_command *command, const struct tool_output *outputs);
/* The name under which the content of `path` is to be written: beside it, so that what is there
 * stays until the new one is whole; or path itself, if it is a device, a pipe or a link. */
void tool_file_begin(const char *path, char name[TOOL_PATH_BYTES]);
/* A whole file takes its name; another is removed. */
int tool_file_end(const struct tool_command *command, const char *path, const char *name,
                  bool whole);
/* Both, and the bytes between; "-" is the standard output. */
int tool_file_write(const struct tool_command *command, const char *path, const void *data,
                    size_t bytes);

/* ---- output.c -------------------------------------------------------------------------------- */

/* Writes and frees `json`; "-" is the standard output. */
int tool_json_write(const struct tool_command *command, const char *path, cJSON *json);
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
    const struct tool_series *series;
    int series_count;
};
/* Through gnuplot; the ending of path says which: .svg or .png. */
int tool_plot_write(const struct tool_command *command, const char *path,
                    const struct tool_plot *plot);
/* A usage error if the ending is another. */
int tool_plot_check(const struct tool_command *command, const char *path);
/* files.c: an error if gnuplot is not installed. */
int tool_plot_ready(const struct tool_command *command);

/* ---- launch.c: processes --------------------------------------------------------------------- */

struct tool_launch {
    int ranks;
    int port;          /* 0 = a free one */
    bool prefix;       /* "[r] " before each line */
    bool elastic;      /* ranks that are lost or fail leave the others to go on */
    char *const *argv; /* of every rank, NULL-terminated */
};
/* Starts the ranks, waits for all; returns the exit status of the first that failed, or 0; where
 * they are elastic 0 if any rank ended well. SIGTERM
 * and SIGINT are passed on to the ranks, which are given the time they take; a second one ends them
 * at once. Where they ended the ranks: TOOL_BY_SIGNAL and the signal. */
int tool_launch(const struct tool_command *command, const struct tool_launch *launch);

/* ---- ranks.c: how a subcommand becomes several ranks ----------------------------------------- */

struct tool_ranks {
    int64_t ranks;                /* --ranks; 0 = not given */
    const char *provider;         /* --provider; NULL = the library chooses */
    double timeout_s;             /* --timeout; 0 = the library's */
    bool elastic;                 /* fn goes on when ranks are lost */
    bool closes;                  /* fn closes its communicator */
    bool joins;                   /* fn gets NULL, and finds one itself; on as many processes */
    struct rf_loopback_opts link; /* of the loopback provider */
    /* What rank 0 writes, or NULL: tried before fn is called. The same options on every rank. */
    const struct tool_output *outputs;
};
/* Runs fn on every rank, with a communicator: as threads for the loopback provider, as processes
 * of their own for --ranks, else as the one rank that the environment says this process is.
 * fn returns an exit status, on all ranks alike where it is TOOL_BY_SIGNAL; the first that is not
 * zero is returned. If outputs cannot be written, rank 0 says so and fn is called on no rank. */
int tool_ranks_run(const struct tool_command *command, const struct tool_ranks *ranks,
                   char *const *argv, int (*fn)(struct rf_comm *comm, void *user), void *user);
/* The number of ranks before any is started; a usage error when options and environment disagree.
 */
int tool_ranks_count(const struct tool_command *command, const struct tool_ranks *ranks,
                     int *count);
/* Tries the outputs where this process is no rank of a launcher's: before other work than
 * tool_ranks_run, which does it again and in any case. */
int tool_ranks_outputs(const struct tool_command *command, const struct tool_ranks *ranks);
/* The device this rank opens: `select`, or the LOCAL_RANK-th usable GPU where there are several, or
 * NULL for the library's choice. text is memory for the answer. */
const char *tool_rank_device(const char *select, char text[16]);

#endif
