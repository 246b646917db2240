/* SPDX-License-Identifier: MIT
 *
 * Training steps of blocks that take a known time (timed.h), so that a step's time can be computed:
 * by a formula, and by the plan's own simulator.
 *
 * ringforge bench overlap: the exposed communication of a step for each stage of sharding, on ranks
 * as threads and a link of known speed; then for several bucket sizes, the best of which should be
 * that of the latency and bandwidth model. ringforge bench pipeline: the idle time of the ranks of
 * a pipeline, by schedule, compared with the same blocks under data parallelism, where only
 * communication is idle time.
 */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "timed.h"

enum {
    DEFAULT_RANKS = 4,
    ROUNDS = 2, /* micro-batches of a pipeline, for each rank: from here on zbv has the least idle
                 * time */
    SWEEP = 5
};

/* ---- settings -------------------------------------------------------------------------------- */

#define BLOCKS 4
/* One bucket each. A block's forward pass takes 50 ms, and so does each half of its backward pass.
 */
#define FOUR_BLOCKS(DP, ITS_ROUNDS, SECONDS)                                                       \
    .ranks = (DP), .micro_batches = (DP) * (ITS_ROUNDS), .transfer_s = (SECONDS),                  \
    .blocks = BLOCKS, .elements = 65536, .channels = 4, .tokens = 4, .bucket_bytes = 65536 * 4,    \
    .seconds = {0.05, 0.05, 0.05}

