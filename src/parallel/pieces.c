/* SPDX-License-Identifier: MIT
 *
 * Pass: pieces, which are reduced and updated together; those of data parallelism are buckets.
 * Walks the flat buffer from its front, which backward completes first (Li et al. 2020, PyTorch
 * Distributed). The first bucket is small, so that communication starts early; a bucket exceeds its
 * limit only for a single parameter. Frozen parameters are one piece, the last.
 */
#include "../base/base.h"
#include "passes.h"

/* Trained pieces are in the order of readiness: backward goes from the last block to the first. */
static void add_piece(struct rf_plan *plan, struct rf_plan_piece piece)
{
    int at = plan->piece_count++;
    while (piece.trained && at > 0 && plan->pieces[at - 1].block < piece.block) {
        plan->pieces[at] = plan->pieces[at - 1];
        at--;
    }
    plan->pieces[at] = piece;
    plan->trained_pieces += piece.trained;
}

static void cut_buckets(struct rf_plan *plan)
{
    struct rf_plan_piece bucket = {.block = -1, .use = -1, .trained = true};
    uint64_t limit = plan->policy.first_bucket_bytes / sizeof(float);
    for (int i = plan->param_count - 1; i >= 0; i--) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->owner != i || param->grad_first == RF_NO_GRAD)
            continue;
        uint64_t end = param->grad_first + (uint64_t)param->count;
        if (bucket.count > 0 && end - bucket.first > limit) {
            add_piece(plan, bucket);
            bucket.first = param->grad_first;
            limit = plan->policy.bucket_bytes / sizeof(float);
        }
        bucket.count = end - bucket.first;
        bucket.block = param->block;
    }
    if (bucket.count > 0)
        add_piece(plan, bucket);
}

/* In ring order the uses of a tied parameter share a gradient. In tree order that would depend on
 * the ranks, so every use has a tree of its own. */
static void add_uses(struct rf_plan *plan)
{
    for (int i = plan->param_count - 1; i >= 0; i--) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->owner != i && param->grad_first != RF_NO_GRAD)
            add_piece(plan, (struct rf_plan_piece){.first = param->grad_first,
                                                   .count = (uint64_t)param->count,
                                                   .block = param->block,
                                                   .use = i,
                                                   .trained = true});
    }
}

static bool inside(const struct rf_plan_piece *piece, uint64_t first)
{
    return first >= piece->first && first < piece->first + piece->count;
}

static void assign_params(struct rf_plan *plan)
{
    for (int i = 0; i < plan->param_count; i++) {
        struct rf_plan_param *param = &plan->params[i];
        param->grad_piece = -1;
        for (int k = 0; k < plan->piece_count; k++) {
            const struct rf_plan_piece *piece = &plan->pieces[k];
            if (piece->use < 0 && inside(piece, param->first))
                param->piece = k;
            if (piece->trained && param->grad_first != RF_NO_GRAD &&
                inside(piece, param->grad_first))
                param->grad_piece = k;
        }
    }
}

int rf_pass_pieces(struct rf_plan *plan)
{
    const uint64_t frozen = plan->param_elements - plan->train_elements;
    plan->pieces = rf_alloc(((size_t)plan->param_count + 2) * sizeof(*plan->pieces));
    if (!plan->pieces)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the pieces");
    cut_buckets(plan);
    if (plan->policy.order == RF_ORDER_TREE)
        add_uses(plan);
    if (frozen > 0)
        add_piece(plan,
                  (struct rf_plan_piece){
                      .first = plan->train_elements, .count = frozen, .block = -1, .use = -1});
    assign_params(plan);
    return 0;
}
