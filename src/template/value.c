/* SPDX-License-Identifier: MIT
 *
 * Creates values; their kind, truth and length in Python; see value.h.
 */
#include "value.h"

#include "../base/base.h"
#include "../tokenizer/utf8.h"

/* ---- texts ----------------------------------------------------------------------------------- */

struct rf_string *rf_string_of(struct rf_room *room, const char *bytes, size_t count,
                               struct rf_origin *from, bool safe)
{
    struct rf_string *string = rf_room_take(room, sizeof(*string));
    if (string)
        *string = (struct rf_string){bytes, count, SIZE_MAX, from, safe};
    return string;
}

struct rf_string *rf_string_from(struct rf_room *room, const char *text)
{
    return rf_string_of(room, text, strlen(text), NULL, false);
}

int rf_string_part(struct rf_room *room, const struct rf_string *of, size_t begin, size_t end,
                   struct rf_value *out)
{
    struct rf_string *part = rf_string_of(room, of->bytes + begin, end - begin, of->from, of->safe);
    if (!part)
        return rf_last_error()->status;
    if (of->letters == of->count)
        part->letters = part->count;
    *out = rf_string_value(part);
    return rf_room_spend(room, 1);
}

size_t rf_string_letters(struct rf_string *string)
{
    if (string->letters == SIZE_MAX) {
        size_t letters = 0;
        for (size_t i = 0; i < string->count; i++)
            letters += ((uint8_t)string->bytes[i] & 0xc0) != 0x80;
        string->letters = letters;
    }
    return string->letters;
}

