/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync`: the ranks are workers, each with a mesh of its own, which exchange
 * parameters now and then (ringforge/rounds.h), or pull them from a store (train_store.c), or are
 * clients of a coordinator (train_client.c). The first worker alone prints and writes files.
 */
#include <string.h>

#include "train_store.h"
#include "train_sync.h"

/* ---- one rank -------------------------------------------------------------------------------- */

int train_sync_place(struct trainer *t)
{
    struct rf_comm *world = t->comm, *inner = NULL;
    const int size = setup_ranks(&t->o->setup), rank = t->rank, all = t->ranks;
    if (!train_sync_on(t->o))
        return TOOL_OK;
    struct train_sync *sync = calloc(1, sizeof(*sync));
    if (!sync)
        return tool_error(t->command, "out of memory");
    t->sync = sync;
    if (train_store_on(t->o))
        return train_store_place(t, &sync->store);
    if (t->o->coordinator)
        return rf_rounds_text_read(t->o->sync, 1, &sync->rule) < 0 ? trainer_failed(t) : TOOL_OK;
    t->worker = t->number = rank / size;
    sync->size = size;
    sync->place = rank % size;
    sync->world = world;
    sync->workers = all / size;
    sync->ids = calloc((size_t)all, sizeof(int));
    sync->members = calloc((size_t)all, sizeof(int));
    if (!sync->ids || !sync->members)
        return tool_error(t->command, "out of memory");
    for (int k = 0; k < all; k++)
        sync->ids[k] = sync->members[k] = k;
    if (rf_comm_split(world, t->worker, rank, &inner) < 0 ||
        rf_comm_split(world, sync->place, t->worker, &sync->across) < 0 ||
        rf_rounds_text_read(t->o->sync, sync->workers, &sync->rule) < 0) {
        (void)rf_comm_close(inner);
        return trainer_failed(t);
    }
    rf_comm_set_track(sync->across, "rounds");
    trainer_be_in(t, inner);
    return TOOL_OK;
}

bool train_sync_serves(const struct trainer *t)
{
    return t->sync && t->sync->store && train_store_serves(t);
}

int train_sync_serve(struct trainer *t)
{
    return train_store_serve(t, t->sync->store);
}

int train_sync_report(struct trainer *t, struct report_store *out)
{
    return t->sync->store ? train_store_report(t, t->sync->store, out) : TOOL_OK;
}

/* All workers stop behind the same step: one in which each has waited for the others. */
int train_sync_step(struct trainer *t, double lr, struct rf_step_stats *stats)
{
    if (t->sync->store)
        return train_store_step(t, t->sync->store, lr, stats);
    if (t->sync->client)
        return train_client_step(t, t->sync->client, &t->sync->rule.rule, lr, stats);
    struct rf_rounds_stats now;
    struct train_sync *sync = t->sync;
    int32_t heard[2];
    /* The second: how many saves are complete, except that nobody waits for the first worker. */
    const int32_t said[2] = {stats->stop, -(sync->saves - (sync->saving && t->number > 0))};
    const uint64_t from = rf_now_ns();
    t->round_tokens += (double)stats->tokens;
    const double share = sync->rule.rule.weighted ? t->round_tokens : 0;
    stats->stop = 0;
    rf_rounds_say(sync->rounds, said);
    const int status = train_sync_survive(t, rf_rounds_step(sync->rounds, share, NULL));
    if (status != TOOL_OK)
        return status;
    rf_rounds_get_stats(sync->rounds, &now);
    stats->sent_bytes += now.sent_bytes - t->round_bytes;
    stats->exposed_comm_ns += now.wait_ns;
    stats->step_ns += rf_now_ns() - from;
    t->round_bytes = now.sent_bytes;
    if (now.begun)
        t->round_tokens = 0;
    if (now.applied) {
        rf_rounds_heard(sync->rounds, heard);
        stats->stop = heard[0];
        sync->awaits_others = -heard[1] < sync->saves;
    }
    return TOOL_OK;
}

int train_sync_end(struct trainer *t)
{
    if (t->sync->store)
        return train_store_end(t, t->sync->store);
    if (t->sync->client)
        return TOOL_OK;
    const struct rf_rounds_rule *rule = &t->sync->rule.rule;
    int64_t step, exchanges;
    rf_rounds_get_counters(t->sync->rounds, &step, &exchanges);
    const bool equal = rule->mixing.graph == RF_GRAPH_ALL && rule->delay == 0 && rule->parts <= 1 &&
                       step % rule->every == 0;
    return !equal && rf_rounds_mean(t->sync->rounds) < 0 ? trainer_failed(t) : TOOL_OK;
}

/* The first worker may still be writing. */
int train_sync_leave(struct trainer *t)
{
    if (t->sync->store)
        return train_store_leave(t, t->sync->store);
    if (t->sync->client)
        return train_client_leave(t);
    return rf_barrier(t->sync->world, NULL) < 0 ? trainer_failed(t) : TOOL_OK;
}

void train_sync_abort(struct trainer *t, const char *why)
{
    if (t->sync->store)
        train_store_abort(t->sync->store, why);
    if (!t->sync->world)
        return;
    rf_comm_abort(t->sync->across, why);
    rf_comm_abort(t->sync->world, why);
}

/* Before the run is closed, whose parameters the rounds read. */
void train_sync_close(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    if (!sync)
        return;
    train_store_close(sync->store);
    train_sync_end_rounds(t);
    rf_rounds_text_free(&sync->rule);
    if (sync->across)
        (void)rf_comm_close(sync->across); /* the communicator of all ranks says what was wrong */
    if (sync->world && sync->world != t->first)
        (void)rf_comm_close(sync->world);
    free(sync->ids);
    free(sync->members);
    free(sync);
    t->sync = NULL;
}
