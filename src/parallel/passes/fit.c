/* SPDX-License-Identifier: MIT
 *
 * Refuses a plan that needs more device memory than its policy allows. Called by build.c as the
 * last pass. The error names the cheapest change that makes the plan fit. To find it, plans are
 * built with changed policies, in the order of their cost in time, until one fits.
 */
#include "../../base/base.h"
#include "passes.h"

/* A change of a policy. Members that are 0 change nothing. Listed by cost. */
struct change {
    int zero, recompute, offload;
    bool smallest; /* micro-batches of one sequence, or the least that ranks can share */
    bool backward; /* update_in_backward */
};

#define ALL (RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS)
#define ACTIVATIONS RF_OFFLOAD_ACTIVATIONS

static const struct change changes[] = {
    {.zero = 1},
    {.backward = true},
    {.zero = 2},
    {.smallest = true},
    {.zero = 2, .smallest = true},
    {.recompute = 1},
    {.recompute = 1, .backward = true},
    {.zero = 2, .recompute = 1},
    {.offload = ACTIVATIONS},
    {.zero = 2, .offload = ACTIVATIONS},
    {.recompute = 1, .offload = ACTIVATIONS},
    {.zero = 2, .recompute = 1, .offload = ACTIVATIONS},
    {.zero = 3},
    {.zero = 3, .recompute = 1},
    {.zero = 3, .recompute = 1, .backward = true},
    {.zero = 3, .recompute = 1, .offload = ACTIVATIONS},
    {.recompute = 1, .smallest = true},
    {.zero = 3, .recompute = 1, .smallest = true},
    {.zero = 3, .recompute = 1, .offload = ACTIVATIONS, .smallest = true},
    {.offload = RF_OFFLOAD_OPTIMIZER},
    {.recompute = 1, .offload = RF_OFFLOAD_OPTIMIZER},
    {.offload = ALL},
    {.recompute = 1, .offload = ALL},
    {.recompute = 1, .offload = ALL | ACTIVATIONS},
    {.recompute = 1, .offload = ALL | ACTIVATIONS, .smallest = true},
    {.zero = 3, .recompute = 1, .offload = ALL | RF_OFFLOAD_GRADS | ACTIVATIONS},
    {.zero = 3, .recompute = 1, .offload = ALL | RF_OFFLOAD_GRADS | ACTIVATIONS, .smallest = true},
};

static uint64_t device_bytes(const struct rf_bytes *b)
{
    return b->params + b->grads + b->optimizer + b->activations + b->comm + b->scratch - b->host;
}

/* Returns false if the change has no effect. */
static bool apply(const struct change *change, struct rf_policy *policy)
{
    const struct rf_policy before = *policy;
    policy->zero = change->zero > policy->zero ? change->zero : policy->zero;
    policy->recompute = policy->recompute == 1 ? 1 : change->recompute ? 1 : policy->recompute;
    policy->offload |= change->offload;
    policy->update_in_backward |= change->backward;
    policy->micro_batches = change->smallest ? policy->batch : policy->micro_batches;
    return policy->zero != before.zero || policy->recompute != before.recompute ||
           policy->offload != before.offload ||
           policy->update_in_backward != before.update_in_backward ||
           policy->micro_batches != before.micro_batches;
}

static void say(const struct rf_policy *now, const struct rf_policy *then, char *text, size_t bytes)
{
    static const char *const names[] = {"optimizer", "params", "grads", "activations"};
    const char *before = " offload=";
    size_t at = 0;
    text[0] = 0;
#define PUT(condition, ...)                                                                        \
    if ((condition) && at < bytes)                                                                 \
    at += (size_t)snprintf(text + at, bytes - at, __VA_ARGS__)
    PUT(then->zero != now->zero, " zero=%d", then->zero);
    PUT(then->micro_batches != now->micro_batches, " micro_batches=%lld",
        (long long)then->micro_batches);
    PUT(then->recompute != now->recompute, " recompute=%d", then->recompute);
    PUT(then->update_in_backward != now->update_in_backward, " update_in_backward=1");
    for (int k = 0; k < 4 && then->offload != now->offload; k++)
        if (then->offload & 1 << k) {
            PUT(true, "%s%s", before, names[k]);
            before = ",";
        }
#undef PUT
}

int rf_plan_fit(const struct rf_plan *plan, rf_plan_needs *needs)
{
    const uint64_t limit = plan->policy.device_bytes, all = device_bytes(&plan->bytes);
    uint64_t least = all;
    char text[128] = "";
    if (limit == 0 || all <= limit)
        return 0;
    for (size_t k = 0; k < sizeof(changes) / sizeof(changes[0]) && !plan->policy.forward_only;
         k++) {
        struct rf_policy policy = plan->policy;
        struct rf_bytes other;
        policy.device_bytes = 0;
        if (!apply(&changes[k], &policy) || !needs(plan, &policy, &other))
            continue;
        const uint64_t bytes = device_bytes(&other);
        if (bytes >= least)
            continue;
        least = bytes;
        say(&plan->policy, &policy, text, sizeof(text));
        if (bytes <= limit)
            return rf_fail(
                RF_ENOMEM,
                "the plan needs %llu bytes of device memory and may use %llu; with%s it needs %llu",
                (unsigned long long)all, (unsigned long long)limit, text,
                (unsigned long long)bytes);
    }
    return rf_fail(RF_ENOMEM,
                   "the plan needs %llu bytes of device memory and may use %llu; the least that "
                   "was found is %llu%s%s: use a smaller model or shorter sequences",
                   (unsigned long long)all, (unsigned long long)limit, (unsigned long long)least,
                   text[0] ? " with" : "", text);
}
