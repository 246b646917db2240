/* SPDX-License-Identifier: MIT
 *
 * The values of a plan, found by their keys. place.c determines their memory.
 */
#include "../base/base.h"
#include "list.h"

bool rf_array_reserve(void **array, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    int more = *capacity ? 2 * *capacity : 64;
    void *grown = rf_realloc(*array, (size_t)more * size);
    if (!grown)
        return false;
    *array = grown;
    *capacity = more;
    return true;
}

struct rf_value_index {
    int *ids;     /* open addressing; -1: free */
    int capacity; /* a power of two */
};

static uint32_t hash(const struct rf_value *v)
{
    const int32_t key[] = {(int32_t)v->kind, v->block, v->micro_batch, v->slot, v->piece};
    return rf_hash32(key, sizeof(key), 0);
}

static bool same(const struct rf_value *a, const struct rf_value *b)
{
    return a->kind == b->kind && a->block == b->block && a->micro_batch == b->micro_batch &&
           a->slot == b->slot && a->piece == b->piece;
}

static int *find(const struct rf_value_index *index, const struct rf_value *values,
                 const struct rf_value *wanted)
{
    uint32_t at = hash(wanted);
    for (;; at++) {
        int *id = &index->ids[at & ((uint32_t)index->capacity - 1)];
        if (*id < 0 || same(&values[*id], wanted))
            return id;
    }
}

/* At most half of it is used. */
static int grow(struct rf_plan *plan)
{
    struct rf_value_index *index = plan->value_index;
    if (!index)
        index = plan->value_index = rf_alloc(sizeof(*index));
    if (!index)
        return RF_ENOMEM;
    if (2 * plan->value_count < index->capacity)
        return 0;
    struct rf_value_index more = {.capacity = index->capacity ? 2 * index->capacity : 256};
    more.ids = rf_alloc((size_t)more.capacity * sizeof(*more.ids));
    if (!more.ids)
        return RF_ENOMEM;
    for (int i = 0; i < more.capacity; i++)
        more.ids[i] = -1;
    for (int i = 0; i < plan->value_count; i++)
        *find(&more, plan->values, &plan->values[i]) = i;
    rf_free(index->ids);
    *index = more;
    return 0;
}

int rf_value_of(struct rf_plan *plan, enum rf_value_kind kind, int block, int micro_batch, int slot,
                int piece)
{
    const struct rf_value value = {.kind = kind,
                                   .block = block,
                                   .micro_batch = micro_batch,
                                   .slot = slot,
                                   .piece = piece,
                                   .region = -1};
    int *id = grow(plan) < 0 ? NULL : find(plan->value_index, plan->values, &value);
    if (id && *id >= 0)
        return *id;
    if (!id || !rf_array_reserve((void **)&plan->values, plan->value_count, &plan->value_capacity,
                                 sizeof(*plan->values)))
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d values", plan->value_count);
    *id = plan->value_count++;
    plan->values[*id] = value;
    return *id;
}

int rf_value_find(const struct rf_plan *plan, const struct rf_value *value, int micro_batch)
{
    struct rf_value wanted = *value;
    wanted.micro_batch = micro_batch;
    return plan->value_count ? *find(plan->value_index, plan->values, &wanted) : -1;
}

void rf_values_free(struct rf_plan *plan)
{
    if (plan->value_index)
        rf_free(plan->value_index->ids);
    rf_free(plan->value_index);
    rf_free(plan->values);
}
