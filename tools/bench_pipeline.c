/* SPDX-License-Identifier: MIT
 *
 * ringforge bench pipeline: how long the ranks of a pipeline are idle, by schedule. Blocks
 * take a known time (bench_timed.h), so a step can be computed: by a formula, and by the plan's own
 * simulator. The same blocks with data parallelism, where only communication is idle time, stand
 * beside.
 */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "bench_pipeline.h"
#include "timeline.h"

enum {
    MOST_RANKS = 8,
    DEFAULT_RANKS = 4,
    CHUNKS = 2,       /* of a rank, with schedules that have several; one block each */
    ROUNDS = 2,       /* micro-batches, for each rank: zbv idles least from there on */
    TOKENS = 64,      /* of a micro-batch */
    CHANNELS = 1024,  /* f32: 256 KiB between two blocks */
    ELEMENTS = 262144 /* of a block's parameter: 1 MiB */
};

struct schedule {
    const char *name;
    enum rf_pipeline_kind kind;
    bool data_parallel;
    int zero;
    bool overlaps; /* a step begins while the one before is under way */
};

static const struct schedule schedules[] = {
    {"data parallel", .data_parallel = true},
    {"zero 3", .data_parallel = true, .zero = 3},
    {"naive", RF_PIPELINE_NAIVE},
    {"gpipe", RF_PIPELINE_GPIPE},
    {"1f1b", RF_PIPELINE_1F1B},
    {"interleaved:2", RF_PIPELINE_INTERLEAVED},
    {"zbh1", RF_PIPELINE_ZBH1},
    {"zbv", RF_PIPELINE_ZBV},
    {"2bw", RF_PIPELINE_2BW, .overlaps = true},
};

struct pipeline {
    const struct tool_command *command;
    const struct bench_options *options;
    struct timed_seconds seconds; /* of what a rank has, for a micro-batch */
    int ranks, blocks, micro_batches;
    const struct schedule *chosen;         /* NULL: all */
    cJSON *json, *rows;                    /* rank 0 fills and writes them */
    struct rf_device *devices[MOST_RANKS]; /* a communicator keeps timelines on them */
};

/* ---- what a step must take ------------------------------------------------------------------- */

static double busy_s(const struct pipeline *p)
{
    const struct timed_seconds *s = &p->seconds;
    return p->micro_batches * (s->forward + s->backward_input + s->backward_weight);
}

/* NAN: there is no formula. A gradient leaves before the half for the weights, which gpipe, 1f1b
 * and interleaved do at once. */
static double idle_s(const struct pipeline *p, const struct schedule *schedule)
{
    const double forward = p->seconds.forward, input = p->seconds.backward_input,
                 weight = p->seconds.backward_weight, others = p->ranks - 1;
    const bool equal = forward == input && input == weight;
    if (schedule->data_parallel)
        return 0;
    switch (schedule->kind) {
    case RF_PIPELINE_NAIVE:
        return p->micro_batches * others * (forward + input);
    case RF_PIPELINE_INTERLEAVED:
        return others * (forward + input) / CHUNKS;
    case RF_PIPELINE_ZBH1:
        return weight <= forward && weight <= input ? others * (forward + input - weight) : NAN;
    case RF_PIPELINE_ZBV:
        return equal ? others * forward / 2 : NAN;
    case RF_PIPELINE_2BW:
        return equal ? 0 : NAN;
    default:
        return others * (forward + input);
    }
}

