/* SPDX-License-Identifier: MIT
 *
 * JSON as values; see json.h (RFC 8259; numbers and texts as Python has them).
 */
#include "json.h"

#include <errno.h>

#include "../base/base.h"
#include "letters.h"

struct reader {
    struct rf_room *room;
    const char *text;
    size_t bytes, at;
};

static int wrong(const struct reader *r, const char *what)
{
    return rf_room_fail(r->room, RF_ECORRUPT, "is no JSON: %s at byte %zu", what, r->at);
}

void rf_json_skip(const char *text, size_t bytes, size_t *at)
{
    while (*at < bytes &&
           (text[*at] == ' ' || text[*at] == '\t' || text[*at] == '\n' || text[*at] == '\r'))
        ++*at;
}

/* The next character that is not white space; 0: the end. */
static char peek(struct reader *r)
{
    rf_json_skip(r->text, r->bytes, &r->at);
    return r->at < r->bytes ? r->text[r->at] : '\0';
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Four hexadecimal digits at r->at; -1: absent or invalid. */
static int32_t read_hex(const struct reader *r)
{
    int32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        const char digit = r->at + i < r->bytes ? r->text[r->at + i] : '\0';
        const int number = digit >= '0' && digit <= '9'   ? digit - '0'
                           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                           : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                                          : -1;
        if (number < 0)
            return -1;
        value = value << 4 | number;
    }
    return value;
}

/* Reads what follows "\u": one character, or a surrogate pair. */
static int read_unicode(struct reader *r, uint32_t *out)
{
    const int32_t first = read_hex(r);
    if (first < 0)
        return wrong(r, "\\u without four digits");
    r->at += 4;
    *out = (uint32_t)first;
    if (first < 0xd800 || first > 0xdfff)
        return 0;
    if (first > 0xdbff || r->bytes - r->at < 2 || r->text[r->at] != '\\' ||
        r->text[r->at + 1] != 'u')
        return wrong(r, "half of a surrogate pair");
    r->at += 2;
    const int32_t second = read_hex(r);
    if (second < 0xdc00 || second > 0xdfff)
        return wrong(r, "half of a surrogate pair");
    r->at += 4;
    *out = 0x10000 + ((uint32_t)(first & 0x3ff) << 10 | (uint32_t)(second & 0x3ff));
    return 0;
}

/* Decodes the escape at r->at, after the backslash. */
static int read_escape(struct reader *r, char *to, int *length)
{
    static const char marks[] = "\"\\/bfnrt", stands[] = "\"\\/\b\f\n\r\t";
    const char mark = r->at < r->bytes ? r->text[r->at] : '\0';
    const char *known = mark ? strchr(marks, mark) : NULL;
    uint32_t letter = 0;
    if (!known && mark != 'u')
        return wrong(r, "an unknown escape");
    r->at++;
    if (known) {
        *to = stands[known - marks];
        *length = 1;
        return 0;
    }
    RETURN_IF_ERROR(read_unicode(r, &letter));
    *length = rf_letter_write(letter, to);
    return 0;
}

/* Decodes the text from r->at, after its quote, to `end`. It has escapes. */
static int unescape(struct reader *r, size_t end, struct rf_string **out)
{
    char *bytes = rf_room_take(r->room, end - r->at);
    char *to = bytes;
    if (!bytes)
        return rf_last_error()->status;
    while (r->at < end) {
        int length = 1;
        if (r->text[r->at++] != '\\')
            *to = r->text[r->at - 1];
        else
            RETURN_IF_ERROR(read_escape(r, to, &length));
        to += length;
    }
    *out = rf_string_of(r->room, bytes, (size_t)(to - bytes), NULL, false);
    return *out ? 0 : rf_last_error()->status;
}

static int read_string(struct reader *r, struct rf_string **out)
{
    bool escapes = false;
    size_t end = ++r->at;
    while (end < r->bytes && r->text[end] != '"') {
        if ((unsigned char)r->text[end] < 0x20) {
            r->at = end;
            return wrong(r, "a control character in a text");
        }
        escapes = escapes || r->text[end] == '\\';
        end += r->text[end] == '\\' ? 2 : 1;
    }
    if (end >= r->bytes)
        return wrong(r, "a text without an end");
    RETURN_IF_ERROR(rf_room_spend(r->room, 1 + (end - r->at) / 16));
    if (escapes) {
        RETURN_IF_ERROR(unescape(r, end, out));
    } else {
        *out = rf_string_of(r->room, r->text + r->at, end - r->at, NULL, false);
        if (!*out)
            return rf_last_error()->status;
    }
    r->at = end + 1;
    return 0;
}

/* ---- numbers and words ----------------------------------------------------------------------- */

static size_t skip_digits(const struct reader *r, size_t at)
{
    while (at < r->bytes && r->text[at] >= '0' && r->text[at] <= '9')
        at++;
    return at;
}

