/* SPDX-License-Identifier: MIT
 *
 * ringforge bench step: training steps of a GPT-2 on one device, on random tokens: time of a step,
 * tokens per second, and the model's FLOPs per second as counted by Chowdhery et al. 2022 (PaLM,
 * appendix B).
 */
#include <gpt2.h>
#include <math.h>
#include <string.h>

#include "bench.h"

enum { LAYERS, CHANNELS, HEADS, SEQ, BATCH, VOCAB, DIMS };
#define GPU_WORKSPACE (64 << 20)

/* GPT-2 124M on 4096 tokens; a small model for a CPU device. */
static const int gpu_shape[DIMS] = {12, 768, 12, 1024, 4, 50257};
static const int cpu_shape[DIMS] = {2, 128, 4, 64, 4, 512};

struct bench_step {
    const struct bench_options *o;
    int dim[DIMS];
    struct rf_device *device;
    struct gpt2 *model;
    struct rf_plan *plan;
    struct rf_run *run;
    int32_t *tokens, *targets;
    double *seconds;
    double params, first_loss, last_loss;
};

/* "12x768x12x1024x4x50257" */
static bool read_shape(const char *text, int dim[DIMS])
{
    for (int d = 0; d < DIMS; d++) {
        const size_t bytes = strcspn(text, "x");
        int64_t value;
        if (tool_read_int(text, bytes, 1, 1 << 30, &value) != TOOL_NUMBER_OK ||
            text[bytes] != (d + 1 < DIMS ? 'x' : '\0'))
            return false;
        dim[d] = (int)value;
        text += bytes + 1;
    }
    return true;
}

static int open_run(const struct tool_command *command, struct bench_step *s)
{
    int rc = rf_device_open(s->o->device, NULL, &s->device);
    if (rc < 0)
        return tool_library_error(command, -1);
    const bool cpu = rf_device_get_info(s->device)->kind == RF_DEVICE_CPU;
    if (!s->o->shapes.count)
        memcpy(s->dim, cpu ? cpu_shape : gpu_shape, sizeof(s->dim));
    const struct gpt2_config config = {.layers = s->dim[LAYERS],
                                       .channels = s->dim[CHANNELS],
                                       .heads = s->dim[HEADS],
                                       .seq = s->dim[SEQ],
                                       .vocab = s->dim[VOCAB],
                                       .dtype = s->o->dtype};
    const struct rf_policy policy = {.batch = s->dim[BATCH],
                                     .seq = s->dim[SEQ],
                                     .optimizer = {RF_ADAMW, .weight_decay = 0.1f},
                                     .loss_scale = s->o->dtype == RF_F16 ? 65536.0f : 0,
                                     .workspace_bytes = cpu ? 0 : GPU_WORKSPACE};
    if (gpt2_create(&config, &s->model) < 0)
        return tool_usage_error(command, "--shape: %s", rf_last_error()->message);
    int count = 0;
    const struct rf_block *blocks = gpt2_blocks(s->model, &count);
    for (int b = 0; b < count; b++)
        for (int p = 0; p < blocks[b].param_count; p++)
            if (!blocks[b].params[p].tied_to)
                s->params += (double)rf_shape_count(blocks[b].params[p].shape);
    rc = rf_plan_build((struct rf_blocks){blocks, count}, &(struct rf_mesh){1, 1, 1}, &policy, 0,
                       &s->plan);
    if (rc == 0)
        rc = rf_run_open(s->device, NULL, s->plan, &(struct rf_run_opts){.seed = 1}, &s->run);
    return rc < 0 ? tool_library_error(command, -1) : TOOL_OK;
}

static void close_run(struct bench_step *s)
{
    rf_run_close(s->run);
    rf_plan_destroy(s->plan);
    gpt2_destroy(s->model);
    rf_device_close(s->device);
    free(s->tokens);
    free(s->targets);
    free(s->seconds);
}

static void fill_tokens(struct bench_step *s)
{
    uint32_t state = 12345;
    for (int64_t i = 0; i < (int64_t)s->dim[BATCH] * s->dim[SEQ]; i++) {
        state = state * 1664525u + 1013904223u;
        s->tokens[i] = (int32_t)((state >> 8) % (uint32_t)s->dim[VOCAB]);
        s->targets[i] = (int32_t)((state >> 4) % (uint32_t)s->dim[VOCAB]);
    }
}

