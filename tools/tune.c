/* SPDX-License-Identifier: MIT
 *
 * ringforge tune: not in this version. Kernel tiles come from built-in defaults per kind of device.
 */
#include "tool.h"

static int tune_main(const struct tool_command *command, int argc, char **argv)
{
    static const struct tool_option table[] = {{NULL}};
    int status = tool_options(command, table, argc, argv, NULL);
    if (status != TOOL_OK)
        return status;
    return tool_usage_error(command, "measuring a device's kernel table is not in this version; "
                                     "the built-in defaults are used");
}

const struct tool_command tool_tune = {
    .name = "tune",
    .summary = "measure this device and write its kernel table (not in this version)",
    .usage = "",
    .main = tune_main,
};
