/* SPDX-License-Identifier: MIT
 *
 * What a plan's device memory holds at the moment with most temporary values: regions that live as
 * long as the run, and the values whose lifetimes (intervals.c) contain that moment.
 */
#include "../../base/base.h"
#include "../passes/intervals.h"
#include "../plan/plan.h"

const char *rf_held_name(enum rf_held_kind kind)
{
#define NAME(constant, name) [constant] = (name),
    static const char *const names[RF_HELD_COUNT] = {RF_HELD_KINDS(NAME)};
#undef NAME
    return (unsigned)kind < RF_HELD_COUNT ? names[kind] : NULL;
}

static enum rf_held_kind kind_of_region(int region)
{
    switch (region) {
    case RF_REGION_GRADS:
    case RF_REGION_HOST_GRADS:
        return RF_HELD_GRADS;
    case RF_REGION_COPY_BEFORE:
        return RF_HELD_COPIES;
    case RF_REGION_WORKSPACE:
        return RF_HELD_WORKSPACE;
    case RF_REGION_SCRATCH:
        return RF_HELD_SCRATCH;
    default:
        return region >= RF_REGION_STATE && region <= RF_REGION_STATE_END ? RF_HELD_STATES
                                                                          : RF_HELD_TABLES;
    }
}

static enum rf_held_kind kind_of_value(const struct rf_plan *plan, const struct rf_value *v)
{
    switch (v->kind) {
    case RF_VALUE_PARAM:
    case RF_VALUE_COPY:
        return RF_HELD_GATHERED;
    case RF_VALUE_GRAD_NARROW:
    case RF_VALUE_GRAD_NARROW_SHARD:
        return RF_HELD_SENT;
    case RF_VALUE_OUT:
    case RF_VALUE_DOUT:
        return v->block + 1 == plan->block_count ? RF_HELD_LAST_OUTPUT : RF_HELD_OUTPUTS;
    case RF_VALUE_SAVED:
        return v->block + 1 == plan->block_count ? RF_HELD_HEAD : RF_HELD_KEPT;
    case RF_VALUE_SAVED_FOR_WEIGHT:
        return RF_HELD_FOR_WEIGHT;
    case RF_VALUE_EXCHANGE:
        return RF_HELD_EXCHANGED;
    default:
        return RF_HELD_GRADS;
    }
}

static uint64_t device_bytes(const struct rf_plan *plan, int region)
{
    const struct rf_plan_region *r = &plan->regions[region];
    return r->memory == RF_MEMORY_DEVICE ? r->bytes : 0;
}

static void hold(struct rf_held *held, uint64_t bytes, const char *name)
{
    if (bytes == 0)
        return;
    if (bytes > held->largest) {
        held->largest = bytes;
        snprintf(held->largest_of, sizeof(held->largest_of), "%s", name);
    }
    held->values++;
    held->bytes += bytes;
}

/* The regions of parameters have trained ones at their fronts. */
static void hold_params(const struct rf_plan *plan, struct rf_held *out)
{
    const uint64_t trained = plan->policy.forward_only ? 0
                             : rf_plan_shards_params(plan)
                                 ? rf_plan_state_elements(plan, plan->shard)
                                 : plan->train_elements;
    const struct {
        int region;
        enum rf_held_kind kind;
        uint64_t bytes;
    } rows[] = {
        {RF_REGION_PARAMS, RF_HELD_PARAMS, plan->policy.no_masters ? 0 : trained * sizeof(float)},
        {RF_REGION_COPY, RF_HELD_COPIES, trained * sizeof(uint16_t)}};
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        const uint64_t all = device_bytes(plan, rows[k].region);
        const uint64_t own = rows[k].bytes < all ? rows[k].bytes : all;
        hold(&out[rows[k].kind], own, "");
        hold(&out[RF_HELD_FROZEN], all - own, "");
    }
}

static void hold_regions(const struct rf_plan *plan, struct rf_held *out)
{
    int most = 0;
    hold_params(plan, out);
    for (int b = 1; b < plan->block_count; b++)
        most = plan->sizes[b].scratch > plan->sizes[most].scratch ? b : most;
    for (int id = 0; id < RF_REGION_FIXED; id++)
        if (id != RF_REGION_PARAMS && id != RF_REGION_COPY)
            hold(&out[kind_of_region(id)], device_bytes(plan, id),
                 id == RF_REGION_SCRATCH ? plan->blocks[most].name : "");
}

static uint64_t placed_bytes(const struct rf_plan *plan, const struct rf_interval *i)
{
    const struct rf_value *v = &plan->values[i->value];
    return plan->regions[v->region].memory == RF_MEMORY_DEVICE ? rf_plan_aligned(v->bytes) : 0;
}

/* The position at which most bytes are alive. */
static int find_peak(const struct rf_plan *plan, const struct rf_interval *all, int count, int *out)
{
    int length = 1;
    for (int id = 0; id < RF_LIST_COUNT; id++)
        length += plan->lists[id].count;
    uint64_t *change = rf_alloc(((size_t)length + 1) * sizeof(*change)), now = 0, most = 0;
    if (!change)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the lifetimes");
    for (int k = 0; k < count; k++) {
        change[all[k].begin] += placed_bytes(plan, &all[k]);
        change[all[k].end + 1] -= placed_bytes(plan, &all[k]);
    }
    *out = 0;
    for (int at = 0; at < length; at++) {
        now += change[at];
        *out = now > most ? at : *out;
        most = now > most ? now : most;
    }
    rf_free(change);
    return 0;
}

static int hold_values(const struct rf_plan *plan, struct rf_held *out)
{
    struct rf_interval *all = NULL;
    int count = 0, peak = 0;
    uint64_t unused = 0;
    char text[96];
    for (int id = RF_REGION_FIXED; id < plan->region_count; id++)
        unused += device_bytes(plan, id);
    RETURN_IF_ERROR(rf_plan_intervals(plan, &all, &count));
    const int rc = find_peak(plan, all, count, &peak);
    for (int k = 0; rc == 0 && k < count; k++) {
        const struct rf_value *v = &plan->values[all[k].value];
        const uint64_t bytes = placed_bytes(plan, &all[k]);
        if (all[k].begin > peak || all[k].end < peak)
            continue;
        hold(&out[kind_of_value(plan, v)], bytes, rf_value_text(v, text, sizeof(text)));
        unused -= bytes;
    }
    hold(&out[RF_HELD_UNUSED], unused, "");
    rf_free(all);
    return rc;
}

int rf_plan_peak(const struct rf_plan *plan, struct rf_held out[RF_HELD_COUNT])
{
    if (!plan || !out)
        return rf_fail(RF_EINVAL, "peak: a plan and a place for the result are needed");
    for (int k = 0; k < RF_HELD_COUNT; k++)
        out[k] = (struct rf_held){0};
    hold_regions(plan, out);
    return hold_values(plan, out);
}
