/* SPDX-License-Identifier: MIT
 *
 * Blocks that take a given time, and steps of them: see timed.h.
 */
#include "timed.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "bench/clock.h"

/* The arithmetic of one rank's device: a thread that executes calls in turn. Each begins when its
 * stream has reached it, waits, and lets the stream continue; so the host records ahead, and memory
 * is waited for, as with kernels of this duration. */
struct timed_device {
    const struct timed_setting *setting;
    struct rf_timeline *timeline; /* calls that have ended */
    struct timed_call {
        struct rf_point after;
        double seconds; /* negative: the end */
        enum rf_verb verb;
        int64_t micro_batch;
    } calls[TIMED_CALLS];
    uint64_t given;
    struct timed_mark marks[TIMED_CALLS]; /* since watch */
    uint64_t marked;
    double zero_s;
    sem_t ready;
    pthread_t thread;
    struct rf_block blocks[TIMED_MOST_BLOCKS]; /* a plan refers to them */
    struct rf_param_desc params[TIMED_MOST_BLOCKS];
    char names[TIMED_MOST_BLOCKS][2][16];
};

/* ---- the thread ------------------------------------------------------------------------------ */

static void sleep_for(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

static void *carry_out(void *argument)
{
    struct timed_device *timed = argument;
    for (uint64_t done = 0;; done++) {
        while (sem_wait(&timed->ready) < 0 && errno == EINTR)
            ;
        const struct timed_call *call = &timed->calls[done % TIMED_CALLS];
        if (call->seconds < 0)
            return NULL;
        /* After an error the run fails by itself; it must not wait for this. */
        const bool ready = rf_point_wait(call->after, UINT64_MAX) == 0;
        const double begin_s = now_s();
        if (ready)
            sleep_for(call->seconds);
        timed->marks[timed->marked++ % TIMED_CALLS] =
            (struct timed_mark){begin_s - timed->zero_s, now_s() - timed->zero_s,
                                (double)call->verb, (double)call->micro_batch};
        if (rf_timeline_signal(timed->timeline, done + 1) < 0)
            return NULL;
    }
}

static void give(struct timed_device *timed, const struct timed_call *call)
{
    timed->calls[timed->given++ % TIMED_CALLS] = *call;
    sem_post(&timed->ready);
}

static int open_timed(const struct tool_command *command, int rank, struct rf_device *device,
                      const struct timed_setting *setting, struct timed_device *out)
{
    *out = (struct timed_device){.setting = setting};
    if (rf_timeline_create(device, &out->timeline) < 0)
        return tool_library_error(command, rank);
    sem_init(&out->ready, 0, 0);
    if (pthread_create(&out->thread, NULL, carry_out, out) == 0)
        return TOOL_OK;
    sem_destroy(&out->ready);
    rf_timeline_destroy(out->timeline);
    return tool_error(command, "cannot start a thread");
}

/* Waits until all calls have ended. */
static int wait_for_calls(struct timed_device *timed)
{
    return rf_point_wait((struct rf_point){timed->timeline, timed->given}, UINT64_MAX);
}

/* The same, and marks are recorded from now on. */
static int watch(struct timed_device *timed)
{
    int rc = wait_for_calls(timed);
    timed->marked = 0;
    timed->zero_s = now_s();
    return rc;
}

/* After the run, before the device. */
static void close_timed(struct timed_device *timed)
{
    give(timed, &(struct timed_call){.seconds = -1});
    pthread_join(timed->thread, NULL);
    sem_destroy(&timed->ready);
    rf_timeline_destroy(timed->timeline);
}

/* ---- the blocks ------------------------------------------------------------------------------ */

/* Later work on the stream runs after it, and it runs after the stream's dependencies. */
static int take(struct rf_ctx *ctx, struct timed_device *timed, enum rf_verb verb, double seconds)
{
    struct timed_call call = {.seconds = seconds, .verb = verb, .micro_batch = ctx->micro_batch};
    if (seconds <= 0)
        return 0;
    int rc = rf_stream_submit(ctx->stream, &call.after);
    if (rc < 0)
        return rc;
    give(timed, &call);
    return rf_stream_after(ctx->stream, (struct rf_point){timed->timeline, timed->given});
}

static int fill(struct rf_ctx *ctx, struct rf_tensor t)
{
    const uint32_t one = 0x3f800000; /* 1.0f */
    return rf_stream_fill(ctx->stream, t.buffer, t.offset, rf_tensor_bytes(t), one);
}

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    struct timed_device *timed = self;
    int rc = take(ctx, timed, RF_VERB_FORWARD, timed->setting->seconds.forward);
    return rc < 0 || !ctx->losses.buffer ? rc : fill(ctx, ctx->losses); /* of the last block */
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    struct timed_device *timed = self;
    return take(ctx, timed, RF_VERB_BACKWARD_INPUT, timed->setting->seconds.backward_input);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    struct timed_device *timed = self;
    int rc = take(ctx, timed, RF_VERB_BACKWARD_WEIGHT, timed->setting->seconds.backward_weight);
    return rc < 0 ? rc : fill(ctx, ctx->grads[0]);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct timed_device *timed = self;
    *out = (struct rf_block_sizes){.out = rf_shape2(rows, timed->setting->channels)};
    return 0;
}

