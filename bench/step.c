/* SPDX-License-Identifier: MIT
 *
 * bench/step: one GPT-2 training step of ringforge beside the same step in plain C (twin.c), in
 * turns, from the same weights and on the same tokens. Prints the losses of both, best and median
 * times, and the ratio. Also times the twin's forward product alone, the figure that says whether
 * the neighbour is as fast as it should be on this machine.
 */
#include <omp.h>
#include <ringforge/ringforge.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../src/models/gpt2.h"
#include "clock.h"
#include "twin.h"

#define MOST_STEPS 1000

struct setup {
    struct twin_config shape;
    int steps, threads;
    const char *trace; /* file, or NULL */
};

struct ours {
    struct gpt2 *model;
    struct rf_plan *plan;
    struct rf_device *device;
    struct rf_run *run;
};

static int open_ours(const struct setup *s, struct ours *o)
{
    const struct twin_config *c = &s->shape;
    struct gpt2_config config = {c->layers, c->channels, c->heads, c->seq, c->vocab};
    struct rf_policy policy = {
        .batch = c->batch,
        .seq = c->seq,
        .optimizer = {RF_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f}};
    int count = 0, rc = gpt2_create(&config, &o->model);
    if (rc < 0) {
        fprintf(stderr, "step: %s\n", rf_last_error()->message);
        return rc;
    }
    const struct rf_block *blocks = gpt2_blocks(o->model, &count);
    rc = rf_plan_build((struct rf_blocks){blocks, count}, &(struct rf_mesh){1, 1, 1}, &policy, 0,
                       &o->plan);
    if (rc == 0)
        rc = rf_device_open(NULL,
                            &(struct rf_device_opts){.profile = s->trace != NULL,
                                                     .profile_launches = s->trace != NULL},
                            &o->device);
    if (rc == 0)
        rc = rf_run_open(o->device, NULL, o->plan, &(struct rf_run_opts){.seed = 1}, &o->run);
    if (rc < 0)
        fprintf(stderr, "step: %s\n", rf_last_error()->message);
    return rc;
}

static void close_ours(struct ours *o)
{
    rf_run_close(o->run);
    rf_device_close(o->device);
    rf_plan_destroy(o->plan);
    gpt2_destroy(o->model);
}

static int copy_params(struct ours *o, struct twin *twin)
{
    const char *name;
    for (int i = 0; (name = twin_param_name(twin, i)); i++) {
        size_t count = 0;
        float *to = twin_param(twin, name, &count);
        if (rf_run_read_param(o->run, name, to, count * sizeof(float)) < 0) {
            fprintf(stderr, "step: %s\n", rf_last_error()->message);
            return -1;
        }
    }
    return 0;
}

static void fill_tokens(const struct setup *s, int32_t *tokens, int32_t *targets)
{
    uint32_t state = 12345;
    for (int i = 0; i < s->shape.batch * s->shape.seq; i++) {
        state = state * 1664525u + 1013904223u;
        tokens[i] = (int32_t)((state >> 8) % (uint32_t)s->shape.vocab);
        targets[i] = (int32_t)((state >> 4) % (uint32_t)s->shape.vocab);
    }
}

/* Best of several: the processor's caches are warm, as they are within a step. */
static double forward_product_gflops(const struct setup *s)
{
    const int n = s->shape.batch * s->shape.seq, c = s->shape.channels, oc = 4 * c;
    float *in = calloc((size_t)n * c, sizeof(float)), *out = calloc((size_t)n * oc, sizeof(float));
    float *weight = calloc((size_t)oc * c, sizeof(float));
    double best = 1e30;
    for (int i = 0; in && out && weight && i < 30; i++) {
        double start = now_s();
        twin_matmul(out, in, weight, NULL, n, c, oc);
        double took = now_s() - start;
        best = took < best ? took : best;
    }
    free(in);
    free(out);
    free(weight);
    return 2e-9 * n * c * oc / best;
}