/* The first steps compile kernels, and are recorded before steps are replayed: not counted. */
static int time_steps(const struct tool_command *command, struct bench_step *s, bool quiet)
{
    const size_t count = (size_t)s->dim[BATCH] * (size_t)s->dim[SEQ];
    s->tokens = calloc(count, sizeof(*s->tokens));
    s->targets = calloc(count, sizeof(*s->targets));
    s->seconds = calloc((size_t)s->o->samples, sizeof(*s->seconds));
    if (!s->tokens || !s->targets || !s->seconds)
        return tool_error(command, "out of memory");
    fill_tokens(s);
    for (int64_t i = -s->o->warmup; i < s->o->samples; i++) {
        struct rf_step_stats stats;
        const uint64_t start = rf_now_ns();
        if (rf_run_step(s->run, s->tokens, s->targets, 1e-4f, &stats) < 0)
            return tool_library_error(command, -1);
        const double took = (double)(rf_now_ns() - start) / 1e9;
        if (!isfinite(stats.loss))
            return tool_error(command,
                              "the loss of step %lld is not finite: the device computes "
                              "wrongly; 'ringforge bench ops' shows which kernel does",
                              (long long)(i + s->o->warmup + 1));
        if (i == -s->o->warmup)
            s->first_loss = stats.loss;
        s->last_loss = stats.loss;
        if (i >= 0)
            s->seconds[i] = took;
        if (!quiet)
            printf("#   step %lld: %.2f ms, loss %.4f%s\n", (long long)(i + s->o->warmup + 1),
                   took * 1e3, stats.loss, i < 0 ? " (not counted)" : "");
        fflush(stdout);
    }
    return TOOL_OK;
}

/* Six for each parameter of a product (positions are only added), plus attention's products,
 * including the half that a causal mask skips, as is customary. */
static double flops_per_token(const struct bench_step *s)
{
    const double positions = (double)s->dim[SEQ] * s->dim[CHANNELS];
    return 6 * (s->params - positions) +
           12.0 * s->dim[LAYERS] * s->dim[CHANNELS] * (double)s->dim[SEQ];
}

static int report(const struct tool_command *command, struct bench_step *s, bool quiet)
{
    const struct rf_device_info *info = rf_device_get_info(s->device);
    const struct bench_times times = bench_quantiles(s->seconds, (int)s->o->samples);
    const double tokens = (double)s->dim[BATCH] * s->dim[SEQ];
    const double gflops = flops_per_token(s) * tokens / times.p50 / 1e9;
    char shape[80];
    snprintf(shape, sizeof(shape), "%dx%dx%dx%dx%dx%d", s->dim[LAYERS], s->dim[CHANNELS],
             s->dim[HEADS], s->dim[SEQ], s->dim[BATCH], s->dim[VOCAB]);
    if (!quiet)
        printf("%-26s %5s %11s %11s %12s %10s\n%-26s %5s %11.1f %11.1f %12.1f %10.1f\n",
               "# layers to vocabulary", "type", "time(us)", "best(us)", "tokens/s", "GFLOP/s",
               shape, rf_dtype_name(s->o->dtype), times.p50 * 1e6, times.best * 1e6,
               tokens / times.p50, gflops);
    if (!s->o->json_path)
        return TOOL_OK;
    cJSON *json = tool_json_new(
        "op=%s device=%s driver=%s shape=%s dtype=%s param_count=%g time_us=%g best_us=%g "
        "tokens_per_s=%g flops_per_token=%g gflops=%g first_loss=%g last_loss=%g",
        "step", info->name, info->driver, shape, rf_dtype_name(s->o->dtype), s->params,
        times.p50 * 1e6, times.best * 1e6, tokens / times.p50, flops_per_token(s), gflops,
        s->first_loss, s->last_loss);
    return tool_json_write(command, s->o->json_path, json);
}

int bench_step(const struct tool_command *command, const struct bench_options *o)
{
    struct bench_step s = {.o = o};
    const bool quiet = o->json_path && strcmp(o->json_path, "-") == 0;
    if (o->dtype != RF_F32 && o->dtype != RF_F16 && o->dtype != RF_BF16)
        return tool_usage_error(command, "a step computes in f32, f16 or bf16, not in %s",
                                rf_dtype_name(o->dtype));
    if (o->shapes.count > 1 || (o->shapes.count && !read_shape(o->shapes.item[0], s.dim)))
        return tool_usage_error(command, "--shape of step wants layers, channels, heads, tokens of "
                                         "a sequence, sequences and vocabulary, once, such as "
                                         "12x768x12x1024x4x50257");
    int status = open_run(command, &s);
    if (status == TOOL_OK && !quiet)
        printf("# step on %s\n", rf_device_get_info(s.device)->name);
    if (status == TOOL_OK)
        status = time_steps(command, &s, quiet);
    if (status == TOOL_OK)
        status = report(command, &s, quiet);
    close_run(&s);
    return status;
}
