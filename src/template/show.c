/* SPDX-License-Identifier: MIT
 *
 * str, repr and json.dumps; see show.h.
 */
#include "show.h"

#include <inttypes.h>
#include <math.h>

#include "../base/base.h"
#include "../tokenizer/utf8.h"

/* ---- numbers --------------------------------------------------------------------------------- */

void rf_show_real(double real, char out[RF_REAL_TEXT])
{
    char text[32], digits[24];
    int exponent, count = 0;
    if (isnan(real) || isinf(real)) {
        snprintf(out, RF_REAL_TEXT, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof(text), "%.*e", precision, real);
        if (strtod(text, NULL) == real)
            break;
    }
    for (const char *at = text; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            digits[count++] = *at;
    digits[count] = 0;
    exponent = atoi(strchr(text, 'e') + 1);
    const char *sign = signbit(real) ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        snprintf(out, RF_REAL_TEXT, "%s%c%s%se%c%02d", sign, digits[0], count > 1 ? "." : "",
                 digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0)
        snprintf(out, RF_REAL_TEXT, "%s0.%.*s%s", sign, -exponent - 1, "0000", digits);
    else if (count <= exponent + 1)
        snprintf(out, RF_REAL_TEXT, "%s%s%.*s.0", sign, digits, exponent + 1 - count,
                 "0000000000000000");
    else
        snprintf(out, RF_REAL_TEXT, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
}

static int add_number(struct rf_room *room, const struct rf_value *value, struct rf_build *out)
{
    char text[RF_REAL_TEXT];
    if (value->kind == RF_V_INT)
        snprintf(text, sizeof(text), "%" PRId64, value->whole);
    else
        rf_show_real(value->real, text);
    return rf_build_text(room, out, text);
}

/* ---- repr ------------------------------------------------------------------------------------ */

/* Whether the character needs no escape between such quotes. */
static bool is_plain(const char *at, char quote)
{
    return *at != quote && *at != '\\' && rf_letter_is_printable(rf_utf8_read(at));
}

static int add_escape(struct rf_room *room, const char *at, struct rf_build *out)
{
    const uint32_t letter = rf_utf8_read(at);
    char text[16];
    if (*at == '\n' || *at == '\r' || *at == '\t')
        snprintf(text, sizeof(text), "\\%c", *at == '\n' ? 'n' : *at == '\r' ? 'r' : 't');
    else if (rf_letter_is_printable(letter)) /* the quote, or a backslash */
        snprintf(text, sizeof(text), "\\%c", *at);
    else
        snprintf(text, sizeof(text),
                 letter < 0x100     ? "\\x%02" PRIx32
                 : letter < 0x10000 ? "\\u%04" PRIx32
                                    : "\\U%08" PRIx32,
                 letter);
    return rf_build_text(room, out, text);
}

static int add_quoted(struct rf_room *room, const struct rf_string *string, struct rf_build *out)
{
    const bool single = memchr(string->bytes, '\'', string->count) != NULL;
    const char quote = single && !memchr(string->bytes, '"', string->count) ? '"' : '\'';
    int rc = 0;
    if (!string->from || !string->from->in_parts)
        out->from = rf_origin_join(room, out->from, string->from, &rc);
    RETURN_IF_ERROR(rc);
    RETURN_IF_ERROR(rf_build_text(room, out, string->safe ? "Markup(" : ""));
    RETURN_IF_ERROR(rf_build_add(room, out, &quote, 1));
    for (size_t i = 0, begin; i < string->count;) {
        for (begin = i; i < string->count && is_plain(string->bytes + i, quote);)
            i += rf_utf8_length(string->bytes[i]);
        RETURN_IF_ERROR(rf_build_add(room, out, string->bytes + begin, i - begin));
        if (i == string->count)
            break;
        RETURN_IF_ERROR(add_escape(room, string->bytes + i, out));
        i += rf_utf8_length(string->bytes[i]);
    }
    RETURN_IF_ERROR(rf_build_add(room, out, &quote, 1));
    return rf_build_text(room, out, string->safe ? ")" : "");
}

static int add_repr(struct rf_room *room, const struct rf_value *value, struct rf_build *out);

static int add_items(struct rf_room *room, const struct rf_value *value, struct rf_build *out)
{
    struct rf_walk walk;
    struct rf_value item;
    int more;
    RETURN_IF_ERROR(rf_walk_begin(room, value, &walk));
    for (bool first = true; (more = rf_walk_next(room, &walk, &item)) > 0; first = false) {
        RETURN_IF_ERROR(rf_build_text(room, out, first ? "" : ", "));
        RETURN_IF_ERROR(add_repr(room, &item, out));
    }
    return more;
}

static int add_list(struct rf_room *room, const struct rf_value *value, struct rf_build *out)
{
    const bool tuple = value->kind == RF_V_TUPLE;
    RETURN_IF_ERROR(rf_build_text(room, out, tuple ? "(" : "["));
    RETURN_IF_ERROR(add_items(room, value, out));
    RETURN_IF_ERROR(rf_build_text(room, out, tuple && value->list->count == 1 ? "," : ""));
    return rf_build_text(room, out, tuple ? ")" : "]");
}

static int add_dict(struct rf_room *room, const struct rf_dict *dict, struct rf_build *out)
{
    RETURN_IF_ERROR(rf_build_text(room, out, "{"));
    for (size_t i = 0; i < dict->count; i++) {
        RETURN_IF_ERROR(rf_build_text(room, out, i ? ", " : ""));
        RETURN_IF_ERROR(add_repr(room, &dict->pairs[i].key, out));
        RETURN_IF_ERROR(rf_build_text(room, out, ": "));
        RETURN_IF_ERROR(add_repr(room, &dict->pairs[i].value, out));
    }
    return rf_build_text(room, out, "}");
}

static int add_range(struct rf_room *room, const struct rf_range *range, struct rf_build *out)
{
    char text[96];
    snprintf(text, sizeof(text),
             range->step == 1 ? "range(%" PRId64 ", %" PRId64 ")"
                              : "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")",
             range->start, range->stop, range->step);
    return rf_build_text(room, out, text);
}

static int add_view(struct rf_room *room, const struct rf_value *value, struct rf_build *out)
{
    static const char *const names[] = {"dict_keys([", "dict_values([", "dict_items(["};
    RETURN_IF_ERROR(rf_build_text(room, out, names[value->view->kind]));
    RETURN_IF_ERROR(add_items(room, value, out));
    return rf_build_text(room, out, "])");
}

static int add_any(struct rf_room *room, const struct rf_value *value, struct rf_build *out)
{
    switch (value->kind) {
    case RF_V_UNDEFINED:
        return rf_build_text(room, out, "Undefined");
    case RF_V_NONE:
        return rf_build_text(room, out, "None");
    case RF_V_BOOL:
        return rf_build_text(room, out, value->truth ? "True" : "False");
    case RF_V_INT:
    case RF_V_FLOAT:
        return add_number(room, value, out);
    case RF_V_STRING:
        return add_quoted(room, value->string, out);
    case RF_V_LIST:
    case RF_V_TUPLE:
        return add_list(room, value, out);
    case RF_V_DICT:
        return add_dict(room, value->dict, out);
    case RF_V_RANGE:
        return add_range(room, value->range, out);
    case RF_V_VIEW:
        return add_view(room, value, out);
    default:
        return rf_room_fail(room, RF_ENOTSUP, "the text of a %s is not implemented",
                            rf_kind_name(value->kind));
    }
}

static int add_repr(struct rf_room *room, const struct rf_value *value, struct rf_build *out)
{
    RETURN_IF_ERROR(rf_room_enter(room));
    RETURN_IF_ERROR(add_any(room, value, out));
    rf_room_leave(room);
    return 0;
}

int rf_show(struct rf_room *room, const struct rf_value *value, struct rf_string **out)
{
    struct rf_build build = {0};
    struct rf_value text = *value;
    if (value->kind != RF_V_STRING) {
        if (value->kind != RF_V_UNDEFINED)
            RETURN_IF_ERROR(add_repr(room, value, &build));
        RETURN_IF_ERROR(rf_build_end(room, &build, false, &text));
    }
    *out = text.string;
    return 0;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool is_plain_json(const char *at, bool ascii)
{
    const uint32_t letter = rf_utf8_read(at);
    return letter >= 0x20 && letter != '"' && letter != '\\' && !(ascii && letter > 0x7e);
}

static int add_json_escape(struct rf_room *room, const char *at, struct rf_build *out)
{
    static const char plain[] = "\"\\\b\f\n\r\t", marks[] = "\"\\bfnrt";
    uint32_t letter = rf_utf8_read(at);
    const char *known = *at ? strchr(plain, *at) : NULL;
    char text[16];
    if (known) {
        snprintf(text, sizeof(text), "\\%c", marks[known - plain]);
        return rf_build_text(room, out, text);
    }
    if (letter >= 0x10000) {
        letter -= 0x10000;
        snprintf(text, sizeof(text), "\\u%04x", (unsigned)(0xd800 | letter >> 10));
        RETURN_IF_ERROR(rf_build_text(room, out, text));
        letter = 0xdc00 | (letter & 0x3ff);
    }
    snprintf(text, sizeof(text), "\\u%04x", (unsigned)letter);
    return rf_build_text(room, out, text);
}

static int add_json_string(struct rf_room *room, const struct rf_string *string, bool ascii,
                           struct rf_build *out)
{
    int rc = 0;
    out->from = rf_origin_join(room, out->from, string->from, &rc);
    RETURN_IF_ERROR(rc);
    RETURN_IF_ERROR(rf_build_text(room, out, "\""));
    for (size_t i = 0, begin; i < string->count;) {
        for (begin = i; i < string->count && is_plain_json(string->bytes + i, ascii);)
            i += rf_utf8_length(string->bytes[i]);
        RETURN_IF_ERROR(rf_build_add(room, out, string->bytes + begin, i - begin));
        if (i == string->count)
            break;
        RETURN_IF_ERROR(add_json_escape(room, string->bytes + i, out));
        i += rf_utf8_length(string->bytes[i]);
    }
    return rf_build_text(room, out, "\"");
}

static int add_line(struct rf_room *room, const struct rf_json_style *style, int level,
                    struct rf_build *out)
{
    if (!style->indents)
        return 0;
    RETURN_IF_ERROR(rf_build_text(room, out, "\n"));
    for (int i = 0; i < level; i++)
        RETURN_IF_ERROR(rf_build_string(room, out, style->indent));
    return 0;
}

static int add_json(struct rf_room *room, const struct rf_value *value,
                    const struct rf_json_style *style, int level, struct rf_build *out);

/* JSON keys are texts, even if Python's key is a number. */
static int add_json_key(struct rf_room *room, const struct rf_value *key,
                        const struct rf_json_style *style, struct rf_build *out)
{
    if (key->kind == RF_V_STRING)
        return add_json_string(room, key->string, style->ascii, out);
    if (!rf_is_number(key) && key->kind != RF_V_NONE)
        return rf_room_fail(room, RF_ECORRUPT, "tojson: a %s cannot be a key",
                            rf_kind_name(key->kind));
    RETURN_IF_ERROR(rf_build_text(room, out, "\""));
    RETURN_IF_ERROR(add_json(room, key, style, 0, out));
    return rf_build_text(room, out, "\"");
}

static int sort_pairs(struct rf_room *room, const struct rf_dict *dict, struct rf_pair **out)
{
    struct rf_pair *pairs = rf_room_take(room, (dict->count + 1) * sizeof(*pairs));
    if (!pairs)
        return rf_last_error()->status;
    for (size_t i = 0; i < dict->count; i++) {
        size_t at = i;
        for (int order; at > 0; at--) {
            RETURN_IF_ERROR(rf_value_order(room, &dict->pairs[i].key, &pairs[at - 1].key, &order));
            if (order != -1)
                break;
            pairs[at] = pairs[at - 1];
        }
        pairs[at] = dict->pairs[i];
    }
    *out = pairs;
    return 0;
}

static int add_json_dict(struct rf_room *room, struct rf_dict *dict,
                         const struct rf_json_style *style, int level, struct rf_build *out)
{
    struct rf_pair *pairs = dict->pairs;
    rf_dict_note_all(dict);
    if (dict->count == 0)
        return rf_build_text(room, out, "{}");
    if (style->sorted)
        RETURN_IF_ERROR(sort_pairs(room, dict, &pairs));
    RETURN_IF_ERROR(rf_build_text(room, out, "{"));
    for (size_t i = 0; i < dict->count; i++) {
        if (i > 0)
            RETURN_IF_ERROR(rf_build_string(room, out, style->item));
        RETURN_IF_ERROR(add_line(room, style, level + 1, out));
        RETURN_IF_ERROR(add_json_key(room, &pairs[i].key, style, out));
        RETURN_IF_ERROR(rf_build_string(room, out, style->key));
        RETURN_IF_ERROR(add_json(room, &pairs[i].value, style, level + 1, out));
    }
    RETURN_IF_ERROR(add_line(room, style, level, out));
    return rf_build_text(room, out, "}");
}

static int add_json_list(struct rf_room *room, const struct rf_list *list,
                         const struct rf_json_style *style, int level, struct rf_build *out)
{
    if (list->count == 0)
        return rf_build_text(room, out, "[]");
    RETURN_IF_ERROR(rf_build_text(room, out, "["));
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0)
            RETURN_IF_ERROR(rf_build_string(room, out, style->item));
        RETURN_IF_ERROR(add_line(room, style, level + 1, out));
        RETURN_IF_ERROR(add_json(room, &list->items[i], style, level + 1, out));
    }
    RETURN_IF_ERROR(add_line(room, style, level, out));
    return rf_build_text(room, out, "]");
}