static const struct rf_block_ops timed_ops = {forward, backward_input, backward_weight, sizes};

/* ---- a step ---------------------------------------------------------------------------------- */

/* A rank's work in the steps of one setting. */
struct course {
    struct rf_comm *comm;
    struct rf_run *run;
    struct timed_device *timed;
    struct timed_marks *marks; /* NULL: not recorded */
    struct timed_result *result;
    const int32_t *tokens;
};

double timed_bytes_per_s(const struct timed_setting *s)
{
    return s->transfer_s > 0 ? (double)s->elements * 2 / s->transfer_s : INFINITY;
}

static int simulate(const struct timed_setting *s, const struct rf_plan *plan,
                    struct timed_result *out)
{
    double verb_s[RF_VERB_COUNT];
    struct rf_sim_result result;
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
                                               .link_bytes_per_s = timed_bytes_per_s(s),
                                               .link_latency_s = s->latency_s}};
    int rc = rf_plan_simulate_job(plan, &opts, &out->sim);
    if (rc < 0)
        return rc;
    rf_sim_get_result(out->sim, 0, &result);
    out->planned_s = result.step_s;
    return 0;
}

/* If rank 0 says that this step was the best, each rank keeps its marks. */
static int keep_best(struct course *c, bool best)
{
    int32_t keep = best;
    int rc = rf_broadcast(c->comm, &keep, 1, RF_I32, 0, NULL);
    for (uint64_t k = 0; rc == 0 && keep && k < TIMED_CALLS; k++)
        c->marks->all[k] =
            k < c->timed->marked ? c->timed->marks[k] : (struct timed_mark){.verb = -1};
    return rc;
}

static int take_step(struct course *c, bool counts)
{
    struct timed_result *result = c->result;
    struct rf_step_stats stats = {0};
    int rc = c->marks ? rf_barrier(c->comm, NULL) : 0;
    if (rc == 0 && c->marks)
        rc = watch(c->timed);
    if (rc == 0)
        rc = rf_run_step(c->run, c->tokens, c->tokens, 0.1f, &stats);
    const double step_s = (double)stats.step_ns * 1e-9;
    const bool best = rc == 0 && counts && step_s < result->step_s;
    result->sent_bytes = stats.sent_bytes;
    if (best) {
        result->step_s = step_s;
        result->exposed_s = (double)stats.exposed_comm_ns * 1e-9;
    }
    if (rc == 0 && c->marks)
        rc = wait_for_calls(c->timed);
    return rc == 0 && c->marks ? keep_best(c, best) : rc;
}

