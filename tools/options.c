/* SPDX-License-Identifier: MIT
 *
 * The option parser: each command has a table of options.
 */
#define _GNU_SOURCE /* strptime */
#include <math.h>
#include <string.h>
#include <time.h>

#include "tool.h"

/* A number out of the range of its option, or not a number. */
static int read_number(const struct tool_command *command, const struct tool_option *o,
                       const char *text)
{
    const bool whole = o->kind == TOOL_INT;
    const double most = o->most > 0 ? o->most : whole ? 9007199254740992.0 : INFINITY;
    enum tool_number fault;
    char what[64], limit[32];
    if (whole)
        fault = tool_read_int(text, strlen(text), (int64_t)o->least, (int64_t)most, o->value);
    else
        fault = tool_read_real(text, strlen(text), o->least, most, o->value);
    if (o->kind == TOOL_COUNT && fault == TOOL_NUMBER_OK && *(double *)o->value == 0)
        fault = TOOL_NUMBER_RANGE;
    if (fault == TOOL_NUMBER_OK)
        return TOOL_OK;
    snprintf(what, sizeof(what), "--%s", o->name);
    if (fault == TOOL_NUMBER_RANGE && o->kind == TOOL_COUNT)
        return tool_usage_error(command, "%s has to be more than 0%s%s, not %.60s", what,
                                o->most > 0 ? ", and at most " : "",
                                o->most > 0 ? tool_real_text(o->most, limit) : "", text);
    if (fault == TOOL_NUMBER_JUNK && !whole)
        return tool_usage_error(command, "%s wants a number, not \"%.60s\"", what, text);
    return tool_number_error(command, what, text, strlen(text), fault, o->least, most);
}

static int store(const struct tool_command *command, const struct tool_option *o, const char *text)
{
    struct tool_list *list = o->value;
    switch (o->kind) {
    case TOOL_INT:
    case TOOL_COUNT:
    case TOOL_REAL:
        return read_number(command, o, text);
    case TOOL_LIST:
        if (list->count == TOOL_LIST_MAX)
            return tool_usage_error(command, "--%s is given more than %d times", o->name,
                                    TOOL_LIST_MAX);
        list->item[list->count++] = text;
        break;
    default:
        *(const char **)o->value = text;
        break;
    }
    return TOOL_OK;
}

static struct tool_option *find(struct tool_option *table, const char *word, size_t *name_bytes)
{
    bool is_long = word[0] == '-' && word[1] == '-';
    *name_bytes = is_long ? strcspn(word + 2, "=") + 2 : 2;
    for (struct tool_option *o = table; o->name; o++) {
        if (o->operand)
            continue;
        if (is_long && strlen(o->name) == *name_bytes - 2 &&
            memcmp(o->name, word + 2, *name_bytes - 2) == 0)
            return o;
        if (!is_long && tool_option_letter(o->name) == word[1])
            return o;
    }
    return NULL;
}

/* Reads the option at argv[*at] and its value; leaves *at on the last word used. */
static int read_option(const struct tool_command *command, struct tool_option *table, int argc,
                       char **argv, int *at)
{
    const char *word = argv[*at];
    size_t name_bytes;
    struct tool_option *o = find(table, word, &name_bytes);
    if (!o)
        return tool_usage_error(command,
                                "there is no option \"%.*s\"; 'ringforge %s --help' lists all",
                                (int)strcspn(word, "="), word, command->name);
    const char *value = NULL;
    if (o->given)
        *o->given = true;
    if (word[name_bytes])
        value = word + name_bytes + (word[name_bytes] == '=');
    if (o->kind == TOOL_FLAG) {
        if (value)
            return tool_usage_error(command, "--%s takes no value", o->name);
        *(bool *)o->value = true;
        o->said = "";
        return TOOL_OK;
    }
    bool next =
        *at + 1 < argc && (argv[*at + 1][0] != '-' || argv[*at + 1][1] == 0 ||
                           o->kind == TOOL_REAL || o->kind == TOOL_COUNT || o->kind == TOOL_INT);
    if (!value && next)
        value = argv[++*at];
    if (!value && o->kind == TOOL_FILE)
        value = "-";
    if (!value)
        return tool_usage_error(command, "--%s needs a value: --%s %s", o->name, o->name, o->what);
    o->said = value;
    return store(command, o, value);
}

