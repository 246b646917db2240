/* SPDX-License-Identifier: MIT
 *
 * Errors of the program: one sentence on stderr that names the remedy, and the exit status.
 */
#include <stdarg.h>
#include <string.h>

#include "tool.h"

/* Errors of this thread that are kept for later. */
static _Thread_local struct {
    bool on;
    char text[TOOL_HELD_BYTES];
} held;

/* One write per line, so that lines of several ranks do not mix. */
static void print_error(const struct tool_command *command, const char *format, va_list args)
{
    char text[1024];
    const size_t used = strlen(held.text);
    vsnprintf(text, sizeof(text), format, args);
    if (held.on)
        snprintf(held.text + used, sizeof(held.text) - used, "%s%s", used ? "\n" : "", text);
    else
        fprintf(stderr, "ringforge %s: %s\n", command->name, text);
}

void tool_errors_hold(void)
{
    held.on = true;
    held.text[0] = 0;
}

const char *tool_errors_held(void)
{
    return held.text;
}

void tool_errors_release(const struct tool_command *command)
{
    held.on = false;
    for (const char *at = held.text; *at;) {
        const size_t bytes = strcspn(at, "\n");
        fprintf(stderr, "ringforge %s: %.*s\n", command->name, (int)bytes, at);
        at += bytes + (at[bytes] == '\n');
    }
    held.text[0] = 0;
}

void tool_errors_drop(void)
{
    held.on = false;
    held.text[0] = 0;
}

int tool_usage_error(const struct tool_command *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_error(command, format, args);
    va_end(args);
    return TOOL_USAGE;
}

int tool_error(const struct tool_command *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_error(command, format, args);
    va_end(args);
    return TOOL_ERROR;
}

int tool_library_error(const struct tool_command *command, int rank)
{
    const struct rf_error *error = rf_last_error();
    if (error->status == RF_EABORT && strstr(error->message, TOOL_ABORTED))
        return TOOL_ERROR; /* that rank has reported it */
    if (rank >= 0)
        return tool_error(command, "rank %d: %s", rank, error->message);
    return tool_error(command, "%s", error->message);
}
