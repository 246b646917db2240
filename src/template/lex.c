/* SPDX-License-Identifier: MIT
 *
 * Divides a template into tokens; see lex.h. Handles white space around tags as Jinja2 3.1 does:
 * "-" strips all of it, a new line after a block or a comment is removed, and so are spaces before
 * one that begins its line.
 */
#include "lex.h"

#include "../base/base.h"
#include "../tokenizer/utf8.h"
#include "text.h"

enum { MAX_BRACKETS = 256 };

struct lexer {
    struct rf_room *room;
    const char *text; /* with LF as the only line ending */
    size_t bytes, at;
    unsigned line;
    bool line_starts; /* the last tag ended with a new line */
    char brackets[MAX_BRACKETS];
    int open;
    struct rf_tokens *out;
};

static int add(struct lexer *l, struct rf_token token)
{
    RETURN_IF_ERROR(rf_room_spend(l->room, 1));
    RETURN_IF_ERROR(rf_room_grow(l->room, (void **)&l->out->list, l->out->count, &l->out->capacity,
                                 sizeof(*l->out->list)));
    token.line = l->line;
    l->out->list[l->out->count++] = token;
    return 0;
}

static int add_string(struct lexer *l, enum rf_token_kind kind, const char *bytes, size_t count)
{
    struct rf_string *string = rf_string_of(l->room, bytes, count, NULL, false);
    if (!string)
        return rf_last_error()->status;
    return add(l, (struct rf_token){.kind = kind, .string = string});
}

static void count_lines(struct lexer *l, size_t begin, size_t end)
{
    for (; begin < end; begin++)
        l->line += l->text[begin] == '\n';
}

static int wrong(struct lexer *l, int status, const char *what)
{
    l->room->line = l->line;
    return rf_room_fail(l->room, status, "%s", what);
}

static bool is_at(const struct lexer *l, const char *what)
{
    const size_t length = strlen(what);
    return l->bytes - l->at >= length && memcmp(l->text + l->at, what, length) == 0;
}

static bool space_at(const struct lexer *l, size_t at)
{
    return at < l->bytes && rf_letter_is_space(rf_utf8_read(l->text + at));
}

static void skip_spaces(struct lexer *l)
{
    while (space_at(l, l->at))
        l->at += rf_utf8_length(l->text[l->at]);
}

/* ---- texts in quotes ------------------------------------------------------------------------- */

static int digit_of(char letter, int base)
{
    const int value = letter >= '0' && letter <= '9'   ? letter - '0'
                      : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                      : letter >= 'A' && letter <= 'F' ? letter - 'A' + 10
                                                       : 99;
    return value < base ? value : -1;
}

/* A number of at most `most` digits at text[*i]; -1: fewer than `least` digits. */
static int32_t read_digits(const char *text, size_t end, size_t *i, int base, int least, int most)
{
    int32_t value = 0;
    int count = 0;
    while (count < most && *i < end && digit_of(text[*i], base) >= 0 && value < 0x1000000) {
        value = value * base + digit_of(text[(*i)++], base);
        count++;
    }
    return count < least ? -1 : value;
}

/* Decodes the escape at text[*i], after the backslash. */
static int add_escape(struct lexer *l, const char *text, size_t end, size_t *i,
                      struct rf_build *out)
{
    static const char marks[] = "\\'\"abfnrtv", stands[] = "\\'\"\a\b\f\n\r\t\v";
    const char mark = text[*i];
    const char *known = mark ? strchr(marks, mark) : NULL;
    int32_t letter = -1;
    char bytes[4];
    if (known) {
        ++*i;
        return rf_build_add(l->room, out, &stands[known - marks], 1);
    }
    if (mark == '\n') { /* a line continuation */
        ++*i;
        return 0;
    }
    if (digit_of(mark, 8) >= 0) {
        letter = read_digits(text, end, i, 8, 1, 3);
    } else if (mark == 'x' || mark == 'u' || mark == 'U') {
        const int digits = mark == 'x' ? 2 : mark == 'u' ? 4 : 8;
        ++*i;
        letter = read_digits(text, end, i, 16, digits, digits);
        if (letter < 0)
            return wrong(l, RF_ECORRUPT, "an escape in a text has too few digits");
    } else if (mark == 'N' || (uint8_t)mark >= 0x80) {
        return wrong(l, RF_ENOTSUP,
                     "a text has \\N or a backslash before a character beyond ASCII, "
                     "which is not implemented");
    } else { /* keep both characters */
        return rf_build_text(l->room, out, "\\");
    }
    if (letter > 0x10ffff || (letter >= 0xd800 && letter <= 0xdfff))
        return wrong(l, RF_ENOTSUP, "a text has an escape that is no character");
    return rf_build_add(l->room, out, bytes, (size_t)rf_letter_write((uint32_t)letter, bytes));
}

