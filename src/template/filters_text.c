/* SPDX-License-Identifier: MIT
 *
 * Filters that make text; see render.h.
 */
#include "../base/base.h"
#include "render.h"
#include "show.h"

/* A text without the safe mark, like str() of Markup. */
static int plain(struct rf_render *r, const struct rf_value *value, struct rf_string **out)
{
    RETURN_IF_ERROR(rf_show(r->room, value, out));
    if (!(*out)->safe)
        return 0;
    *out = rf_string_of(r->room, (*out)->bytes, (*out)->count, (*out)->from, false);
    return *out ? 0 : rf_last_error()->status;
}

static int cased(struct rf_render *r, const struct rf_value *a, enum rf_casing casing,
                 struct rf_value *out)
{
    struct rf_string *text;
    RETURN_IF_ERROR(rf_show(r->room, &a[0], &text));
    return rf_string_cased(r->room, text, casing, out);
}

static int upper(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return cased(r, a, RF_CASING_UPPER, out);
}

static int lower(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return cased(r, a, RF_CASING_LOWER, out);
}

static int capitalize(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return cased(r, a, RF_CASING_CAPITALIZE, out);
}

static int title(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    return cased(r, a, RF_CASING_FILTER_TITLE, out);
}

static int to_string(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_string *text;
    RETURN_IF_ERROR(rf_show(r->room, &a[0], &text));
    *out = rf_string_value(text);
    return 0;
}

static int trim(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_string *text, *letters = NULL;
    RETURN_IF_ERROR(rf_show(r->room, &a[0], &text));
    if (a[1].kind != RF_V_MISSING && a[1].kind != RF_V_NONE)
        RETURN_IF_ERROR(rf_need_string(r, "trim", &a[1], &letters));
    return rf_string_strip(r->room, text, letters, true, true, out);
}

static int replace(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_string *text, *old, *by;
    int64_t most = -1;
    RETURN_IF_ERROR(plain(r, &a[0], &text));
    RETURN_IF_ERROR(plain(r, &a[1], &old));
    RETURN_IF_ERROR(plain(r, &a[2], &by));
    if (a[3].kind != RF_V_MISSING && a[3].kind != RF_V_NONE)
        RETURN_IF_ERROR(rf_need_whole(r, "replace", &a[3], &most));
    return rf_string_replace(r->room, text, old, by, most, out);
}

static int safe(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_string *text;
    RETURN_IF_ERROR(rf_show(r->room, &a[0], &text));
    text = rf_string_of(r->room, text->bytes, text->count, text->from, true);
    if (!text)
        return rf_last_error()->status;
    *out = rf_string_value(text);
    return 0;
}

static int join(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_build build = {0};
    struct rf_string *between = NULL, *text;
    struct rf_walk walk;
    struct rf_value item;
    int more;
    if (a[1].kind != RF_V_MISSING)
        RETURN_IF_ERROR(plain(r, &a[1], &between));
    RETURN_IF_ERROR(rf_walk_begin(r->room, &a[0], &walk));
    for (bool first = true; (more = rf_walk_next(r->room, &walk, &item)) > 0; first = false) {
        if (a[2].kind != RF_V_MISSING && a[2].kind != RF_V_NONE)
            RETURN_IF_ERROR(rf_get_path(r, &item, &a[2], &item));
        if (!first && between)
            RETURN_IF_ERROR(rf_build_string(r->room, &build, between));
        RETURN_IF_ERROR(rf_show(r->room, &item, &text));
        RETURN_IF_ERROR(rf_build_string(r->room, &build, text));
    }
    RETURN_IF_ERROR(more);
    return rf_build_end(r->room, &build, false, out);
}

