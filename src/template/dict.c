/* SPDX-License-Identifier: MIT
 *
 * Equality and order of values, as in Python, and dictionaries, which look up keys by this
 * equality; see value.h.
 */
#include "../base/base.h"
#include "../tokenizer/vocabulary.h"
#include "value.h"

enum { FEW_PAIRS = 8 };

/* ---- order ----------------------------------------------------------------------------------- */

/* Compares a whole number with a real without rounding: -1, 0, 1, or 2 for NaN. */
static int order_mixed(int64_t a, double b)
{
    if (b != b)
        return 2;
    if (b >= 9223372036854775808.0)
        return -1;
    if (b < -9223372036854775808.0)
        return 1;
    const int64_t floor = (int64_t)b; /* towards zero */
    if (a != floor)
        return a < floor ? -1 : 1;
    const double rest = b - (double)floor;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static int order_numbers(const struct rf_value *a, const struct rf_value *b)
{
    int64_t left, right;
    const bool whole_a = rf_as_whole(a, &left), whole_b = rf_as_whole(b, &right);
    if (whole_a && whole_b)
        return left < right ? -1 : left > right;
    if (whole_a)
        return order_mixed(left, b->real);
    if (whole_b) {
        const int order = order_mixed(right, a->real);
        return order == 2 ? 2 : -order;
    }
    return a->real < b->real ? -1 : a->real > b->real ? 1 : a->real == b->real ? 0 : 2;
}

/* By code points, which is the order of UTF-8's bytes. */
static int order_strings(const struct rf_string *a, const struct rf_string *b)
{
    const size_t both = a->count < b->count ? a->count : b->count;
    const int order = both > 0 ? memcmp(a->bytes, b->bytes, both) : 0;
    return order != 0 ? (order < 0 ? -1 : 1) : a->count < b->count ? -1 : a->count > b->count;
}

static int equal_lists(struct rf_room *room, const struct rf_list *a, const struct rf_list *b,
                       bool *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++)
        RETURN_IF_ERROR(rf_value_equal(room, &a->items[i], &b->items[i], out));
    return 0;
}

static int equal_dicts(struct rf_room *room, struct rf_dict *a, struct rf_dict *b, bool *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++) {
        struct rf_pair *other;
        RETURN_IF_ERROR(rf_dict_find(room, b, a->pairs[i].key, &other));
        *out = other != NULL;
        if (other)
            RETURN_IF_ERROR(rf_value_equal(room, &a->pairs[i].value, &other->value, out));
    }
    rf_dict_note_all(a);
    rf_dict_note_all(b);
    return 0;
}

static bool equal_ranges(const struct rf_range *a, const struct rf_range *b)
{
    return a->count == b->count &&
           (a->count == 0 || (a->start == b->start && (a->count == 1 || a->step == b->step)));
}

static int equal_same(struct rf_room *room, const struct rf_value *a, const struct rf_value *b,
                      bool *out)
{
    switch (a->kind) {
    case RF_V_STRING:
        *out = a->string->count == b->string->count && order_strings(a->string, b->string) == 0;
        return rf_room_spend(room, *out ? a->string->count / 16 : 0);
    case RF_V_LIST:
    case RF_V_TUPLE:
        *out = true;
        return a->list == b->list ? 0 : equal_lists(room, a->list, b->list, out);
    case RF_V_DICT:
        *out = true;
        return a->dict == b->dict ? 0 : equal_dicts(room, a->dict, b->dict, out);
    case RF_V_RANGE:
        *out = equal_ranges(a->range, b->range);
        return 0;
    case RF_V_VIEW:
    case RF_V_METHOD:
        return rf_room_fail(room, RF_ENOTSUP, "comparing a %s is not implemented",
                            rf_kind_name(a->kind));
    case RF_V_UNDEFINED:
    case RF_V_NONE:
        *out = true;
        return 0;
    default: /* equal only to itself */
        *out = a->list == b->list;
        return 0;
    }
}

int rf_value_equal(struct rf_room *room, const struct rf_value *a, const struct rf_value *b,
                   bool *out)
{
    *out = false;
    if (rf_is_number(a) && rf_is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return 0;
    }
    if (a->kind != b->kind)
        return 0;
    RETURN_IF_ERROR(rf_room_enter(room));
    const int rc = equal_same(room, a, b, out);
    rf_room_leave(room);
    return rc;
}

static int order_lists(struct rf_room *room, const struct rf_list *a, const struct rf_list *b,
                       int *out)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        bool equal;
        RETURN_IF_ERROR(rf_value_equal(room, &a->items[i], &b->items[i], &equal));
        if (!equal)
            return rf_value_order(room, &a->items[i], &b->items[i], out);
    }
    *out = a->count < b->count ? -1 : a->count > b->count;
    return 0;
}

int rf_value_order(struct rf_room *room, const struct rf_value *a, const struct rf_value *b,
                   int *out)
{
    int rc = 0;
    RETURN_IF_ERROR(rf_room_enter(room));
    if (rf_is_number(a) && rf_is_number(b))
        *out = order_numbers(a, b);
    else if (a->kind == RF_V_STRING && b->kind == RF_V_STRING)
        *out = order_strings(a->string, b->string);
    else if (a->kind == b->kind && (a->kind == RF_V_LIST || a->kind == RF_V_TUPLE))
        rc = order_lists(room, a->list, b->list, out);
    else
        rc = rf_room_fail(room, RF_ECORRUPT, "a %s and a %s have no order", rf_kind_name(a->kind),
                          rf_kind_name(b->kind));
    rf_room_leave(room);
    return rc;
}

