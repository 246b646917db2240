/* SPDX-License-Identifier: MIT
 *
 * Trains a model with your own block and kernel to predict the next token of a fixed cycle, on any
 * number of ranks:
 *     ./custom_kernel                  or     ringforge run --ranks 2 -- ./custom_kernel
 * Exit status 0: the model learned it.
 */
#include "layer.h"

#include <stdio.h>
#include <stdlib.h>

#define SEQ 16
#define BATCH 4

static int train(struct rf_run *run, int rank, double *loss)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    struct rf_step_stats stats = {0};
    for (int step = 0; step < 60; step++) {
        for (int i = 0; i < BATCH * SEQ; i++) {
            tokens[i] = (i * 7 + step) % VOCABULARY;
            targets[i] = (tokens[i] * 5 + 3) % VOCABULARY;
        }
        int rc = rf_run_step(run, tokens, targets, 0.03f, &stats);
        if (rc < 0)
            return rc;
        if (rank == 0 && step % 20 == 0)
            printf("step %2d  loss %.4f\n", step, stats.loss);
    }
    *loss = stats.loss;
    return 0;
}

int main(void)
{
    struct layer layer = {0};
    struct rf_block block = {.name = "layer",
                             .ops = &layer_ops,
                             .self = &layer,
                             .params = layer_params,
                             .param_count = 2};
    struct rf_comm *comm = NULL;
    struct rf_device *device = NULL;
    struct rf_plan *plan = NULL;
    struct rf_run *run = NULL;
    double loss = 1e9;
    int rc = rf_comm_open(getenv("RANK") ? "env:" : "self:", NULL, &comm);
    if (rc == 0)
        rc = rf_device_open(NULL, NULL, &device);
    if (rc == 0)
        rc = layer_init(&layer, device);
    if (rc == 0) {
        struct rf_mesh mesh = {.dp = rf_comm_size(comm)};
        struct rf_policy policy = {
            .batch = BATCH,
            .seq = SEQ,
            .micro_batches = BATCH,
            .order = RF_ORDER_TREE,
            .optimizer = {.kind = RF_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f}};
        rc =
            rf_plan_build((struct rf_blocks){&block, 1}, &mesh, &policy, rf_comm_rank(comm), &plan);
    }
    if (rc == 0)
        rc = rf_run_open(device, comm, plan, &(struct rf_run_opts){.seed = 1}, &run);
    if (rc == 0)
        rc = train(run, rf_comm_rank(comm), &loss);
    if (rc < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    else if (rf_comm_rank(comm) == 0)
        printf("loss %.4f: %s\n", loss, loss < 0.1 ? "learned" : "not learned");
    rf_run_close(run);
    rf_plan_destroy(plan);
    layer_fini(&layer);
    rf_device_close(device);
    rf_comm_close(comm);
    return rc < 0 || loss >= 0.1;
}