static int run(const struct setup *s, struct ours *o, struct twin *twin)
{
    const size_t count = (size_t)s->shape.batch * s->shape.seq;
    int32_t *tokens = calloc(count, sizeof(*tokens)), *targets = calloc(count, sizeof(*targets));
    double ours[MOST_STEPS], theirs[MOST_STEPS], our_work[MOST_STEPS], their_work[MOST_STEPS];
    struct twin_times best = {1e30, 1e30, 1e30};
    int rc = tokens && targets ? copy_params(o, twin) : -1;
    if (rc == 0) {
        fill_tokens(s, tokens, targets);
        printf("# %s, %d threads; C loop forward product %.0f GFLOP/s\n",
               rf_device_get_info(o->device)->name, s->threads, forward_product_gflops(s));
        printf("%6s %12s %12s %12s %12s\n", "step", "ours(ms)", "C(ms)", "loss", "C loss");
    }
    /* The first step compiles kernels and touches memory: not counted. */
    for (int i = -1; i < s->steps && rc == 0; i++) {
        struct rf_step_stats stats;
        struct twin_times times;
        double start = now_s(), work = processor_s();
        rc = rf_run_step(o->run, tokens, targets, 1e-4f, &stats);
        if (rc < 0) {
            fprintf(stderr, "step: %s\n", rf_last_error()->message);
            break;
        }
        double between = now_s(), work_between = processor_s();
        float loss = twin_step(twin, tokens, targets, 1e-4f, 0, &times);
        double end = now_s();
        printf("%6d %12.1f %12.1f %12.5f %12.5f\n", i + 1, (between - start) * 1e3,
               (end - between) * 1e3, stats.loss, (double)loss);
        fflush(stdout);
        if (i < 0)
            continue;
        ours[i] = between - start;
        theirs[i] = end - between;
        our_work[i] = work_between - work;
        their_work[i] = processor_s() - work_between;
        best.forward = times.forward < best.forward ? times.forward : best.forward;
        best.backward = times.backward < best.backward ? times.backward : best.backward;
        best.update = times.update < best.update ? times.update : best.update;
    }
    if (rc == 0 && s->steps > 0) {
        const int n = s->steps;
        sort_samples(ours, (size_t)n);
        sort_samples(theirs, (size_t)n);
        printf("vocabulary %d: best %.1f ms beside %.1f ms, ratio %.2f; median %.1f beside %.1f, "
               "ratio %.2f\n",
               s->shape.vocab, ours[0] * 1e3, theirs[0] * 1e3, ours[0] / theirs[0],
               ours[n / 2] * 1e3, theirs[n / 2] * 1e3, ours[n / 2] / theirs[n / 2]);
        sort_samples(our_work, (size_t)n);
        sort_samples(their_work, (size_t)n);
        printf(
            "processor time of all threads: best %.1f ms beside %.1f ms, ratio %.2f; median %.1f "
            "beside %.1f, ratio %.2f\n",
            our_work[0] * 1e3, their_work[0] * 1e3, our_work[0] / their_work[0],
            our_work[n / 2] * 1e3, their_work[n / 2] * 1e3, our_work[n / 2] / their_work[n / 2]);
        printf("C loop, best: forward %.1f, backward %.1f, update %.1f ms\n", best.forward * 1e3,
               best.backward * 1e3, best.update * 1e3);
    }
    free(tokens);
    free(targets);
    return rc;
}

int main(int argc, char **argv)
{
    struct setup s = {.shape = {4, 256, 8, 128, 4, 50257}, .steps = 10, .threads = 2};
    struct ours ours = {0};
    int option;
    while ((option = getopt(argc, argv, "l:c:h:t:b:v:n:j:T:")) != -1) {
        if (option == 'T') {
            s.trace = optarg;
            continue;
        }
        int *const places[256] = {
            ['l'] = &s.shape.layers, ['c'] = &s.shape.channels, ['h'] = &s.shape.heads,
            ['t'] = &s.shape.seq,    ['b'] = &s.shape.batch,    ['v'] = &s.shape.vocab,
            ['n'] = &s.steps,        ['j'] = &s.threads};
        int value = optarg ? atoi(optarg) : 0;
        if (option == '?' || value < 1) {
            fprintf(stderr, "usage: step [-l layers] [-c channels] [-h heads] [-t sequence] "
                            "[-b batch] [-v vocabulary] [-n steps] [-j threads] [-T trace file]\n");
            return 2;
        }
        *places[option & 255] = value;
    }
    if (s.steps > MOST_STEPS)
        s.steps = MOST_STEPS;
    if (s.trace)
        rf_trace_start();
    omp_set_num_threads(s.threads);
    struct twin *twin = twin_create(&s.shape);
    int rc = twin ? open_ours(&s, &ours) : -1;
    if (rc == 0)
        rc = run(&s, &ours, twin);
    if (rc == 0 && s.trace)
        rc = rf_trace_write(s.trace, NULL);
    close_ours(&ours);
    twin_destroy(twin);
    return rc < 0;
}
