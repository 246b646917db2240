/* SPDX-License-Identifier: MIT
 *
 * ringforge bench overlap: how much of communication a training step does not hide, of each stage
 * of sharding. Ranks as threads, blocks that take a known time (bench_timed.h), on a link of known
 * speed; so a step can be computed: by a formula, and by the plan's own simulator. Then over bucket
 * sizes, of which the best is that of the latency and bandwidth model.
 */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "bench_timed.h"

enum { SWEEP = 5, MOST_BLOCKS = 16, MOST_RANKS = 4, MOST_MICRO_BATCHES = 8, SEQ = 4 };

/* ---- settings -------------------------------------------------------------------------------- */

struct setting {
    const char *name;
    int ranks, blocks;
    int rounds;       /* micro-batches of a rank */
    int64_t elements; /* of each block's parameter */
    struct timed_seconds seconds;
    double transfer_s; /* a block's reduce-scatter or gather on two ranks; its all-reduce: two */
    double latency_s;
    uint64_t bucket_bytes;
    struct rf_policy policy; /* stage, order, and what is switched off */
    int shard;
    double transfers;    /* that stay exposed, those of 16 bits by half; 0: see pipeline_s */
    enum rf_dtype dtype; /* as blocks see parameters */
    const char *exposed;
};

#define BLOCKS 4
/* A bucket each. A block's forward pass takes 50 ms, and each half of its backward pass. */
#define FOUR_BLOCKS(dp, its_rounds, seconds_)                                                      \
    .ranks = (dp), .rounds = (its_rounds), .transfer_s = (seconds_), .blocks = BLOCKS,             \
    .elements = 65536, .bucket_bytes = 65536 * 4, .seconds = {0.05, 0.05, 0.05}

static const struct setting settings[] = {
    {"data parallel", FOUR_BLOCKS(2, 1, 0.04), .transfers = 2, .exposed = "the last all-reduce"},
    {"data parallel, no overlap", FOUR_BLOCKS(2, 1, 0.04), .transfers = 2 * BLOCKS,
     .policy = {.no_overlap = true}, .exposed = "all of them"},
    {"zero 1", FOUR_BLOCKS(2, 1, 0.04), .transfers = 1 + BLOCKS, .policy = {.zero = 1},
     .exposed = "the last reduce-scatter, the gathers after the update"},
    {"zero 1, bf16", FOUR_BLOCKS(2, 1, 0.04), .transfers = 1.5, .dtype = RF_BF16,
     .policy = {.zero = 1}, .exposed = "the last reduce-scatter, the first gather"},
    {"zero 2, 4 rounds", FOUR_BLOCKS(2, 4, 0.05), .transfers = 1 + BLOCKS, .policy = {.zero = 2},
     .exposed = "the last reduce-scatter, the gathers after the update"},
    {"zero 2, tree order", FOUR_BLOCKS(2, 4, 0.05), .transfers = 1 + BLOCKS,
     .policy = {.zero = 2, .order = RF_ORDER_TREE}, .exposed = "the same"},
    {"zero 3", FOUR_BLOCKS(2, 1, 0.04), .transfers = 2, .policy = {.zero = 3},
     .exposed = "the first gather, the last reduce-scatter"},
    {"zero 3, 4 rounds", FOUR_BLOCKS(2, 4, 0.04), .transfers = 2, .policy = {.zero = 3},
     .exposed = "the same"},
    {"zero 3, two copies", FOUR_BLOCKS(4, 1, 0.04), .transfers = 3, .shard = 2,
     .policy = {.zero = 3}, .exposed = "the same, the last sum over the copies"},
    {"zero 3, no prefetch", FOUR_BLOCKS(2, 1, 0.04), .transfers = 3 * BLOCKS - 1,
     .policy = {.zero = 3, .no_prefetch = true}, .exposed = "all of them"},
    {"zero 3, no overlap", FOUR_BLOCKS(2, 1, 0.04), .transfers = 3 * BLOCKS - 1,
     .policy = {.zero = 3, .no_overlap = true}, .exposed = "all of them"},
};

