/* SPDX-License-Identifier: MIT
 *
 * Texts: concatenated, stripped, split, replaced, sliced and cased; see text.h.
 */
#define _GNU_SOURCE /* memmem */
#include "text.h"

#include "../base/base.h"
#include "../tokenizer/utf8.h"

/* ---- put together ---------------------------------------------------------------------------- */

int rf_build_add(struct rf_room *room, struct rf_build *build, const char *bytes, size_t count)
{
    RETURN_IF_ERROR(rf_room_spend(room, 1 + count / 16));
    if (count > build->capacity - build->count) {
        const size_t wanted = 2 * build->capacity + count + 32;
        char *grown = rf_room_take(room, wanted);
        if (!grown)
            return rf_last_error()->status;
        if (build->count > 0)
            memcpy(grown, build->bytes, build->count);
        build->bytes = grown;
        build->capacity = wanted;
    }
    if (count > 0)
        memcpy(build->bytes + build->count, bytes, count);
    build->count += count;
    return 0;
}

int rf_build_text(struct rf_room *room, struct rf_build *build, const char *text)
{
    return rf_build_add(room, build, text, strlen(text));
}

int rf_build_string(struct rf_room *room, struct rf_build *build, const struct rf_string *string)
{
    int rc = 0;
    build->from = rf_origin_join(room, build->from, string->from, &rc);
    return rc < 0 ? rc : rf_build_add(room, build, string->bytes, string->count);
}

int rf_build_end(struct rf_room *room, const struct rf_build *build, bool safe,
                 struct rf_value *out)
{
    struct rf_string *string =
        rf_string_of(room, build->count > 0 ? build->bytes : "", build->count, build->from, safe);
    if (!string)
        return rf_last_error()->status;
    *out = rf_string_value(string);
    return 0;
}

int rf_string_escape(struct rf_room *room, struct rf_string *string, struct rf_string **out)
{
    struct rf_build build = {.from = string->from};
    struct rf_value value = rf_none();
    *out = string;
    if (string->safe)
        return 0;
    for (size_t i = 0; i < string->count; i++) {
        const char letter = string->bytes[i];
        const char *const put = letter == '&'    ? "&amp;"
                                : letter == '<'  ? "&lt;"
                                : letter == '>'  ? "&gt;"
                                : letter == '\'' ? "&#39;"
                                : letter == '"'  ? "&#34;"
                                                 : NULL;
        RETURN_IF_ERROR(put ? rf_build_text(room, &build, put)
                            : rf_build_add(room, &build, &letter, 1));
    }
    RETURN_IF_ERROR(rf_build_end(room, &build, true, &value));
    *out = value.string;
    return 0;
}