/* ---- dictionaries ---------------------------------------------------------------------------- */

int rf_dict_make(struct rf_room *room, enum rf_kind kind, struct rf_value *out)
{
    struct rf_dict *dict = rf_room_take(room, sizeof(*dict));
    if (!dict)
        return rf_last_error()->status;
    *out = (struct rf_value){.kind = kind, .dict = dict};
    return 0;
}

/* Equal keys have equal hashes: 1, 1.0 and True are one key. */
static int hash_of(struct rf_room *room, const struct rf_value *key, uint32_t *out)
{
    int64_t whole;
    *out = (uint32_t)key->kind;
    if (key->kind == RF_V_STRING) {
        *out = rf_hash_bytes(key->string->bytes, key->string->count);
    } else if (rf_is_number(key)) {
        const double real = rf_as_real(key);
        if (!rf_as_whole(key, &whole))
            whole = real >= -9.2e18 && real <= 9.2e18 ? (int64_t)real : 0;
        *out = (uint32_t)(uint64_t)whole ^ (uint32_t)((uint64_t)whole >> 32);
    } else if (key->kind == RF_V_TUPLE) {
        RETURN_IF_ERROR(rf_room_enter(room));
        for (size_t i = 0; i < key->list->count; i++) {
            uint32_t item;
            RETURN_IF_ERROR(hash_of(room, &key->list->items[i], &item));
            *out = *out * 31 + item;
        }
        rf_room_leave(room);
    } else if (key->kind != RF_V_NONE && key->kind != RF_V_UNDEFINED) {
        return rf_room_fail(room, RF_ECORRUPT, "a %s cannot be a key of a dict",
                            rf_kind_name(key->kind));
    }
    return 0;
}

/* The index of the key, or else the free slot for it. */
static int look_up(struct rf_room *room, struct rf_dict *dict, const struct rf_value *key,
                   struct rf_pair **out, size_t *slot)
{
    uint32_t hash;
    bool equal;
    *out = NULL;
    RETURN_IF_ERROR(hash_of(room, key, &hash));
    if (dict->slot_count == 0) {
        RETURN_IF_ERROR(rf_room_spend(room, 1));
        for (size_t i = 0; i < dict->count && !*out; i++) {
            RETURN_IF_ERROR(rf_value_equal(room, &dict->pairs[i].key, key, &equal));
            *out = equal ? &dict->pairs[i] : NULL;
        }
        return 0;
    }
    for (*slot = hash % dict->slot_count;; *slot = (*slot + 1) % dict->slot_count) {
        const uint32_t at = dict->slots[*slot];
        if (at == 0)
            return 0;
        RETURN_IF_ERROR(rf_value_equal(room, &dict->pairs[at - 1].key, key, &equal));
        if (equal) {
            *out = &dict->pairs[at - 1];
            return 0;
        }
    }
}

int rf_dict_find(struct rf_room *room, struct rf_dict *dict, struct rf_value key,
                 struct rf_pair **out)
{
    size_t slot;
    return look_up(room, dict, &key, out, &slot);
}

struct rf_pair *rf_dict_get(struct rf_dict *dict, const char *key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (dict->pairs[i].key.kind == RF_V_STRING && rf_string_is(dict->pairs[i].key.string, key))
            return &dict->pairs[i];
    return NULL;
}

/* Makes slots for twice the number of pairs. */
static int add_slots(struct rf_room *room, struct rf_dict *dict)
{
    const size_t wanted = 4 * dict->count + 1;
    uint32_t *slots = rf_room_take(room, wanted * sizeof(*slots));
    if (!slots)
        return rf_last_error()->status;
    RETURN_IF_ERROR(rf_room_spend(room, dict->count));
    for (size_t i = 0; i < dict->count; i++) {
        uint32_t hash;
        RETURN_IF_ERROR(hash_of(room, &dict->pairs[i].key, &hash));
        size_t slot = hash % wanted;
        while (slots[slot] != 0)
            slot = (slot + 1) % wanted;
        slots[slot] = (uint32_t)i + 1;
    }
    dict->slots = slots;
    dict->slot_count = wanted;
    return 0;
}

int rf_dict_put(struct rf_room *room, struct rf_dict *dict, struct rf_value key,
                struct rf_value value)
{
    struct rf_pair *there;
    size_t slot = 0;
    if (dict->count > FEW_PAIRS && 2 * dict->count >= dict->slot_count)
        RETURN_IF_ERROR(add_slots(room, dict));
    RETURN_IF_ERROR(look_up(room, dict, &key, &there, &slot));
    if (there) {
        there->value = value;
        return 0;
    }
    RETURN_IF_ERROR(rf_room_grow(room, (void **)&dict->pairs, dict->count, &dict->capacity,
                                 sizeof(*dict->pairs)));
    dict->pairs[dict->count++] = (struct rf_pair){key, value};
    if (dict->slot_count > 0)
        dict->slots[slot] = (uint32_t)dict->count;
    return 0;
}

void rf_dict_note(struct rf_dict *dict, const struct rf_pair *pair)
{
    if (dict->read)
        dict->read[pair - dict->pairs] = true;
}

void rf_dict_note_all(struct rf_dict *dict)
{
    for (size_t i = 0; dict->read && i < dict->count; i++)
        dict->read[i] = true;
}
