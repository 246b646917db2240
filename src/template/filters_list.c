/* SPDX-License-Identifier: MIT
 *
 * Filters that take or make lists and numbers; see render.h.
 */
#include <math.h>

#include "../base/base.h"
#include "../tokenizer/utf8.h"
#include "render.h"

/* ---- parts ----------------------------------------------------------------------------------- */

/* A part of a path: a whole number if it consists of digits. */
static int path_key(struct rf_render *r, const struct rf_string *part, struct rf_value *out)
{
    int64_t whole = 0;
    for (size_t i = 0; i < part->count; i++) {
        const char digit = part->bytes[i];
        if ((uint8_t)digit >= 0x80)
            return rf_room_fail(r->room, RF_ENOTSUP, "attributes beyond ASCII are not implemented");
        if (digit < '0' || digit > '9' || whole > (INT64_MAX - 9) / 10) {
            struct rf_string *name = rf_string_of(r->room, part->bytes, part->count, NULL, false);
            *out = rf_string_value(name);
            return name ? 0 : rf_last_error()->status;
        }
        whole = whole * 10 + (digit - '0');
    }
    *out = rf_whole(whole);
    return 0;
}

int rf_get_path_or(struct rf_render *r, const struct rf_value *item, const struct rf_value *path,
                   const struct rf_value *absent, struct rf_value *out)
{
    struct rf_value parts, key, of = *item;
    struct rf_string *dot = rf_string_from(r->room, ".");
    if (!dot)
        return rf_last_error()->status;
    if (path->kind == RF_V_STRING) {
        RETURN_IF_ERROR(rf_string_split(r->room, path->string, dot, -1, &parts));
    } else {
        RETURN_IF_ERROR(rf_list_make(r->room, RF_V_LIST, &parts));
        RETURN_IF_ERROR(rf_list_add(r->room, parts.list, *path));
    }
    for (size_t i = 0; i < parts.list->count; i++) {
        key = parts.list->items[i];
        if (key.kind == RF_V_STRING)
            RETURN_IF_ERROR(path_key(r, key.string, &key));
        RETURN_IF_ERROR(rf_get_item(r, &of, &key, &of));
        if (of.kind == RF_V_UNDEFINED && absent)
            of = *absent;
    }
    *out = of;
    return 0;
}

int rf_get_path(struct rf_render *r, const struct rf_value *item, const struct rf_value *path,
                struct rf_value *out)
{
    if (path->kind == RF_V_MISSING || path->kind == RF_V_NONE) {
        *out = *item;
        return 0;
    }
    return rf_get_path_or(r, item, path, NULL, out);
}

int rf_collect(struct rf_render *r, const struct rf_value *of, struct rf_value *out)
{
    struct rf_walk walk;
    struct rf_value item;
    int more;
    RETURN_IF_ERROR(rf_walk_begin(r->room, of, &walk));
    RETURN_IF_ERROR(rf_list_make(r->room, RF_V_LIST, out));
    while ((more = rf_walk_next(r->room, &walk, &item)) > 0)
        RETURN_IF_ERROR(rf_list_add(r->room, out->list, item));
    return more;
}

static int to_list(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return rf_collect(r, &a[0], out);
}

static int length(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    size_t count;
    if (!rf_value_length(&a[0], &count))
        return rf_room_fail(r->room, RF_ECORRUPT, "a %s has no length", rf_kind_name(a[0].kind));
    *out = rf_whole((int64_t)count);
    return 0;
}

static int first(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_walk walk;
    RETURN_IF_ERROR(rf_walk_begin(r->room, &a[0], &walk));
    const int more = rf_walk_next(r->room, &walk, out);
    if (more == 0)
        *out = rf_undefined(NULL);
    return more < 0 ? more : 0;
}

static int last(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_value all;
    if (a[0].kind == RF_V_GENERATOR)
        return rf_room_fail(r->room, RF_ECORRUPT, "a generator has no last item");
    RETURN_IF_ERROR(rf_collect(r, &a[0], &all));
    *out = all.list->count > 0 ? all.list->items[all.list->count - 1] : rf_undefined(NULL);
    return 0;
}