/* From 512 KiB on two ranks use the ring. */
static const struct setting sweep = {.name = "bucket sweep",
                                     .ranks = 2,
                                     .blocks = MOST_BLOCKS,
                                     .rounds = 1,
                                     .elements = 131072,
                                     .seconds = {.backward_input = 0.024},
                                     .transfer_s = 0.003,
                                     .latency_s = 0.020,
                                     .exposed = "by the model of latency and bandwidth"};

/* ---- what a step must take ------------------------------------------------------------------- */

static double bytes_per_s(const struct setting *s)
{
    return (double)s->elements * 2 / s->transfer_s;
}

static double compute_s(const struct setting *s)
{
    return s->rounds * s->blocks *
           (s->seconds.forward + s->seconds.backward_input + s->seconds.backward_weight);
}

/* Buckets of several blocks on a ring of two: two messages of half a bucket each way. One more
 * shares the losses. */
static double pipeline_s(const struct setting *s)
{
    int per_bucket = (int)(s->bucket_bytes / ((uint64_t)s->elements * 4));
    double end = 0;
    per_bucket = per_bucket < 1 ? 1 : per_bucket;
    for (int block = 0; block < s->blocks; block += per_bucket) {
        const int there = per_bucket < s->blocks - block ? per_bucket : s->blocks - block;
        const double ready = (block + there) * s->seconds.backward_input;
        end = (end < ready ? ready : end) + 2 * s->latency_s + 2 * there * s->transfer_s;
    }
    return end + s->latency_s;
}

static double formula_s(const struct setting *s)
{
    return s->transfers ? compute_s(s) + s->transfers * s->transfer_s : pipeline_s(s);
}

/* That lanes are not to run side by side is not in a plan: the executor waits then. */
static bool is_simulated(const struct setting *s)
{
    return !s->policy.no_overlap;
}