static const struct timed_setting overlaps[] = {
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

/* From 512 KiB on, two ranks use the ring. */
static const struct timed_setting sweep = {.name = NULL, /* by its bucket */
                                           .ranks = 2,
                                           .blocks = TIMED_MOST_BLOCKS,
                                           .micro_batches = 2,
                                           .elements = 131072,
                                           .channels = 4,
                                           .tokens = 4,
                                           .seconds = {.backward_input = 0.024},
                                           .transfer_s = 0.003,
                                           .latency_s = 0.020,
                                           .exposed = "by the model of latency and bandwidth"};

/* Two blocks for each rank, with 256 KiB of f32 between two and a parameter of 1 MiB; a schedule of
 * one chunk for each rank gives it both. */
#define OF_JOB .elements = 262144, .channels = 1024, .tokens = 64
#define SCHEDULE(KIND) OF_JOB, .pp = true, .policy = {.pipeline = (KIND)}
static const struct timed_setting schedules[] = {
    {"data parallel", .exposed = "nothing", OF_JOB},
    {"zero 3", .exposed = "nothing", OF_JOB, .policy = {.zero = 3}},
    {"naive", .exposed = "m (p - 1) (F + I)", SCHEDULE(RF_PIPELINE_NAIVE)},
    {"gpipe", .exposed = "(p - 1) (F + I)", SCHEDULE(RF_PIPELINE_GPIPE)},
    {"1f1b", .exposed = "(p - 1) (F + I)", SCHEDULE(RF_PIPELINE_1F1B)},
    {"interleaved:2", .exposed = "(p - 1) (F + I) / 2", SCHEDULE(RF_PIPELINE_INTERLEAVED)},
    {"zbh1", .exposed = "(p - 1) (F + I - W)", SCHEDULE(RF_PIPELINE_ZBH1)},
    {"zbv", .exposed = "(p - 1) F / 2, of equal parts", SCHEDULE(RF_PIPELINE_ZBV)},
    {"2bw", .exposed = "nothing, of equal parts", SCHEDULE(RF_PIPELINE_2BW), .overlaps = true},
};

/* ---- the minimum time of a step
 * -------------------------------------------------------------------
 */

static double busy_s(const struct timed_setting *s)
{
    return (double)s->micro_batches * s->blocks / s->ranks *
           (s->seconds.forward + s->seconds.backward_input + s->seconds.backward_weight);
}

/* Buckets of several blocks on a ring of two: two messages of half a bucket each way. One more
 * shares the losses. */
static double buckets_s(const struct timed_setting *s)
{
    const int fit = (int)(s->bucket_bytes / ((uint64_t)s->elements * 4));
    const int per_bucket = fit < 1 ? 1 : fit;
    double end = 0;
    for (int block = 0; block < s->blocks; block += per_bucket) {
        const int there = per_bucket < s->blocks - block ? per_bucket : s->blocks - block;
        const double ready = (block + there) * s->seconds.backward_input;
        end = (end < ready ? ready : end) + 2 * s->latency_s + 2 * there * s->transfer_s;
    }
    return end + s->latency_s;
}

/* NAN: no formula. A gradient is sent before the weight half, which gpipe, 1f1b and interleaved do
 * right after it. */
static double idle_s(const struct timed_setting *s)
{
    const double forward = s->seconds.forward * TIMED_CHUNKS,
                 input = s->seconds.backward_input * TIMED_CHUNKS,
                 weight = s->seconds.backward_weight * TIMED_CHUNKS, others = s->ranks - 1;
    const bool equal = forward == input && input == weight;
    switch (s->policy.pipeline) {
    case RF_PIPELINE_NAIVE:
        return s->micro_batches * others * (forward + input);
    case RF_PIPELINE_INTERLEAVED:
        return others * (forward + input) / TIMED_CHUNKS;
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

static double formula_s(const struct timed_setting *s)
{
    return s->latency_s > 0 ? buckets_s(s)
           : s->pp          ? busy_s(s) + idle_s(s)
                            : busy_s(s) + s->transfers * s->transfer_s;
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct steps {
    const struct tool_command *command;
    const struct bench_options *options;
    const struct timed_setting *settings; /* of this job */
    int count;
    cJSON *json, *rows;                          /* rank 0 fills and writes them */
    struct rf_device *devices[TIMED_MOST_RANKS]; /* a communicator keeps timelines on them */
};

static bool is_quiet(const struct bench_options *o)
{
    return (o->json_path && strcmp(o->json_path, "-") == 0) ||
           (o->plot_path && strcmp(o->plot_path, "-") == 0);
}

/* The share of a step in which a rank computes nothing. */
static double share(const struct timed_setting *s, double step_s)
{
    return 1 - busy_s(s) / step_s;
}

static void put_header(const struct steps *b)
{
    const struct bench_options *o = b->options;
    const struct timed_setting *s = &b->settings[0];
    const double ms = 1e3 * TIMED_CHUNKS;
    if (is_quiet(o))
        return;
    if (b->json)
        printf("# %d ranks, %d micro-batches, %d blocks, %g + %g + %g ms for a rank's blocks and a "
               "micro-batch\n",
               s->ranks, s->micro_batches, s->blocks, s->seconds.forward * ms,
               s->seconds.backward_input * ms, s->seconds.backward_weight * ms);
    printf("# the best of %lld steps in ms (2bw: their mean), what the plan's simulator says, "
           "and a formula;\n# idle: %% of the step; exposed: communication in ms, as the step "
           "reports it\n%-25s %8s %8s %8s %8s %8s %8s %8s %8s %8s  %s\n",
           (long long)o->samples, "setting", "step", "plan", "formula", "plan/st", "st/form",
           "idle", "plan", "formula", "exposed", "beside the blocks");
}

/* A plan does not know that lanes are not to run concurrently: the executor waits then. */
static void put_row(struct steps *b, const struct timed_setting *s, const struct timed_result *r)
{
    const double formula = formula_s(s), planned = s->policy.no_overlap ? NAN : r->planned_s;
    const double columns[] = {
        r->step_s * 1e3,         planned * 1e3,           formula * 1e3,
        planned / r->step_s,     r->step_s / formula,     100 * share(s, r->step_s),
        100 * share(s, planned), 100 * share(s, formula), s->overlaps ? NAN : r->exposed_s * 1e3};
    const char *const formats = "111332221"; /* digits behind the point */
    if (!is_quiet(b->options)) {
        printf("%-25s", s->name);
        for (int i = 0; i < (int)(sizeof(columns) / sizeof(columns[0])); i++)
            isnan(columns[i]) ? printf(" %8s", "-")
                              : printf(" %8.*f", formats[i] - '0', columns[i]);
        printf("  %s\n", s->exposed);
    }
    fflush(stdout);
    /* NaN is written as null. */
    const struct {
        const char *name;
        double value;
    } fields[] = {{"ranks", s->ranks},
                  {"zero", s->policy.zero},
                  {"micro_batches", s->micro_batches},
                  {"bucket_bytes", s->bucket_bytes ? (double)s->bucket_bytes : NAN},
                  {"busy_ms", busy_s(s) * 1e3},
                  {"step_ms", r->step_s * 1e3},
                  {"planned_step_ms", planned * 1e3},
                  {"computed_step_ms", formula * 1e3},
                  {"idle", share(s, r->step_s)},
                  {"planned_idle", share(s, planned)},
                  {"computed_idle", share(s, formula)},
                  {"exposed_ms", s->overlaps ? NAN : r->exposed_s * 1e3},
                  {"computed_exposed_ms", s->pp ? NAN : (formula - busy_s(s)) * 1e3},
                  {"sent_bytes", (double)r->sent_bytes},
                  {"planned_sent_bytes", (double)r->planned_bytes}};
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "setting", s->name);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        cJSON_AddNumberToObject(row, fields[i].name, fields[i].value);
    cJSON_AddItemToArray(b->rows, row);
}

/* ---- a job ----------------------------------------------------------------------------------- */

static int measure(struct steps *b, struct rf_comm *comm, const struct timed_setting *s,
                   struct timed_marks *marks)
{
    const int rank = rf_comm_rank(comm);
    struct timed_result result;
    int status =
        timed_measure(b->command, comm, b->devices[rank], s, b->options->samples, marks, &result);
    if (status == TOOL_OK && rank == 0)
        put_row(b, s, &result);
    const double idle[2] = {share(s, result.planned_s), share(s, result.step_s)};
    if (status == TOOL_OK && marks)
        status = timed_draw(b->command, comm, b->options->plot_path, s, &result, idle, marks);
    rf_sim_destroy(result.sim);
    rf_plan_destroy(result.plan);
    return status;
}

static int run_rank(struct rf_comm *comm, void *user)
{
    struct steps *b = user;
    const int rank = rf_comm_rank(comm);
    char text[16];
    if (!b->devices[rank] &&
        rf_device_open(tool_rank_device(b->options->device, text), NULL, &b->devices[rank]) < 0)
        return tool_library_error(b->command, rank);
    struct timed_marks *marks = b->options->plot_path ? calloc(1, sizeof(*marks)) : NULL;
    int status = TOOL_OK;
    if (b->options->plot_path && !marks)
        return tool_error(b->command, "out of memory for a picture");
    if (rank == 0 && b->json)
        put_header(b);
    for (int i = 0; i < b->count && status == TOOL_OK; i++)
        status = measure(b, comm, &b->settings[i], marks);
    free(marks);
    if (status != TOOL_OK || rank != 0 || !b->options->json_path || !b->json)
        return status;
    cJSON *json = b->json;
    b->json = NULL;
    return tool_json_write(b->command, b->options->json_path, json);
}

static cJSON *begin_json(struct steps *b)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "op", b->options->op);
    b->rows = cJSON_AddArrayToObject(json, "rows");
    return json;
}

static void close_devices(struct steps *b)
{
    for (int rank = 0; rank < TIMED_MOST_RANKS; rank++)
        rf_device_close(b->devices[rank]);
}

static void scale(struct timed_setting *s, double by)
{
    s->seconds.forward *= by;
    s->seconds.backward_input *= by;
    s->seconds.backward_weight *= by;
    s->transfer_s *= by;
    s->latency_s *= by;
}

/* ---- overlap --------------------------------------------------------------------------------- */

/* A job for each setting: ranks and link differ. */
int bench_overlap(const struct tool_command *command, const struct bench_options *options)
{
    enum { COUNT = sizeof(overlaps) / sizeof(overlaps[0]) };
    struct steps b = {.command = command, .options = options, .count = 1};
    cJSON *json = begin_json(&b);
    char name[32];
    int status = TOOL_OK;
    b.settings = overlaps;
    put_header(&b);
    for (int i = 0; i < COUNT + SWEEP && status == TOOL_OK; i++) {
        struct timed_setting s = i < COUNT ? overlaps[i] : sweep;
        if (i >= COUNT) {
            s.bucket_bytes = (uint64_t)524288 << (i - COUNT);
            snprintf(name, sizeof(name), "bucket sweep, %llu KiB",
                     (unsigned long long)s.bucket_bytes >> 10);
            s.name = name;
        }
        scale(&s, options->scale);
        b.settings = &s;
        struct tool_ranks ranks = {
            .ranks = s.ranks,
            .provider = "loopback",
            .timeout_s = options->ranks.timeout_s,
            .link = {.latency_s = s.latency_s, .bytes_per_s = timed_bytes_per_s(&s)}};
        status = tool_ranks_run(command, &ranks, NULL, run_rank, &b);
    }
    close_devices(&b);
    if (status == TOOL_OK && options->json_path)
        return tool_json_write(command, options->json_path, json);
    cJSON_Delete(json);
    return status;
}

/* ---- pipeline -------------------------------------------------------------------------------- */

/* "100x100x100", milliseconds of a rank's blocks. */
static bool read_times(const char *text, struct timed_seconds *out)
{
    double ms[3];
    for (int k = 0; k < 3; k++) {
        const size_t bytes = strcspn(text, "x");
        if (tool_read_real(text, bytes, 0, 60000, &ms[k]) != TOOL_NUMBER_OK ||
            text[bytes] != (k < 2 ? 'x' : '\0'))
            return false;
        text += bytes + 1;
    }
    *out = (struct timed_seconds){ms[0] / TIMED_CHUNKS * 1e-3, ms[1] / TIMED_CHUNKS * 1e-3,
                                  ms[2] / TIMED_CHUNKS * 1e-3};
    return ms[0] > 0;
}

/* The schedules to measure: from *first, *count of them. */
static int choose(const struct tool_command *command, const struct bench_options *options,
                  int *first, int *count)
{
    char names[160] = "";
    size_t used = 0;
    *first = 0;
    *count = sizeof(schedules) / sizeof(schedules[0]);
    if (options->plot_path && !options->schedule)
        return tool_usage_error(command, "--plot draws one schedule; name it by --schedule");
    for (int i = 0; options->schedule && i < *count; i++) {
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                 schedules[i].name);
        if (strcmp(schedules[i].name, options->schedule) != 0)
            continue;
        if (options->plot_path && schedules[i].overlaps)
            return tool_usage_error(command,
                                    "--plot compares steps that begin at once, and those of %s "
                                    "overlap; ringforge plan --plot draws it",
                                    schedules[i].name);
        *first = i;
        *count = 1;
        return TOOL_OK;
    }
    return options->schedule
               ? tool_usage_error(command, "--schedule \"%s\" is not measured; there are %s",
                                  options->schedule, names)
               : TOOL_OK;
}

