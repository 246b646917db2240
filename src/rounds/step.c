/* SPDX-License-Identifier: MIT
 *
 * What happens after each local step, at the end, and after the loss of a worker.
 */
#include "rounds.h"

#include <ringforge/ringforge.h>

static uint64_t sent(const struct rf_rounds *r)
{
    return r->sent_before + rf_comm_sent_bytes(r->comm) - r->sent_at_start;
}

static int apply(struct rf_rounds *r, struct part *part, struct rf_rounds_stats *stats)
{
    stats->applied = true;
    return rf_rounds_apply(r, part);
}

/* Waits for the exchange of a part, or makes it, and lets it take effect. */
static int end(struct rf_rounds *r, struct part *part, struct rf_rounds_stats *stats)
{
    const uint64_t from = rf_now_ns();
    const int status =
        r->has_thread ? rf_rounds_wait(r, part->number) : rf_rounds_exchange(r, part);
    stats->wait_ns += rf_now_ns() - from;
    if (status < 0 && !r->has_thread)
        r->error = *rf_last_error();
    RETURN_IF_ERROR(status);
    return apply(r, part, stats);
}

static int begin(struct rf_rounds *r, struct part *part, double share,
                 struct rf_rounds_stats *stats)
{
    RETURN_IF_ERROR(rf_rounds_begin(r, part));
    part->begun = r->step;
    part->share = share;
    memcpy(part->said, r->said, sizeof part->said);
    rf_rounds_number(r, part, r->begun++);
    stats->begun = true;
    if (!r->has_thread)
        return end(r, part, stats);
    rf_rounds_ask(r, r->begun);
    return RF_OK;
}

static int step(struct rf_rounds *r, double share, struct rf_rounds_stats *stats)
{
    for (int p = 0; p < r->rule.parts; p++)
        if (r->parts[p].number >= 0 && r->step == r->parts[p].begun + r->rule.delay)
            RETURN_IF_ERROR(end(r, r->parts + p, stats));
    for (int p = 0; p < r->rule.parts; p++)
        if (r->parts[p].count > 0 && r->step % r->rule.every == r->parts[p].due)
            RETURN_IF_ERROR(begin(r, r->parts + p, share, stats));
    return RF_OK;
}

int rf_rounds_step(struct rf_rounds *r, double share, struct rf_rounds_stats *stats)
{
    if (!r || !(share >= 0) || (share != 0 && !r->rule.weighted))
        return rf_fail(RF_EINVAL, "a step of rounds needs rounds, and a share of 0 or more, which "
                                  "belongs to a weighted rule only");
    /* The thread's error is met in the step in which its exchange is due, which is one for all. */
    if (r->error.status < 0 && !r->has_thread)
        return rf_fail(RF_EABORT, "an exchange of the rounds has failed: continue by "
                                  "rf_rounds_move with the workers that are left");
    r->step++;
    r->share = share;
    r->stats = (struct rf_rounds_stats){0};
    const int status = step(r, share, &r->stats);
    r->unfinished = status < 0;
    if (stats)
        rf_rounds_get_stats(r, stats);
    return status;
}

void rf_rounds_get_stats(const struct rf_rounds *r, struct rf_rounds_stats *out)
{
    *out = r->stats;
    out->step = r->step;
    out->exchanges = r->applied;
    out->sent_bytes = sent(r);
}

void rf_rounds_say(struct rf_rounds *r, const int32_t said[RF_ROUNDS_WORDS])
{
    memcpy(r->said, said, sizeof r->said);
}

void rf_rounds_heard(const struct rf_rounds *r, int32_t heard[RF_ROUNDS_WORDS])
{
    memcpy(heard, r->heard, sizeof r->heard);
}

/* In the order in which they began. */
static int end_all(struct rf_rounds *r)
{
    struct rf_rounds_stats stats = {0};
    for (int64_t number = r->applied; number < r->begun; number++)
        for (int p = 0; p < r->rule.parts; p++)
            if (r->parts[p].number == number) {
                RETURN_IF_ERROR(end(r, r->parts + p, &stats));
                break;
            }
    return RF_OK;
}

