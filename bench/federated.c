/* SPDX-License-Identifier: MIT
 *
 * Rounds of a coordinator and two clients in one process, for peers/flare.py: a line for each round
 * of a linear model (its loss before the round), or the time of rounds of many parameters.
 *
 *   federated curve ROUNDS
 *   federated times ROUNDS PARAMETERS [THRESHOLD]       THRESHOLD: of secure aggregation
 */
#include <math.h>
#include <pthread.h>
#include <ringforge/federated.h>
#include <ringforge/ringforge.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 2, INPUTS = 8, STEPS = 5 };

static const int points[CLIENTS] = {30, 50};
static const struct rf_federated_client_key keys[CLIENTS] = {{"site-1", "key of site-1"},
                                                             {"site-2", "key of site-2"}};

struct bench {
    struct rf_rounds_rule rule;
    int64_t count;
    bool curve;
    int port;
    float *initial;
};

/* ---- the linear model, and its data ---------------------------------------------------------- */

static double input(int client, int point, int j)
{
    return (double)(float)sin(1.3 * client + 0.37 * point + 0.9 * j);
}

static double error_of(const float *w, int client, int point)
{
    double wanted = 0.5 + 0.2 * client, got = (double)w[INPUTS];
    for (int j = 0; j < INPUTS; j++) {
        wanted += (j + 1) * 0.1 * sin(1.3 * client + 0.37 * point + 0.9 * j);
        got += (double)w[j] * input(client, point, j);
    }
    return got - (double)(float)wanted;
}

static double loss(const float *w)
{
    double sum = 0;
    int all = 0;
    for (int k = 0; k < CLIENTS; all += points[k++])
        for (int i = 0; i < points[k]; i++)
            sum += error_of(w, k, i) * error_of(w, k, i);
    return sum / all;
}

static void local_step(float *w, int client)
{
    double gradient[INPUTS + 1] = {0};
    for (int i = 0; i < points[client]; i++) {
        const double slope = 2 * error_of(w, client, i) / points[client];
        for (int j = 0; j <= INPUTS; j++)
            gradient[j] += slope * (j < INPUTS ? input(client, i, j) : 1);
    }
    for (int j = 0; j <= INPUTS; j++)
        w[j] -= (float)(0.05 * gradient[j]);
}

/* ---- clients --------------------------------------------------------------------------------- */

struct job {
    const struct bench *bench;
    int number;
};

static void *be_client(void *argument)
{
    const struct job *job = argument;
    const struct bench *b = job->bench;
    float *w = malloc((size_t)b->count * sizeof *w);
    struct rf_client *client = NULL;
    struct rf_client_stats stats = {0};
    const struct rf_rounds_params params = rf_rounds_in_host(w, b->count);
    const struct rf_client_opts opts = {.host = "127.0.0.1",
                                        .port = b->port,
                                        .name = keys[job->number].name,
                                        .key = keys[job->number].key,
                                        .rule = &b->rule};
    memcpy(w, b->initial, (size_t)b->count * sizeof *w);
    int rc = rf_client_open(&opts, &params, &client);
    while (rc == 0 && !stats.ended) {
        if (b->curve)
            local_step(w, job->number);
        rc = rf_client_step(client, b->curve ? points[job->number] : 1, &stats);
    }
    if (rc < 0)
        fprintf(stderr, "federated: %s\n", rf_last_error()->message);
    rf_client_close(client);
    free(w);
    return NULL;
}

/* ---- the coordinator ------------------------------------------------------------------------- */

static int print_round(void *user, const struct rf_federated_round *r)
{
    const struct bench *b = user;
    if (b->curve)
        printf("%lld %.8f\n", (long long)r->round + 1, loss(r->values));
    else
        printf("%lld %.3f ms, %llu bytes sent, %llu received\n", (long long)r->round,
               (double)r->ns * 1e-6, (unsigned long long)r->sent_bytes,
               (unsigned long long)r->received_bytes);
    return 0;
}

static int run(struct bench *b, int rounds, int threshold)
{
    struct rf_coordinator *coordinator = NULL;
    pthread_t threads[CLIENTS];
    struct job jobs[CLIENTS];
    const struct rf_coordinator_opts opts = {.clients = keys,
                                             .client_count = CLIENTS,
                                             .rule = &b->rule,
                                             .initial = b->initial,
                                             .count = b->count,
                                             .rounds = rounds,
                                             .min_clients = CLIENTS,
                                             .secure = threshold,
                                             .ended = print_round,
                                             .user = b};
    int rc = rf_coordinator_open(&opts, &coordinator);
    if (rc < 0)
        return rc;
    b->port = rf_coordinator_port(coordinator);
    if (b->curve)
        printf("0 %.8f\n", loss(b->initial));
    for (int k = 0; k < CLIENTS; k++) {
        jobs[k] = (struct job){b, k};
        if (pthread_create(threads + k, NULL, be_client, jobs + k) != 0)
            abort();
    }
    rc = rf_coordinator_run(coordinator);
    for (int k = 0; k < CLIENTS; k++)
        pthread_join(threads[k], NULL);
    rf_coordinator_close(coordinator);
    return rc;
}

int main(int argc, char **argv)
{
    const bool curve = argc == 3 && strcmp(argv[1], "curve") == 0;
    if (!curve && (argc < 4 || strcmp(argv[1], "times") != 0)) {
        fprintf(stderr, "use: federated curve ROUNDS | times ROUNDS PARAMETERS [THRESHOLD]\n");
        return 2;
    }
    struct bench b = {.rule = {.every = curve ? STEPS : 1, .weighted = true, .difference = true},
                      .curve = curve,
                      .count = curve ? INPUTS + 1 : atoll(argv[3])};
    b.initial = b.count > 0 ? calloc((size_t)b.count, sizeof *b.initial) : NULL;
    const int rc = b.initial ? run(&b, atoi(argv[2]), argc > 4 ? atoi(argv[4]) : 0) : 1;
    if (rc < 0)
        fprintf(stderr, "federated: %s\n", rf_last_error()->message);
    free(b.initial);
    return rc != 0;
}
