/* SPDX-License-Identifier: MIT
 *
 * What a checkpoint keeps of rounds: arrays, and counters from which all else follows.
 */
#include "rounds.h"

int rf_rounds_settle(struct rf_rounds *r)
{
    if (!r)
        return rf_fail(RF_EINVAL, "rounds are needed");
    return r->has_thread && r->begun > r->applied ? rf_rounds_wait(r, r->begun - 1) : RF_OK;
}

int rf_rounds_get_array(struct rf_rounds *r, int index, struct rf_rounds_array *out)
{
    const bool late = r->rule.delay > 0;
    const struct rf_rounds_array all[] = {{"anchor", r->anchor},
                                          {"feedback", r->feedback},
                                          {"owned", r->owned, .is_sum = true},
                                          {"warm", r->warm},
                                          {"m", r->state[RF_STATE_M]},
                                          {"v", r->state[RF_STATE_V]},
                                          {"a", r->state[RF_STATE_A]},
                                          {"u", r->state[RF_STATE_U]},
                                          {"begun", late ? r->local : NULL},
                                          {"arrived", late ? r->mean : NULL}};
    pthread_mutex_lock(&r->lock);
    const bool arrived = r->committed == r->begun;
    pthread_mutex_unlock(&r->lock);
    if (!arrived)
        return rf_fail(RF_EINVAL, "an exchange is in progress: rf_rounds_settle waits for it");
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k].values && index-- == 0) {
            *out = all[k];
            out->count = r->params.count;
            return RF_OK;
        }
    return rf_fail(RF_EINVAL, "rounds of this rule have no further array");
}

/* Empty parts are the last ones, and are not exchanged. */
static int used_parts(const struct rf_rounds *r)
{
    int used = 0;
    while (used < r->rule.parts && r->parts[used].count > 0)
        used++;
    return used;
}

/* The step in which an exchange began, or begins. */
static int64_t begins(const struct rf_rounds *r, int64_t number)
{
    const int used = used_parts(r);
    return number / used * r->rule.every + (number % used + 1) * r->rule.every / r->rule.parts;
}

static int64_t begun_until(const struct rf_rounds *r, int64_t step)
{
    int64_t number = step / r->rule.every * used_parts(r);
    while (begins(r, number) <= step)
        number++;
    return number;
}

/* What was lost of sums is kept by the rank that sends them, and by no other one. */
static int keep_own_sums(struct rf_rounds *r)
{
    int64_t kept = 0;
    for (int p = 0; r->owned && p < r->rule.parts; p++) {
        const struct rf_round_place place = {.rank = rf_comm_rank(r->comm),
                                             .ranks = rf_comm_size(r->comm),
                                             .count = r->parts[p].count};
        struct rf_round_list list;
        RETURN_IF_ERROR(rf_round_list_make(&r->rule, &place, &list));
        for (int64_t k = 0; k < list.count; k++) {
            const struct rf_round_op *op = list.ops + k;
            const int64_t first = r->parts[p].first + op->first;
            if (op->verb != RF_ROUND_ENCODE || !op->of_out)
                continue;
            memset(r->owned + kept, 0, (size_t)(first - kept) * sizeof(float));
            kept = first + op->count;
        }
        rf_round_list_free(&list);
    }
    if (r->owned)
        memset(r->owned + kept, 0, (size_t)(r->params.count - kept) * sizeof(float));
    return RF_OK;
}

void rf_rounds_get_counters(const struct rf_rounds *r, int64_t *step, int64_t *exchanges)
{
    *step = r->step;
    *exchanges = r->applied;
}

int rf_rounds_set_counters(struct rf_rounds *r, int64_t step, int64_t exchanges)
{
    if (!r || step < 0 || exchanges < 0 || r->begun != r->applied)
        return rf_fail(RF_EINVAL, "counters of rounds, from 0 on, are set while no exchange is in "
                                  "progress");
    const int used = used_parts(r);
    const int64_t begun = begun_until(r, step);
    if (exchanges > begun || (exchanges < begun && begins(r, exchanges) + r->rule.delay <= step))
        return rf_fail(RF_EINVAL,
                       "%lld exchanges have not taken effect by step %lld in any rounds of this "
                       "rule, of which %lld have begun then",
                       (long long)exchanges, (long long)step, (long long)begun);
    RETURN_IF_ERROR(keep_own_sums(r));
    pthread_mutex_lock(&r->lock);
    r->step = step;
    r->unfinished = false;
    r->error = (struct rf_error){0};
    r->applied = exchanges;
    r->begun = r->complete = r->committed = r->asked = begun;
    for (int p = 0; p < used; p++)
        r->parts[p].scalars.updates = (uint32_t)(exchanges / used + (p < exchanges % used));
    for (int64_t number = exchanges; number < begun; number++) {
        r->parts[number % used].number = number;
        r->parts[number % used].begun = begins(r, number);
    }
    pthread_mutex_unlock(&r->lock);
    return RF_OK;
}
