/* SPDX-License-Identifier: MIT
 *
 * Sparse logistic regression without a device, and without waiting: each rank pulls the weights of
 * the features that its sample has, and pushes their gradient to a store. Start it on four ranks
 * with
 *     ringforge run --ranks 4 -- ./sparse_store hogwild
 *     ringforge run --ranks 4 -- ./sparse_store server:stale=8,servers=2
 * With servers, these are the last ranks.
 */
#include <math.h>
#include <ringforge/ringforge.h>
#include <ringforge/store.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 500, NONZERO = 5, UPDATES = 20000 };

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Five of 500 features, in their order, and a label that is likely to be the sign of the sum of
 * their true weights. */
static float sample(uint64_t *state, int64_t rows[NONZERO])
{
    double sum = 0;
    for (int k = 0; k < NONZERO; k++) {
        rows[k] = FEATURES / NONZERO * k + draw(state) % (FEATURES / NONZERO);
        sum += sin(12.9898 * (double)rows[k]);
    }
    return draw(state) / 2147483648.0 < 1 / (1 + exp(-sum)) ? 1 : -1;
}

/* One update. *loss: that of the sample before it. */
static int learn(struct rf_store *store, uint64_t *state, float lr, double *loss)
{
    int64_t rows[NONZERO];
    float weights[NONZERO], gradient[NONZERO];
    const float label = sample(state, rows);
    const struct rf_store_keys keys = {.count = NONZERO, .rows = rows};
    double margin = 0;
    int rc = rf_store_pull(store, &keys, 0, weights);
    for (int k = 0; rc == 0 && k < NONZERO; k++)
        margin += label * weights[k];
    for (int k = 0; k < NONZERO; k++)
        gradient[k] = (float)(-label / (1 + exp(margin)));
    *loss = log1p(exp(-margin));
    return rc < 0 ? rc : rf_store_push(store, &keys, gradient, &(struct rf_store_update){.lr = lr});
}

static int work(struct rf_store *store, int rank, int workers)
{
    uint64_t state = 100u + (uint64_t)rank;
    double loss = 0, sum = 0;
    int rc = 0, count = 0;
    for (int k = rank; rc == 0 && k < UPDATES; k += workers) {
        rc = learn(store, &state, 0.1f * (float)(UPDATES - k + rank) / UPDATES, &loss);
        if (k > UPDATES / 2) {
            sum += loss;
            count++;
        }
    }
    if (rc == 0)
        printf("worker %d of %d: mean loss of the last half %.3f\n", rank, workers, sum / count);
    return rc;
}

static int serve(struct rf_store *store)
{
    struct rf_store_server_stats stats;
    const int rc = rf_store_serve(store, &stats);
    if (rc == 0)
        printf("server %d: %lld updates, at most %lld behind the newest weights, %d workers lost\n",
               rf_store_server(store), (long long)stats.version, (long long)stats.most_stale,
               stats.lost);
    return rc;
}

int main(int argc, char **argv)
{
    struct rf_comm *comm = NULL;
    struct rf_store *store = NULL;
    struct rf_store_opts opts = {.count = FEATURES};
    int rc = rf_store_text_read(argc > 1 ? argv[1] : "hogwild", &opts);
    if (rc == 0)
        rc = rf_comm_open(getenv("RANK") ? "env:" : "self:", NULL, &comm);
    if (rc == 0)
        rc = rf_store_open(comm, &opts, &store);
    const int servers = !rf_store_has_servers(opts.rule) ? 0 : opts.servers ? opts.servers : 1;
    if (rc == 0)
        rc = rf_store_server(store) >= 0
                 ? serve(store)
                 : work(store, rf_comm_rank(comm), rf_comm_size(comm) - servers);
    if (rc < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    rf_store_close(store);
    const int closed = rf_comm_close(comm);
    if (rc == 0 && closed < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    return rc < 0 || closed < 0;
}