/* `width` spaces, or `width` itself if it is a text. */
static int indention(struct rf_render *r, const struct rf_value *width, bool is_safe,
                     struct rf_string **out)
{
    struct rf_build build = {0};
    struct rf_value value;
    int64_t count = 4;
    if (width->kind == RF_V_STRING) {
        *out = width->string;
        if (!is_safe || (*out)->safe)
            return 0;
        *out = rf_string_of(r->room, (*out)->bytes, (*out)->count, (*out)->from, true);
        return *out ? 0 : rf_last_error()->status;
    }
    if (width->kind != RF_V_MISSING)
        RETURN_IF_ERROR(rf_need_whole(r, "indent", width, &count));
    for (int64_t i = 0; i < count; i++)
        RETURN_IF_ERROR(rf_build_text(r->room, &build, " "));
    RETURN_IF_ERROR(rf_build_end(r->room, &build, is_safe, &value));
    *out = value.string;
    return 0;
}

static int indent(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_string *text, *space;
    struct rf_value lines, line;
    struct rf_build build = {0};
    const bool first = rf_value_truth(&a[2]), blank = rf_value_truth(&a[3]);
    RETURN_IF_ERROR(rf_need_string(r, "indent", &a[0], &text));
    RETURN_IF_ERROR(indention(r, &a[1], text->safe, &space));
    if (!text->safe && space->safe) /* the text would be escaped */
        return rf_room_fail(r->room, RF_ENOTSUP, "indent by a safe text is not implemented");
    RETURN_IF_ERROR(rf_build_string(r->room, &build, text));
    RETURN_IF_ERROR(rf_build_text(r->room, &build, "\n"));
    RETURN_IF_ERROR(rf_build_end(r->room, &build, text->safe, &line));
    RETURN_IF_ERROR(rf_string_lines(r->room, line.string, &lines));
    build = (struct rf_build){.from = text->from};
    for (size_t i = 0; i < lines.list->count; i++) {
        const struct rf_string *each = lines.list->items[i].string;
        if (i > 0)
            RETURN_IF_ERROR(rf_build_text(r->room, &build, "\n"));
        if (i == 0 ? first : blank || each->count > 0)
            RETURN_IF_ERROR(rf_build_string(r->room, &build, space));
        RETURN_IF_ERROR(rf_build_string(r->room, &build, each));
    }
    return rf_build_end(r->room, &build, text->safe, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Reads two texts: the item separator and the key separator. */
static int read_separators(struct rf_render *r, const struct rf_value *value,
                           struct rf_json_style *style)
{
    struct rf_string **const parts[2] = {&style->item, &style->key};
    if (value->kind == RF_V_MISSING || value->kind == RF_V_NONE)
        return 0;
    if ((value->kind != RF_V_TUPLE && value->kind != RF_V_LIST) || value->list->count != 2)
        return rf_room_fail(r->room, RF_ECORRUPT, "tojson: separators are two texts");
    for (int i = 0; i < 2; i++)
        RETURN_IF_ERROR(rf_need_string(r, "tojson", &value->list->items[i], parts[i]));
    return 0;
}

static int to_json(struct rf_render *r, const struct rf_value *a, struct rf_value *out)
{
    struct rf_build build = {0};
    struct rf_json_style style = {.ascii = rf_value_truth(&a[1]),
                                  .sorted = rf_value_truth(&a[4]),
                                  .indents = a[2].kind != RF_V_MISSING && a[2].kind != RF_V_NONE};
    style.item = rf_string_from(r->room, style.indents ? "," : ", ");
    style.key = rf_string_from(r->room, ": ");
    if (!style.item || !style.key)
        return rf_last_error()->status;
    if (style.indents)
        RETURN_IF_ERROR(indention(r, &a[2], false, &style.indent));
    RETURN_IF_ERROR(read_separators(r, &a[3], &style));
    RETURN_IF_ERROR(rf_show_json(r->room, &a[0], &style, &build));
    return rf_build_end(r->room, &build, false, out);
}

const struct rf_builtin rf_filters_of_texts[] = {
    {"capitalize", "", 0, capitalize, NULL},
    {"indent", "width first blank", 0, indent, NULL},
    {"join", "d attribute", 0, join, NULL},
    {"lower", "", 0, lower, NULL},
    {"replace", "old new count", 2, replace, NULL},
    {"safe", "", 0, safe, NULL},
    {"string", "", 0, to_string, NULL},
    {"title", "", 0, title, NULL},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, to_json, NULL},
    {"trim", "chars", 0, trim, NULL},
    {"upper", "", 0, upper, NULL},
    {NULL}};
