/* SPDX-License-Identifier: MIT
 *
 * An exchange: what is read before it, the interpreter of its list, and what is written after it.
 */
#include <math.h>

#include "form.h"
#include "outer.h"
#include "rounds.h"

/* ---- before ---------------------------------------------------------------------------------- */

int rf_rounds_begin(struct rf_rounds *r, struct part *part)
{
    const int64_t end = part->first + part->count;
    RETURN_IF_ERROR(
        r->params.read(r->params.user, part->first, part->count, r->local + part->first));
    for (int64_t i = part->first; i < end; i++)
        r->value[i] = r->rule.difference  ? r->anchor[i] - r->local[i]
                      : r->rule.mix_first ? r->anchor[i]
                                          : r->local[i];
    if ((r->rule.difference || r->rule.gradients) && r->feedback)
        for (int64_t i = part->first; i < end; i++)
            r->value[i] += r->feedback[i];
    return RF_OK;
}

/* ---- the list -------------------------------------------------------------------------------- */

struct exchange {
    struct rf_rounds *r;
    struct part *part;
    const struct rf_round_op *op;
    int64_t at; /* of the op's first value in the arrays */
    float fraction;
};

static double weight_of(const struct exchange *e)
{
    if (e->op->weight >= 0)
        return e->op->weight;
    double sum = 0;
    for (int peer = 0; peer < rf_comm_size(e->r->comm); peer++)
        sum += e->r->shares[peer];
    const bool own = e->op->verb == RF_ROUND_SUM || e->op->verb == RF_ROUND_AVERAGE;
    const int peer = own ? rf_comm_rank(e->r->comm) : e->op->peer;
    return e->r->shares[peer] / sum;
}

static int share(const struct exchange *e)
{
    double sum = 0;
    RETURN_IF_ERROR(rf_all_gather(e->r->comm, &e->part->share, e->r->shares, 1, RF_F64, NULL));
    for (int peer = 0; peer < rf_comm_size(e->r->comm); peer++)
        sum += e->r->shares[peer];
    if (sum > 0)
        return RF_OK;
    return rf_fail(RF_EINVAL, "the shares of all workers are 0: there is no mean of nothing");
}

static int sum(const struct exchange *e)
{
    const float weight = (float)weight_of(e);
    const struct rf_coll_opts opts = {.label = "rounds"};
    for (int64_t i = e->at; i < e->at + e->op->count; i++)
        e->r->mean[i] = e->r->value[i] * weight;
    return rf_all_reduce(e->r->comm, e->r->mean + e->at, e->r->mean + e->at, (size_t)e->op->count,
                         RF_F32, RF_SUM, &opts);
}

static int factor(const struct exchange *e)
{
    struct rf_rounds *r = e->r;
    struct rf_form_factors factors = {.shapes = r->shapes,
                                      .shape_count = r->shape_count,
                                      .rank = r->rule.form_rank ? r->rule.form_rank : 1,
                                      .round = (uint64_t)e->part->number,
                                      .value = r->value,
                                      .feedback = r->feedback,
                                      .warm = r->warm,
                                      .next_warm = r->scratch,
                                      .mean = r->mean};
    uint64_t at = 0;
    for (int phase = 0; phase < RF_FORM_SUMS; phase++) {
        factors.sums[phase] = (float *)(r->messages + at);
        at += (4 * (uint64_t)rf_form_factor_values(r->rule.form, &factors, phase) + 63) / 64 * 64;
    }
    return rf_form_phase(r->rule.form, &factors, e->op->phase);
}

static int average(const struct exchange *e)
{
    float *factors = (float *)(e->r->messages + e->op->at);
    const float weight = (float)weight_of(e);
    const size_t count = (size_t)(e->op->bytes / sizeof *factors);
    const struct rf_coll_opts opts = {.label = "rounds"};
    for (size_t i = 0; i < count; i++)
        factors[i] *= weight;
    return rf_all_reduce(e->r->comm, factors, factors, count, RF_F32, RF_SUM, &opts);
}

