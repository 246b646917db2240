/* SPDX-License-Identifier: MIT
 *
 * Functions that every template has: raise_exception, strftime_now, range, namespace, dict. See
 * render.h.
 */
#include <time.h>

#include "../base/base.h"
#include "render.h"
#include "show.h"

enum { MAX_RANGE = 100000 };

static int raise_exception(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_string *text;
    (void)out;
    RETURN_IF_ERROR(rf_show(r->room, &a[1], &text));
    return rf_room_fail(r->room, RF_ECORRUPT, "the template refuses the conversation: %.*s",
                        (int)(text->count < 300 ? text->count : 300), text->bytes);
}

/* Local time. Directives that need a locale, a time zone or fractions of a second are refused. */
static int strftime_now(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    static const char known[] = "aAbBdHIjmMpSyYeFTDRn%";
    struct rf_string *format;
    struct tm local;
    char form[128], text[512];
    const time_t now = (time_t)r->now;
    RETURN_IF_ERROR(rf_need_string(r, "strftime_now", &a[1], &format));
    if (format->count >= sizeof(form) || memchr(format->bytes, 0, format->count))
        return rf_room_fail(r->room, RF_ENOTSUP, "strftime_now: the format is too long");
    memcpy(form, format->bytes, format->count);
    form[format->count] = 0;
    for (const char *at = form; (at = strchr(at, '%')); at++) {
        at += at[1] == '-' ? 2 : 1; /* "%-d": without a leading zero */
        if (!*at || !strchr(known, *at))
            return rf_room_fail(r->room, RF_ENOTSUP, "strftime_now: %%%c is not implemented",
                                *at ? *at : ' ');
    }
    if (!localtime_r(&now, &local))
        return rf_room_fail(r->room, RF_ENOTSUP, "strftime_now: the time has no date");
    const size_t length = strftime(text, sizeof(text), form, &local);
    struct rf_build build = {0};
    RETURN_IF_ERROR(rf_build_add(r->room, &build, text, length));
    return rf_build_end(r->room, &build, false, out);
}

static int make_range(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    int64_t start = 0, stop, step = 1;
    RETURN_IF_ERROR(rf_need_whole(r, "range", &a[1], &stop));
    if (a[2].kind != RF_V_MISSING) {
        start = stop;
        RETURN_IF_ERROR(rf_need_whole(r, "range", &a[2], &stop));
    }
    if (a[3].kind != RF_V_MISSING)
        RETURN_IF_ERROR(rf_need_whole(r, "range", &a[3], &step));
    if (step == 0)
        return rf_room_fail(r->room, RF_ECORRUPT, "range has the step 0");
    const bool any = step > 0 ? start < stop : start > stop;
    const uint64_t width =
        step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    const uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    const uint64_t count = any ? (width - 1) / by + 1 : 0;
    if (count > MAX_RANGE)
        return rf_room_fail(r->room, RF_ECORRUPT, "range is longer than %d", MAX_RANGE);
    struct rf_range *range = rf_room_take(r->room, sizeof(*range));
    if (!range)
        return rf_last_error()->status;
    *range = (struct rf_range){start, step, (size_t)count, stop};
    *out = (struct rf_value){.kind = RF_V_RANGE, .range = range};
    return 0;
}

/* Adds the keys and values of another dictionary, or of pairs. */
static int add_all(struct rf_render *r, const struct rf_value *from, struct rf_dict *to)
{
    struct rf_walk walk;
    struct rf_value item;
    int more;
    if (from->kind == RF_V_DICT) {
        rf_dict_note_all(from->dict);
        for (size_t i = 0; i < from->dict->count; i++)
            RETURN_IF_ERROR(
                rf_dict_put(r->room, to, from->dict->pairs[i].key, from->dict->pairs[i].value));
        return 0;
    }
    RETURN_IF_ERROR(rf_walk_begin(r->room, from, &walk));
    while ((more = rf_walk_next(r->room, &walk, &item)) > 0) {
        if ((item.kind != RF_V_TUPLE && item.kind != RF_V_LIST) || item.list->count != 2)
            return rf_room_fail(r->room, RF_ECORRUPT, "dict needs pairs");
        RETURN_IF_ERROR(rf_dict_put(r->room, to, item.list->items[0], item.list->items[1]));
    }
    return more;
}

static int make_dict_of(struct rf_render *r, enum rf_kind kind, const struct rf_args *args,
                        struct rf_value *out)
{
    RETURN_IF_ERROR(rf_dict_make(r->room, kind, out));
    if (args->count > 1)
        return rf_room_fail(r->room, RF_ECORRUPT, "dict takes one value, and names");
    if (args->count == 1)
        RETURN_IF_ERROR(add_all(r, &args->positional[0], out->dict));
    for (size_t i = 0; i < args->names.count; i++)
        RETURN_IF_ERROR(
            rf_dict_put(r->room, out->dict, args->names.items[i], args->named.items[i]));
    return 0;
}

static int make_dict(struct rf_render *r, const struct rf_value *of, const struct rf_args *args,
                     struct rf_value *out)
{
    (void)of;
    return make_dict_of(r, RF_V_DICT, args, out);
}

static int make_namespace(struct rf_render *r, const struct rf_value *of,
                          const struct rf_args *args, struct rf_value *out)
{
    (void)of;
    RETURN_IF_ERROR(make_dict_of(r, RF_V_NAMESPACE, args, out));
    for (size_t i = 0; i < out->dict->count; i++) {
        const struct rf_value *key = &out->dict->pairs[i].key;
        if (key->kind == RF_V_STRING && key->string->count > 0 && key->string->bytes[0] == '_')
            return rf_room_fail(r->room, RF_ECORRUPT, "a namespace has no names with _ in front");
    }
    return 0;
}

static const struct rf_builtin functions[] = {
    {"raise_exception", "message", 1, raise_exception, NULL},
    {"strftime_now", "format", 1, strftime_now, NULL},
    {"range", "/start stop step", 1, make_range, NULL},
    {"dict", "*", 0, NULL, make_dict},
    {"namespace", "*", 0, NULL, make_namespace},
    {NULL}};

const struct rf_builtin *rf_function_find(const struct rf_string *name)
{
    return rf_builtin_find(functions, name);
}

bool rf_function_is_missing(const struct rf_string *name)
{
    return rf_word_in("cycler joiner lipsum self super varargs kwargs", name);
}
