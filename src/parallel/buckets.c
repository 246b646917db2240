/* SPDX-License-Identifier: MIT
 *
 * Pass: which pieces of the gradients are reduced together. Walks the flat buffer from its front,
 * which backward completes first (Li et al. 2020, PyTorch Distributed). The first bucket is small,
 * so that communication starts early; a bucket exceeds its limit only for a single parameter.
 */
#include "../base/base.h"
#include "passes.h"

static void add_bucket(struct rf_plan *plan, struct rf_plan_bucket bucket)
{
    int at = plan->bucket_count++;
    /* In the order of readiness: backward goes from the last block to the first. */
    while (at > 0 && plan->buckets[at - 1].block < bucket.block) {
        plan->buckets[at] = plan->buckets[at - 1];
        at--;
    }
    plan->buckets[at] = bucket;
}

static void bucket_params(struct rf_plan *plan)
{
    struct rf_plan_bucket bucket = {.block = -1};
    uint64_t limit = plan->policy.first_bucket_bytes / sizeof(float);
    for (int i = plan->param_count - 1; i >= 0; i--) {
        const struct rf_plan_param *param = &plan->params[i];
        if (param->owner != i || param->grad_first == RF_NO_GRAD)
            continue;
        uint64_t end = param->grad_first + (uint64_t)param->count;
        if (bucket.count > 0 && end - bucket.first > limit) {
            add_bucket(plan, bucket);
            bucket = (struct rf_plan_bucket){.first = param->grad_first};
            limit = plan->policy.bucket_bytes / sizeof(float);
        }
        bucket.count = end - bucket.first;
        bucket.block = param->block;
    }
    if (bucket.count > 0)
        add_bucket(plan, bucket);
}

int rf_pass_buckets(struct rf_plan *plan)
{
    size_t room = (size_t)plan->param_count + 1;
    plan->buckets = rf_alloc(room * sizeof(*plan->buckets));
    if (!plan->buckets)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the buckets");
    bucket_params(plan);
    /* In ring order the uses of a tied parameter share a gradient. In tree order that would depend
     * on the ranks, so every use has a tree of its own. */
    if (plan->policy.order == RF_ORDER_TREE)
        for (int i = plan->param_count - 1; i >= 0; i--) {
            const struct rf_plan_param *param = &plan->params[i];
            if (param->owner != i && param->grad_first != RF_NO_GRAD)
                add_bucket(plan, (struct rf_plan_bucket){.first = param->grad_first,
                                                         .count = (uint64_t)param->count,
                                                         .block = param->block});
        }
    return 0;
}