/* Nothing but blocks takes time. */
static int simulate(const struct pipeline *p, const struct rf_plan *plan, struct rf_sim **out,
                    double *step_s)
{
    double verb_s[RF_VERB_COUNT];
    struct rf_sim_result result;
    for (int verb = 0; verb < RF_VERB_COUNT; verb++)
        verb_s[verb] = -1;
    verb_s[RF_VERB_FORWARD] = p->seconds.forward / CHUNKS;
    verb_s[RF_VERB_BACKWARD_INPUT] = p->seconds.backward_input / CHUNKS;
    verb_s[RF_VERB_BACKWARD_WEIGHT] = p->seconds.backward_weight / CHUNKS;
    const struct rf_sim_opts opts = {.verb_s = verb_s,
                                     .rates = {.block_flops_per_s = INFINITY,
                                               .flops_per_s = INFINITY,
                                               .bytes_per_s = INFINITY,
                                               .host_bytes_per_s = INFINITY,
                                               .link_bytes_per_s = INFINITY}};
    int rc = rf_plan_simulate_job(plan, &opts, out);
    if (rc < 0)
        return rc;
    rf_sim_get_result(*out, 0, &result);
    *step_s = result.step_s;
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool is_quiet(const struct pipeline *p)
{
    const struct bench_options *o = p->options;
    return (o->json_path && strcmp(o->json_path, "-") == 0) ||
           (o->plot_path && strcmp(o->plot_path, "-") == 0);
}

static double share(const struct pipeline *p, double step_s)
{
    return 1 - busy_s(p) / step_s;
}

/* Shares of the step in which a rank computes nothing. */
static void put_row(struct pipeline *p, const struct schedule *schedule, double planned_s,
                    double step_s)
{
    const double formula_s = busy_s(p) + idle_s(p, schedule);
    if (!is_quiet(p))
        printf("%-14s %8.1f %8.1f %8.1f %8.3f %8.3f %8.2f %8.2f %8.2f %7.2f\n", schedule->name,
               step_s * 1e3, planned_s * 1e3, formula_s * 1e3, planned_s / step_s,
               step_s / formula_s, 100 * share(p, step_s), 100 * share(p, planned_s),
               100 * share(p, formula_s), 100 * (share(p, step_s) - share(p, formula_s)));
    fflush(stdout);
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "schedule", schedule->name);
    cJSON_AddNumberToObject(row, "busy_ms", busy_s(p) * 1e3);
    cJSON_AddNumberToObject(row, "step_ms", step_s * 1e3);
    cJSON_AddNumberToObject(row, "planned_step_ms", planned_s * 1e3);
    /* What is not a number is null. */
    cJSON_AddNumberToObject(row, "computed_step_ms", formula_s * 1e3);
    cJSON_AddNumberToObject(row, "idle", share(p, step_s));
    cJSON_AddNumberToObject(row, "planned_idle", share(p, planned_s));
    cJSON_AddNumberToObject(row, "computed_idle", share(p, formula_s));
    cJSON_AddItemToArray(p->rows, row);
}

