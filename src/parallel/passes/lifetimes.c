/* SPDX-License-Identifier: MIT
 *
 * Pass: memory of temporary values: activations, and whole copies of sharded data. A value lives
 * from an instruction that writes it without reading it to its last use. Values that are never
 * alive together may share memory. The largest are placed first, each at the lowest offset that is
 * free during its lifetime. The micro-batches of a rank follow each other, so a value has the same
 * memory in all of them, and a recording of one micro-batch fits the next. If several are in flight
 * (pipelines), they use as few places as possible in turn. intervals.c has the lifetimes of the
 * values.
 */
#include <stdlib.h>

#include "../../base/base.h"
#include "../plan/list.h"
#include "intervals.h"
#include "passes.h"

/* The maximum size of a region, unless a single value is larger: below the largest allocation of
 * known drivers. */
#define EXTENT ((uint64_t)1 << 30)

/* The memory shared by a value of one micro-batch and those of others. */
struct place {
    int value; /* the first of its values */
    uint64_t bytes, offset;
    enum rf_category category;
    enum rf_memory memory;
    int region;       /* -1: not yet */
    int first, count; /* its intervals, in the order of their begins */
    int begin, life;  /* of the longest one */
};

/* The most frequently read members of a place with an offset, in contiguous memory. */
struct taken {
    uint64_t offset, end;
    int begin, last; /* of all its intervals */
    const struct place *place;
};

/* The places of a region, by offset. */
struct tenants {
    struct taken *taken;
    int count, capacity;
};

struct placing {
    struct rf_plan *plan;
    struct place *places;
    int *place_of;                 /* by value; -1: lives as long as the run */
    struct rf_interval *found;     /* in the order of their begins */
    struct rf_interval *intervals; /* the same, by place */
    int place_count, interval_count;
    /* By the value of the first micro-batch: the number of places that its micro-batches share; 0:
     * each has its own. */
    int *period;
    struct tenants *tenants; /* by region */
};

static enum rf_category category_of(const struct rf_plan *plan, enum rf_value_kind kind)
{
    switch (kind) {
    case RF_VALUE_PARAM:
    case RF_VALUE_COPY:
        return RF_CATEGORY_PARAMS;
    case RF_VALUE_GRAD:
    case RF_VALUE_GRAD_SHARD:
    case RF_VALUE_GRAD_PART:
    case RF_VALUE_GRAD_NARROW:
    case RF_VALUE_GRAD_NARROW_SHARD:
    case RF_VALUE_GRAD_TIED:
        return RF_CATEGORY_GRADS;
    case RF_VALUE_HOST_STATE:
        return RF_CATEGORY_OPTIMIZER;
    case RF_VALUE_SAVED: /* without a backward pass it is not read */
        return plan->policy.forward_only ? RF_CATEGORY_SCRATCH : RF_CATEGORY_ACTIVATIONS;
    default:
        return RF_CATEGORY_ACTIVATIONS;
    }
}

