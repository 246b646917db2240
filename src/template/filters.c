/* SPDX-License-Identifier: MIT
 *
 * The table of filters, and the filters that call other filters or tests for each item; see
 * render.h.
 */
#include "../base/base.h"
#include "render.h"

static bool is_given(const struct rf_value *value)
{
    return value->kind != RF_V_MISSING && value->kind != RF_V_NONE;
}

static int empty_generator(struct rf_render *r, struct rf_value *out)
{
    const struct rf_list none = {0};
    return rf_as_generator(r, &none, out);
}

/* The name of a filter or test, given as argument `at`. */
static int name_at(struct rf_render *r, const struct rf_args *args, size_t at, const char *what,
                   struct rf_string **out)
{
    return rf_need_string(r, what, &args->positional[at], out);
}

/* The attribute of each item: map(attribute="a.b", default=c). */
static int map_path(struct rf_render *r, const struct rf_list *all, const struct rf_args *args,
                    struct rf_value *out)
{
    const struct rf_value *path = NULL, *absent = NULL;
    struct rf_list list = {0};
    struct rf_value value;
    for (size_t i = 0; i < args->names.count; i++) {
        const struct rf_string *name = args->names.items[i].string;
        if (rf_string_is(name, "attribute"))
            path = &args->named.items[i];
        else if (rf_string_is(name, "default"))
            absent = is_given(&args->named.items[i]) ? &args->named.items[i] : NULL;
        else
            path = NULL;
        if (!path)
            break;
    }
    if (!path)
        return rf_room_fail(r->room, RF_ECORRUPT,
                            "map needs the name of a filter, or attribute and default");
    for (size_t i = 0; i < all->count; i++) {
        RETURN_IF_ERROR(is_given(path) ? rf_get_path_or(r, &all->items[i], path, absent, &value)
                                       : rf_get_path(r, &all->items[i], path, &value));
        RETURN_IF_ERROR(rf_list_add(r->room, &list, value));
    }
    return rf_as_generator(r, &list, out);
}

static int map(struct rf_render *r, const struct rf_value *of, const struct rf_args *args,
               struct rf_value *out)
{
    struct rf_value all, value;
    struct rf_list list = {0};
    struct rf_string *name;
    if (!rf_value_truth(of))
        return empty_generator(r, out);
    RETURN_IF_ERROR(rf_collect(r, of, &all));
    if (args->count == 0)
        return map_path(r, all.list, args, out);
    RETURN_IF_ERROR(name_at(r, args, 0, "map", &name));
    const struct rf_builtin *row = rf_filter_find(name);
    const struct rf_args rest = {args->positional + 1, args->count - 1, args->names, args->named};
    if (!row && all.list->count > 0)
        return rf_room_fail(r->room, RF_ENOTSUP, "the filter \"%.*s\" is not implemented",
                            (int)(name->count < 40 ? name->count : 40), name->bytes);
    RETURN_IF_ERROR(rf_room_enter(r->room)); /* the filter may be map again */
    for (size_t i = 0; i < all.list->count; i++) {
        RETURN_IF_ERROR(rf_builtin_call(r, row, &all.list->items[i], &rest, &value));
        RETURN_IF_ERROR(rf_list_add(r->room, &list, value));
    }
    rf_room_leave(r->room);
    return rf_as_generator(r, &list, out);
}

/* select and reject; with a path, selectattr and rejectattr. */
static int choose(struct rf_render *r, const struct rf_value *of, const struct rf_args *args,
                  bool by_path, bool wanted, struct rf_value *out)
{
    const size_t at = by_path ? 1 : 0;
    const struct rf_builtin *row = NULL;
    struct rf_args rest = {args->positional, 0, args->names, args->named};
    struct rf_value all, value;
    struct rf_list list = {0};
    struct rf_string *name;
    if (!rf_value_truth(of))
        return empty_generator(r, out);
    if (args->count < at)
        return rf_room_fail(r->room, RF_ECORRUPT, "selectattr needs an attribute");
    if (args->count > at) {
        RETURN_IF_ERROR(name_at(r, args, at, "select", &name));
        row = rf_test_find(name);
        if (!row)
            return rf_room_fail(r->room, RF_ENOTSUP, "the test \"%.*s\" is not implemented",
                                (int)(name->count < 40 ? name->count : 40), name->bytes);
        rest.positional += at + 1;
        rest.count = args->count - at - 1;
    }
    RETURN_IF_ERROR(rf_collect(r, of, &all));
    for (size_t i = 0; i < all.list->count; i++) {
        value = all.list->items[i];
        if (by_path)
            RETURN_IF_ERROR(rf_get_path(r, &value, &args->positional[0], &value));
        if (row)
            RETURN_IF_ERROR(rf_builtin_call(r, row, &value, &rest, &value));
        if (rf_value_truth(&value) == wanted)
            RETURN_IF_ERROR(rf_list_add(r->room, &list, all.list->items[i]));
    }
    return rf_as_generator(r, &list, out);
}

static int select_items(struct rf_render *r, const struct rf_value *of, const struct rf_args *args,
                        struct rf_value *out)
{
    return choose(r, of, args, false, true, out);
}

static int reject_items(struct rf_render *r, const struct rf_value *of, const struct rf_args *args,
                        struct rf_value *out)
{
    return choose(r, of, args, false, false, out);
}

static int selectattr(struct rf_render *r, const struct rf_value *of, const struct rf_args *args,
                      struct rf_value *out)
{
    return choose(r, of, args, true, true, out);
}

static int rejectattr(struct rf_render *r, const struct rf_value *of, const struct rf_args *args,
                      struct rf_value *out)
{
    return choose(r, of, args, true, false, out);
}

static const struct rf_builtin filters_of_items[] = {{"map", "*", 0, NULL, map},
                                                     {"reject", "*", 0, NULL, reject_items},
                                                     {"rejectattr", "*", 0, NULL, rejectattr},
                                                     {"select", "*", 0, NULL, select_items},
                                                     {"selectattr", "*", 0, NULL, selectattr},
                                                     {NULL}};

const struct rf_builtin *rf_filter_find(const struct rf_string *name)
{
    const struct rf_builtin *const tables[] = {filters_of_items, rf_filters_of_lists,
                                               rf_filters_of_texts};
    const struct rf_builtin *row = NULL;
    for (int i = 0; i < 3 && !row; i++)
        row = rf_builtin_find(tables[i], name);
    return row;
}

bool rf_filter_is_missing(const struct rf_string *name)
{
    return rf_word_in(
        "abs attr batch center e escape filesizeformat float forceescape format groupby "
        "pprint random reverse round slice striptags sum truncate urlencode urlize "
        "wordcount wordwrap xmlattr",
        name);
}