/* Of out, what was lost of it the last time is added first. */
static int encode(const struct exchange *e)
{
    struct rf_rounds *r = e->r;
    float *kept = e->op->of_out ? r->owned : r->feedback;
    float *from = (e->op->of_out ? r->mean : r->value) + e->at;
    void *to = r->messages + e->op->at;
    if (e->op->of_out && kept)
        for (int64_t i = 0; i < e->op->count; i++)
            from[i] += kept[e->at + i];
    RETURN_IF_ERROR(
        rf_form_encode(r->rule.form, e->fraction, from, e->op->count, to, r->scratch + e->at));
    if (!kept)
        return RF_OK;
    RETURN_IF_ERROR(rf_form_decode(r->rule.form, e->fraction, to, e->op->count, kept + e->at));
    for (int64_t i = 0; i < e->op->count; i++)
        kept[e->at + i] = from[i] - kept[e->at + i];
    return RF_OK;
}

static int clear(const struct exchange *e)
{
    memset(e->r->mean + e->at, 0, (size_t)e->op->count * sizeof(float));
    return RF_OK;
}

static int add(const struct exchange *e)
{
    const float weight = (float)weight_of(e);
    float *seen = e->r->scratch + e->at, *out = e->r->mean + e->at;
    RETURN_IF_ERROR(rf_form_decode(e->r->rule.form, e->fraction, e->r->messages + e->op->at,
                                   e->op->count, seen));
    for (int64_t i = 0; i < e->op->count; i++)
        out[i] += weight * seen[i];
    return RF_OK;
}

static int take(const struct exchange *e)
{
    return rf_form_decode(e->r->rule.form, e->fraction, e->r->messages + e->op->at, e->op->count,
                          e->r->mean + e->at);
}

/* Whoever has this sum knows that no rank needs the exchange again. */
static int commit(const struct exchange *e)
{
    const struct rf_coll_opts opts = {.label = "rounds"};
    rf_rounds_set_progress(e->r, e->part->number + 1, e->part->number);
    RETURN_IF_ERROR(rf_all_reduce(e->r->comm, e->part->said, e->part->heard, RF_ROUNDS_WORDS,
                                  RF_I32, RF_MAX, &opts));
    memcpy(e->r->newest, e->part->heard, sizeof e->r->newest);
    rf_rounds_set_progress(e->r, e->part->number + 1, e->part->number + 1);
    return RF_OK;
}

static int send(const struct exchange *e)
{
    const struct rf_coll_opts opts = {.label = "rounds"};
    return rf_send(e->r->comm, e->r->messages + e->op->at, e->op->bytes, RF_U8, e->op->peer, 0,
                   &opts);
}

static int receive(const struct exchange *e)
{
    const struct rf_coll_opts opts = {.label = "rounds"};
    return rf_recv(e->r->comm, e->r->messages + e->op->at, e->op->bytes, RF_U8, e->op->peer, 0,
                   &opts);
}

static int (*const verbs[RF_ROUND_VERB_COUNT])(const struct exchange *) = {
    [RF_ROUND_FACTOR] = factor, [RF_ROUND_AVERAGE] = average, [RF_ROUND_SHARE] = share,
    [RF_ROUND_SUM] = sum,       [RF_ROUND_ENCODE] = encode,   [RF_ROUND_SEND] = send,
    [RF_ROUND_RECV] = receive,  [RF_ROUND_CLEAR] = clear,     [RF_ROUND_ADD] = add,
    [RF_ROUND_TAKE] = take,     [RF_ROUND_COMMIT] = commit,
};

static bool travels(const struct rf_round_op *op)
{
    return op->verb == RF_ROUND_SEND || op->verb == RF_ROUND_RECV;
}