static enum rf_memory memory_of(enum rf_value_kind kind)
{
    const bool host =
        kind == RF_VALUE_HOST_OUT || kind == RF_VALUE_HOST_SAVED || kind == RF_VALUE_HOST_STATE;
    return host ? RF_MEMORY_HOST : RF_MEMORY_DEVICE;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Assigns the intervals to places; they stay in the order of their begins. */
static void share_out(struct placing *p)
{
    int first = 0;
    for (int k = 0; k < p->interval_count; k++)
        p->places[p->place_of[p->found[k].value]].count++;
    for (int k = 0; k < p->place_count; k++) {
        p->places[k].first = first;
        first += p->places[k].count;
        p->places[k].count = 0;
    }
    for (int k = 0; k < p->interval_count; k++) {
        struct place *place = &p->places[p->place_of[p->found[k].value]];
        const int life = p->found[k].end - p->found[k].begin + 1;
        if (life > place->life) {
            place->begin = p->found[k].begin;
            place->life = life;
        }
        p->intervals[place->first + place->count++] = p->found[k];
    }
}

/* The same value for another of this rank's micro-batches; -1: none. Only some micro-batches copy
 * values to the host. */
static int of_local(const struct rf_plan *plan, const struct rf_value *value, int local)
{
    return rf_value_find(plan, value, rf_plan_micro_batch(plan, local));
}

/* The value of an earlier micro-batch, or of the same memory, whose place this one has; or itself.
 */
static int shares_place_of(const struct placing *p, int v)
{
    const struct rf_plan *plan = p->plan;
    const struct rf_value *value = &plan->values[v];
    if (value->micro_batch < 0)
        return rf_value_storage(plan, v);
    const int local = rf_plan_local(plan, value->micro_batch);
    const int first = of_local(plan, value, 0);
    const int period = first < 0 ? 0 : p->period[first];
    return period ? of_local(plan, value, local % period) : v;
}

/* The values of a place may be far apart in plan->values. */
static void collect(struct placing *p)
{
    const struct rf_plan *plan = p->plan;
    for (int v = 0; v < plan->value_count; v++) {
        const struct rf_value *value = &plan->values[v];
        p->place_of[v] = -1;
        if (!rf_value_is_placed(plan, value))
            continue;
        const int first = shares_place_of(p, v);
        if (first < v) {
            p->place_of[v] = p->place_of[first];
            continue;
        }
        p->place_of[v] = p->place_count;
        p->places[p->place_count++] = (struct place){.value = v,
                                                     .bytes = (value->bytes + 255) / 256 * 256,
                                                     .category = category_of(plan, value->kind),
                                                     .memory = memory_of(value->kind),
                                                     .region = -1};
    }
}

static bool alive_together(const struct placing *p, const struct place *a, const struct place *b)
{
    const struct rf_interval *x = p->intervals + a->first, *x_end = x + a->count;
    const struct rf_interval *y = p->intervals + b->first, *y_end = y + b->count;
    while (x < x_end && y < y_end) {
        if (x->end < y->begin)
            x++;
        else if (y->end < x->begin)
            y++;
        else
            return true;
    }
    return false;
}

static struct taken taken_by(const struct placing *p, const struct place *place)
{
    const struct rf_interval *first = &p->intervals[place->first];
    struct taken taken = {place->offset, place->offset + place->bytes, 0, -1, place};
    for (int k = 0; k < place->count; k++) {
        taken.begin = k == 0 ? first[k].begin : taken.begin;
        taken.last = first[k].end > taken.last ? first[k].end : taken.last;
    }
    return taken;
}

/* The lowest offset in a region that is free during the lifetime of `place`. */
static uint64_t lowest(const struct placing *p, const struct tenants *in, const struct place *place)
{
    const struct taken own = taken_by(p, place);
    uint64_t at = 0;
    for (int k = 0; k < in->count && in->taken[k].offset < at + place->bytes; k++) {
        const struct taken *other = &in->taken[k];
        if (other->end > at && other->last >= own.begin && other->begin <= own.last &&
            alive_together(p, other->place, place))
            at = other->end;
    }
    return at;
}

static int add_region(struct placing *p, const struct place *place)
{
    struct rf_plan *plan = p->plan;
    const size_t count = (size_t)plan->region_count + 1;
    struct rf_plan_region *regions = rf_realloc(plan->regions, count * sizeof(*regions));
    plan->regions = regions ? regions : plan->regions;
    struct tenants *tenants = rf_realloc(p->tenants, count * sizeof(*tenants));
    p->tenants = tenants ? tenants : p->tenants;
    if (!regions || !tenants)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %zu regions", count);
    regions[count - 1] =
        (struct rf_plan_region){.category = place->category, .memory = place->memory};
    tenants[count - 1] = (struct tenants){0};
    return plan->region_count++;
}

static int take(const struct placing *p, struct tenants *in, const struct place *place)
{
    if (!rf_array_reserve((void **)&in->taken, in->count, &in->capacity, sizeof(*in->taken)))
        return rf_fail(RF_ENOMEM, "plan: out of memory for the lifetimes");
    int at = in->count++;
    for (; at > 0 && in->taken[at - 1].offset > place->offset; at--)
        in->taken[at] = in->taken[at - 1];
    in->taken[at] = taken_by(p, place);
    return 0;
}

static int put(struct placing *p, struct place *place)
{
    struct rf_plan *plan = p->plan;
    for (int region = RF_REGION_FIXED; place->region < 0; region++) {
        if (region == plan->region_count && add_region(p, place) < 0)
            return RF_ENOMEM;
        if (plan->regions[region].category != place->category ||
            plan->regions[region].memory != place->memory)
            continue;
        place->region = region;
        place->offset = lowest(p, &p->tenants[region], place);
        if (place->offset > 0 && place->offset + place->bytes > EXTENT)
            place->region = -1;
    }
    struct rf_plan_region *region = &plan->regions[place->region];
    const uint64_t end = place->offset + place->bytes;
    region->bytes = end > region->bytes ? end : region->bytes;
    return take(p, &p->tenants[place->region], place);
}

/* The largest first. Equal ones in the order of their longest lives, so that each takes what one
 * before it has left. */
static int by_size(const void *a, const void *b)
{
    const struct place *x = *(struct place *const *)a, *y = *(struct place *const *)b;
    if (x->bytes != y->bytes)
        return (x->bytes < y->bytes) - (x->bytes > y->bytes);
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x > y) - (x < y);
}

