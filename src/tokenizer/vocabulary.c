/* SPDX-License-Identifier: MIT
 *
 * Texts of tokens and their ids; see vocabulary.h.
 */
#include "vocabulary.h"

#include "../base/base.h"

void rf_vocabulary_free(struct rf_vocabulary *vocabulary)
{
    rf_text_free(&vocabulary->texts);
    rf_free(vocabulary->begin);
    rf_free(vocabulary->slots);
    *vocabulary = (struct rf_vocabulary){0};
}

const char *rf_vocabulary_text(const struct rf_vocabulary *vocabulary, int32_t id)
{
    if (id < 0 || id >= vocabulary->ids || vocabulary->begin[id] == 0)
        return NULL;
    return vocabulary->texts.bytes + vocabulary->begin[id] - 1;
}

int32_t rf_vocabulary_find(const struct rf_vocabulary *vocabulary, const char *text, size_t bytes)
{
    if (vocabulary->used == 0)
        return -1;
    const uint32_t hash = rf_hash_bytes(text, bytes);
    for (uint32_t at = hash & vocabulary->mask;; at = (at + 1) & vocabulary->mask) {
        const struct rf_vocabulary_slot *slot = &vocabulary->slots[at];
        if (slot->id == 0)
            return -1;
        if (slot->hash != hash)
            continue;
        const char *there = rf_vocabulary_text(vocabulary, slot->id - 1);
        if (strncmp(there, text, bytes) == 0 && there[bytes] == 0)
            return slot->id - 1;
    }
}

static void put(struct rf_vocabulary *vocabulary, uint32_t hash, int32_t id)
{
    uint32_t at = hash & vocabulary->mask;
    while (vocabulary->slots[at].id != 0)
        at = (at + 1) & vocabulary->mask;
    vocabulary->slots[at] = (struct rf_vocabulary_slot){hash, id + 1};
    vocabulary->used++;
}

static int grow_slots(struct rf_vocabulary *vocabulary)
{
    struct rf_vocabulary_slot *old = vocabulary->slots;
    const uint32_t count = old ? vocabulary->mask + 1 : 0;
    struct rf_vocabulary_slot *slots =
        rf_alloc((count ? 2 * (size_t)count : 1024) * sizeof(*slots));
    if (!slots)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for a vocabulary");
    vocabulary->slots = slots;
    vocabulary->mask = (count ? 2 * count : 1024) - 1;
    vocabulary->used = 0;
    for (uint32_t i = 0; i < count; i++)
        if (old[i].id != 0)
            put(vocabulary, old[i].hash, old[i].id - 1);
    rf_free(old);
    return 0;
}

static int grow_ids(struct rf_vocabulary *vocabulary, int32_t id)
{
    if (id < vocabulary->capacity)
        return 0;
    int32_t capacity = vocabulary->capacity ? vocabulary->capacity : 1024;
    while (capacity <= id)
        capacity *= 2;
    uint32_t *begin = rf_realloc(vocabulary->begin, (size_t)capacity * sizeof(*begin));
    if (!begin)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for a vocabulary");
    memset(begin + vocabulary->capacity, 0,
           (size_t)(capacity - vocabulary->capacity) * sizeof(*begin));
    vocabulary->begin = begin;
    vocabulary->capacity = capacity;
    return 0;
}

int rf_vocabulary_add(struct rf_vocabulary *vocabulary, const char *field, const char *text,
                      size_t bytes, int64_t id)
{
    if (id < 0 || id > RF_MAX_TOKEN_ID)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: the id %lld of \"%.40s\" is not in 0 to %d",
                       field, (long long)id, text, RF_MAX_TOKEN_ID);
    if (bytes > RF_MAX_TOKEN_BYTES || memchr(text, 0, bytes))
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: the text of id %lld is too long, or has a zero",
                       field, (long long)id);
    if (rf_vocabulary_text(vocabulary, (int32_t)id))
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: \"%.40s\" and \"%.40s\" both have the id %lld",
                       field, rf_vocabulary_text(vocabulary, (int32_t)id), text, (long long)id);
    if (rf_vocabulary_find(vocabulary, text, bytes) >= 0)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: \"%.40s\" appears twice", field, text);
    if (vocabulary->texts.count + bytes + 2 > UINT32_MAX)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: has more than 4 GiB", field);
    if (2 * vocabulary->used >= vocabulary->mask)
        RETURN_IF_ERROR(grow_slots(vocabulary));
    RETURN_IF_ERROR(grow_ids(vocabulary, (int32_t)id));
    const size_t begin = vocabulary->texts.count;
    RETURN_IF_ERROR(rf_text_reserve(&vocabulary->texts, bytes + 1));
    memcpy(vocabulary->texts.bytes + begin, text, bytes);
    vocabulary->texts.bytes[begin + bytes] = 0;
    vocabulary->texts.count += bytes + 1;
    vocabulary->begin[id] = (uint32_t)begin + 1;
    if (id >= vocabulary->ids)
        vocabulary->ids = (int32_t)id + 1;
    put(vocabulary, rf_hash_bytes(text, bytes), (int32_t)id);
    return 0;
}