int rf_string_join(struct rf_room *room, struct rf_string *a, struct rf_string *b,
                   struct rf_value *out)
{
    struct rf_build build = {0};
    const bool safe = a->safe || b->safe;
    if (safe) {
        RETURN_IF_ERROR(rf_string_escape(room, a, &a));
        RETURN_IF_ERROR(rf_string_escape(room, b, &b));
    }
    RETURN_IF_ERROR(rf_build_string(room, &build, a));
    RETURN_IF_ERROR(rf_build_string(room, &build, b));
    return rf_build_end(room, &build, safe, out);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Whether the letter at `at` is stripped. */
static bool strips(const struct rf_string *letters, const char *at)
{
    if (!letters)
        return rf_letter_is_space(rf_utf8_read(at));
    const size_t length = rf_utf8_length(*at);
    for (size_t i = 0; i < letters->count; i += rf_utf8_length(letters->bytes[i]))
        if (rf_utf8_length(letters->bytes[i]) == length &&
            memcmp(letters->bytes + i, at, length) == 0)
            return true;
    return false;
}

int rf_string_strip(struct rf_room *room, const struct rf_string *string,
                    const struct rf_string *letters, bool left, bool right, struct rf_value *out)
{
    const char *begin = string->bytes, *end = begin + string->count;
    const size_t each = letters ? 1 + letters->count / 16 : 1;
    while (left && begin < end && strips(letters, begin))
        begin += rf_utf8_length(*begin);
    while (right && begin < end && strips(letters, rf_utf8_before(end)))
        end = rf_utf8_before(end);
    const size_t taken = string->count - (size_t)(end - begin);
    RETURN_IF_ERROR(rf_room_spend(room, (1 + taken / 4) * each));
    return rf_string_part(room, string, (size_t)(begin - string->bytes),
                          (size_t)(end - string->bytes), out);
}

size_t rf_string_find(const struct rf_string *string, const struct rf_string *what, size_t from)
{
    if (from > string->count || what->count > string->count - from)
        return SIZE_MAX;
    if (what->count == 0)
        return from;
    const char *at = memmem(string->bytes + from, string->count - from, what->bytes, what->count);
    return at ? (size_t)(at - string->bytes) : SIZE_MAX;
}

static int add_part(struct rf_room *room, const struct rf_string *string, size_t begin, size_t end,
                    struct rf_list *list)
{
    struct rf_value part;
    RETURN_IF_ERROR(rf_string_part(room, string, begin, end, &part));
    return rf_list_add(room, list, part);
}

static int split_at_spaces(struct rf_room *room, const struct rf_string *string, int64_t most,
                           struct rf_list *list)
{
    size_t at = 0, begin;
    for (;; most--) {
        while (at < string->count && strips(NULL, string->bytes + at))
            at += rf_utf8_length(string->bytes[at]);
        if (at == string->count)
            return 0;
        begin = at;
        if (most == 0)
            return add_part(room, string, begin, string->count, list);
        while (at < string->count && !strips(NULL, string->bytes + at))
            at += rf_utf8_length(string->bytes[at]);
        RETURN_IF_ERROR(add_part(room, string, begin, at, list));
    }
}

int rf_string_split(struct rf_room *room, const struct rf_string *string,
                    const struct rf_string *separator, int64_t most, struct rf_value *out)
{
    size_t begin = 0, found;
    RETURN_IF_ERROR(rf_list_make(room, RF_V_LIST, out));
    RETURN_IF_ERROR(rf_room_spend(room, string->count / 16));
    if (!separator)
        return split_at_spaces(room, string, most, out->list);
    if (separator->count == 0)
        return rf_room_fail(room, RF_ECORRUPT, "split: the separator is empty");
    for (; most != 0 && (found = rf_string_find(string, separator, begin)) != SIZE_MAX; most--) {
        RETURN_IF_ERROR(add_part(room, string, begin, found, out->list));
        begin = found + separator->count;
    }
    return add_part(room, string, begin, string->count, out->list);
}

int rf_string_lines(struct rf_room *room, const struct rf_string *string, struct rf_value *out)
{
    size_t begin = 0;
    RETURN_IF_ERROR(rf_list_make(room, RF_V_LIST, out));
    for (size_t i = 0; i < string->count;) {
        const char *at = string->bytes + i;
        size_t length = rf_utf8_length(*at);
        if (!rf_letter_ends_line(rf_utf8_read(at))) {
            i += length;
            continue;
        }
        if (*at == '\r' && i + 1 < string->count && at[1] == '\n')
            length = 2;
        RETURN_IF_ERROR(add_part(room, string, begin, i, out->list));
        i += length;
        begin = i;
    }
    return begin < string->count ? add_part(room, string, begin, string->count, out->list) : 0;
}

int rf_string_replace(struct rf_room *room, const struct rf_string *string,
                      const struct rf_string *old, struct rf_string *by, int64_t most,
                      struct rf_value *out)
{
    struct rf_build build = {.from = string->from};
    size_t begin = 0, found, from = 0;
    if (string->safe)
        RETURN_IF_ERROR(rf_string_escape(room, by, &by));
    for (; most != 0 && (found = rf_string_find(string, old, from)) != SIZE_MAX; most--) {
        RETURN_IF_ERROR(rf_build_add(room, &build, string->bytes + begin, found - begin));
        RETURN_IF_ERROR(rf_build_string(room, &build, by));
        begin = found + old->count;
        from = begin;
        if (old->count > 0)
            continue;
        if (begin >= string->count) /* before each letter, and at the end */
            break;
        from = begin + rf_utf8_length(string->bytes[begin]);
    }
    RETURN_IF_ERROR(rf_build_add(room, &build, string->bytes + begin, string->count - begin));
    return rf_build_end(room, &build, string->safe, out);
}

/* ---- by letters ------------------------------------------------------------------------------ */

size_t rf_string_byte_of(struct rf_string *string, size_t letter)
{
    const size_t letters = rf_string_letters(string);
    size_t at = 0;
    if (letter >= letters)
        return string->count;
    if (letters == string->count)
        return letter;
    for (; letter > 0; letter--)
        at += rf_utf8_length(string->bytes[at]);
    return at;
}

int rf_string_slice(struct rf_room *room, struct rf_string *string, int64_t start, int64_t count,
                    int64_t step, struct rf_value *out)
{
    struct rf_build build = {.from = string->from};
    RETURN_IF_ERROR(rf_room_spend(room, 1 + (size_t)count + string->count / 16));
    if (step == 1) {
        const size_t begin = rf_string_byte_of(string, (size_t)start);
        return rf_string_part(
            room, string, begin,
            count == 0 ? begin : rf_string_byte_of(string, (size_t)(start + count)), out);
    }
    /* One pass over the text: consecutive places differ by the same step. */
    size_t at = count > 0 ? rf_string_byte_of(string, (size_t)start) : 0;
    for (int64_t k = 0; k < count; k++) {
        RETURN_IF_ERROR(
            rf_build_add(room, &build, string->bytes + at, rf_utf8_length(string->bytes[at])));
        for (int64_t i = 0; k + 1 < count && i < (step < 0 ? -step : step); i++)
            at = step < 0 ? (size_t)(rf_utf8_before(string->bytes + at) - string->bytes)
                          : at + rf_utf8_length(string->bytes[at]);
    }
    return rf_build_end(room, &build, string->safe, out);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* Whether the filter `title` begins a word after this letter: white space and -({[<. */
static bool divides(uint32_t letter)
{
    return rf_letter_is_space(letter) || (letter < 0x80 && letter && strchr("-({[<", (int)letter));
}

int rf_string_cased(struct rf_room *room, const struct rf_string *string, enum rf_casing casing,
                    struct rf_value *out)
{
    struct rf_build build = {.from = string->from};
    const bool filter = casing == RF_CASING_FILTER_TITLE;
    bool begins = true; /* a word */
    for (size_t i = 0; i < string->count; i += rf_utf8_length(string->bytes[i])) {
        const uint32_t letter = rf_utf8_read(string->bytes + i);
        const enum rf_case wanted = casing == RF_CASING_UPPER              ? RF_CASE_UPPER
                                    : casing == RF_CASING_LOWER || !begins ? RF_CASE_LOWER
                                    : filter                               ? RF_CASE_UPPER
                                                                           : RF_CASE_TITLE;
        char text[4];
        const int length = rf_letter_cased(room, letter, wanted, text);
        RETURN_IF_ERROR(length);
        RETURN_IF_ERROR(rf_build_add(room, &build, text, (size_t)length));
        begins =
            filter ? divides(letter) : casing == RF_CASING_TITLE && !rf_letter_has_case(letter);
    }
    return rf_build_end(room, &build, string->safe && !filter, out);
}
