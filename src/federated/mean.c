/* SPDX-License-Identifier: MIT
 *
 * The weighted mean of updates, and the outer rule.
 */
#include "base/base.h"
#include "rounds/outer.h"
#include "secure_round.h"

/* mean = sum of n(k) x(k) / n, added in the order of the list, in f64, and rounded once. */
static void average(struct rf_coordinator *c, double all)
{
    for (int64_t first = 0, n; first < c->count; first += n) {
        n = federated_piece(c->count, first);
        memset(c->sum, 0, (size_t)n * sizeof *c->sum);
        for (int k = 0; k < c->opts.client_count; k++) {
            const struct client *client = c->clients + k;
            if (!client->answered) /* it may have no memory for an update */
                continue;
            const double weight = client->weight;
            const float *x = client->update + first;
            for (int64_t i = 0; i < n; i++)
                c->sum[i] += weight * (double)x[i];
        }
        for (int64_t i = 0; i < n; i++)
            c->mean[first + i] = (float)(c->sum[i] / all);
    }
}

/* The mean difference is the gradient of the outer optimizer. */
static int outer_step(struct rf_coordinator *c)
{
    struct rf_host_part update = {
        .count = c->count, .param = c->params, .grad = c->mean, .decay = c->decay};
    for (int s = 0; s < RF_STATE_COUNT; s++)
        update.state[s] = c->state[s];
    return rf_rounds_outer_step(&c->rule, &update, &c->scalars);
}

int federated_mean(struct rf_coordinator *c, double *weight)
{
    double all = 0;
    if (c->secure && c->secure->failed)
        return RF_OK;
    for (int k = 0; k < c->opts.client_count && !c->secure; k++)
        all += c->clients[k].answered ? c->clients[k].weight : 0;
    if (c->secure)
        all = c->secure->weight;
    *weight = all;
    if (!(all > 0)) {
        federated_note(c, "round %lld: the weights of all updates are 0, the parameters stay",
                       (long long)c->round);
        return RF_OK;
    }
    if (!c->secure) /* else its sum has made the mean */
        average(c, all);
    if (c->rule.difference)
        return outer_step(c);
    memcpy(c->params, c->mean, (size_t)c->count * sizeof *c->params);
    return RF_OK;
}
