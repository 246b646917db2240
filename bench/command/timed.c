/* SPDX-License-Identifier: MIT
 *
 * Blocks that take a given time: see timed.h.
 */
#include "timed.h"

#include <errno.h>
#include <math.h>
#include <time.h>

/* ---- the thread ------------------------------------------------------------------------------ */

static void sleep_for(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
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

int timed_open(const struct tool_command *command, int rank, struct rf_device *device,
               struct timed_device *out)
{
    *out = (struct timed_device){.channels = 4};
    if (rf_timeline_create(device, &out->timeline) < 0)
        return tool_library_error(command, rank);
    sem_init(&out->ready, 0, 0);
    if (pthread_create(&out->thread, NULL, carry_out, out) == 0)
        return TOOL_OK;
    sem_destroy(&out->ready);
    rf_timeline_destroy(out->timeline);
    return tool_error(command, "cannot start a thread");
}

int timed_wait(struct timed_device *timed)
{
    return rf_point_wait((struct rf_point){timed->timeline, timed->given}, UINT64_MAX);
}

int timed_watch(struct timed_device *timed)
{
    int rc = timed_wait(timed);
    timed->marked = 0;
    timed->zero_s = now_s();
    return rc;
}

void timed_close(struct timed_device *timed)
{
    give(timed, &(struct timed_call){.seconds = -1});
    pthread_join(timed->thread, NULL);
    sem_destroy(&timed->ready);
    rf_timeline_destroy(timed->timeline);
}

/* ---- the blocks ------------------------------------------------------------------------------ */

/* What follows on the stream comes after it, and it comes after what the stream has to wait for. */
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
    int rc = take(ctx, timed, RF_VERB_FORWARD, timed->seconds.forward);
    return rc < 0 ? rc : fill(ctx, ctx->losses);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    struct timed_device *timed = self;
    return take(ctx, timed, RF_VERB_BACKWARD_INPUT, timed->seconds.backward_input);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    struct timed_device *timed = self;
    int rc = take(ctx, timed, RF_VERB_BACKWARD_WEIGHT, timed->seconds.backward_weight);
    return rc < 0 ? rc : fill(ctx, ctx->grads[0]);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct timed_device *timed = self;
    *out = (struct rf_block_sizes){.out = rf_shape2(rows, timed->channels)};
    return 0;
}

const struct rf_block_ops timed_ops = {forward, backward_input, backward_weight, sizes};
