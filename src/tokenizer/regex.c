/* SPDX-License-Identifier: MIT
 *
 * Regular expressions by PCRE2; see regex.h. An expression is first translated: classes whose
 * characters differ from Oniguruma's are written out, and other constructs that differ are refused.
 */
#include "regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "../base/base.h"
#include "utf8.h"

#define MAX_PATTERN 65536
#define MATCH_LIMIT 20000000u /* calls of the matcher for one match */
#define HEAP_LIMIT 65536u     /* KiB */
#define STACK_BYTES ((size_t)16 << 20)

/* White_Space of Unicode. PCRE2 10.42 also includes U+180E. */
#define SPACES                                                                                     \
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"

/* Letters and numbers of Unicode 15 and 16, which the reference's Oniguruma has and PCRE2 10.42
 * (Unicode 14) lacks. */
#define NEW_LETTERS                                                                                \
    "\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"               \
    "\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}"         \
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"           \
    "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}"          \
    "\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"                    \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"                     \
    "\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"          \
    "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NEW_NUMBERS                                                                                \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"         \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}"         \
    "\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"

struct rf_regex {
    pcre2_code *code;
    char *field;
    bool compiled; /* to machine code */
};

struct rf_regex_state {
    pcre2_match_context *context;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
};

/* ---- translation ----------------------------------------------------------------------------- */

/* Translates an escape sequence; *i moves from the backslash to its last byte. */
static int translate_escape(const char *field, const char *pattern, size_t *i, bool in_class,
                            struct rf_text *out)
{
    const char letter = pattern[++*i];
    if (strncmp(pattern + *i, "p{L}", 4) == 0 || strncmp(pattern + *i, "p{N}", 4) == 0) {
        const char *more = pattern[*i + 2] == 'L' ? NEW_LETTERS : NEW_NUMBERS;
        if (!in_class)
            RETURN_IF_ERROR(rf_text_add(out, "[", 1));
        RETURN_IF_ERROR(rf_text_add(out, "\\", 1));
        RETURN_IF_ERROR(rf_text_add(out, pattern + *i, 4));
        *i += 3;
        RETURN_IF_ERROR(rf_text_add(out, more, strlen(more)));
        return in_class ? 0 : rf_text_add(out, "]", 1);
    }
    if (letter == 's')
        return in_class ? rf_text_add(out, SPACES, sizeof(SPACES) - 1)
                        : rf_text_add(out, "[" SPACES "]", sizeof(SPACES) + 1);
    if (letter == 'S' && !in_class)
        return rf_text_add(out, "[^" SPACES "]", sizeof(SPACES) + 2);
    if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
        (letter >= '0' && letter <= '9')) {
        if (!strchr("rntfedpPuxz", letter) || (letter == 'u' && pattern[*i + 1] == '{'))
            return rf_fail(RF_ENOTSUP,
                           "tokenizer: %s: the regular expression has \\%c, which is not supported",
                           field, letter);
        /* By the name of a script PCRE2 means Script_Extensions; Oniguruma means Script. */
        if ((letter == 'p' || letter == 'P') && strcspn(pattern + *i + 1, "}") > 4)
            return rf_fail(RF_ENOTSUP,
                           "tokenizer: %s: of \\p only general categories are supported", field);
        if (letter == 'u') { /* \uHHHH */
            if (strspn(pattern + *i + 1, "0123456789abcdefABCDEF") < 4)
                return rf_fail(RF_ECORRUPT, "tokenizer: %s: \\u needs four hexadecimal digits",
                               field);
            RETURN_IF_ERROR(rf_text_add(out, "\\x{", 3));
            RETURN_IF_ERROR(rf_text_add(out, pattern + *i + 1, 4));
            *i += 4;
            return rf_text_add(out, "}", 1);
        }
    }
    size_t length = 1; /* of a letter, with its braces */
    if (strchr("pPx", letter) && pattern[*i + 1] == '{')
        length += strcspn(pattern + *i + 1, "}");
    length += length > 1 && pattern[*i + length] == '}';
    RETURN_IF_ERROR(rf_text_add(out, "\\", 1));
    RETURN_IF_ERROR(rf_text_add(out, &pattern[*i], length));
    *i += length - 1;
    return 0;
}

