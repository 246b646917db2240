/* SPDX-License-Identifier: MIT
 *
 * Trains the model of mlp.c to predict the next token of a fixed rule, on one or more ranks:
 *     ./trainer --steps 40          or     ringforge run --ranks 3 -- ./trainer --zero 3 --recompute 1
 * The options are those of struct rf_policy. Exit status 0: the model was trained, and the measured
 * bytes are the planned ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlp.h"

enum { BATCH = 4, SEQ = 8 };

static int train_steps(struct rf_run *run, int steps, bool print)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ]; /* every rank passes the whole batch */
    struct rf_step_stats stats;
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < BATCH * SEQ; i++) {
            tokens[i] = (i * 7 + step) % VOCABULARY;
            targets[i] = (tokens[i] * 5 + 3) % VOCABULARY;
        }
        int rc = rf_run_step(run, tokens, targets, 0.01f, &stats);
        if (rc < 0)
            return rc;
        if (print)
            printf("step %d  loss %.4f\n", step, stats.loss);
    }
    return 0;
}

/* The result of a training. */
struct outcome {
    char sha256[65]; /* of the parameters, equal on all ranks */
    struct rf_bytes planned, measured;
};

/* Trains a new model on all ranks of comm. */
static int train(struct rf_device *device, struct rf_comm *comm, const struct rf_policy *policy,
                 int steps, bool print, struct outcome *out)
{
    const struct rf_mesh mesh = {.dp = rf_comm_size(comm)};
    struct rf_plan *plan = NULL;
    struct rf_run *run = NULL;
    struct model model;
    int rc = model_make(&model);
    if (rc == 0)
        rc = rf_plan_build((struct rf_blocks){model.blocks, BLOCKS}, &mesh, policy,
                           rf_comm_rank(comm), &plan);
    if (rc == 0)
        rc = rf_run_open(device, comm, plan, &(struct rf_run_opts){.seed = 1}, &run);
    if (rc == 0)
        rc = train_steps(run, steps, print);
    if (rc == 0)
        rc = rf_run_params_sha256(run, out->sha256);
    if (rc == 0) {
        rf_run_planned(run, &out->planned);
        rf_run_measured(run, &out->measured);
    }
    rf_run_close(run);
    rf_plan_destroy(plan);
    model_free(&model);
    return rc;
}

/* False: an argument is unknown, or has no value. */
static bool parse(int argc, char **argv, struct rf_policy *policy, int *steps)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        char *end = NULL;
        const int number = (int)strtol(value, &end, 10);
        const bool is_number = *value && !*end;
        if (!strcmp(argv[i], "--order") && (!strcmp(value, "ring") || !strcmp(value, "tree")))
            policy->order = *value == 'r' ? RF_ORDER_RING : RF_ORDER_TREE;
        else if (!strcmp(argv[i], "--zero") && is_number)
            policy->zero = number;
        else if (!strcmp(argv[i], "--recompute") && is_number)
            policy->recompute = number;
        else if (!strcmp(argv[i], "--offload") && is_number)
            policy->offload = number;
        else if (!strcmp(argv[i], "--steps") && is_number)
            *steps = number;
        else
            return false;
    }
    return true;
}

static const struct rf_policy usual = {
    .batch = BATCH, .seq = SEQ, .micro_batches = BATCH, .order = RF_ORDER_TREE, .clip = 1};

static bool print_outcome(int rank, const struct outcome *o)
{
    const struct rf_bytes *p = &o->planned;
    const bool equal = memcmp(p, &o->measured, sizeof(*p)) == 0;
    if (rank == 0)
        printf("sha256 %s\n", o->sha256);
    printf("rank %d: %llu bytes planned, %llu to be sent; measured: %s\n", rank,
           (unsigned long long)(p->params + p->grads + p->optimizer + p->activations + p->comm +
                                p->scratch),
           (unsigned long long)p->sent, equal ? "the same" : "others");
    return equal;
}

int main(int argc, char **argv)
{
    struct rf_policy policy = usual;
    struct rf_comm *comm = NULL;
    struct rf_device *device = NULL;
    struct outcome outcome;
    int steps = 20;
    if (!parse(argc, argv, &policy, &steps)) {
        fputs("usage: trainer [--zero N] [--order ring|tree] [--recompute N] [--offload N] "
              "[--steps N]\n",
              stderr);
        return 2;
    }
    int rc = rf_comm_open(getenv("RANK") ? "env:" : "self:", NULL, &comm);
    const int rank = rc == 0 ? rf_comm_rank(comm) : 0;
    if (rc == 0)
        rc = rf_device_open(NULL, NULL, &device);
    if (rc == 0)
        rc = train(device, comm, &policy, steps, rank == 0, &outcome);
    bool equal = rc == 0 && print_outcome(rank, &outcome);
    rf_device_close(device);
    int closed = rf_comm_close(comm); /* compares the calls of all ranks */
    if (rc < 0 || closed < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    return rc < 0 || closed < 0 || !equal;
}