bool rf_string_is(const struct rf_string *string, const char *text)
{
    return strlen(text) == string->count && memcmp(text, string->bytes, string->count) == 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

int rf_list_make(struct rf_room *room, enum rf_kind kind, struct rf_value *out)
{
    struct rf_list *list = rf_room_take(room, sizeof(*list));
    if (!list)
        return rf_last_error()->status;
    *out = (struct rf_value){.kind = kind, .list = list};
    return 0;
}

int rf_list_add(struct rf_room *room, struct rf_list *list, struct rf_value item)
{
    RETURN_IF_ERROR(rf_room_spend(room, 1));
    RETURN_IF_ERROR(rf_room_grow(room, (void **)&list->items, list->count, &list->capacity,
                                 sizeof(*list->items)));
    list->items[list->count++] = item;
    return 0;
}

int rf_pair_make(struct rf_room *room, struct rf_value first, struct rf_value second,
                 struct rf_value *out)
{
    RETURN_IF_ERROR(rf_list_make(room, RF_V_TUPLE, out));
    RETURN_IF_ERROR(rf_list_add(room, out->list, first));
    return rf_list_add(room, out->list, second);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

const char *rf_kind_name(enum rf_kind kind)
{
    static const char *const names[] = {"missing", "Undefined", "NoneType",  "bool",      "int",
                                        "float",   "str",       "list",      "tuple",     "dict",
                                        "range",   "dict view", "generator", "Namespace", "loop",
                                        "macro",   "function",  "method"};
    return names[kind];
}

bool rf_is_number(const struct rf_value *value)
{
    return value->kind == RF_V_BOOL || value->kind == RF_V_INT || value->kind == RF_V_FLOAT;
}

bool rf_as_whole(const struct rf_value *value, int64_t *out)
{
    if (value->kind != RF_V_BOOL && value->kind != RF_V_INT)
        return false;
    *out = value->kind == RF_V_BOOL ? value->truth : value->whole;
    return true;
}

double rf_as_real(const struct rf_value *value)
{
    int64_t whole;
    return rf_as_whole(value, &whole) ? (double)whole : value->real;
}

bool rf_value_length(const struct rf_value *value, size_t *out)
{
    switch (value->kind) {
    case RF_V_UNDEFINED:
        *out = 0;
        return true;
    case RF_V_STRING:
        *out = rf_string_letters(value->string);
        return true;
    case RF_V_LIST:
    case RF_V_TUPLE:
        *out = value->list->count;
        return true;
    case RF_V_DICT:
        *out = value->dict->count;
        return true;
    case RF_V_RANGE:
        *out = value->range->count;
        return true;
    case RF_V_VIEW:
        *out = value->view->dict->count;
        return true;
    default:
        return false;
    }
}

bool rf_value_truth(const struct rf_value *value)
{
    size_t length;
    int64_t whole;
    if (value->kind == RF_V_NONE || value->kind == RF_V_MISSING)
        return false;
    if (value->kind == RF_V_FLOAT)
        return value->real != 0;
    if (rf_as_whole(value, &whole))
        return whole != 0;
    if (value->kind == RF_V_STRING)
        return value->string->count > 0;
    return rf_value_length(value, &length) ? length > 0 : true;
}

/* ---- origins --------------------------------------------------------------------------------- */

struct rf_origin *rf_origin_join(struct rf_room *room, struct rf_origin *a, struct rf_origin *b,
                                 int *rc)
{
    if (!a || !b || a == b)
        return a ? a : b;
    struct rf_origin *both = rf_room_take(room, sizeof(*both));
    if (!both)
        *rc = rf_last_error()->status;
    else
        *both = (struct rf_origin){.left = a, .right = b};
    return both;
}

/* Not recursive: text that a template concatenates in a loop makes long chains. */
void rf_origin_write(struct rf_origin *origin)
{
    struct rf_origin *todo = NULL;
    if (!origin || origin->written)
        return;
    origin->written = true;
    origin->next = NULL;
    for (todo = origin; todo;) {
        struct rf_origin *const parts[2] = {todo->left, todo->right};
        todo = todo->next;
        for (int i = 0; i < 2; i++) {
            if (!parts[i] || parts[i]->written)
                continue;
            parts[i]->written = true;
            parts[i]->next = todo;
            todo = parts[i];
        }
    }
}

/* ---- walking --------------------------------------------------------------------------------- */

bool rf_can_walk(const struct rf_value *value)
{
    switch (value->kind) {
    case RF_V_UNDEFINED:
    case RF_V_STRING:
    case RF_V_LIST:
    case RF_V_TUPLE:
    case RF_V_DICT:
    case RF_V_RANGE:
    case RF_V_VIEW:
    case RF_V_GENERATOR:
        return true;
    default:
        return false;
    }
}

int rf_walk_begin(struct rf_room *room, const struct rf_value *of, struct rf_walk *out)
{
    if (!rf_can_walk(of))
        return rf_room_fail(room, RF_ECORRUPT, "a %s cannot be walked", rf_kind_name(of->kind));
    *out = (struct rf_walk){*of, 0};
    return 0;
}

static int view_item(struct rf_room *room, const struct rf_view *view, size_t at,
                     struct rf_value *out)
{
    const struct rf_pair *pair = &view->dict->pairs[at];
    if (view->kind == RF_VIEW_ITEMS)
        return rf_pair_make(room, pair->key, pair->value, out);
    *out = view->kind == RF_VIEW_KEYS ? pair->key : pair->value;
    return 0;
}

int rf_walk_next(struct rf_room *room, struct rf_walk *walk, struct rf_value *out)
{
    const struct rf_value *of = &walk->of;
    size_t count = 0;
    RETURN_IF_ERROR(rf_room_spend(room, 1));
    if (of->kind == RF_V_STRING) {
        const struct rf_string *string = of->string;
        if (walk->at >= string->count)
            return 0;
        const size_t begin = walk->at;
        walk->at += rf_utf8_length(string->bytes[begin]);
        RETURN_IF_ERROR(rf_string_part(room, string, begin, walk->at, out));
        return 1;
    }
    if (of->kind == RF_V_GENERATOR) {
        struct rf_generator *generator = of->generator;
        if (generator->at >= generator->list.count)
            return 0;
        *out = generator->list.items[generator->at++];
        return 1;
    }
    if (!rf_value_length(of, &count) || walk->at >= count)
        return 0;
    const size_t at = walk->at++;
    switch (of->kind) {
    case RF_V_LIST:
    case RF_V_TUPLE:
        *out = of->list->items[at];
        break;
    case RF_V_DICT:
        *out = of->dict->pairs[at].key;
        break;
    case RF_V_RANGE:
        *out = rf_whole((int64_t)((uint64_t)of->range->start + at * (uint64_t)of->range->step));
        break;
    case RF_V_VIEW:
        RETURN_IF_ERROR(view_item(room, of->view, at, out));
        break;
    default:
        return 0;
    }
    return 1;
}
