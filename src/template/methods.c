/* SPDX-License-Identifier: MIT
 *
 * Methods of Python's values that templates call; see render.h. Methods of Python that this file
 * lacks are refused by name.
 */
#include "../base/base.h"
#include "render.h"
#include "show.h"

/* ---- of texts -------------------------------------------------------------------------------- */

/* An optional text; NULL: None, or not given. */
static int optional_string(struct rf_render *r, const char *what, const struct rf_value *value,
                           struct rf_string **out)
{
    *out = NULL;
    return value->kind == RF_V_MISSING || value->kind == RF_V_NONE
               ? 0
               : rf_need_string(r, what, value, out);
}

static int optional_whole(struct rf_render *r, const char *what, const struct rf_value *value,
                          int64_t *out)
{
    return value->kind == RF_V_MISSING ? 0 : rf_need_whole(r, what, value, out);
}

static int split(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_string *separator;
    int64_t most = -1;
    RETURN_IF_ERROR(optional_string(r, "split", &a[1], &separator));
    RETURN_IF_ERROR(optional_whole(r, "split", &a[2], &most));
    return rf_string_split(r->room, a[0].string, separator, most, out);
}

static int strip_sides(struct rf_render *r, const struct rf_value *a, bool left, bool right,
                       struct rf_value *out)
{
    struct rf_string *letters;
    RETURN_IF_ERROR(optional_string(r, "strip", &a[1], &letters));
    return rf_string_strip(r->room, a[0].string, letters, left, right, out);
}

static int strip(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return strip_sides(r, a, true, true, out);
}

static int lstrip(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return strip_sides(r, a, true, false, out);
}

static int rstrip(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return strip_sides(r, a, false, true, out);
}

static bool has_at(const struct rf_string *string, const struct rf_string *part, bool end)
{
    return part->count <= string->count &&
           (part->count == 0 || memcmp(string->bytes + (end ? string->count - part->count : 0),
                                       part->bytes, part->count) == 0);
}

/* startswith, endswith: one text, or any text of a tuple. */
static int has_edge(struct rf_render *r, const struct rf_value *a, bool end, struct rf_value *out)
{
    const struct rf_list one = {.items = (struct rf_value *)&a[1], .count = 1};
    const struct rf_list *parts = a[1].kind == RF_V_TUPLE ? a[1].list : &one;
    bool has = false;
    for (size_t i = 0; i < parts->count && !has; i++) {
        struct rf_string *part;
        RETURN_IF_ERROR(
            rf_need_string(r, end ? "endswith" : "startswith", &parts->items[i], &part));
        has = has_at(a[0].string, part, end);
    }
    *out = rf_bool(has);
    return 0;
}

static int startswith(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return has_edge(r, a, false, out);
}

static int endswith(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return has_edge(r, a, true, out);
}

static int replace(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_string *old, *by;
    int64_t most = -1;
    RETURN_IF_ERROR(rf_need_string(r, "replace", &a[1], &old));
    RETURN_IF_ERROR(rf_need_string(r, "replace", &a[2], &by));
    RETURN_IF_ERROR(optional_whole(r, "replace", &a[3], &most));
    return rf_string_replace(r->room, a[0].string, old, by, most, out);
}

static int upper(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return rf_string_cased(r->room, a[0].string, RF_CASING_UPPER, out);
}

static int lower(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return rf_string_cased(r->room, a[0].string, RF_CASING_LOWER, out);
}

static int capitalize(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return rf_string_cased(r->room, a[0].string, RF_CASING_CAPITALIZE, out);
}

static int title(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return rf_string_cased(r->room, a[0].string, RF_CASING_TITLE, out);
}

/* The argument for a field of format: the next one for "", or one by name. Numbers and suffixes are
 * not implemented. */
static int format_field(struct rf_render *r, const struct rf_args *args,
                        const struct rf_string *field, size_t *next, struct rf_value *out)
{
    if (field->count == 0 && *next < args->count) {
        *out = args->positional[(*next)++];
        return 0;
    }
    for (size_t i = 0; field->count > 0 && i < args->names.count; i++) {
        const struct rf_string *name = args->names.items[i].string;
        if (name->count == field->count && memcmp(name->bytes, field->bytes, field->count) == 0) {
            *out = args->named.items[i];
            return 0;
        }
    }
    return rf_room_fail(r->room, RF_ENOTSUP,
                        "format: the field {%.*s} has no argument, or is not implemented",
                        (int)(field->count < 40 ? field->count : 40), field->bytes);
}