static void put_header(const struct pipeline *p)
{
    if (!is_quiet(p))
        printf("# %d ranks, %d micro-batches, %d blocks, %g + %g + %g ms for a rank's blocks and a "
               "micro-batch;\n# the best of %lld steps in ms (2bw: their mean), what the plan's "
               "simulator says, and a formula; idle: %% of the step\n%-14s %8s %8s %8s %8s %8s %8s "
               "%8s %8s %7s\n",
               p->ranks, p->micro_batches, p->blocks, p->seconds.forward * 1e3,
               p->seconds.backward_input * 1e3, p->seconds.backward_weight * 1e3,
               (long long)p->options->samples, "schedule", "step", "plan", "formula", "plan/st",
               "st/form", "idle", "plan", "formula", "over");
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* What a rank does in a step of one schedule. */
struct course {
    struct rf_comm *comm;
    struct rf_run *run;
    struct timed_device *timed;
    struct pipeline_marks *marks; /* NULL: they are not wanted */
    double step_s;                /* the best; where steps overlap, the mean */
};

static const int32_t words[TOKENS * ROUNDS * MOST_RANKS] = {0};

/* All ranks begin at once where times are compared. */
static int take_step(struct course *c, bool counts)
{
    struct rf_step_stats stats = {0};
    int rc = c->marks ? rf_barrier(c->comm, NULL) : 0;
    if (rc == 0 && c->marks)
        rc = timed_watch(c->timed);
    if (rc == 0)
        rc = rf_run_step(c->run, words, words, 0.1f, &stats);
    const double step_s = (double)stats.step_ns * 1e-9;
    const bool best = counts && step_s < c->step_s;
    if (rc == 0 && best)
        c->step_s = step_s;
    if (rc == 0 && c->marks)
        rc = timed_wait(c->timed);
    if (rc == 0 && c->marks)
        rc = pipeline_keep_best(c->comm, c->timed, best, c->marks);
    return rc;
}

static int take_steps(struct course *c, int64_t count)
{
    int rc = 0;
    c->step_s = INFINITY;
    for (int64_t i = -1; i < count && rc == 0; i++) /* the first compiles kernels */
        rc = take_step(c, i >= 0);
    return rc;
}

/* The first call fills the pipeline, and the second one still waits for what the first put off. */
static int take_overlapping_steps(struct course *c, int64_t count)
{
    enum { BEFORE = 2 };
    uint64_t total_ns = 0;
    int rc = 0;
    for (int64_t i = -BEFORE; i < count && rc == 0; i++) {
        struct rf_step_stats stats = {0};
        rc = rf_run_step(c->run, words, words, 0.1f, &stats);
        if (i >= 0)
            total_ns += stats.step_ns;
    }
    c->step_s = (double)total_ns * 1e-9 / (double)count;
    return rc < 0 ? rc : rf_run_drain(c->run, NULL);
}

static int build_plan(const struct pipeline *p, const struct schedule *schedule, int rank,
                      const struct rf_block *blocks, struct rf_plan **out)
{
    const struct rf_mesh mesh = {.dp = schedule->data_parallel ? p->ranks : 1,
                                 .pp = schedule->data_parallel ? 1 : p->ranks};
    const struct rf_policy policy = {.batch = p->micro_batches,
                                     .micro_batches = p->micro_batches,
                                     .seq = TOKENS,
                                     .zero = schedule->zero,
                                     .pipeline = schedule->kind,
                                     .optimizer = {.kind = RF_SGD}};
    return rf_plan_build((struct rf_blocks){blocks, p->blocks}, &mesh, &policy, rank, out);
}

static int draw(const struct pipeline *p, const struct schedule *schedule, const struct course *c,
                const struct rf_sim *sim, double planned_s, int *status)
{
    const struct pipeline_picture what = {.path = p->options->plot_path,
                                          .schedule = schedule->name,
                                          .ranks = p->ranks,
                                          .micro_batches = p->micro_batches,
                                          .sim = sim,
                                          .planned_s = planned_s,
                                          .planned_bubble = share(p, planned_s),
                                          .measured_s = c->step_s,
                                          .measured_bubble = share(p, c->step_s)};
    return pipeline_draw(p->command, c->comm, &what, c->marks, status);
}

/* *status: of the picture. */
static int measure(struct pipeline *p, struct course *c, const struct rf_block *blocks,
                   const struct schedule *schedule, int *status)
{
    const int rank = rf_comm_rank(c->comm);
    struct rf_plan *plan = NULL;
    struct rf_sim *sim = NULL;
    double planned_s = 0;
    int rc = build_plan(p, schedule, rank, blocks, &plan);
    if (rc == 0)
        rc = simulate(p, plan, &sim, &planned_s);
    if (rc == 0)
        rc = rf_run_open(p->devices[rank], c->comm, plan, NULL, &c->run);
    if (rc == 0)
        rc = schedule->overlaps ? take_overlapping_steps(c, p->options->samples)
                                : take_steps(c, p->options->samples);
    if (rc == 0 && rank == 0)
        put_row(p, schedule, planned_s, c->step_s);
    if (rc == 0 && c->marks)
        rc = draw(p, schedule, c, sim, planned_s, status);
    rf_run_close(c->run);
    c->run = NULL;
    rf_sim_destroy(sim);
    rf_plan_destroy(plan);
    return rc;
}

static int measure_all(struct pipeline *p, struct rf_comm *comm, const struct rf_block *blocks,
                       struct timed_device *timed)
{
    struct pipeline_marks *marks = p->options->plot_path ? calloc(1, sizeof(*marks)) : NULL;
    struct course course = {.comm = comm, .timed = timed, .marks = marks};
    int rc = 0, status = TOOL_OK;
    if (p->options->plot_path && !marks)
        return tool_error(p->command, "out of memory for a picture");
    for (size_t i = 0; i < sizeof(schedules) / sizeof(schedules[0]) && rc == 0; i++)
        if (!p->chosen || p->chosen == &schedules[i])
            rc = measure(p, &course, blocks, &schedules[i], &status);
    free(marks);
    return rc < 0 ? tool_library_error(p->command, rf_comm_rank(comm)) : status;
}

static int run_rank(struct rf_comm *comm, void *user)
{
    struct pipeline *p = user;
    const int rank = rf_comm_rank(comm);
    struct rf_block blocks[CHUNKS * MOST_RANKS];
    struct rf_param_desc params[CHUNKS * MOST_RANKS];
    char names[CHUNKS * MOST_RANKS][2][16], text[16];
    struct timed_device timed;
    for (int i = 0; i < p->blocks; i++) {
        snprintf(names[i][0], sizeof(names[i][0]), "block%d", i);
        snprintf(names[i][1], sizeof(names[i][1]), "block%d.w", i);
        params[i] = (struct rf_param_desc){.name = names[i][1], .shape = rf_shape1(ELEMENTS)};
        blocks[i] = (struct rf_block){.name = names[i][0],
                                      .ops = &timed_ops,
                                      .self = &timed,
                                      .params = &params[i],
                                      .param_count = 1,
                                      .varies = true};
    }
    if (rf_device_open(tool_rank_device(p->options->device, text), NULL, &p->devices[rank]) < 0)
        return tool_library_error(p->command, rank);
    int status = timed_open(p->command, rank, p->devices[rank], &timed);
    if (status != TOOL_OK)
        return status;
    timed.seconds =
        (struct timed_seconds){p->seconds.forward / CHUNKS, p->seconds.backward_input / CHUNKS,
                               p->seconds.backward_weight / CHUNKS};
    timed.channels = CHANNELS;
    if (rank == 0)
        put_header(p);
    status = measure_all(p, comm, blocks, &timed);
    timed_close(&timed);
    if (status != TOOL_OK || rank != 0 || !p->options->json_path)
        return status;
    cJSON *json = p->json;
    p->json = NULL;
    return tool_json_write(p->command, p->options->json_path, json);
}

/* ---- all schedules --------------------------------------------------------------------------- */

/* "100x100x100", milliseconds. */
static bool read_times(const char *text, double scale, struct timed_seconds *out)
{
    double ms[3];
    for (int k = 0; k < 3; k++) {
        const size_t bytes = strcspn(text, "x");
        if (tool_read_real(text, bytes, 0, 60000, &ms[k]) != TOOL_NUMBER_OK ||
            text[bytes] != (k < 2 ? 'x' : '\0'))
            return false;
        text += bytes + 1;
    }
    *out = (struct timed_seconds){ms[0] * scale * 1e-3, ms[1] * scale * 1e-3, ms[2] * scale * 1e-3};
    return ms[0] > 0;
}

static int choose(const struct tool_command *command, const struct bench_options *options,
                  const struct schedule **out)
{
    char names[160] = "";
    size_t used = 0;
    if (options->plot_path && !options->schedule)
        return tool_usage_error(command, "--plot draws one schedule; name it by --schedule");
    if (options->plot_path && svg_check(command, options->plot_path) != TOOL_OK)
        return TOOL_USAGE;
    for (size_t i = 0; i < sizeof(schedules) / sizeof(schedules[0]); i++) {
        if (!options->schedule || strcmp(schedules[i].name, options->schedule) == 0) {
            *out = options->schedule ? &schedules[i] : NULL;
            if (options->plot_path && schedules[i].overlaps)
                return tool_usage_error(command,
                                        "--plot compares steps that begin at once, and those of %s "
                                        "overlap; ringforge plan --plot draws it",
                                        schedules[i].name);
            return TOOL_OK;
        }
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                 schedules[i].name);
    }
    return tool_usage_error(command, "--schedule \"%s\" is not measured; there are %s",
                            options->schedule, names);
}