static int fallback(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    const bool replaced =
        a[0].kind == RF_V_UNDEFINED || (rf_value_truth(&a[2]) && !rf_value_truth(&a[0]));
    struct rf_string *empty = rf_string_from(r->room, "");
    if (!empty)
        return rf_last_error()->status;
    *out = !replaced ? a[0] : a[1].kind == RF_V_MISSING ? rf_string_value(empty) : a[1];
    return 0;
}

int rf_as_generator(struct rf_render *r, const struct rf_list *list, struct rf_value *out)
{
    struct rf_generator *generator = rf_room_take(r->room, sizeof(*generator));
    if (!generator)
        return rf_last_error()->status;
    generator->list = *list;
    *out = (struct rf_value){.kind = RF_V_GENERATOR, .generator = generator};
    return 0;
}

static int items(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_list list = {0};
    struct rf_value pair;
    if (a[0].kind != RF_V_DICT && a[0].kind != RF_V_UNDEFINED)
        return rf_room_fail(r->room, RF_ECORRUPT, "items: a %s has none", rf_kind_name(a[0].kind));
    if (a[0].kind == RF_V_DICT)
        rf_dict_note_all(a[0].dict);
    for (size_t i = 0; a[0].kind == RF_V_DICT && i < a[0].dict->count; i++) {
        RETURN_IF_ERROR(
            rf_pair_make(r->room, a[0].dict->pairs[i].key, a[0].dict->pairs[i].value, &pair));
        RETURN_IF_ERROR(rf_list_add(r->room, &list, pair));
    }
    return rf_as_generator(r, &list, out);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Lowercases texts if case is ignored. */
static int fold(struct rf_render *r, bool exact, struct rf_value *value)
{
    return value->kind == RF_V_STRING && !exact
               ? rf_string_cased(r->room, value->string, RF_CASING_LOWER, value)
               : 0;
}

/* The sort key: the value at one path, or at several separated by commas. */
static int key_of(struct rf_render *r, const struct rf_value *item, const struct rf_value *path,
                  bool exact, struct rf_value *out)
{
    struct rf_value paths, key;
    struct rf_string *comma = rf_string_from(r->room, ",");
    if (!comma)
        return rf_last_error()->status;
    RETURN_IF_ERROR(rf_list_make(r->room, RF_V_LIST, out));
    if (path->kind == RF_V_STRING) {
        RETURN_IF_ERROR(rf_string_split(r->room, path->string, comma, -1, &paths));
    } else {
        RETURN_IF_ERROR(rf_list_make(r->room, RF_V_LIST, &paths));
        RETURN_IF_ERROR(rf_list_add(r->room, paths.list, *path));
    }
    for (size_t i = 0; i < paths.list->count; i++) {
        RETURN_IF_ERROR(rf_get_path(r, item, &paths.list->items[i], &key));
        RETURN_IF_ERROR(fold(r, exact, &key));
        RETURN_IF_ERROR(rf_list_add(r->room, out->list, key));
    }
    return 0;
}

/* Inserts items[at], with its key, among those before it. Stable. */
static int insert(struct rf_render *r, struct rf_value *all, struct rf_value *keys, size_t at,
                  bool reverse)
{
    const struct rf_value item = all[at], key = keys[at];
    for (int order; at > 0; at--) {
        RETURN_IF_ERROR(rf_value_order(r->room, &key, &keys[at - 1], &order));
        if (order != (reverse ? 1 : -1))
            break;
        all[at] = all[at - 1];
        keys[at] = keys[at - 1];
    }
    all[at] = item;
    keys[at] = key;
    return 0;
}

static int sort_by(struct rf_render *r, struct rf_list *list, const struct rf_list *keys,
                   bool reverse)
{
    for (size_t i = 1; i < list->count; i++)
        RETURN_IF_ERROR(insert(r, list->items, keys->items, i, reverse));
    return 0;
}

static int sort(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_list keys = {0};
    struct rf_value key;
    RETURN_IF_ERROR(rf_collect(r, &a[0], out));
    for (size_t i = 0; i < out->list->count; i++) {
        RETURN_IF_ERROR(key_of(r, &out->list->items[i], &a[3], rf_value_truth(&a[2]), &key));
        RETURN_IF_ERROR(rf_list_add(r->room, &keys, key));
    }
    return sort_by(r, out->list, &keys, rf_value_truth(&a[1]));
}

static int dictsort(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_list keys = {0};
    struct rf_value item;
    const bool by_value = a[2].kind == RF_V_STRING && rf_string_is(a[2].string, "value");
    if (a[0].kind != RF_V_DICT)
        return rf_room_fail(r->room, RF_ECORRUPT, "dictsort: a %s has no keys",
                            rf_kind_name(a[0].kind));
    if (a[2].kind != RF_V_MISSING && !by_value &&
        (a[2].kind != RF_V_STRING || !rf_string_is(a[2].string, "key")))
        return rf_room_fail(r->room, RF_ECORRUPT, "dictsort: by is \"key\" or \"value\"");
    RETURN_IF_ERROR(rf_list_make(r->room, RF_V_LIST, out));
    rf_dict_note_all(a[0].dict);
    for (size_t i = 0; i < a[0].dict->count; i++) {
        const struct rf_pair *pair = &a[0].dict->pairs[i];
        RETURN_IF_ERROR(rf_pair_make(r->room, pair->key, pair->value, &item));
        RETURN_IF_ERROR(rf_list_add(r->room, out->list, item));
        item = by_value ? pair->value : pair->key;
        RETURN_IF_ERROR(fold(r, rf_value_truth(&a[1]), &item));
        RETURN_IF_ERROR(rf_list_add(r->room, &keys, item));
    }
    return sort_by(r, out->list, &keys, rf_value_truth(&a[3]));
}

static int unique(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_value all, seen, key;
    struct rf_list list = {0};
    struct rf_pair *there;
    RETURN_IF_ERROR(rf_collect(r, &a[0], &all));
    RETURN_IF_ERROR(rf_dict_make(r->room, RF_V_DICT, &seen));
    for (size_t i = 0; i < all.list->count; i++) {
        RETURN_IF_ERROR(rf_get_path(r, &all.list->items[i], &a[2], &key));
        RETURN_IF_ERROR(fold(r, rf_value_truth(&a[1]), &key));
        RETURN_IF_ERROR(rf_dict_find(r->room, seen.dict, key, &there));
        if (there)
            continue;
        RETURN_IF_ERROR(rf_dict_put(r->room, seen.dict, key, rf_none()));
        RETURN_IF_ERROR(rf_list_add(r->room, &list, all.list->items[i]));
    }
    return rf_as_generator(r, &list, out);
}

static int extreme(struct rf_render *r, const struct rf_value *a, int wanted, struct rf_value *out)
{
    struct rf_value all, key, best = rf_none();
    *out = rf_undefined(NULL);
    RETURN_IF_ERROR(rf_collect(r, &a[0], &all));
    for (size_t i = 0; i < all.list->count; i++) {
        int order = wanted;
        RETURN_IF_ERROR(rf_get_path(r, &all.list->items[i], &a[2], &key));
        RETURN_IF_ERROR(fold(r, rf_value_truth(&a[1]), &key));
        if (i > 0)
            RETURN_IF_ERROR(rf_value_order(r->room, &key, &best, &order));
        if (order != wanted)
            continue;
        best = key;
        *out = all.list->items[i];
    }
    return 0;
}

static int least(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return extreme(r, a, -1, out);
}

static int most(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return extreme(r, a, 1, out);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static size_t pass_digits(const char *text, size_t at)
{
    const size_t begin = at;
    while ((text[at] >= '0' && text[at] <= '9') ||
           (text[at] == '_' && at > begin && text[at - 1] != '_' && text[at + 1] >= '0' &&
            text[at + 1] <= '9'))
        at++;
    return at;
}

/* int(float(text)) for a number with a fraction or an exponent. */
static bool read_real(const char *text, double *out)
{
    const size_t sign = text[0] == '-' || text[0] == '+';
    const size_t whole = pass_digits(text, sign);
    size_t at = whole, dot = 0;
    if (text[at] == '.') {
        dot = pass_digits(text, at + 1) - at - 1;
        at += 1 + dot;
    }
    if (whole == sign && dot == 0)
        return false;
    if (text[at] == 'e' || text[at] == 'E') {
        const size_t digits = at + 1 + (text[at + 1] == '-' || text[at + 1] == '+');
        if (pass_digits(text, digits) == digits)
            return false;
        at = pass_digits(text, digits);
    }
    *out = strtod(text, NULL);
    return text[at] == 0;
}

static int from_real(struct rf_render *r, double real, const struct rf_value *absent,
                     struct rf_value *out)
{
    *out = *absent;
    if (isnan(real) || isinf(real))
        return 0;
    if (!(real > -9.2e18 && real < 9.2e18))
        return rf_room_fail(r->room, RF_ENOTSUP, "int: the number has more than 64 bits");
    *out = rf_whole((int64_t)real);
    return 0;
}

static int int_of_text(struct rf_render *r, struct rf_string *string, const struct rf_value *absent,
                       struct rf_value *out)
{
    struct rf_value stripped;
    char text[320];
    double real;
    size_t count = 0;
    RETURN_IF_ERROR(rf_string_strip(r->room, string, NULL, true, true, &stripped));
    string = stripped.string;
    for (size_t i = 0; i < string->count; i++)
        if ((uint8_t)string->bytes[i] >= 0x80)
            return rf_room_fail(r->room, RF_ENOTSUP,
                                "int: characters beyond ASCII are not "
                                "implemented");
    if (string->count >= sizeof(text) - 1)
        return rf_room_fail(r->room, RF_ENOTSUP, "int: the text is too long");
    memcpy(text, string->bytes, string->count);
    text[string->count] = 0;
    *out = *absent;
    if (strlen(text) < string->count || !read_real(text, &real))
        return 0; /* "inf" and "nan" have no whole number */
    const bool is_whole = strpbrk(text, ".eE") == NULL;
    for (size_t i = 0; i <= string->count; i++)
        if (text[i] != '_')
            text[count++] = text[i];
    real = strtod(text, NULL);
    if (!is_whole || !(real > -9.2e18 && real < 9.2e18))
        return from_real(r, real, absent, out);
    *out = rf_whole(strtoll(text, NULL, 10));
    return 0;
}

static int to_int(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    const struct rf_value absent = a[1].kind == RF_V_MISSING ? rf_whole(0) : a[1];
    int64_t whole = 10;
    if (a[2].kind != RF_V_MISSING)
        RETURN_IF_ERROR(rf_need_whole(r, "int", &a[2], &whole));
    if (whole != 10)
        return rf_room_fail(r->room, RF_ENOTSUP, "int: other bases than ten are not implemented");
    if (a[0].kind == RF_V_UNDEFINED || (a[0].kind == RF_V_FLOAT && isinf(a[0].real)))
        return rf_room_fail(r->room, RF_ECORRUPT, "int: there is no number");
    if (a[0].kind == RF_V_STRING)
        return int_of_text(r, a[0].string, &absent, out);
    if (a[0].kind == RF_V_FLOAT)
        return from_real(r, a[0].real, &absent, out);
    *out = rf_as_whole(&a[0], &whole) ? rf_whole(whole) : absent;
    return 0;
}

const struct rf_builtin rf_filters_of_lists[] = {
    {"count", "", 0, length, NULL},
    {"d", "default_value boolean", 0, fallback, NULL},
    {"default", "default_value boolean", 0, fallback, NULL},
    {"dictsort", "case_sensitive by reverse", 0, dictsort, NULL},
    {"first", "", 0, first, NULL},
    {"int", "default base", 0, to_int, NULL},
    {"items", "", 0, items, NULL},
    {"last", "", 0, last, NULL},
    {"length", "", 0, length, NULL},
    {"list", "", 0, to_list, NULL},
    {"max", "case_sensitive attribute", 0, most, NULL},
    {"min", "case_sensitive attribute", 0, least, NULL},
    {"sort", "reverse case_sensitive attribute", 0, sort, NULL},
    {"unique", "case_sensitive attribute", 0, unique, NULL},
    {NULL}};
