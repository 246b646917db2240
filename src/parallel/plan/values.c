/* SPDX-License-Identifier: MIT
 *
 * The values of a plan, found by their keys. place.c determines their memory.
 */
#include "../../base/base.h"
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

/* Open addressing. */
struct rf_value_index {
    struct entry {
        int id; /* -1: free */
        uint32_t hash;
    } * entries;
    int capacity; /* a power of two */
};

/* The high bits depend on the whole key. By the low bits, values of one block and micro-batch are
 * near each other, because they are looked up one after the other. */
static uint32_t hash(const struct rf_value *v)
{
    const uint64_t a = (uint64_t)(uint32_t)v->block << 32 | (uint32_t)v->micro_batch;
    const uint64_t b = (uint64_t)(uint32_t)v->slot << 32 | (uint32_t)v->kind;
    uint64_t h = a * 0x9e3779b97f4a7c15u ^ (uint64_t)(uint32_t)v->piece * 0xc2b2ae3d27d4eb4fu;
    h = (h ^ h >> 32) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 32 << 3) ^ (uint32_t)(b * 0x9e3779b97f4a7c15u >> 61) ^
           (uint32_t)v->kind << 24 ^ (uint32_t)v->slot << 16;
}

static bool same(const struct rf_value *a, const struct rf_value *b)
{
    return a->kind == b->kind && a->block == b->block && a->micro_batch == b->micro_batch &&
           a->slot == b->slot && a->piece == b->piece;
}

/* The entry of the value, or the free one for it. */
static struct entry *find(const struct rf_value_index *index, const struct rf_value *values,
                          const struct rf_value *wanted, uint32_t hash)
{
    for (uint32_t at = hash;; at++) {
        struct entry *entry = &index->entries[at & ((uint32_t)index->capacity - 1)];
        if (entry->id < 0 || (entry->hash == hash && same(&values[entry->id], wanted)))
            return entry;
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
    more.entries = rf_alloc((size_t)more.capacity * sizeof(*more.entries));
    if (!more.entries)
        return RF_ENOMEM;
    for (int i = 0; i < more.capacity; i++)
        more.entries[i].id = -1;
    for (int i = 0; i < plan->value_count; i++) {
        const uint32_t h = hash(&plan->values[i]);
        *find(&more, plan->values, &plan->values[i], h) = (struct entry){i, h};
    }
    rf_free(index->entries);
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
    const uint32_t h = hash(&value);
    struct entry *entry = grow(plan) < 0 ? NULL : find(plan->value_index, plan->values, &value, h);
    if (entry && entry->id >= 0)
        return entry->id;
    if (!entry || !rf_array_reserve((void **)&plan->values, plan->value_count,
                                    &plan->value_capacity, sizeof(*plan->values)))
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d values", plan->value_count);
    *entry = (struct entry){plan->value_count, h};
    plan->values[plan->value_count] = value;
    return plan->value_count++;
}

int rf_value_find(const struct rf_plan *plan, const struct rf_value *value, int micro_batch)
{
    struct rf_value wanted = *value;
    wanted.micro_batch = micro_batch;
    return plan->value_count ? find(plan->value_index, plan->values, &wanted, hash(&wanted))->id
                             : -1;
}

void rf_values_free(struct rf_plan *plan)
{
    if (plan->value_index)
        rf_free(plan->value_index->entries);
    rf_free(plan->value_index);
    rf_free(plan->values);
}