int bench_pipeline(const struct tool_command *command, const struct bench_options *options,
                   char *const *argv)
{
    struct pipeline p = {.command = command, .options = options};
    struct tool_ranks ranks = options->ranks;
    ranks.provider = ranks.provider ? ranks.provider : "loopback";
    int status = tool_ranks_count(command, &ranks, &p.ranks);
    if (status == TOOL_OK && p.ranks == 1 && !ranks.ranks)
        p.ranks = (int)(ranks.ranks = DEFAULT_RANKS);
    if (status != TOOL_OK)
        return status;
    if (p.ranks < 2 || p.ranks > MOST_RANKS)
        return tool_usage_error(
            command, "a pipeline of %d ranks cannot be measured; use --ranks 2 to 8", p.ranks);
    if (!read_times(options->times, options->scale, &p.seconds))
        return tool_usage_error(command,
                                "--times \"%s\" is not FxIxW, milliseconds of a forward pass (more "
                                "than 0) and of each half of a backward pass",
                                options->times);
    status = choose(command, options, &p.chosen);
    if (status != TOOL_OK)
        return status;
    p.blocks = CHUNKS * p.ranks;
    p.micro_batches = ROUNDS * p.ranks;
    p.json = cJSON_CreateObject();
    cJSON_AddStringToObject(p.json, "op", options->op);
    cJSON_AddStringToObject(p.json, "provider", ranks.provider);
    cJSON_AddNumberToObject(p.json, "ranks", p.ranks);
    cJSON_AddNumberToObject(p.json, "blocks", p.blocks);
    cJSON_AddNumberToObject(p.json, "micro_batches", p.micro_batches);
    p.rows = cJSON_AddArrayToObject(p.json, "rows");
    status = tool_ranks_run(command, &ranks, argv, run_rank, &p);
    for (int rank = 0; rank < MOST_RANKS; rank++)
        rf_device_close(p.devices[rank]);
    cJSON_Delete(p.json);
    return status;
}
