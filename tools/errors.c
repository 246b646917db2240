/* SPDX-License-Identifier: MIT
 *
 * Errors of the program: one sentence on stderr that says what to do, and the exit status.
 */
#include <stdarg.h>
#include <string.h>

#include "tool.h"

/* One write per line, so that lines of several ranks do not mix. */
static void print_error(const struct tool_command *command, const char *format, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof(text), format, args);
    fprintf(stderr, "ringforge %s: %s\n", command->name, text);
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
        return TOOL_ERROR; /* that rank has said why */
    if (rank >= 0)
        return tool_error(command, "rank %d: %s", rank, error->message);
    return tool_error(command, "%s", error->message);
}