int rf_rounds_mean(struct rf_rounds *r)
{
    const int64_t count = r->params.count;
    const float weight = 1.0f / (float)rf_comm_size(r->comm);
    if (r->rule.gradients)
        return rf_fail(RF_EINVAL, "rounds of gradients have no parameters of which a mean is made");
    RETURN_IF_ERROR(end_all(r));
    RETURN_IF_ERROR(r->params.read(r->params.user, 0, count, r->mean));
    for (int64_t i = 0; i < count; i++)
        r->mean[i] *= weight;
    RETURN_IF_ERROR(rf_all_reduce(r->comm, r->mean, r->mean, (size_t)count, RF_F32, RF_SUM, NULL));
    if (r->anchor)
        memcpy(r->anchor, r->mean, (size_t)count * sizeof(float));
    return r->params.write(r->params.user, 0, count, r->mean);
}

/* ---- after the loss of a worker -------------------------------------------------------------- */

/* W of the ranks that are left. What a rank gave to those that are gone it keeps. */
static int keep_weights(struct rf_rounds *r, int ranks, const int *old_ranks)
{
    const int before = r->rule.mixing.ranks;
    r->rule.mixing.ranks = ranks;
    for (int i = 0; i < ranks && r->weights; i++) {
        double *row = r->weights + (size_t)i * (size_t)ranks, left = 1;
        for (int j = 0; j < ranks; j++) {
            row[j] = r->weights[(size_t)old_ranks[i] * (size_t)before + (size_t)old_ranks[j]];
            left -= row[j];
        }
        row[i] += left;
    }
    return rf_mixing_check(&r->rule.mixing);
}

/* An exchange that one rank knows to be complete on all is; any other is made again. */
static int agree(struct rf_rounds *r, struct rf_comm *comm)
{
    int64_t last = r->committed;
    RETURN_IF_ERROR(rf_all_reduce(comm, &last, &last, 1, RF_I64, RF_MAX, NULL));
    int32_t heard[RF_ROUNDS_WORDS];
    for (int k = 0; k < RF_ROUNDS_WORDS; k++)
        heard[k] = r->committed == last ? r->newest[k] : INT32_MIN;
    RETURN_IF_ERROR(rf_all_reduce(comm, heard, heard, RF_ROUNDS_WORDS, RF_I32, RF_MAX, NULL));
    if (r->complete < last)
        return rf_fail(RF_EMISMATCH,
                       "this worker has %lld exchanges, and another one has %lld: they are not of "
                       "one training",
                       (long long)r->complete, (long long)last);
    memcpy(r->newest, heard, sizeof heard);
    for (int p = 0; p < r->rule.parts; p++)
        if (r->parts[p].number >= 0 && r->parts[p].number == last - 1)
            memcpy(r->parts[p].heard, heard, sizeof heard);
    r->complete = r->committed = last;
    return RF_OK;
}

int rf_rounds_move(struct rf_rounds *r, struct rf_comm *comm, const int *old_ranks)
{
    if (r && r->rule.gradients)
        return rf_fail(RF_ENOTSUP, "gradients are not exchanged again: open rounds of those ranks "
                                   "that are left, or begin from a checkpoint");
    if (!r || !comm || (r->weights && !old_ranks))
        return rf_fail(RF_EINVAL, "rounds move to a communicator, and with weights of the caller "
                                  "need the old ranks");
    if (r->weights && rf_comm_size(comm) > r->rule.mixing.ranks)
        return rf_fail(RF_ENOTSUP, "a matrix of weights is for its number of ranks: it has no row "
                                   "for a newcomer");
    rf_rounds_thread_end(r);
    RETURN_IF_ERROR(keep_weights(r, rf_comm_size(comm), old_ranks));
    r->sent_before = sent(r);
    r->sent_at_start = rf_comm_sent_bytes(comm);
    r->comm = comm;
    r->error = (struct rf_error){0};
    RETURN_IF_ERROR(agree(r, comm));
    /* Other ranks own other pieces of the sums. */
    if (r->owned)
        memset(r->owned, 0, (size_t)r->params.count * sizeof(float));
    RETURN_IF_ERROR(rf_rounds_compare_rules(r));
    RETURN_IF_ERROR(rf_rounds_make_room(r));
    RETURN_IF_ERROR(rf_rounds_thread_start(r));
    if (r->has_thread) {
        rf_rounds_ask(r, r->begun);
        const int status = r->unfinished ? step(r, r->share, &r->stats) : RF_OK;
        r->unfinished = status < 0;
        return status;
    }
    for (int p = 0; p < r->rule.parts; p++) {
        struct part *part = r->parts + p;
        if (part->number >= 0)
            RETURN_IF_ERROR(part->number < r->committed ? apply(r, part, &r->stats)
                                                        : end(r, part, &r->stats));
    }
    return RF_OK;
}