static int run(struct exchange *e, const struct rf_round_list *list)
{
    bool in_group = false;
    int status = RF_OK;
    for (int64_t i = 0; i < list->count && status == RF_OK; i++) {
        e->op = list->ops + i;
        e->at = e->part->first + e->op->first;
        if (travels(e->op) != in_group) {
            status = in_group ? rf_group_end(e->r->comm) : rf_group_start(e->r->comm);
            in_group = !in_group;
        }
        if (status == RF_OK)
            status = verbs[e->op->verb](e);
    }
    return status;
}

/* What fails on this rank alone is told to the others: they would wait for it. */
static int fail_all(struct rf_rounds *r, int status)
{
    const struct rf_error error = *rf_last_error();
    if (status == RF_EINVAL || status == RF_ENOMEM || status == RF_ECORRUPT)
        rf_comm_abort(r->comm, error.message);
    return rf_fail_error(&error);
}

int rf_rounds_exchange(struct rf_rounds *r, struct part *part)
{
    const struct rf_round_place place = {.rank = rf_comm_rank(r->comm),
                                         .ranks = rf_comm_size(r->comm),
                                         .round = part->number,
                                         .count = part->count,
                                         .shapes = r->shapes,
                                         .shape_count = r->shape_count};
    struct rf_round_list list;
    struct exchange e = {.r = r, .part = part, .fraction = rf_option(r->rule.fraction, 1.0f / 64)};
    int status = rf_round_list_make(&r->rule, &place, &list);
    if (status == RF_OK)
        status = run(&e, &list);
    rf_round_list_free(&list);
    if (status == RF_OK && r->rule.gradients) /* the list has no RF_ROUND_COMMIT */
        rf_rounds_set_progress(r, part->number + 1, part->number + 1);
    return status < 0 ? fail_all(r, status) : RF_OK;
}

/* ---- after ----------------------------------------------------------------------------------- */

static int outer_step(struct rf_rounds *r, struct part *part)
{
    struct rf_host_part update = {.count = part->count,
                                  .param = r->anchor + part->first,
                                  .grad = r->mean + part->first,
                                  .decay = r->decay};
    for (int s = 0; s < RF_STATE_COUNT; s++)
        update.state[s] = r->state[s] ? r->state[s] + part->first : NULL;
    return rf_rounds_outer_step(&r->rule, &update, &part->scalars);
}

/* value = the parameters that the exchange leads to */
static int result(struct rf_rounds *r, struct part *part)
{
    const int64_t end = part->first + part->count;
    const bool lost = r->feedback && !r->rule.difference && !r->rule.gradients;
    if (r->rule.difference)
        RETURN_IF_ERROR(outer_step(r, part));
    for (int64_t i = part->first; i < end; i++) {
        float value = r->rule.difference ? r->anchor[i] : r->mean[i];
        value += lost ? r->feedback[i] : 0;
        value += r->rule.mix_first ? r->local[i] - r->anchor[i] : 0;
        r->value[i] = value;
    }
    if (r->anchor)
        memcpy(r->anchor + part->first, r->value + part->first,
               (size_t)part->count * sizeof(float));
    return RF_OK;
}

int rf_rounds_apply(struct rf_rounds *r, struct part *part)
{
    const int64_t first = part->first, count = part->count;
    RETURN_IF_ERROR(result(r, part));
    if (r->warm)
        memcpy(r->warm, r->scratch, (size_t)r->params.count * sizeof(float));
    rf_rounds_number(r, part, -1);
    memcpy(r->heard, part->heard, sizeof r->heard);
    r->applied++;
    if (r->step == part->begun)
        return r->params.write(r->params.user, first, count, r->value + first);
    /* The steps that were made meanwhile stay. */
    RETURN_IF_ERROR(r->params.read(r->params.user, first, count, r->mean + first));
    for (int64_t i = first; i < first + count; i++)
        r->mean[i] += r->value[i] - r->local[i];
    return r->params.write(r->params.user, first, count, r->mean + first);
}