/* By the plan; nothing but blocks and transfers takes time. */
static int simulate(const struct setting *s, const struct rf_plan *plan, double *out)
{
    double verb_s[RF_VERB_COUNT];
    struct rf_sim_result result;
    struct rf_sim *sim = NULL;
    for (int verb = 0; verb < RF_VERB_COUNT; verb++)
        verb_s[verb] = -1;
    verb_s[RF_VERB_FORWARD] = s->seconds.forward;
    verb_s[RF_VERB_BACKWARD_INPUT] = s->seconds.backward_input;
    verb_s[RF_VERB_BACKWARD_WEIGHT] = s->seconds.backward_weight;
    const struct rf_sim_opts opts = {.verb_s = verb_s,
                                     .rates = {.block_flops_per_s = INFINITY,
                                               .flops_per_s = INFINITY,
                                               .bytes_per_s = INFINITY,
                                               .host_bytes_per_s = INFINITY,
                                               .link_bytes_per_s = bytes_per_s(s),
                                               .link_latency_s = s->latency_s}};
    int rc = rf_plan_simulate_job(plan, &opts, &sim);
    if (rc < 0)
        return rc;
    rf_sim_get_result(sim, 0, &result);
    rf_sim_destroy(sim);
    *out = result.step_s;
    return 0;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* On rank 0. */
struct result {
    double step_s, exposed_s; /* the best step, and what it reports */
    double planned_s;
    uint64_t sent_bytes, planned_bytes;
};

struct overlap {
    const struct tool_command *command;
    const struct bench_options *options;
    const struct setting *setting;
    struct rf_device *devices[MOST_RANKS]; /* a communicator keeps timelines on them */
    struct result result;
};

static int take_steps(struct rf_run *run, int64_t count, struct result *out)
{
    static const int32_t words[SEQ * MOST_MICRO_BATCHES] = {0};
    int rc = 0;
    out->step_s = INFINITY;
    for (int64_t i = -1; i < count && rc == 0; i++) { /* the first compiles kernels */
        struct rf_step_stats stats = {0};
        rc = rf_run_step(run, words, words, 0.1f, &stats);
        out->sent_bytes = stats.sent_bytes;
        if (i < 0 || (double)stats.step_ns * 1e-9 > out->step_s)
            continue;
        out->step_s = (double)stats.step_ns * 1e-9;
        out->exposed_s = (double)stats.exposed_comm_ns * 1e-9;
    }
    return rc;
}

static int run_plan(struct overlap *o, struct rf_comm *comm, const struct rf_plan *plan)
{
    struct rf_run *run = NULL;
    struct rf_bytes bytes;
    struct result result = {0};
    int rc = simulate(o->setting, plan, &result.planned_s);
    if (rc == 0)
        rc = rf_run_open(o->devices[rf_comm_rank(comm)], comm, plan, NULL, &run);
    if (rc == 0)
        rc = take_steps(run, o->options->samples, &result);
    rf_run_close(run);
    rf_plan_bytes(plan, &bytes);
    result.planned_bytes = bytes.sent;
    if (rc == 0 && rf_comm_rank(comm) == 0)
        o->result = result;
    return rc;
}

static int build_plan(const struct setting *s, struct rf_comm *comm, struct rf_block *blocks,
                      struct rf_plan **out)
{
    const struct rf_mesh mesh = {.dp = s->ranks, .shard = s->shard};
    struct rf_policy policy = s->policy;
    policy.batch = policy.micro_batches = (int64_t)s->ranks * s->rounds;
    policy.seq = SEQ;
    policy.bucket_bytes = policy.first_bucket_bytes = s->bucket_bytes;
    policy.optimizer.kind = RF_SGD;
    return rf_plan_build((struct rf_blocks){blocks, s->blocks}, &mesh, &policy, rf_comm_rank(comm),
                         out);
}

static int run_rank(struct rf_comm *comm, void *user)
{
    struct overlap *o = user;
    const struct setting *s = o->setting;
    struct rf_block blocks[MOST_BLOCKS];
    struct rf_param_desc params[MOST_BLOCKS];
    char names[MOST_BLOCKS][2][16];
    struct timed_device timed;
    for (int i = 0; i < s->blocks; i++) {
        snprintf(names[i][0], sizeof(names[i][0]), "block%d", i);
        snprintf(names[i][1], sizeof(names[i][1]), "block%d.w", i);
        params[i] = (struct rf_param_desc){
            .name = names[i][1], .shape = rf_shape1(s->elements), .dtype = s->dtype};
        blocks[i] = (struct rf_block){.name = names[i][0],
                                      .ops = &timed_ops,
                                      .self = &timed,
                                      .params = &params[i],
                                      .param_count = 1,
                                      .varies = true};
    }
    struct rf_plan *plan = NULL;
    int status = timed_open(o->command, rf_comm_rank(comm), o->devices[rf_comm_rank(comm)], &timed);
    if (status != TOOL_OK)
        return status;
    timed.seconds = s->seconds;
    int rc = build_plan(s, comm, blocks, &plan);
    if (rc == 0)
        rc = run_plan(o, comm, plan);
    timed_close(&timed);
    rf_plan_destroy(plan);
    return rc == 0 ? TOOL_OK : tool_library_error(o->command, rf_comm_rank(comm));
}

/* ---- all settings ---------------------------------------------------------------------------- */

static bool is_quiet(const struct overlap *o)
{
    return o->options->json_path && strcmp(o->options->json_path, "-") == 0;
}

static void print_row(const struct setting *s, const struct result *r)
{
    char planned[16] = "-";
    if (is_simulated(s))
        snprintf(planned, sizeof(planned), "%.1f", r->planned_s * 1e3);
    printf("%-25s %10llu %9.1f %9s %9.1f %7.3f %9.1f %9.1f  %s\n", s->name,
           (unsigned long long)s->bucket_bytes, r->step_s * 1e3, planned, formula_s(s) * 1e3,
           r->step_s / formula_s(s), r->exposed_s * 1e3, (formula_s(s) - compute_s(s)) * 1e3,
           s->exposed);
    fflush(stdout);
}

static cJSON *row_of(const struct setting *s, const struct result *r)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "setting", s->name);
    cJSON_AddNumberToObject(row, "ranks", s->ranks);
    cJSON_AddNumberToObject(row, "zero", s->policy.zero);
    cJSON_AddNumberToObject(row, "micro_batches", s->ranks * s->rounds);
    cJSON_AddNumberToObject(row, "bucket_bytes", (double)s->bucket_bytes);
    cJSON_AddNumberToObject(row, "compute_ms", compute_s(s) * 1e3);
    cJSON_AddNumberToObject(row, "step_ms", r->step_s * 1e3);
    cJSON_AddNumberToObject(row, "computed_step_ms", formula_s(s) * 1e3);
    if (is_simulated(s))
        cJSON_AddNumberToObject(row, "planned_step_ms", r->planned_s * 1e3);
    else
        cJSON_AddNullToObject(row, "planned_step_ms");
    cJSON_AddNumberToObject(row, "exposed_ms", r->exposed_s * 1e3);
    cJSON_AddNumberToObject(row, "computed_exposed_ms", (formula_s(s) - compute_s(s)) * 1e3);
    cJSON_AddNumberToObject(row, "sent_bytes", (double)r->sent_bytes);
    cJSON_AddNumberToObject(row, "planned_sent_bytes", (double)r->planned_bytes);
    return row;
}

