/* SPDX-License-Identifier: MIT
 *
 * The trained elements that a rank has of the whole model; see group.h.
 */
#include "group.h"

#include "../base/base.h"
#include "stored.h"

int rf_group_add(struct rf_group_runs *runs, int64_t mine, int64_t all, int64_t count)
{
    struct rf_group_run *last = runs->count ? runs->list + runs->count - 1 : NULL;
    runs->values += count;
    if (last && last->mine + last->count == mine && last->all + last->count == all) {
        last->count += count;
        return 0;
    }
    if (runs->count == runs->capacity) {
        const size_t capacity = 2 * runs->capacity + 16;
        struct rf_group_run *grown = rf_realloc(runs->list, capacity * sizeof *grown);
        if (!grown)
            return rf_fail(RF_ENOMEM, "exchange: out of host memory");
        runs->list = grown;
        runs->capacity = capacity;
    }
    runs->list[runs->count++] = (struct rf_group_run){mine, all, count};
    return 0;
}

void rf_group_runs_free(struct rf_group_runs *runs)
{
    rf_free(runs->list);
    *runs = (struct rf_group_runs){0};
}

/* ---- what a rank has --------------------------------------------------------------------------
 */

/* The value with this rank's part of the sum of a piece; -1: the rank has no such sum. */
static int sum_of(const struct rf_plan *plan, int piece)
{
    for (int k = 0; k < plan->value_count && rf_plan_updates(plan); k++)
        if (plan->values[k].kind == RF_VALUE_GRAD_SHARD && plan->values[k].piece == piece)
            return k;
    return -1;
}

/* Elements of a use of a parameter whose gradients this rank has. */
static struct rf_plan_span grads_of(const struct rf_plan *plan, int use)
{
    const struct rf_plan_param *param = plan->params + use;
    const struct rf_plan_piece *piece = plan->pieces + param->grad_piece;
    struct rf_plan_span span = {param->grad_first, (uint64_t)param->count};
    if (sum_of(plan, param->grad_piece) < 0 ||
        !rf_plan_clip(&span, piece->first + piece->borders[plan->shard],
                      piece->counts[plan->shard]))
        return (struct rf_plan_span){0, 0};
    span.first -= param->grad_first;
    return span;
}

/* Calls `take` for each trained parameter of this rank, in the order of the whole model. all: where
 * it begins there. With grads: for the use whose gradients are those of the parameter, if it is on
 * this rank, and then for each use that is apart. */
static int walk(const struct rf_plan *plan, bool grads,
                int (*take)(void *user, int use, int64_t all), void *user)
{
    int64_t at = 0, first, count;
    const bool apart = grads && rf_plan_leaves_apart(plan);
    for (int i = 0; i < plan->param_count; i++) {
        const int holder = rf_plan_holder(plan, i);
        if (plan->params[i].logical != i || !rf_plan_trains(plan, i))
            continue;
        if (holder >= 0 && (!apart || holder == i))
            RETURN_IF_ERROR(take(user, holder, at));
        at += rf_shape_count(plan->params[i].cut.shape);
    }
    for (int k = 0, use; apart && (use = rf_plan_use_apart(plan, k, &first, &count)) >= 0; k++) {
        if (plan->params[use].owner >= 0)
            RETURN_IF_ERROR(take(user, use, at));
        at += count;
    }
    return 0;
}

struct collector {
    const struct rf_plan *plan;
    enum rf_group_kind kind;
    struct rf_group_runs *out;
};

static int add_param(void *user, int use, int64_t all)
{
    const struct collector *c = user;
    const struct rf_plan *plan = c->plan;
    const struct rf_param_cut *cut = &plan->params[use].cut;
    const struct rf_plan_span span =
        c->kind == RF_GROUP_PARAMS ? rf_plan_trained_span(plan, use) : grads_of(plan, use);
    for (uint64_t done = 0; done < span.count;) {
        const struct rf_cut_run run = rf_cut_run_at(cut, span.first + done);
        const uint64_t left = span.count - done, n = run.count < left ? run.count : left;
        RETURN_IF_ERROR(rf_group_add(c->out, c->out->values, all + (int64_t)run.first, (int64_t)n));
        done += n;
    }
    return 0;
}

int rf_group_runs_of(const struct rf_plan *plan, enum rf_group_kind kind, struct rf_group_runs *out)
{
    struct collector c = {plan, kind, out};
    return walk(plan, kind == RF_GROUP_GRADS, add_param, &c);
}

/* ---- gradients ------------------------------------------------------------------------------- */

struct reader {
    const struct rf_run *run;
    float *to;
};

static int read_grad(void *user, int use, int64_t all)
{
    struct reader *r = user;
    const struct rf_plan *plan = r->run->plan;
    const struct rf_plan_param *param = plan->params + use;
    const struct rf_plan_piece *piece = plan->pieces + param->grad_piece;
    const struct rf_plan_span span = grads_of(plan, use);
    if (span.count == 0)
        return 0;
    struct rf_tensor grad = rf_run_value(r->run, sum_of(plan, param->grad_piece));
    grad.offset += (param->grad_first + span.first - piece->first - piece->borders[plan->shard]) *
                   sizeof(float);
    grad.shape = rf_shape1((int64_t)span.count);
    grad.dtype = RF_F32;
    RETURN_IF_ERROR(rf_stored_read(grad, r->to));
    r->to += span.count;
    return 0;
}

int rf_group_read_grads(const struct rf_run *run, float *to)
{
    struct reader r = {run, to};
    return walk(run->plan, true, read_grad, &r);
}

/* ---- each element once ----------------------------------------------------------------------- */

static int64_t alike(const uint8_t *taken, int64_t from, int64_t end, int value)
{
    const uint8_t *other = memchr(taken + from, !value, (size_t)(end - from));
    return other ? other - taken - from : end - from;
}

int rf_group_claim(const struct rf_group_runs *runs, uint8_t *taken, struct rf_group_runs *out)
{
    for (size_t k = 0; k < runs->count; k++) {
        const struct rf_group_run *r = runs->list + k;
        for (int64_t done = 0; done < r->count;) {
            done += alike(taken, r->all + done, r->all + r->count, 1);
            const int64_t n =
                done < r->count ? alike(taken, r->all + done, r->all + r->count, 0) : 0;
            if (n == 0)
                break;
            RETURN_IF_ERROR(rf_group_add(out, r->mine + done, r->all + done, n));
            memset(taken + r->all + done, 1, (size_t)n);
            done += n;
        }
    }
    return 0;
}
