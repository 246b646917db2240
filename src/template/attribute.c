/* SPDX-License-Identifier: MIT
 *
 * Attributes, items and slices of values; see render.h. With ".", an attribute of Python's type
 * precedes a key of that name; with "[]", the key precedes it.
 */
#include "../base/base.h"
#include "render.h"

/* An attribute of Python's type: 1, or 0 if it has none of that name. */
static int type_attribute(struct rf_render *r, const struct rf_value *of, struct rf_string *name,
                          struct rf_value *out)
{
    static const char numbers[] =
        "as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag "
        "is_integer numerator real to_bytes";
    static const char others[] = "count index start step stop isdisjoint mapping close send throw "
                                 "arguments caller catch_kwargs catch_varargs explicit_caller name";
    bool known;
    if (of->kind == RF_V_NAMESPACE || of->kind == RF_V_LOOP || of->kind == RF_V_NONE)
        return 0;
    if (name->count > 1 && name->bytes[0] == '_' && name->bytes[1] == '_')
        return rf_room_fail(r->room, RF_ENOTSUP, "the attribute %.*s is not for templates",
                            (int)(name->count < 60 ? name->count : 60), name->bytes);
    if (rf_method_changes(of->kind, name)) {
        *out = rf_undefined(name);
        out->refused = true;
        return 1;
    }
    const struct rf_builtin *row = rf_method_find(of->kind, name, &known);
    if (!known) {
        const bool number = rf_is_number(of);
        if (of->kind >= RF_V_STRING && of->kind <= RF_V_DICT)
            return 0;
        if (rf_word_in(number ? numbers : others, name))
            return rf_room_fail(r->room, RF_ENOTSUP,
                                "the attribute %.*s of a %s is not implemented", (int)name->count,
                                name->bytes, rf_kind_name(of->kind));
        return 0;
    }
    struct rf_method *method = rf_room_take(r->room, sizeof(*method));
    if (!method)
        return rf_last_error()->status;
    *method = (struct rf_method){*of, row, row ? row->name : "this method"};
    *out = (struct rf_value){.kind = RF_V_METHOD, .method = method};
    return 1;
}

static int undefined_error(struct rf_render *r, const struct rf_value *of, const char *what)
{
    const struct rf_string *name = of->string;
    if (of->refused)
        return rf_room_fail(r->room, RF_ECORRUPT, "templates may not change values (%.*s)",
                            (int)name->count, name->bytes);
    return rf_room_fail(r->room, RF_ECORRUPT, "%s of \"%.*s\", which is undefined", what,
                        name ? (int)(name->count < 60 ? name->count : 60) : 9,
                        name ? name->bytes : "something");
}

/* of[key] without a fallback: 1, or 0 if absent. */
static int own_item(struct rf_render *r, const struct rf_value *of, const struct rf_value *key,
                    struct rf_value *out)
{
    int64_t at;
    size_t length;
    if (of->kind == RF_V_DICT) {
        struct rf_pair *pair = NULL;
        if (key->kind == RF_V_LIST || key->kind == RF_V_DICT)
            return 0;
        RETURN_IF_ERROR(rf_dict_find(r->room, of->dict, *key, &pair));
        if (!pair)
            return 0;
        rf_dict_note(of->dict, pair);
        *out = pair->value;
        return 1;
    }
    if ((of->kind != RF_V_STRING && of->kind != RF_V_LIST && of->kind != RF_V_TUPLE &&
         of->kind != RF_V_RANGE) ||
        !rf_as_whole(key, &at) || !rf_value_length(of, &length))
        return 0;
    if (at < 0)
        at += (int64_t)length;
    if (at < 0 || (uint64_t)at >= length)
        return 0;
    if (of->kind == RF_V_STRING) {
        const size_t begin = rf_string_byte_of(of->string, (size_t)at);
        RETURN_IF_ERROR(rf_room_spend(r->room, begin / 16));
        RETURN_IF_ERROR(rf_string_part(r->room, of->string, begin,
                                       rf_string_byte_of(of->string, (size_t)at + 1), out));
    } else if (of->kind == RF_V_RANGE) {
        *out = rf_whole(
            (int64_t)((uint64_t)of->range->start + (uint64_t)at * (uint64_t)of->range->step));
    } else {
        *out = of->list->items[at];
    }
    return 1;
}