static int prepare(struct steps *b, struct tool_ranks *ranks, struct timed_setting *settings)
{
    const struct tool_command *command = b->command;
    const struct bench_options *o = b->options;
    struct timed_seconds seconds;
    int first = 0, count = 0;
    ranks->provider = ranks->provider ? ranks->provider : "loopback";
    int status = tool_ranks_count(command, ranks, &count);
    if (status != TOOL_OK)
        return status;
    if (count == 1 && !ranks->ranks)
        count = (int)(ranks->ranks = DEFAULT_RANKS);
    if (count < 2 || count > TIMED_MOST_RANKS)
        return tool_usage_error(
            command, "a pipeline of %d ranks cannot be measured; use --ranks 2 to 8", count);
    if (!read_times(o->times, &seconds))
        return tool_usage_error(command,
                                "--times \"%s\" is not FxIxW, milliseconds of a forward pass (more "
                                "than 0) and of each half of a backward pass",
                                o->times);
    status = choose(command, o, &first, &b->count);
    for (int i = 0; i < b->count; i++) {
        settings[i] = schedules[first + i];
        settings[i].seconds = seconds;
        settings[i].ranks = count;
        settings[i].blocks = TIMED_CHUNKS * count;
        settings[i].micro_batches = ROUNDS * count;
        scale(&settings[i], o->scale);
    }
    b->settings = settings;
    return status;
}

int bench_pipeline(const struct tool_command *command, const struct bench_options *options,
                   char *const *argv)
{
    struct steps b = {.command = command, .options = options};
    struct timed_setting settings[sizeof(schedules) / sizeof(schedules[0])];
    struct tool_ranks ranks = options->ranks;
    int status = prepare(&b, &ranks, settings);
    if (status != TOOL_OK)
        return status;
    b.json = begin_json(&b);
    tool_json_put(b.json, "provider=%s blocks=%d", ranks.provider, settings[0].blocks);
    status = tool_ranks_run(command, &ranks, argv, run_rank, &b);
    close_devices(&b);
    cJSON_Delete(b.json);
    return status;
}