/* The first call fills the pipeline, and the second one still waits for work that the first
 * deferred. */
static int take_overlapping_steps(struct course *c, int64_t count)
{
    enum { BEFORE = 2 };
    uint64_t total_ns = 0;
    int rc = 0;
    for (int64_t i = -BEFORE; i < count && rc == 0; i++) {
        struct rf_step_stats stats = {0};
        rc = rf_run_step(c->run, c->tokens, c->tokens, 0.1f, &stats);
        if (i >= 0)
            total_ns += stats.step_ns;
        c->result->sent_bytes = stats.sent_bytes;
    }
    c->result->step_s = (double)total_ns * 1e-9 / (double)count;
    return rc < 0 ? rc : rf_run_drain(c->run, NULL);
}

static int take_steps(struct course *c, bool overlap, int64_t count)
{
    int rc = 0;
    if (overlap)
        return take_overlapping_steps(c, count);
    c->result->step_s = INFINITY;
    for (int64_t i = -1; i < count && rc == 0; i++) /* the first compiles kernels */
        rc = take_step(c, i >= 0);
    return rc;
}

static int build_plan(const struct timed_setting *s, int rank, struct timed_device *timed,
                      struct rf_plan **out)
{
    const struct rf_mesh mesh = {
        .dp = s->pp ? 1 : s->ranks, .pp = s->pp ? s->ranks : 1, .shard = s->shard};
    struct rf_policy policy = s->policy;
    for (int i = 0; i < s->blocks; i++) {
        char *name = timed->names[i][0], *weight = timed->names[i][1];
        snprintf(name, sizeof(timed->names[i][0]), "block%d", i);
        snprintf(weight, sizeof(timed->names[i][1]), "block%d.w", i);
        timed->params[i] = (struct rf_param_desc){
            .name = weight, .shape = rf_shape1(s->elements), .dtype = s->dtype};
        timed->blocks[i] = (struct rf_block){.name = name,
                                             .ops = &timed_ops,
                                             .self = timed,
                                             .params = &timed->params[i],
                                             .param_count = 1,
                                             .varies = true};
    }
    policy.batch = policy.micro_batches = s->micro_batches;
    policy.seq = s->tokens;
    policy.bucket_bytes = policy.first_bucket_bytes = s->bucket_bytes;
    policy.optimizer.kind = RF_SGD;
    return rf_plan_build((struct rf_blocks){timed->blocks, s->blocks}, &mesh, &policy, rank, out);
}

int timed_measure(const struct tool_command *command, struct rf_comm *comm,
                  struct rf_device *device, const struct timed_setting *s, int64_t samples,
                  struct timed_marks *marks, struct timed_result *out)
{
    const int rank = rf_comm_rank(comm);
    struct rf_plan *plan = NULL;
    struct rf_bytes bytes;
    struct timed_device timed;
    *out = (struct timed_result){0};
    int status = open_timed(command, rank, device, s, &timed);
    if (status != TOOL_OK)
        return status;
    int32_t *tokens = calloc((size_t)(s->tokens * s->micro_batches), sizeof(*tokens));
    struct course course = {
        .comm = comm, .timed = &timed, .marks = marks, .result = out, .tokens = tokens};
    int rc = build_plan(s, rank, &timed, &plan);
    if (rc == 0)
        rc = simulate(s, plan, out);
    if (rc == 0)
        rc = rf_run_open(device, comm, plan, NULL, &course.run);
    if (!tokens)
        status = tool_error(command, "out of memory");
    else if (rc == 0)
        rc = take_steps(&course, s->overlaps, samples);
    if (rc == 0) {
        rf_plan_bytes(plan, &bytes);
        out->planned_bytes = bytes.sent;
    }
    rf_run_close(course.run);
    close_timed(&timed);
    out->plan = plan;
    free(tokens);
    return rc < 0 ? tool_library_error(command, rank) : status;
}
