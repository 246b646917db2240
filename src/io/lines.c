/* SPDX-License-Identifier: MIT
 *
 * Files of JSON as lines of data; see lines.h.
 */
#include "lines.h"

#include <strings.h>

#include "../base/base.h"
#include "../template/json.h"
#include "../tokenizer/utf8.h"

enum { WHERE_BYTES = 4096 + 64 };

static bool ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path), bytes = strlen(end);
    return length > bytes && strcasecmp(path + length - bytes, end) == 0;
}

/* Whether text[from..] begins with an object that is a document, or with an object on its own line
 * that is followed by another. */
static bool begins_with_data(const char *text, size_t bytes)
{
    const struct rf_template_limits limits = {(size_t)1 << 30, UINT64_MAX};
    struct rf_room room = {0};
    struct rf_value first;
    size_t at = 0;
    rf_json_skip(text, bytes, &at);
    const bool list = at < bytes && text[at] == '[';
    at += list;
    const size_t begin = at;
    rf_room_init(&room, "", &limits);
    bool is = at < bytes && rf_utf8_valid(text, bytes) == bytes &&
              rf_json_read(&room, text, bytes, &at, &first) == 0 && first.kind == RF_V_DICT;
    if (is && !rf_line_is_document(first.dict))
        is = !list && at < bytes && text[at] == '{' &&
             memchr(text + begin, '\n', at - begin) != NULL;
    rf_room_free(&room);
    return is;
}

enum rf_file_kind rf_file_kind(const char *path, const char *text, size_t bytes, bool found)
{
    if (ends_with(path, ".jsonl") || ends_with(path, ".ndjson"))
        return RF_FILE_LINES;
    if (ends_with(path, ".json") && (!found || begins_with_data(text, bytes)))
        return RF_FILE_OBJECTS;
    return RF_FILE_TEXT;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Adds the object at text[*at]. alone: nothing may follow it up to `bytes`. */
static int add_object(struct rf_gather *g, const char *path, const char *where, const char *text,
                      size_t bytes, bool alone, size_t *at)
{
    struct rf_line *line = &g->line;
    const size_t begin = *at;
    RETURN_IF_ERROR(rf_line_read(line, where, text, bytes, at));
    if (alone && *at < bytes)
        return rf_fail(RF_ECORRUPT, "%s: has %s behind its object; write one object on each line",
                       where, text[*at] == '{' ? "another object" : "text");
    if (line->kind == RF_LINE_TEXT)
        return rf_gather_text(g, path, line->text->bytes, line->text->count);
    RETURN_IF_ERROR(rf_line_learn(line, g->opts, (int32_t)g->end, where));
    return rf_gather_document(g, path, *at - begin);
}

static int check_line(const char *where, const char *text, size_t bytes)
{
    if (memchr(text, 0, bytes))
        return rf_fail(RF_ECORRUPT, "%s has a zero byte; JSON has \\u0000 for it", where);
    if (rf_utf8_valid(text, bytes) < bytes)
        return rf_fail(RF_ECORRUPT, "%s is not UTF-8", where);
    return 0;
}

static int read_lines(struct rf_gather *g, const char *path, const char *text, size_t bytes)
{
    const char *const end = text + bytes;
    char where[WHERE_BYTES];
    for (long long line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        const size_t length = (size_t)(stop - text);
        size_t at = 0;
        rf_json_skip(text, length, &at);
        if (at < length) {
            snprintf(where, sizeof(where), "data %s: line %lld", path, line);
            RETURN_IF_ERROR(check_line(where, text, length));
            RETURN_IF_ERROR(add_object(g, path, where, text, length, true, &at));
        }
        text = stop + 1;
    }
    return 0;
}

/* Counts the lines from text[from] to text[to]. */
static long long count_lines(const char *text, size_t from, size_t to)
{
    long long lines = 0;
    for (; from < to; from++)
        lines += text[from] == '\n';
    return lines;
}

/* Reads objects that each begin on their own line, or a list of objects. */
static int read_objects(struct rf_gather *g, const char *path, const char *text, size_t bytes)
{
    char where[WHERE_BYTES];
    size_t at = 0, counted = 0;
    long long line = 1;
    bool more = false; /* a comma was read */
    snprintf(where, sizeof(where), "data %s: the file", path);
    RETURN_IF_ERROR(check_line(where, text, bytes));
    rf_json_skip(text, bytes, &at);
    const bool list = at < bytes && text[at] == '[';
    at += list;
    for (rf_json_skip(text, bytes, &at); at < bytes && (more || !list || text[at] != ']');) {
        line += count_lines(text, counted, at);
        counted = at;
        snprintf(where, sizeof(where), "data %s: line %lld", path, line);
        const size_t begin = at;
        RETURN_IF_ERROR(add_object(g, path, where, text, bytes, false, &at));
        more = list && at < bytes && text[at] == ',';
        if (list ? !more && at < bytes && text[at] != ']'
                 : at < bytes && !memchr(text + begin, '\n', at - begin))
            return rf_fail(RF_ECORRUPT,
                           "%s: has text behind its object; a file .json is a list of "
                           "objects, or has one object on each line",
                           where);
        at += more;
        rf_json_skip(text, bytes, &at);
    }
    if (!list)
        return 0;
    const bool ended = at < bytes && !more;
    at += ended;
    rf_json_skip(text, bytes, &at);
    return ended && at == bytes ? 0
                                : rf_fail(RF_ECORRUPT,
                                          "data %s: the list of objects has no end, or text "
                                          "behind it",
                                          path);
}

int rf_lines_read(struct rf_gather *g, const char *path, enum rf_file_kind kind, const char *text,
                  size_t bytes)
{
    return kind == RF_FILE_LINES ? read_lines(g, path, text, bytes)
                                 : read_objects(g, path, text, bytes);
}
