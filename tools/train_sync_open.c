/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync`: opens and closes the rounds of a rank, and opens its store.
 */
#include "train_store.h"
#include "train_sync.h"

int train_sync_open(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    if (!sync || sync->rounds)
        return TOOL_OK;
    if (sync->store)
        return train_store_open(t, sync->store);
    if (rf_run_rounds_params(t->run, &sync->params) < 0)
        return trainer_failed(t);
    if (t->o->coordinator)
        return train_client_open(t, &sync->params, &sync->rule.rule, &sync->client);
    if (rf_rounds_open(sync->across, &sync->params, &sync->rule.rule, &sync->rounds) < 0)
        return trainer_failed(t);
    return TOOL_OK;
}

void train_sync_end_rounds(struct trainer *t)
{
    if (!t->sync)
        return;
    rf_rounds_close(t->sync->rounds);
    t->sync->rounds = NULL;
    rf_client_close(t->sync->client);
    t->sync->client = NULL;
    rf_run_rounds_params_free(&t->sync->params);
}
