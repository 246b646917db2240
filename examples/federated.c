/* SPDX-License-Identifier: MIT
 *
 * Federated training without a device: each client fits a line to its own points, which never leave
 * it, and a coordinator averages. Start in three shells
 *     ./federated coordinator 29700 10
 *     ./federated north 29700
 *     ./federated south 29700
 */
#include <ringforge/federated.h>
#include <ringforge/ringforge.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In earnest keys are random, and each client knows its own only. */
static const struct rf_federated_client_key clients[] = {{"north", "a secret of north"},
                                                         {"south", "a secret of south"}};

static int print_round(void *user, const struct rf_federated_round *r)
{
    (void)user;
    printf("round %lld: y = %.3f x + %.3f from %d clients\n", (long long)r->round,
           (double)r->values[0], (double)r->values[1], r->counted);
    return 0;
}

static int coordinate(const struct rf_rounds_rule *rule, int port, int rounds)
{
    struct rf_coordinator *coordinator = NULL;
    const struct rf_coordinator_opts opts = {.port = port,
                                             .clients = clients,
                                             .client_count = 2,
                                             .rule = rule,
                                             .rounds = rounds,
                                             .min_clients = 2,
                                             .ended = print_round};
    int rc = rf_coordinator_open(&opts, &coordinator);
    if (rc == 0)
        rc = rf_coordinator_run(coordinator);
    rf_coordinator_close(coordinator);
    return rc;
}

/* A step of least squares on a point of y = 3 x + 1. */
static void local_step(float line[2], double x)
{
    const double error = line[0] * x + line[1] - (3 * x + 1);
    line[0] -= (float)(0.3 * error * x);
    line[1] -= (float)(0.3 * error);
}

static int train(const struct rf_rounds_rule *rule, int port, int number)
{
    float line[2] = {0, 0};
    const int points = number == 0 ? 30 : 10; /* north sees x below 0.5, south the others */
    struct rf_client *client = NULL;
    struct rf_client_stats stats = {0};
    const struct rf_rounds_params params = rf_rounds_in_host(line, 2);
    const struct rf_client_opts opts = {.host = "127.0.0.1",
                                        .port = port,
                                        .name = clients[number].name,
                                        .key = clients[number].key,
                                        .rule = rule};
    int rc = rf_client_open(&opts, &params, &client);
    while (rc == 0 && !stats.ended) {
        local_step(line, (number + (double)(rand() % points) / points) / 2);
        rc = rf_client_step(client, points, &stats);
    }
    if (rc == 0)
        printf("%s: y = %.3f x + %.3f, %llu bytes sent\n", opts.name, (double)line[0],
               (double)line[1], (unsigned long long)stats.sent_bytes);
    rf_client_close(client);
    return rc;
}

int main(int argc, char **argv)
{
    const struct rf_rounds_rule rule = {.every = 20, .difference = true, .weighted = true};
    const char *who = argc > 2 ? argv[1] : "";
    int rc = RF_OK;
    if (strcmp(who, "coordinator") == 0)
        rc = coordinate(&rule, atoi(argv[2]), argc > 3 ? atoi(argv[3]) : 10);
    else if (strcmp(who, "north") == 0 || strcmp(who, "south") == 0)
        rc = train(&rule, atoi(argv[2]), strcmp(who, "south") == 0);
    else
        fprintf(stderr, "use: federated coordinator PORT [ROUNDS], or north or south PORT\n");
    if (rc < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    return rc < 0 || argc < 3;
}