static int add_json(struct rf_room *room, const struct rf_value *value,
                    const struct rf_json_style *style, int level, struct rf_build *out)
{
    int rc;
    RETURN_IF_ERROR(rf_room_enter(room));
    switch (value->kind) {
    case RF_V_NONE:
        rc = rf_build_text(room, out, "null");
        break;
    case RF_V_BOOL:
        rc = rf_build_text(room, out, value->truth ? "true" : "false");
        break;
    case RF_V_FLOAT:
        rc = isfinite(value->real) ? add_number(room, value, out)
                                   : rf_build_text(room, out,
                                                   isnan(value->real) ? "NaN"
                                                   : value->real < 0  ? "-Infinity"
                                                                      : "Infinity");
        break;
    case RF_V_INT:
        rc = add_number(room, value, out);
        break;
    case RF_V_STRING:
        rc = add_json_string(room, value->string, style->ascii, out);
        break;
    case RF_V_LIST:
    case RF_V_TUPLE:
        rc = add_json_list(room, value->list, style, level, out);
        break;
    case RF_V_DICT:
        rc = add_json_dict(room, value->dict, style, level, out);
        break;
    default:
        rc = rf_room_fail(room, RF_ECORRUPT, "tojson: JSON has no %s", rf_kind_name(value->kind));
    }
    rf_room_leave(room);
    return rc;
}

int rf_show_json(struct rf_room *room, const struct rf_value *value,
                 const struct rf_json_style *style, struct rf_build *out)
{
    return add_json(room, value, style, 0, out);
}
