/* SPDX-License-Identifier: MIT
 *
 * The only reader of numbers from users: in options, in lists within options, and in environment
 * variables. Its errors name the invalid number or the allowed range.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "tool.h"

/* Largest whole number that a double represents exactly; units such as 1.5K need one. */
#define MOST_WHOLE 9007199254740992.0

enum { TEXT_BYTES = 64 };

static bool copy_word(const char *text, size_t bytes, char word[TEXT_BYTES])
{
    if (bytes == 0 || bytes >= TEXT_BYTES || memchr(text, 0, bytes))
        return false;
    memcpy(word, text, bytes);
    word[bytes] = 0;
    return true;
}

/* A number at the start of a word; *end is behind it. False: none, or not finite. */
static bool read_double(const char *word, char **end, double *out)
{
    const char *digits = word + (*word == '-' || *word == '+');
    errno = 0;
    *out = strtod(word, end);
    /* Neither spaces nor "nan" and "inf". */
    return *end != word && (strspn(digits, "0123456789.") > 0) && (isfinite(*out) || errno);
}

/* K, M, G and T count in 1024; "i" and "B" may follow. */
static bool read_unit(char **at, double *value)
{
    static const char units[] = "KMGT";
    for (int i = 0; **at && units[i]; i++) {
        if (**at != units[i] && **at != units[i] + 'a' - 'A')
            continue;
        *value *= pow(1024, i + 1);
        (*at)++;
        *at += **at == 'i';
        *at += **at == 'B';
        break;
    }
    return **at == 0;
}

enum tool_number tool_read_int(const char *text, size_t bytes, int64_t least, int64_t most,
                               int64_t *out)
{
    char word[TEXT_BYTES], *end;
    double value;
    if (!copy_word(text, bytes, word) || !read_double(word, &end, &value) ||
        !read_unit(&end, &value) || (isfinite(value) && value != floor(value)))
        return TOOL_NUMBER_JUNK;
    if (!(fabs(value) <= MOST_WHOLE) || value < (double)least || value > (double)most)
        return TOOL_NUMBER_RANGE;
    *out = (int64_t)value;
    return TOOL_NUMBER_OK;
}

enum tool_number tool_read_pair(const char *text, int64_t most, int64_t *a, int64_t *b)
{
    const size_t bytes = strcspn(text, "x");
    if (!text[bytes])
        return TOOL_NUMBER_JUNK;
    const char *other = text + bytes + 1;
    const enum tool_number first = tool_read_int(text, bytes, 1, most, a);
    const enum tool_number second = tool_read_int(other, strlen(other), 1, most, b);
    return first == TOOL_NUMBER_JUNK || second == TOOL_NUMBER_JUNK ? TOOL_NUMBER_JUNK
           : first != TOOL_NUMBER_OK                               ? first
                                                                   : second;
}

enum tool_number tool_read_real(const char *text, size_t bytes, double least, double most,
                                double *out)
{
    char word[TEXT_BYTES], *end;
    double value;
    if (!copy_word(text, bytes, word) || !read_double(word, &end, &value) || *end)
        return TOOL_NUMBER_JUNK;
    if (!isfinite(value) || (errno == ERANGE && value == 0) || value < least || value > most)
        return TOOL_NUMBER_RANGE;
    *out = value;
    return TOOL_NUMBER_OK;
}

/* ---- errors ---------------------------------------------------------------------------------- */

const char *tool_range_text(double least, double most, char text[64])
{
    if (most < MOST_WHOLE)
        snprintf(text, 64, "%.10g to %.10g", least, most);
    else if (least == 0)
        snprintf(text, 64, "0 or more");
    else
        snprintf(text, 64, "at least %.10g", least);
    return text;
}

int tool_number_error(const struct tool_command *command, const char *what, const char *text,
                      size_t bytes, enum tool_number fault, double least, double most)
{
    char range[64];
    const int shown = bytes < 60 ? (int)bytes : 60;
    if (fault == TOOL_NUMBER_JUNK)
        return tool_usage_error(command, "%s wants a whole number, not \"%.*s\"", what, shown,
                                text);
    return tool_usage_error(command, "%s has to be %s, not %.*s", what,
                            tool_range_text(least, most, range), shown, text);
}

int tool_take_int(const struct tool_command *command, const char *what, const char *text,
                  size_t bytes, int64_t least, int64_t most, int64_t *out)
{
    const enum tool_number fault = tool_read_int(text, bytes, least, most, out);
    return fault == TOOL_NUMBER_OK
               ? TOOL_OK
               : tool_number_error(command, what, text, bytes, fault, (double)least, (double)most);
}

const char *tool_float_text(float value, char text[32])
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, 32, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return text;
}

const char *tool_real_text(double value, char text[32])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}
