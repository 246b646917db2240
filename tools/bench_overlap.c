/* SPDX-License-Identifier: MIT
 *
 * ringforge bench overlap: how much of communication a training step does not hide. Two ranks as
 * threads, blocks whose backward pass is a wait of known length, on a link of known speed, so what
 * a step must take can be computed: by blocks of 100 ms and buckets of 80 ms, with overlap and
 * without; then over bucket sizes, of which the best is that of the latency and bandwidth model.
 */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "bench.h"

enum { RANKS = 2, SWEEP = 5, MOST_BLOCKS = 16 };

/* One setting, and what it took on rank 0. */
struct setting {
    int blocks;
    int64_t elements; /* of each block's parameter */
    double compute_s, latency_s, bytes_per_s;
    uint64_t bucket_bytes;
    bool no_overlap;
    double step_s, exposed_s;
};

struct overlap {
    const struct tool_command *command;
    const struct bench_options *options;
    struct setting *setting;
    struct rf_device *devices[RANKS]; /* a communicator keeps timelines on them: they outlive it */
};

/* ---- blocks that wait instead of computing --------------------------------------------------- */

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    return rf_fill(ctx->stream, ctx->losses, 1.0f);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    const double seconds = ((const struct setting *)self)->compute_s;
    struct timespec left = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
    return 0;
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    return rf_fill(ctx->stream, ctx->grads[0], 1.0f);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    *out = (struct rf_block_sizes){.out = rf_shape2(rows, 4)};
    return 0;
}

static const struct rf_block_ops waiting_ops = {forward, backward_input, backward_weight, sizes};

/* ---- what the model says --------------------------------------------------------------------- */

/* A ring of two: two messages of half a bucket each way. */
static double bucket_s(const struct setting *s, int blocks)
{
    return 2 * s->latency_s + (double)blocks * (double)s->elements * 4 / s->bytes_per_s;
}

static void predict(const struct setting *s, double *step_s, double *exposed_s)
{
    int per_bucket = (int)(s->bucket_bytes / ((uint64_t)s->elements * 4));
    double end = 0;
    per_bucket = per_bucket < 1 ? 1 : per_bucket;
    for (int block = 0; block < s->blocks; block += per_bucket) {
        const int there = per_bucket < s->blocks - block ? per_bucket : s->blocks - block;
        const double ready =
            s->no_overlap ? end + there * s->compute_s : (block + there) * s->compute_s;
        end = (end < ready ? ready : end) + bucket_s(s, there);
    }
    *step_s = end;
    *exposed_s = end - s->blocks * s->compute_s;
}

/* ---- one rank -------------------------------------------------------------------------------- */

static int take_steps(const struct overlap *o, struct rf_comm *comm, const struct rf_plan *plan)
{
    static const int32_t words[4 * RANKS] = {0};
    struct rf_run *run = NULL;
    double steps[64], exposed[64];
    const int count = o->options->samples < 64 ? (int)o->options->samples : 64;
    int rc = rf_run_open(o->devices[rf_comm_rank(comm)], comm, plan, NULL, &run);
    for (int i = -1; i < count && rc == 0; i++) { /* the first compiles kernels */
        struct rf_step_stats stats = {0};
        rc = rf_run_step(run, words, words, 0.1f, &stats);
        if (i < 0)
            continue;
        steps[i] = (double)stats.step_ns * 1e-9;
        exposed[i] = (double)stats.exposed_comm_ns * 1e-9;
    }
    rf_run_close(run);
    if (rc < 0)
        return tool_library_error(o->command, rf_comm_rank(comm));
    if (rf_comm_rank(comm) == 0) {
        o->setting->step_s = bench_quantiles(steps, count).best;
        o->setting->exposed_s = bench_quantiles(exposed, count).best;
    }
    return TOOL_OK;
}