static int format(struct rf_render *r, const struct rf_value *of, const struct rf_args *args,
                  struct rf_value *out)
{
    const struct rf_string *text = of->string;
    struct rf_build build = {.from = text->from};
    size_t next = 0;
    for (size_t i = 0; i < text->count; i++) {
        const char letter = text->bytes[i];
        if (letter != '{' && letter != '}') {
            RETURN_IF_ERROR(rf_build_add(r->room, &build, &letter, 1));
        } else if (i + 1 < text->count && text->bytes[i + 1] == letter) {
            RETURN_IF_ERROR(rf_build_add(r->room, &build, text->bytes + i++, 1));
        } else {
            const char *begin = text->bytes + i + 1;
            const char *end = letter == '{' ? memchr(begin, '}', text->count - i - 1) : NULL;
            struct rf_value value = rf_none();
            struct rf_string *shown;
            if (!end)
                return rf_room_fail(r->room, RF_ECORRUPT, "format: a bracket stands alone");
            const struct rf_string field = {.bytes = begin, .count = (size_t)(end - begin)};
            RETURN_IF_ERROR(format_field(r, args, &field, &next, &value));
            RETURN_IF_ERROR(rf_show(r->room, &value, &shown));
            if (text->safe)
                RETURN_IF_ERROR(rf_string_escape(r->room, shown, &shown));
            RETURN_IF_ERROR(rf_build_string(r->room, &build, shown));
            i = (size_t)(end - text->bytes);
        }
    }
    return rf_build_end(r->room, &build, text->safe, out);
}

static const struct rf_builtin of_strings[] = {{"split", "sep maxsplit", 0, split, NULL},
                                               {"strip", "/chars", 0, strip, NULL},
                                               {"lstrip", "/chars", 0, lstrip, NULL},
                                               {"rstrip", "/chars", 0, rstrip, NULL},
                                               {"startswith", "/prefix", 1, startswith, NULL},
                                               {"endswith", "/suffix", 1, endswith, NULL},
                                               {"replace", "/old new count", 2, replace, NULL},
                                               {"upper", "", 0, upper, NULL},
                                               {"lower", "", 0, lower, NULL},
                                               {"capitalize", "", 0, capitalize, NULL},
                                               {"title", "", 0, title, NULL},
                                               {"format", "*", 0, NULL, format},
                                               {NULL}};

/* ---- of dictionaries ------------------------------------------------------------------------- */

static int view_of(struct rf_render *r, const struct rf_value *a, enum rf_view_kind kind,
                   struct rf_value *out)
{
    struct rf_view *view = rf_room_take(r->room, sizeof(*view));
    if (!view)
        return rf_last_error()->status;
    *view = (struct rf_view){kind, a[0].dict};
    *out = (struct rf_value){.kind = RF_V_VIEW, .view = view};
    if (kind != RF_VIEW_KEYS)
        rf_dict_note_all(a[0].dict);
    return 0;
}

static int items(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return view_of(r, a, RF_VIEW_ITEMS, out);
}

static int keys(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return view_of(r, a, RF_VIEW_KEYS, out);
}

static int values(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return view_of(r, a, RF_VIEW_VALUES, out);
}

static int get(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_pair *pair;
    RETURN_IF_ERROR(rf_dict_find(r->room, a[0].dict, a[1], &pair));
    if (pair)
        rf_dict_note(a[0].dict, pair);
    *out = pair ? pair->value : a[2].kind != RF_V_MISSING ? a[2] : rf_none();
    return 0;
}

static const struct rf_builtin of_dicts[] = {{"items", "", 0, items, NULL},
                                             {"keys", "", 0, keys, NULL},
                                             {"values", "", 0, values, NULL},
                                             {"get", "/key default", 1, get, NULL},
                                             {NULL}};
static const struct rf_builtin of_none[] = {{NULL}};

/* ---- what Python has ------------------------------------------------------------------------- */

static const struct {
    enum rf_kind kind;
    const struct rf_builtin *rows;
    const char *changing; /* methods that change the value */
    const char *others;   /* not implemented */
} kinds[] = {
    {RF_V_STRING, of_strings, "",
     "casefold center count encode expandtabs find format_map index isalnum isalpha isascii "
     "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join "
     "ljust maketrans partition removeprefix removesuffix rfind rindex rjust rpartition rsplit "
     "splitlines swapcase translate zfill"},
    {RF_V_LIST, of_none, "append clear pop reverse insert sort extend remove", "copy count index"},
    {RF_V_TUPLE, of_none, "", "count index"},
    {RF_V_DICT, of_dicts, "clear pop popitem setdefault update", "copy fromkeys"},
};

const struct rf_builtin *rf_method_find(enum rf_kind kind, const struct rf_string *name,
                                        bool *known)
{
    *known = false;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].kind != kind)
            continue;
        const struct rf_builtin *row = rf_builtin_find(kinds[i].rows, name);
        *known = row || rf_word_in(kinds[i].others, name);
        return row;
    }
    return NULL;
}

bool rf_method_changes(enum rf_kind kind, const struct rf_string *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (kinds[i].kind == kind && rf_word_in(kinds[i].changing, name))
            return true;
    return false;
}

bool rf_method_is_missing(const struct rf_string *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (rf_word_in(kinds[i].others, name))
            return true;
    return false;
}