static int put_all(struct placing *p)
{
    const size_t count = (size_t)p->place_count, regions = (size_t)p->plan->region_count;
    struct place **sizes = rf_alloc((count + 1) * sizeof(struct place *));
    p->tenants = rf_alloc((regions + 1) * sizeof(*p->tenants));
    int rc = sizes && p->tenants ? 0 : rf_fail(RF_ENOMEM, "plan: out of memory for the lifetimes");
    for (size_t k = 0; rc == 0 && k < count; k++)
        sizes[k] = &p->places[k];
    if (rc == 0 && count > 0)
        qsort(sizes, count, sizeof(struct place *), by_size);
    for (size_t k = 0; rc == 0 && k < count; k++)
        rc = put(p, sizes[k]);
    for (int r = 0; p->tenants && r < p->plan->region_count; r++)
        rf_free(p->tenants[r].taken);
    rf_free(p->tenants);
    rf_free(sizes);
    return rc;
}

/* A lifetime of a value of one micro-batch, for all micro-batches sorted by begin. */
struct lifetime {
    int begin, end, local;
};

static int by_begin(const void *a, const void *b)
{
    const struct lifetime *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->local > y->local) - (x->local < y->local);
}

/* Whether `period` places suffice, so that no two micro-batches need the same one at once. A
 * recomputed value lives twice, so checking neighbours is not sufficient. last: for each place, the
 * lifetime that ends last so far. */
static bool enough_places(const struct lifetime *all, int count, const struct lifetime **last,
                          int period)
{
    memset(last, 0, (size_t)period * sizeof(*last));
    for (int k = 0; k < count; k++) {
        const struct lifetime **before = &last[all[k].local % period];
        if (*before && (*before)->local != all[k].local && (*before)->end >= all[k].begin)
            return false;
        if (!*before || (*before)->end < all[k].end)
            *before = &all[k];
    }
    return true;
}

/* Collects the lifetimes of all micro-batches into `all`, sorted. Returns their number. */
static int collect_lifetimes(const struct placing *p, const struct rf_value *first,
                             struct lifetime *all)
{
    int count = 0;
    for (int local = 0; local < p->plan->local_micro_batches; local++) {
        const struct place *place = &p->places[p->place_of[of_local(p->plan, first, local)]];
        for (int k = place->first; k < place->first + place->count; k++)
            all[count++] = (struct lifetime){p->intervals[k].begin, p->intervals[k].end, local};
    }
    if (count > 0)
        qsort(all, (size_t)count, sizeof(*all), by_begin);
    return count;
}

