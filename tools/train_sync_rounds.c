/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync`: workers that exchange parameters now and then (ringforge/rounds.h).
 */
#include <string.h>

#include "train_sync.h"

static int place(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    struct rf_comm *world = t->comm, *inner = NULL;
    const int size = setup_ranks(&t->o->setup), rank = t->rank, all = t->ranks;
    if (t->newcomer)
        return train_sync_join(t);
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

static int open_rounds(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    if (sync->rounds)
        return TOOL_OK;
    if (rf_run_rounds_params(t->run, &sync->params) < 0 ||
        rf_rounds_open(sync->across, &sync->params, &sync->rule.rule, &sync->rounds) < 0)
        return trainer_failed(t);
    return train_sync_keep(t);
}

static void shut(struct trainer *t)
{
    rf_rounds_close(t->sync->rounds);
    t->sync->rounds = NULL;
}

/* All workers stop behind the same step: one in which each has waited for the others. */
static int step(struct trainer *t, double lr, struct rf_step_stats *stats)
{
    struct rf_rounds_stats now;
    struct train_sync *sync = t->sync;
    int32_t heard[RF_ROUNDS_WORDS];
    /* The second: how many saves are complete, except that nobody waits for the first worker. */
    int32_t said[RF_ROUNDS_WORDS] = {stats->stop, -(sync->saves - (sync->saving && t->number > 0))};
    const uint64_t from = rf_now_ns();
    t->round_tokens += (double)stats->tokens;
    const double share = sync->rule.rule.weighted ? t->round_tokens : 0;
    stats->stop = 0;
    int status = train_sync_newcomers(t, &said[2]);
    if (status != TOOL_OK)
        return status;
    rf_rounds_say(sync->rounds, said);
    status = train_sync_survive(t, rf_rounds_step(sync->rounds, share, NULL));
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
        sync->newcomers = heard[2];
    }
    return TOOL_OK;
}

static int end(struct trainer *t)
{
    const struct rf_rounds_rule *rule = &t->sync->rule.rule;
    int64_t steps, exchanges;
    rf_rounds_get_counters(t->sync->rounds, &steps, &exchanges);
    const bool equal = rule->mixing.graph == RF_GRAPH_ALL && rule->delay == 0 && rule->parts <= 1 &&
                       steps % rule->every == 0;
    return !equal && rf_rounds_mean(t->sync->rounds) < 0 ? trainer_failed(t) : TOOL_OK;
}

static int leave(struct trainer *t)
{
    if (rf_barrier(t->sync->world, NULL) == 0 || (t->o->elastic && train_lost_a_rank()))
        return TOOL_OK;
    return trainer_failed(t);
}

static void end_others(struct trainer *t, const char *why)
{
    rf_comm_abort(t->sync->across, why);
    rf_comm_abort(t->sync->world, why);
}

static void close_comms(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    if (sync->extra)
        (void)rf_comm_close(sync->extra);
    if (sync->across)
        (void)rf_comm_close(sync->across); /* the communicator of all ranks says what was wrong */
    if (sync->world && sync->world != t->first)
        (void)rf_comm_close(sync->world);
    free(sync->ids);
    free(sync->members);
}

const struct train_sync_kind train_sync_by_rounds = {.place = place,
                                                     .open = open_rounds,
                                                     .shut = shut,
                                                     .step = step,
                                                     .end = end,
                                                     .prepare = train_sync_prepare,
                                                     .leave = leave,
                                                     .abort = end_others,
                                                     .close = close_comms};
