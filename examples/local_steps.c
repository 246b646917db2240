/* SPDX-License-Identifier: MIT
 *
 * A trainer of its own, without a device: each rank fits a line to its own points by local steps,
 * and all of them exchange parameters by a rule. Start it on four ranks with
 *     ringforge run --ranks 4 -- ./local_steps diloco:10,lr=1,outer=sgd
 *     ringforge run --ranks 4 -- ./local_steps gossip:1
 */
#include <ringforge/ringforge.h>
#include <ringforge/rounds.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 400 };

/* A step of least squares on a point of y = 3 x + 1. Rank r of n sees x in [r/n, (r+1)/n) only. */
static void local_step(float line[2], double x)
{
    const double error = line[0] * x + line[1] - (3 * x + 1);
    line[0] -= (float)(0.3 * error * x);
    line[1] -= (float)(0.3 * error);
}

static int train(struct rf_comm *comm, const char *text)
{
    const int rank = rf_comm_rank(comm), ranks = rf_comm_size(comm);
    float line[2] = {0, 0};
    struct rf_rounds_text rule;
    struct rf_rounds *rounds = NULL;
    struct rf_rounds_stats stats = {0};
    const struct rf_rounds_params params = rf_rounds_in_host(line, 2);
    int rc = rf_rounds_text_read(text, ranks, &rule);
    if (rc < 0)
        return rc;
    rc = rf_rounds_open(comm, &params, &rule.rule, &rounds);
    for (int step = 0; rc == 0 && step < STEPS; step++) {
        local_step(line, (rank + step % 16 / 16.0) / ranks);
        rc = rf_rounds_step(rounds, rule.rule.weighted ? 1 : 0, &stats);
    }
    if (rc == 0)
        rc = rf_rounds_mean(rounds);
    if (rc == 0)
        printf("rank %d of %d: y = %.3f x + %.3f after %lld exchanges, %llu bytes sent\n", rank,
               ranks, (double)line[0], (double)line[1], (long long)stats.exchanges,
               (unsigned long long)stats.sent_bytes);
    rf_rounds_close(rounds);
    rf_rounds_text_free(&rule);
    return rc;
}

int main(int argc, char **argv)
{
    struct rf_comm *comm = NULL;
    int rc = rf_comm_open(getenv("RANK") ? "env:" : "self:", NULL, &comm);
    if (rc == 0)
        rc = train(comm, argc > 1 ? argv[1] : "local:10");
    if (rc < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    const int closed = rf_comm_close(comm); /* compares the calls of all ranks */
    if (rc == 0 && closed < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    return rc < 0 || closed < 0;
}