/* Reads the text between the quotes at l->at. */
static int lex_string(struct lexer *l)
{
    const char quote = l->text[l->at];
    const size_t begin = l->at + 1;
    struct rf_build build = {0};
    size_t end = begin;
    bool escapes = false;
    while (end < l->bytes && l->text[end] != quote) {
        escapes = escapes || l->text[end] == '\\';
        end += l->text[end] == '\\' ? 2 : 1;
    }
    if (end >= l->bytes)
        return wrong(l, RF_ECORRUPT, "a text in quotes has no end");
    l->at = end + 1;
    if (!escapes) {
        RETURN_IF_ERROR(add_string(l, RF_T_STRING, l->text + begin, end - begin));
    } else {
        for (size_t i = begin; i < end;) {
            if (l->text[i] == '\\') {
                i++;
                RETURN_IF_ERROR(add_escape(l, l->text, end, &i, &build));
            } else {
                RETURN_IF_ERROR(rf_build_add(l->room, &build, l->text + i, 1));
                i++;
            }
        }
        RETURN_IF_ERROR(add_string(l, RF_T_STRING, build.count ? build.bytes : "", build.count));
    }
    count_lines(l, begin, end);
    return 0;
}

/* ---- within tags ----------------------------------------------------------------------------- */

static bool is_digit(char letter)
{
    return letter >= '0' && letter <= '9';
}

static bool is_name(char letter)
{
    return is_digit(letter) || letter == '_' || (letter >= 'a' && letter <= 'z') ||
           (letter >= 'A' && letter <= 'Z');
}

/* The letter at `at`; 0 past the end. */
static char letter_at(const struct lexer *l, size_t at)
{
    return at < l->bytes ? l->text[at] : '\0';
}

static int lex_number(struct lexer *l)
{
    const bool behind_dot = l->at > 0 && l->text[l->at - 1] == '.';
    const char second = letter_at(l, l->at + 1) | 0x20;
    int64_t value = 0;
    if (l->text[l->at] == '0' && (second == 'x' || second == 'o' || second == 'b'))
        return wrong(l, RF_ENOTSUP, "numbers with a base other than ten are not implemented");
    const bool zero = l->text[l->at] == '0';
    do {
        const int digit = l->text[l->at] - '0';
        if (value > (INT64_MAX - digit) / 10)
            return wrong(l, RF_ENOTSUP, "a number has more than 64 bits");
        value = value * 10 + digit;
        l->at++;
        l->at += letter_at(l, l->at) == '_' && is_digit(letter_at(l, l->at + 1));
    } while (zero ? letter_at(l, l->at) == '0' : is_digit(letter_at(l, l->at)));
    const char next = letter_at(l, l->at), after = letter_at(l, l->at + 1);
    const bool sign = after == '+' || after == '-';
    if (!behind_dot && ((next == '.' && is_digit(after)) ||
                        ((next | 0x20) == 'e' && is_digit(sign ? letter_at(l, l->at + 2) : after))))
        return wrong(l, RF_ENOTSUP, "numbers with a fraction are not implemented");
    return add(l, (struct rf_token){.kind = RF_T_INTEGER, .whole = value});
}

/* Tracks brackets: a tag does not end inside them. */
static int balance(struct lexer *l, char letter)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *at = strchr(opening, letter);
    if (at) {
        if (l->open == MAX_BRACKETS)
            return wrong(l, RF_ENOTSUP, "brackets are nested too deeply");
        l->brackets[l->open++] = closing[at - opening];
    } else if (strchr(closing, letter)) {
        if (l->open == 0 || l->brackets[--l->open] != letter)
            return wrong(l, RF_ECORRUPT, "a bracket is closed that is not open");
    }
    return 0;
}

static int lex_operator(struct lexer *l)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        struct rf_token token = {.kind = RF_T_OPERATOR};
        if (!is_at(l, operators[i]))
            continue;
        snprintf(token.sign, sizeof(token.sign), "%s", operators[i]);
        if (!token.sign[1])
            RETURN_IF_ERROR(balance(l, token.sign[0]));
        l->at += strlen(operators[i]);
        return add(l, token);
    }
    if ((uint8_t)l->text[l->at] >= 0x80)
        return wrong(l, RF_ENOTSUP, "names beyond ASCII are not implemented");
    return wrong(l, RF_ECORRUPT, "an unexpected character in a tag");
}

/* Passes the end of a tag or comment, if it is here: "%}" with "-" or, but for "}}", "+" before it.
 */
static bool pass_end(struct lexer *l, const char *end)
{
    const bool variable = strcmp(end, "}}") == 0;
    const char sign = l->text[l->at];
    const bool signs = (sign == '-' || (sign == '+' && !variable)) && l->bytes - l->at >= 3 &&
                       memcmp(l->text + l->at + 1, end, 2) == 0;
    const size_t begin = l->at;
    if (!signs && !is_at(l, end))
        return false;
    l->at += signs ? 3 : 2;
    if (signs && sign == '-')
        skip_spaces(l);
    else if (!signs && !variable && letter_at(l, l->at) == '\n')
        l->at++;
    count_lines(l, begin, l->at);
    l->line_starts = l->text[l->at - 1] == '\n';
    return true;
}

