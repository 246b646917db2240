/* SPDX-License-Identifier: MIT
 *
 * ringforge run: starts a command on N local ranks.
 */
#include "tool.h"

static int run_main(const struct tool_command *command, int argc, char **argv)
{
    int64_t ranks = 0, port = 0;
    bool no_prefix = false, elastic = false;
    struct tool_option table[] = {
        {"ranks", TOOL_INT, &ranks, "N", "number of ranks to start", .least = 1, .most = 4096},
        {"port", TOOL_INT, &port, "PORT", "port of rank 0, MASTER_PORT (a free one)", .least = 1,
         .most = 65535},
        {"no-prefix", TOOL_FLAG, &no_prefix, NULL,
         "lines as the ranks write them, without \"[r] \""},
        {"elastic", TOOL_FLAG, &elastic, NULL,
         "continuation of the others when ranks are lost or fail; status 0 if any ends well"},
        {NULL},
    };
    int rest = 0;
    int status = tool_options(command, table, argc, argv, &rest);
    if (status != TOOL_OK)
        return status;
    if (ranks == 0)
        return tool_usage_error(command, "--ranks says how many to start, 1 to 4096: ringforge "
                                         "run --ranks 2 -- COMMAND");
    if (rest >= argc)
        return tool_usage_error(command,
                                "there is no command to run: ringforge run --ranks %d -- "
                                "COMMAND",
                                (int)ranks);
    struct tool_launch launch = {
        .ranks = (int)ranks,
        .port = (int)port,
        .prefix = ranks > 1 && !no_prefix,
        .elastic = elastic,
        .argv = argv + rest,
    };
    return tool_launch(command, &launch);
}

const struct tool_command tool_run = {
    .name = "run",
    .summary = "start a command on N ranks of this machine",
    .usage = "--ranks N [--port PORT] [--no-prefix] -- COMMAND [ARGUMENTS]",
    .main = run_main,
    .notes =
        "SIGTERM, SIGINT (Ctrl-C), SIGHUP and SIGQUIT are passed on to the ranks, which may take\n"
        "their time to end; a second one, half a second later or more, ends them at once. A rank\n"
        "that fails gives the others 5 s to end, unless --elastic is given. The status is that of "
        "the first that failed, or\n"
        "128 plus the number of the signal that ended it.\n",
};
