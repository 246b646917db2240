/* SPDX-License-Identifier: MIT
 *
 * See compress.h.
 */
#include "compress.h"

#include <stdlib.h>

#include "../../base/base.h"

static int by_place(const void *a, const void *b)
{
    const struct rf_plan_sent *left = a, *right = b;
    return (left->first > right->first) - (left->first < right->first);
}

int rf_plan_sent_of(const struct rf_plan *plan, int piece, struct rf_plan_sent **out, int *count)
{
    struct rf_plan_sent *list = rf_alloc((size_t)plan->param_count * sizeof(*list) + 1);
    int all = 0, kept = 0;
    if (!list)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the gradients of a piece");
    for (int k = 0; k < plan->param_count; k++) {
        const struct rf_plan_param *p = &plan->params[k];
        const struct rf_shape shape = p->desc->shape;
        if (p->grad_piece != piece || p->grad_first == RF_NO_GRAD)
            continue;
        const int64_t rows = shape.ndim > 1 ? shape.dim[0] : 1;
        list[all++] = (struct rf_plan_sent){.first = p->grad_first - plan->pieces[piece].first,
                                            .count = p->count,
                                            .shape = {rows, p->count / rows}};
    }
    qsort(list, (size_t)all, sizeof(*list), by_place);
    for (int k = 0; k < all; k++) /* uses of one parameter may share its gradient */
        if (kept == 0 || list[kept - 1].first != list[k].first)
            list[kept++] = list[k];
    *out = list;
    *count = kept;
    return 0;
}

struct rf_rounds_rule rf_plan_compress_rule(const struct rf_policy *policy)
{
    return (struct rf_rounds_rule){.gradients = true,
                                   .form = policy->compress.form,
                                   .fraction = policy->compress.fraction,
                                   .form_rank = policy->compress.rank};
}

static int count(const struct rf_plan *plan, const struct rf_round_place *place, uint64_t *bytes,
                 uint64_t *rounds)
{
    const struct rf_rounds_rule rule = rf_plan_compress_rule(&plan->policy);
    struct rf_rounds_usage usage;
    RETURN_IF_ERROR(rf_rounds_usage(&rule, place, &usage));
    if (bytes)
        *bytes = usage.sent_bytes;
    if (rounds)
        *rounds = usage.messages;
    return 0;
}

int rf_plan_compressed(const struct rf_plan *plan, int piece, uint64_t *bytes, uint64_t *rounds)
{
    struct rf_plan_sent *sent = NULL;
    struct rf_round_place place = {.rank = plan->groups[RF_LANE_DATA].rank,
                                   .ranks = plan->groups[RF_LANE_DATA].size};
    int all = 0;
    RETURN_IF_ERROR(rf_plan_sent_of(plan, piece, &sent, &all));
    struct rf_round_shape *shapes = rf_alloc((size_t)all * sizeof(*shapes) + 1);
    for (int k = 0; k < all; k++) {
        place.count += sent[k].count;
        if (shapes)
            shapes[k] = sent[k].shape;
    }
    if (plan->policy.compress.form == RF_FORM_POWERSGD) {
        place.shapes = shapes;
        place.shape_count = all;
    }
    const int rc = shapes ? count(plan, &place, bytes, rounds)
                          : rf_fail(RF_ENOMEM, "plan: out of memory for the shapes of a piece");
    rf_free(shapes);
    rf_free(sent);
    return rc;
}