int tool_options(const struct tool_command *command, struct tool_option *table, int argc,
                 char **argv, int *rest)
{
    int at = 1;
    for (; at < argc; at++) {
        const char *word = argv[at];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            tool_options_help(command, table);
            return TOOL_DONE;
        }
        if (strcmp(word, "--options") == 0) {
            tool_options_json(command, table);
            return TOOL_DONE;
        }
        if (strcmp(word, "--") == 0 && rest) {
            at++;
            break;
        }
        if (word[0] != '-' || word[1] == 0) {
            if (rest)
                break;
            return tool_usage_error(command,
                                    "\"%s\" is not expected here; 'ringforge %s --help' "
                                    "lists the options",
                                    word, command->name);
        }
        int status = read_option(command, table, argc, argv, &at);
        if (status != TOOL_OK)
            return status;
    }
    if (rest)
        *rest = at;
    return rest ? TOOL_OK : tool_options_check(command, table);
}

int tool_choice(const char *text, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return -1;
}

/* ---- words that several commands take -------------------------------------------------------- */

int tool_read_dtype(const struct tool_command *command, const char *text, enum rf_dtype *out)
{
    static const struct {
        const char *name;
        enum rf_dtype dtype;
    } names[] = {
        {"float", RF_F32},     {"f32", RF_F32},   {"double", RF_F64}, {"f64", RF_F64},
        {"half", RF_F16},      {"f16", RF_F16},   {"int8", RF_I8},    {"i8", RF_I8},
        {"bfloat16", RF_BF16}, {"bf16", RF_BF16}, {"uint8", RF_U8},   {"u8", RF_U8},
        {"int32", RF_I32},     {"i32", RF_I32},   {"int64", RF_I64},  {"i64", RF_I64},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i].name) == 0) {
            *out = names[i].dtype;
            return TOOL_OK;
        }
    }
    return tool_usage_error(command,
                            "there is no type \"%s\"; there are float, half, bfloat16, "
                            "double, int8, uint8, int32 and int64",
                            text);
}

int tool_read_redop(const struct tool_command *command, const char *text, enum rf_redop *out)
{
    static const char *const names[] = {"sum", "avg", "min", "max", "prod", NULL};
    const int chosen = tool_choice(text, names);
    if (chosen < 0)
        return tool_usage_error(
            command, "there is no reduction \"%s\"; there are sum, avg, min, max and prod", text);
    *out = (enum rf_redop)chosen;
    return TOOL_OK;
}

int tool_read_order(const struct tool_command *command, const char *text, enum rf_order *out)
{
    static const char *const names[] = {"any", "ring", "tree", NULL};
    const int chosen = tool_choice(text, names);
    if (chosen < 0)
        return tool_usage_error(command, "there is no order \"%s\"; there are any, ring and tree",
                                text);
    *out = (enum rf_order)chosen;
    return TOOL_OK;
}

void tool_today(char text[16])
{
    const time_t now = time(NULL);
    struct tm day;
    if (!localtime_r(&now, &day) || strftime(text, 16, "%Y-%m-%d", &day) == 0)
        snprintf(text, 16, "1970-01-02");
}

int tool_read_date(const struct tool_command *command, const char *text, int64_t *out)
{
    struct tm day = {.tm_hour = 12, .tm_isdst = -1};
    const char *end = strptime(text, "%Y-%m-%d", &day);
    const int wanted = day.tm_mday;
    const time_t time = end && !*end ? mktime(&day) : -1;
    /* mktime accepts the 31st of February as a day in March. */
    if (time <= 0 || day.tm_mday != wanted)
        return tool_usage_error(command, "--date wants a day since 1970, YYYY-MM-DD, not \"%s\"",
                                text);
    *out = (int64_t)time;
    return TOOL_OK;
}
