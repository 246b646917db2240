/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of `ringforge plan`: rates, and the step that they predict.
 */
#ifndef RF_TOOLS_PLAN_H
#define RF_TOOLS_PLAN_H

#include "setup.h"

/* ---- plan_rates.c: rates of device and link -------------------------------------------------- */

struct plan_rates {
    /* As given: 10^12 FLOP/s, 10^9 bytes/s, 10^9 bit/s, microseconds. Rates: 0 = not given. */
    double peak, memory, host_memory, disk, link, launch, latency;
    const char *hosts_text, *links_text;
    int hosts, host_ranks; /* 0: not given */
    double intra_host,
        intra_host_latency; /* between ranks of a host; intra_host 0: like the other links */
    const char *device;     /* the device whose measured rates replace missing ones */
    bool launch_given, latency_given;
    bool known; /* a step can be predicted */
    struct rf_sim_rates rates;
};

#define PLAN_MAX_RANKS 65536
#define PLAN_RATES_ROWS 10
void plan_rates_options(struct plan_rates *rates, struct tool_option *rows);
/* Fills known and rates. A usage error if only some of them are given, or none, and `needed` names
 * an option that requires them. */
int plan_rates_check(const struct tool_command *command, const struct setup *setup,
                     const char *needed, struct plan_rates *rates);

/* ---- plan_hosts.c: --hosts and --links --------------------------------------------------------
 */

/* Reads both into the rates; a second call does nothing. */
int plan_hosts_check(const struct tool_command *command, struct plan_rates *rates);

/* ---- plan_predict.c: the step in numbers ----------------------------------------------------- */

struct prediction {
    struct rf_sim *sim; /* number 0 is the plan's */
    struct rf_sim_result result;
    double tokens_per_s;
};
/* Predicts a step of the plan's job. costs: those of its blocks. An exit status. */
int predict(const struct tool_command *command, const struct rf_plan *plan,
            const struct rf_block_cost *costs, const struct setup *setup,
            const struct plan_rates *rates, struct prediction *out);
void prediction_free(struct prediction *prediction);
void prediction_print(const struct prediction *prediction);
/* Adds "prediction" to the object. */
void prediction_json(const struct prediction *prediction, cJSON *json);
/* "12.3 ms"; returns text. */
const char *plan_time_text(double seconds, char *text, size_t bytes);

/* ---- plan_plot.c: a predicted step as a picture ---------------------------------------------- */

/* An exit status. */
int plan_plot_write(const struct tool_command *command, const char *path, const struct setup *setup,
                    const struct prediction *prediction);

/* ---- plan_explain.c: the cause of each transfer ---------------------------------------------- */

/* Prints what the plan's rank exchanges with the others of `ranks`. An exit status. */
int plan_explain(const struct tool_command *command, const struct rf_plan *plan,
                 const struct rf_mesh *mesh, int ranks);

/* ---- plan_sync.c: workers that exchange parameters now and then ------------------------------ */

struct plan_sync {
    const char *rule; /* that of --sync; NULL: none */
    int64_t clients;  /* of a coordinator; 0: workers */
    int workers;      /* or clients */
    /* That of --optimizer, which a worker of a store does not have itself. */
    struct rf_optimizer_opts optimizer;
    float clip;
};

/* The plan of rank 0, and what is known of its times. */
struct plan_view {
    const struct rf_plan *plan;
    const struct rf_block_cost *costs;
    const struct plan_rates *rates;
    const struct prediction *prediction; /* sim NULL: nothing */
};

/* ranks: of all workers. Fills workers. An exit status. */
int plan_sync_check(const struct tool_command *command, const struct setup *setup, int64_t ranks,
                    struct plan_sync *sync);
/* Prints bytes, and times if they are predicted, of a rank with the exchanges, and of the same
 * ranks that train data-parallel; adds "sync" to json, unless NULL. setup: of a worker. */
int plan_sync(const struct tool_command *command, const struct plan_sync *sync,
              const struct setup *setup, const struct model *model, const struct plan_view *view,
              bool print, cJSON *json);

/* ---- plan_served.c: workers of a store, and clients of a coordinator ------------------------- */

bool plan_is_served(const struct plan_sync *sync);
/* As plan_sync_check. Takes the optimizer from setup if the servers have it. */
int plan_served_check(const struct tool_command *command, struct setup *setup, int64_t ranks,
                      struct plan_sync *sync);
/* As plan_sync. */
int plan_served(const struct tool_command *command, const struct plan_sync *sync,
                const struct setup *setup, const struct model *model, const struct plan_view *view,
                bool print, cJSON *json);

/* ---- plan_beside.c: the same workers, if they trained data-parallel -------------------------- */

struct plan_beside {
    double sent;                  /* by a rank in a step */
    struct prediction prediction; /* sim NULL: none; to be freed */
    char reason[768];             /* why they cannot; empty: they can */
};

int plan_beside(const struct tool_command *command, const struct plan_sync *sync,
                const struct setup *setup, const struct model *model, const struct plan_view *view,
                struct plan_beside *out);
/* Ends a line about the bytes that one of them sends in a step. who: "ranks". */
void plan_beside_print(const struct plan_beside *beside, const char *who, double sent);
void plan_beside_print_time(const struct plan_beside *beside);
void plan_beside_to_json(const struct plan_beside *beside, cJSON *object);

/* ---- plan_zero.c: memory saved by sharding, for a model of a given size
 * ------------------------------
 */

/* Prints a table for rank 0; adds "zero_bytes" to json, unless NULL. */
int plan_zero(const struct tool_command *command, const struct setup *setup,
              const struct model *model, bool print, cJSON *json);

/* ---- plan_compare.c: techniques side by side ------------------------------------------------- */

/* Prints a table for rank 0, with the setup's own micro-batches; adds rows to json, unless NULL. */
int plan_compare(const struct tool_command *command, const struct setup *setup,
                 const struct model *model, const struct plan_rates *rates, bool print,
                 cJSON *json);

/* ---- plan_fits.c: --fits --------------------------------------------------------------------- */

/* Instead of a plan: each technique within setup->device_bytes. setup: checked. An exit status. */
int plan_fits(const struct tool_command *command, const struct setup *setup, const char *json_path);

/* ---- plan_search.c: --search ----------------------------------------------------------------- */

#define PLAN_SEARCH_ROWS 2
struct plan_search {
    bool wanted;
    int64_t top;
    bool top_given;
    /* The given options of the setup; the rest is searched. */
    bool mesh, zero, recompute, offload, schedule, micro_batches, dtype, sequence;
};
/* rows: PLAN_SEARCH_ROWS of them. setup_rows: of the setup, to learn which are given. */
void plan_search_options(struct plan_search *search, struct tool_option *rows,
                         struct tool_option *setup_rows);
/* Instead of a plan. ranks: 0 = those of --hosts. An exit status. */
int plan_search_run(const struct tool_command *command, const struct plan_search *search,
                    struct setup *setup, struct plan_rates *rates, int64_t ranks,
                    const char *json_path);

#endif