/* The minimum number of places that the micro-batches of a value can share in turn. 0: not all
 * micro-batches have this value, and each has its own place. `all` and `last` have space for all
 * intervals and micro-batches. */
static int count_places(const struct placing *p, const struct rf_value *first, struct lifetime *all,
                        const struct lifetime **last)
{
    const int locals = p->plan->local_micro_batches;
    for (int local = 0; local < locals; local++)
        if (of_local(p->plan, first, local) < 0)
            return 0;
    const int count = collect_lifetimes(p, first, all);
    for (int period = 1; period < locals; period++)
        if (enough_places(all, count, last, period))
            return period;
    return locals;
}

static int count_all_turns(struct placing *p)
{
    const struct rf_plan *plan = p->plan;
    struct lifetime *all = rf_alloc(((size_t)p->interval_count + 1) * sizeof(*all));
    const struct lifetime **last =
        rf_alloc(((size_t)plan->local_micro_batches + 1) * sizeof(*last));
    int rc = all && last ? 0 : rf_fail(RF_ENOMEM, "plan: out of memory for the lifetimes");
    for (int v = 0; rc == 0 && v < plan->value_count; v++)
        if (p->place_of[v] >= 0 && plan->values[v].micro_batch >= 0 &&
            rf_plan_local(plan, plan->values[v].micro_batch) == 0)
            p->period[v] = count_places(p, &plan->values[v], all, last);
    rf_free(all);
    rf_free(last);
    return rc;
}

static void forget_places(struct placing *p)
{
    memset(p->places, 0, (size_t)p->place_count * sizeof(*p->places));
    p->place_count = 0;
}

/* If micro-batches follow each other, one place suffices. Otherwise each first has its own, to
 * count how many are alive at once. */
static int find_places(struct placing *p)
{
    struct rf_plan *plan = p->plan;
    const int values = plan->value_count;
    for (int v = 0; plan->mesh.pp == 1 && v < values; v++)
        p->period[v] = 1;
    if (plan->mesh.pp == 1)
        return 0;
    collect(p);
    share_out(p);
    RETURN_IF_ERROR(count_all_turns(p));
    forget_places(p);
    return 0;
}

static int place_all(struct placing *p)
{
    RETURN_IF_ERROR(rf_plan_intervals(p->plan, &p->found, &p->interval_count));
    p->intervals = rf_alloc(((size_t)p->interval_count + 1) * sizeof(*p->intervals));
    if (!p->intervals)
        return rf_fail(RF_ENOMEM, "plan: out of memory for the lifetimes");
    RETURN_IF_ERROR(find_places(p));
    collect(p);
    share_out(p);
    RETURN_IF_ERROR(put_all(p));
    for (int v = 0; v < p->plan->value_count; v++)
        if (p->place_of[v] >= 0) {
            p->plan->values[v].region = p->places[p->place_of[v]].region;
            p->plan->values[v].offset = p->places[p->place_of[v]].offset;
        }
    return 0;
}

int rf_pass_lifetimes(struct rf_plan *plan)
{
    const size_t values = (size_t)plan->value_count + 1;
    struct placing p = {.plan = plan};
    p.places = rf_alloc(values * sizeof(*p.places));
    p.place_of = rf_alloc(values * sizeof(*p.place_of));
    p.period = rf_alloc(values * sizeof(*p.period));
    int rc = p.places && p.place_of && p.period
                 ? place_all(&p)
                 : rf_fail(RF_ENOMEM, "plan: out of memory for the lifetimes");
    rf_free(p.places);
    rf_free(p.place_of);
    rf_free(p.period);
    rf_free(p.found);
    rf_free(p.intervals);
    return rc;
}