static int read_number(struct reader *r, struct rf_value *out)
{
    char text[512];
    const size_t begin = r->at + (r->text[r->at] == '-');
    const size_t whole = skip_digits(r, begin);
    size_t end = whole;
    if (whole == begin || (whole - begin > 1 && r->text[begin] == '0'))
        return wrong(r, "an unexpected character");
    if (end < r->bytes && r->text[end] == '.' && skip_digits(r, end + 1) > end + 1)
        end = skip_digits(r, end + 1);
    if (end < r->bytes && (r->text[end] | 0x20) == 'e') {
        const size_t sign =
            end + 1 < r->bytes && (r->text[end + 1] == '-' || r->text[end + 1] == '+');
        if (skip_digits(r, end + 1 + sign) > end + 1 + sign)
            end = skip_digits(r, end + 1 + sign);
    }
    if (end - r->at >= sizeof(text))
        return wrong(r, "a number of more than 511 digits");
    memcpy(text, r->text + r->at, end - r->at);
    text[end - r->at] = 0;
    errno = 0;
    *out = end > whole ? rf_real(strtod(text, NULL)) : rf_whole(strtoll(text, NULL, 10));
    if (end == whole && errno == ERANGE)
        return wrong(r, "a whole number of more than 64 bits");
    r->at = end;
    return 0;
}

static int read_word(struct reader *r, struct rf_value *out)
{
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++) {
        const size_t length = strlen(words[i]);
        if (r->bytes - r->at < length || memcmp(r->text + r->at, words[i], length) != 0)
            continue;
        r->at += length;
        *out = i == 0 ? rf_none() : rf_bool(i == 1);
        return 0;
    }
    return wrong(r, r->at < r->bytes ? "an unexpected character" : "an unexpected end");
}

/* ---- lists and objects ----------------------------------------------------------------------- */

static int read_value(struct reader *r, struct rf_value *out);

static int read_list(struct reader *r, struct rf_value *out)
{
    struct rf_value item;
    RETURN_IF_ERROR(rf_list_make(r->room, RF_V_LIST, out));
    r->at++;
    if (peek(r) == ']') {
        r->at++;
        return 0;
    }
    for (;;) {
        RETURN_IF_ERROR(read_value(r, &item));
        RETURN_IF_ERROR(rf_list_add(r->room, out->list, item));
        const char next = peek(r);
        if (next != ',' && next != ']')
            return wrong(r, "no comma and no end of a list");
        r->at++;
        if (next == ']')
            return 0;
    }
}

static int read_pair(struct reader *r, struct rf_dict *dict)
{
    struct rf_string *name = NULL;
    struct rf_pair *there;
    struct rf_value value;
    if (peek(r) != '"')
        return wrong(r, "a key that is no text");
    RETURN_IF_ERROR(read_string(r, &name));
    RETURN_IF_ERROR(rf_dict_find(r->room, dict, rf_string_value(name), &there));
    if (there)
        return rf_room_fail(r->room, RF_ECORRUPT, "has the key \"%.*s\" twice in one object",
                            (int)(name->count < 60 ? name->count : 60), name->bytes);
    if (peek(r) != ':')
        return wrong(r, "no colon behind a key");
    r->at++;
    RETURN_IF_ERROR(read_value(r, &value));
    return rf_dict_put(r->room, dict, rf_string_value(name), value);
}

static int read_object(struct reader *r, struct rf_value *out)
{
    RETURN_IF_ERROR(rf_dict_make(r->room, RF_V_DICT, out));
    r->at++;
    if (peek(r) == '}') {
        r->at++;
        return 0;
    }
    for (;;) {
        RETURN_IF_ERROR(read_pair(r, out->dict));
        const char next = peek(r);
        if (next != ',' && next != '}')
            return wrong(r, "no comma and no end of an object");
        r->at++;
        if (next == '}')
            return 0;
    }
}

static int read_value(struct reader *r, struct rf_value *out)
{
    struct rf_string *string = NULL;
    int rc;
    RETURN_IF_ERROR(rf_room_enter(r->room));
    switch (peek(r)) {
    case '{':
        rc = read_object(r, out);
        break;
    case '[':
        rc = read_list(r, out);
        break;
    case '"':
        rc = read_string(r, &string);
        if (rc == 0)
            *out = rf_string_value(string);
        break;
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        rc = read_number(r, out);
        break;
    default:
        rc = read_word(r, out);
    }
    rf_room_leave(r->room);
    return rc;
}

int rf_json_read(struct rf_room *room, const char *text, size_t bytes, size_t *at,
                 struct rf_value *out)
{
    struct reader r = {room, text, bytes, *at};
    RETURN_IF_ERROR(read_value(&r, out));
    rf_json_skip(text, bytes, &r.at);
    *at = r.at;
    return 0;
}
