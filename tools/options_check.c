/* SPDX-License-Identifier: MIT
 *
 * Checks after options are read: options without an effect, and values as texts. Called by
 * options.c, and by the comparisons of options between ranks or with a checkpoint.
 */
#include <math.h>
#include <string.h>

#include "tool.h"

struct tool_option *tool_option_find(struct tool_option *table, const char *name)
{
    for (struct tool_option *o = table; o->name; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

bool tool_option_is_on(const struct tool_option *o)
{
    switch (o->kind) {
    case TOOL_FLAG:
        return *(const bool *)o->value;
    case TOOL_INT:
        return *(const int64_t *)o->value > 0;
    case TOOL_COUNT:
    case TOOL_REAL:
        return *(const double *)o->value > 0;
    case TOOL_LIST:
        return ((const struct tool_list *)o->value)->count > 0;
    default:
        return *(const char *const *)o->value &&
               strcmp(*(const char *const *)o->value, "none") != 0;
    }
}

/* Whether one of "a|b" is on. */
static bool has_one_of(const struct tool_option *table, const char *names)
{
    for (const char *at = names; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t bytes = strcspn(at, "|");
        for (const struct tool_option *o = table; o->name; o++)
            if (strlen(o->name) == bytes && memcmp(o->name, at, bytes) == 0 && tool_option_is_on(o))
                return true;
    }
    return false;
}

int tool_options_check(const struct tool_command *command, const struct tool_option *table)
{
    for (const struct tool_option *o = table; o->name; o++) {
        if (!o->said || !o->needs || has_one_of(table, o->needs))
            continue;
        const int first = (int)strcspn(o->needs, "|");
        const char *other = o->needs[first] ? o->needs + first + 1 : NULL;
        return tool_usage_error(command,
                                "--%s has no effect without --%.*s%s%s; leave it out, or use %s",
                                o->name, first, o->needs, other ? " or --" : "", other ? other : "",
                                other ? "one of them" : "that too");
    }
    return tool_paths_check(command, table);
}

void tool_option_text(const struct tool_option *o, char *text, size_t bytes)
{
    static const char none[] = "not given";
    const struct tool_list *list = o->value;
    size_t used = 0;
    char number[32];
    switch (o->kind) {
    case TOOL_FLAG:
        snprintf(text, bytes, "%s", *(const bool *)o->value ? "yes" : "no");
        break;
    case TOOL_INT:
        if (*(const int64_t *)o->value < 0)
            snprintf(text, bytes, "%s", none);
        else
            snprintf(text, bytes, "%lld", (long long)*(const int64_t *)o->value);
        break;
    case TOOL_COUNT:
    case TOOL_REAL:
        snprintf(text, bytes, "%s",
                 *(const double *)o->value < 0 ? none
                                               : tool_real_text(*(const double *)o->value, number));
        break;
    case TOOL_LIST:
        snprintf(text, bytes, "%s", list->count ? "" : none);
        for (int i = 0; i < list->count && used < bytes; i++)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", i ? " " : "", list->item[i]);
        break;
    default:
        snprintf(text, bytes, "%s",
                 *(const char *const *)o->value ? *(const char *const *)o->value : none);
        break;
    }
}

bool tool_option_set(struct tool_option *o, const char *text)
{
    const bool yes = strcmp(text, "yes") == 0;
    const size_t bytes = strlen(text);
    switch (o->kind) {
    case TOOL_FLAG:
        *(bool *)o->value = yes;
        return yes || strcmp(text, "no") == 0;
    case TOOL_INT:
        return tool_read_int(text, bytes, INT64_MIN, INT64_MAX, o->value) == TOOL_NUMBER_OK;
    case TOOL_COUNT:
    case TOOL_REAL:
        return tool_read_real(text, bytes, -INFINITY, INFINITY, o->value) == TOOL_NUMBER_OK;
    case TOOL_TEXT:
        *(const char **)o->value = text;
        return true;
    default:
        return false;
    }
}