static int run_rank(struct rf_comm *comm, void *user)
{
    const struct overlap *o = user;
    struct setting *s = o->setting;
    const struct rf_mesh mesh = {.dp = RANKS};
    struct rf_policy policy = {.batch = RANKS,
                               .micro_batches = RANKS,
                               .seq = 4,
                               .bucket_bytes = s->bucket_bytes,
                               .first_bucket_bytes = s->bucket_bytes,
                               .no_overlap = s->no_overlap,
                               .optimizer = {.kind = RF_SGD}};
    struct rf_block blocks[MOST_BLOCKS];
    struct rf_param_desc params[MOST_BLOCKS];
    char names[MOST_BLOCKS][2][16];
    for (int i = 0; i < s->blocks; i++) {
        snprintf(names[i][0], sizeof(names[i][0]), "block%d", i);
        snprintf(names[i][1], sizeof(names[i][1]), "block%d.w", i);
        params[i] = (struct rf_param_desc){
            .name = names[i][1], .shape = rf_shape1(s->elements), .dtype = RF_F32};
        blocks[i] = (struct rf_block){.name = names[i][0],
                                      .ops = &waiting_ops,
                                      .self = s,
                                      .params = &params[i],
                                      .param_count = 1,
                                      .varies = true};
    }
    struct rf_plan *plan = NULL;
    int rc = rf_plan_build(blocks, s->blocks, &mesh, &policy, rf_comm_rank(comm), &plan);
    int status =
        rc == 0 ? take_steps(o, comm, plan) : tool_library_error(o->command, rf_comm_rank(comm));
    rf_plan_destroy(plan);
    return status;
}

/* ---- all settings ---------------------------------------------------------------------------- */

static int measure(const struct overlap *o, const char *what, cJSON *rows)
{
    const bool quiet = o->options->json_path && strcmp(o->options->json_path, "-") == 0;
    const struct setting *s = o->setting;
    struct tool_ranks ranks = {.ranks = RANKS,
                               .provider = "loopback",
                               .timeout_s = o->options->ranks.timeout_s,
                               .link = {.latency_s = s->latency_s, .bytes_per_s = s->bytes_per_s}};
    double step_s, exposed_s;
    int status = tool_ranks_run(o->command, &ranks, NULL, run_rank, (void *)(uintptr_t)o);
    if (status != TOOL_OK)
        return status;
    predict(s, &step_s, &exposed_s);
    if (!quiet)
        printf("%-14s %12llu %10.1f %10.1f %10.1f %10.1f\n", what,
               (unsigned long long)s->bucket_bytes, s->step_s * 1e3, step_s * 1e3,
               s->exposed_s * 1e3, exposed_s * 1e3);
    fflush(stdout);
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "setting", what);
    cJSON_AddNumberToObject(row, "bucket_bytes", (double)s->bucket_bytes);
    cJSON_AddNumberToObject(row, "step_ms", s->step_s * 1e3);
    cJSON_AddNumberToObject(row, "computed_step_ms", step_s * 1e3);
    cJSON_AddNumberToObject(row, "exposed_ms", s->exposed_s * 1e3);
    cJSON_AddNumberToObject(row, "computed_exposed_ms", exposed_s * 1e3);
    cJSON_AddItemToArray(rows, row);
    return TOOL_OK;
}

int bench_overlap(const struct tool_command *command, const struct bench_options *options)
{
    struct overlap o = {.command = command, .options = options};
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "op", options->op);
    cJSON_AddNumberToObject(json, "ranks", RANKS);
    cJSON *rows = cJSON_AddArrayToObject(json, "rows");
    if (!options->json_path || strcmp(options->json_path, "-") != 0)
        printf("# %d ranks as threads; the best of %lld steps in ms, and what it must be\n"
               "%-14s %12s %10s %10s %10s %10s\n",
               RANKS, (long long)options->samples, "setting", "bucket(B)", "step", "computed",
               "exposed", "computed");
    struct setting plain = {.blocks = 4,
                            .elements = 65536,
                            .compute_s = 0.1,
                            .bytes_per_s = 65536 * 4 / 0.08,
                            .bucket_bytes = 65536 * 4};
    o.setting = &plain;
    int status = TOOL_OK;
    for (int rank = 0; rank < RANKS && status == TOOL_OK; rank++)
        if (rf_device_open(options->device, NULL, &o.devices[rank]) < 0)
            status = tool_library_error(command, rank);
    if (status == TOOL_OK)
        status = measure(&o, "overlap", rows);
    plain.no_overlap = true;
    if (status == TOOL_OK)
        status = measure(&o, "no overlap", rows);
    /* From 512 KiB on two ranks use the ring. */
    for (int notch = 0; notch < SWEEP && status == TOOL_OK; notch++) {
        struct setting s = {.blocks = MOST_BLOCKS,
                            .elements = 131072,
                            .compute_s = 0.012,
                            .latency_s = 0.010,
                            .bytes_per_s = 131072 * 4 / 0.003,
                            .bucket_bytes = (uint64_t)524288 << notch};
        o.setting = &s;
        status = measure(&o, "bucket sweep", rows);
    }
    for (int rank = 0; rank < RANKS; rank++)
        rf_device_close(o.devices[rank]);
    if (status == TOOL_OK && options->json_path)
        return tool_json_write(command, options->json_path, json);
    cJSON_Delete(json);
    return status;
}