int rf_get_attribute(struct rf_render *r, const struct rf_value *of, struct rf_string *name,
                     struct rf_value *out)
{
    const struct rf_value key = rf_string_value(name);
    if (of->kind == RF_V_UNDEFINED)
        return undefined_error(r, of, "an attribute");
    if (of->kind == RF_V_LOOP && rf_loop_has(name))
        return rf_loop_attribute(r, of->loop, name, out);
    int found = type_attribute(r, of, name, out);
    if (found == 0 && of->kind == RF_V_NAMESPACE) {
        struct rf_pair *pair;
        RETURN_IF_ERROR(rf_dict_find(r->room, of->dict, key, &pair));
        found = pair != NULL;
        if (pair)
            *out = pair->value;
    }
    if (found == 0)
        found = own_item(r, of, &key, out);
    RETURN_IF_ERROR(found);
    if (found == 0)
        *out = rf_undefined(name);
    return 0;
}

int rf_get_item(struct rf_render *r, const struct rf_value *of, const struct rf_value *key,
                struct rf_value *out)
{
    if (of->kind == RF_V_UNDEFINED)
        return undefined_error(r, of, "an item");
    int found = own_item(r, of, key, out);
    if (found == 0 && key->kind == RF_V_STRING) {
        if (of->kind == RF_V_LOOP || of->kind == RF_V_NAMESPACE)
            return rf_get_attribute(r, of, key->string, out);
        found = type_attribute(r, of, key->string, out);
    }
    RETURN_IF_ERROR(found);
    if (found == 0)
        *out = rf_undefined(key->kind == RF_V_STRING ? key->string : NULL);
    return 0;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static int slice_bound(struct rf_render *r, const struct rf_value *value, int64_t absent,
                       int64_t length, int64_t low, int64_t high, int64_t *out)
{
    *out = absent;
    if (!value || value->kind == RF_V_NONE)
        return 0;
    RETURN_IF_ERROR(rf_need_whole(r, "a slice", value, out));
    if (*out < 0)
        *out += length;
    *out = *out < low ? low : *out > high ? high : *out;
    return 0;
}

int rf_get_slice(struct rf_render *r, const struct rf_value *of, const struct rf_value *start,
                 const struct rf_value *stop, const struct rf_value *step, struct rf_value *out)
{
    int64_t by = 1, begin, end, count;
    size_t size;
    if (of->kind == RF_V_UNDEFINED)
        return undefined_error(r, of, "a slice");
    if (of->kind != RF_V_STRING && of->kind != RF_V_LIST && of->kind != RF_V_TUPLE)
        return rf_room_fail(r->room, of->kind == RF_V_RANGE ? RF_ENOTSUP : RF_ECORRUPT,
                            "a %s has no slices", rf_kind_name(of->kind));
    rf_value_length(of, &size);
    const int64_t length = (int64_t)size;
    if (step && step->kind != RF_V_NONE)
        RETURN_IF_ERROR(rf_need_whole(r, "a slice", step, &by));
    if (by == 0)
        return rf_room_fail(r->room, RF_ECORRUPT, "a slice has the step 0");
    by = by < -length - 1 ? -length - 1 : by > length + 1 ? length + 1 : by;
    const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? length - 1 : length;
    RETURN_IF_ERROR(slice_bound(r, start, by < 0 ? high : low, length, low, high, &begin));
    RETURN_IF_ERROR(slice_bound(r, stop, by < 0 ? low : high, length, low, high, &end));
    count = by > 0 ? (end - begin + by - 1) / by : (begin - end - by - 1) / -by;
    count = (by > 0 ? begin < end : begin > end) ? count : 0;
    if (of->kind == RF_V_STRING)
        return rf_string_slice(r->room, of->string, begin, count, by, out);
    RETURN_IF_ERROR(rf_list_make(r->room, of->kind, out));
    for (int64_t i = 0; i < count; i++)
        RETURN_IF_ERROR(rf_list_add(r->room, out->list, of->list->items[begin + i * by]));
    return 0;
}