static int lex_tag(struct lexer *l, const char *end, enum rf_token_kind end_kind)
{
    l->open = 0;
    while (l->at < l->bytes) {
        const size_t begin = l->at;
        if (l->open == 0 && pass_end(l, end))
            return add(l, (struct rf_token){.kind = end_kind});
        if (space_at(l, l->at)) {
            skip_spaces(l);
            count_lines(l, begin, l->at);
        } else if (is_digit(l->text[l->at])) {
            RETURN_IF_ERROR(lex_number(l));
        } else if (is_name(l->text[l->at])) {
            while (is_name(letter_at(l, l->at)))
                l->at++;
            RETURN_IF_ERROR(add_string(l, RF_T_NAME, l->text + begin, l->at - begin));
        } else if (l->text[l->at] == '\'' || l->text[l->at] == '"') {
            RETURN_IF_ERROR(lex_string(l));
        } else {
            RETURN_IF_ERROR(lex_operator(l));
        }
    }
    return wrong(l, RF_ECORRUPT, "a tag has no end");
}

static int skip_comment(struct lexer *l)
{
    for (; l->at < l->bytes; l->at++) {
        if (pass_end(l, "#}"))
            return 0;
        l->line += l->text[l->at] == '\n';
    }
    return wrong(l, RF_ECORRUPT, "a comment has no end");
}

/* ---- between tags ---------------------------------------------------------------------------- */

/* Adds the text before a tag, from `begin` to `end`, without the white space that the tag strips.
 */
static int add_data(struct lexer *l, size_t begin, size_t end, char sign, bool variable)
{
    size_t stop = end, line;
    if (sign == '-') {
        while (stop > begin && rf_letter_is_space(rf_utf8_read(rf_utf8_before(l->text + stop))))
            stop = (size_t)(rf_utf8_before(l->text + stop) - l->text);
    } else if (sign != '+' && !variable) {
        for (line = end; line > begin && l->text[line - 1] != '\n'; line--)
            ;
        if (line > begin || l->line_starts) {
            size_t at = line;
            while (at < end && space_at(l, at))
                at += rf_utf8_length(l->text[at]);
            stop = at == end ? line : end;
        }
    }
    if (stop > begin)
        RETURN_IF_ERROR(add_string(l, RF_T_DATA, l->text + begin, stop - begin));
    count_lines(l, begin, end);
    return 0;
}

static int lex_all(struct lexer *l)
{
    while (l->at < l->bytes) {
        const size_t begin = l->at;
        while (l->at < l->bytes && !is_at(l, "{{") && !is_at(l, "{%") && !is_at(l, "{#"))
            l->at++;
        if (l->at == l->bytes)
            return add_string(l, RF_T_DATA, l->text + begin, l->bytes - begin);
        const char kind = l->text[l->at + 1], sign = letter_at(l, l->at + 2);
        RETURN_IF_ERROR(add_data(l, begin, l->at, sign, kind == '{'));
        l->at += sign == '-' || sign == '+' ? 3 : 2;
        if (kind == '#') {
            RETURN_IF_ERROR(skip_comment(l));
            continue;
        }
        RETURN_IF_ERROR(add(
            l, (struct rf_token){.kind = kind == '{' ? RF_T_VARIABLE_BEGIN : RF_T_BLOCK_BEGIN}));
        RETURN_IF_ERROR(kind == '{' ? lex_tag(l, "}}", RF_T_VARIABLE_END)
                                    : lex_tag(l, "%}", RF_T_BLOCK_END));
    }
    return 0;
}

/* CR LF and CR become LF; one final LF is removed. */
static int read_lines(struct lexer *l, const char *text, size_t bytes)
{
    char *copy = rf_room_take(l->room, bytes + 1);
    size_t count = 0;
    if (!copy)
        return rf_last_error()->status;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n')
            continue;
        copy[count++] = text[i] == '\r' ? '\n' : text[i];
    }
    l->text = copy;
    l->bytes = count - (count > 0 && copy[count - 1] == '\n');
    return 0;
}

int rf_lex(struct rf_room *room, const char *text, size_t bytes, struct rf_tokens *out)
{
    struct lexer l = {.room = room, .line = 1, .line_starts = true, .out = out};
    RETURN_IF_ERROR(rf_room_spend(room, bytes));
    RETURN_IF_ERROR(read_lines(&l, text, bytes));
    RETURN_IF_ERROR(lex_all(&l));
    RETURN_IF_ERROR(add(&l, (struct rf_token){.kind = RF_T_END}));
    room->line = 0;
    return 0;
}