static int measure(struct overlap *o, const struct setting *original, cJSON *rows)
{
    struct setting s = *original;
    const double scale = o->options->scale;
    s.seconds.forward *= scale;
    s.seconds.backward_input *= scale;
    s.seconds.backward_weight *= scale;
    s.transfer_s *= scale;
    s.latency_s *= scale;
    o->setting = &s;
    struct tool_ranks ranks = {.ranks = s.ranks,
                               .provider = "loopback",
                               .timeout_s = o->options->ranks.timeout_s,
                               .link = {.latency_s = s.latency_s, .bytes_per_s = bytes_per_s(&s)}};
    int status = tool_ranks_run(o->command, &ranks, NULL, run_rank, o);
    if (status != TOOL_OK)
        return status;
    if (!is_quiet(o))
        print_row(&s, &o->result);
    cJSON_AddItemToArray(rows, row_of(&s, &o->result));
    return TOOL_OK;
}

static int measure_all(struct overlap *o, cJSON *rows)
{
    int status = TOOL_OK;
    for (int rank = 0; rank < MOST_RANKS && status == TOOL_OK; rank++)
        if (rf_device_open(o->options->device, NULL, &o->devices[rank]) < 0)
            status = tool_library_error(o->command, rank);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]) && status == TOOL_OK; i++)
        status = measure(o, &settings[i], rows);
    for (int notch = 0; notch < SWEEP && status == TOOL_OK; notch++) {
        struct setting s = sweep;
        s.bucket_bytes = (uint64_t)524288 << notch;
        status = measure(o, &s, rows);
    }
    for (int rank = 0; rank < MOST_RANKS; rank++)
        rf_device_close(o->devices[rank]);
    return status;
}

int bench_overlap(const struct tool_command *command, const struct bench_options *options)
{
    struct overlap o = {.command = command, .options = options};
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "op", options->op);
    cJSON *rows = cJSON_AddArrayToObject(json, "rows");
    if (!is_quiet(&o))
        printf("# ranks as threads; the best of %lld steps in ms, what the plan's simulator says, "
               "and a formula\n%-25s %10s %9s %9s %9s %7s %9s %9s  %s\n",
               (long long)options->samples, "setting", "bucket(B)", "step", "plan", "formula",
               "ratio", "exposed", "formula", "which is");
    int status = measure_all(&o, rows);
    if (status == TOOL_OK && options->json_path)
        return tool_json_write(command, options->json_path, json);
    cJSON_Delete(json);
    return status;
}