/* Translates Ruby's syntax, as Oniguruma reads it, to PCRE2's. */
static int translate(const char *field, const char *pattern, struct rf_text *out)
{
    bool in_class = false;
    for (size_t i = 0; pattern[i]; i++) {
        const char c = pattern[i];
        if (c == '\\' && pattern[i + 1]) {
            RETURN_IF_ERROR(translate_escape(field, pattern, &i, in_class, out));
            continue;
        }
        if (in_class && (c == '[' || (c == '&' && pattern[i + 1] == '&')))
            return rf_fail(RF_ENOTSUP, "tokenizer: %s: a class within a class is not supported",
                           field);
        if (!in_class && c == '}' && pattern[i + 1] == '+')
            return rf_fail(RF_ENOTSUP, "tokenizer: %s: {...}+ is not supported", field);
        if (!in_class && c == '(' && pattern[i + 1] == '?' && !strchr(":=!<>i", pattern[i + 2]))
            return rf_fail(RF_ENOTSUP, "tokenizer: %s: (?%c is not supported", field,
                           pattern[i + 2]);
        if (!in_class && c == '(' && pattern[i + 1] == '*')
            return rf_fail(RF_ENOTSUP, "tokenizer: %s: (* is not supported", field);
        if (c == '[' && !in_class) {
            in_class = true;
            RETURN_IF_ERROR(rf_text_add(out, pattern + i, pattern[i + 1] == '^' ? 2 : 1));
            i += pattern[i + 1] == '^';
            if (pattern[i + 1] == ']')
                return rf_fail(RF_ENOTSUP, "tokenizer: %s: an empty class is not supported", field);
            continue;
        }
        if (c == ']')
            in_class = false;
        RETURN_IF_ERROR(rf_text_add(out, &c, 1));
    }
    return rf_text_add(out, "", 0);
}

/* ---- expressions ----------------------------------------------------------------------------- */

int rf_regex_open(const char *field, const char *pattern, bool literal, struct rf_regex **out)
{
    struct rf_text text = {0};
    size_t length = strlen(pattern);
    PCRE2_SIZE at = 0;
    int error = 0;
    if (length == 0 || length > MAX_PATTERN)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: an expression has 1 to %d bytes", field,
                       MAX_PATTERN);
    struct rf_regex *regex = rf_alloc(sizeof(*regex));
    int rc = regex ? 0 : rf_fail(RF_ENOMEM, "tokenizer: %s: out of memory", field);
    if (rc == 0 && !literal)
        rc = translate(field, pattern, &text);
    if (rc == 0) {
        const uint32_t options =
            PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C;
        regex->field = rf_strdup(field);
        regex->code = pcre2_compile(
            (PCRE2_SPTR)(literal ? pattern : text.bytes), literal ? length : text.count,
            literal ? PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_LITERAL : options | PCRE2_MULTILINE,
            &error, &at, NULL);
        if (!regex->code) {
            PCRE2_UCHAR why[128] = "";
            pcre2_get_error_message(error, why, sizeof(why));
            rc = rf_fail(RF_ECORRUPT, "tokenizer: %s: not a regular expression: %s", field,
                         (char *)why);
        } else if (!regex->field) {
            rc = rf_fail(RF_ENOMEM, "tokenizer: %s: out of memory", field);
        }
    }
    rf_text_free(&text);
    if (rc < 0) {
        rf_regex_close(regex);
        return rc;
    }
    regex->compiled = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    *out = regex;
    return 0;
}

void rf_regex_close(struct rf_regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    rf_free(regex->field);
    rf_free(regex);
}

int rf_regex_state_open(struct rf_regex_state **out)
{
    struct rf_regex_state *state = rf_alloc(sizeof(*state));
    if (state) {
        state->context = pcre2_match_context_create(NULL);
        state->data = pcre2_match_data_create(1, NULL);
        state->stack = pcre2_jit_stack_create((size_t)32 << 10, STACK_BYTES, NULL);
    }
    if (!state || !state->context || !state->data) {
        rf_regex_state_close(state);
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory");
    }
    pcre2_set_match_limit(state->context, MATCH_LIMIT);
    pcre2_set_heap_limit(state->context, HEAP_LIMIT);
    if (state->stack)
        pcre2_jit_stack_assign(state->context, NULL, state->stack);
    *out = state;
    return 0;
}

void rf_regex_state_close(struct rf_regex_state *state)
{
    if (!state)
        return;
    pcre2_match_context_free(state->context);
    pcre2_match_data_free(state->data);
    pcre2_jit_stack_free(state->stack);
    rf_free(state);
}

static int search(const struct rf_regex *regex, struct rf_regex_state *state, const char *text,
                  size_t bytes, size_t from)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    if (regex->compiled)
        return pcre2_jit_match(regex->code, subject, bytes, from, PCRE2_NO_UTF_CHECK, state->data,
                               state->context);
    return pcre2_match(regex->code, subject, bytes, from, PCRE2_NO_UTF_CHECK, state->data,
                       state->context);
}

int rf_regex_next(const struct rf_regex *regex, struct rf_regex_state *state, const char *text,
                  size_t bytes, struct rf_regex_walk *walk, size_t *begin, size_t *end)
{
    while (walk->from <= bytes) {
        const int found = search(regex, state, text, bytes, walk->from);
        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0)
            return rf_fail(found == PCRE2_ERROR_NOMEMORY ? RF_ENOMEM : RF_ENOTSUP,
                           "tokenizer: %s: the regular expression needs too much work or memory on "
                           "this text (PCRE2 error %d)",
                           regex->field, found);
        const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(state->data);
        if (bounds[0] == bounds[1] && walk->any && walk->last_end == bounds[1]) {
            walk->from += walk->from < bytes ? rf_utf8_length(text[walk->from]) : 1;
            continue;
        }
        *begin = bounds[0];
        *end = bounds[1];
        walk->from = walk->last_end = bounds[1];
        walk->any = true;
        return 1;
    }
    walk->from = bytes + 1;
    return 0;
}
