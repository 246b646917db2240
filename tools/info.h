/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of `ringforge info`.
 */
#ifndef RF_TOOLS_INFO_H
#define RF_TOOLS_INFO_H

#include "tool.h"

/* Prints the table for f32 among `ranks`, or writes it as JSON. */
int info_algorithms(const struct tool_command *command, const char *json_path, int ranks);
/* The same with measured links, among ranks started for it, or by a launcher. */
int info_measured_algorithms(const struct tool_command *command, const char *json_path,
                             const struct tool_ranks *ranks, char *const *argv);
/* Prints all algorithms as a table in Markdown: that of docs/collectives.md. */
int info_algorithms_markdown(const struct tool_command *command);

#endif
