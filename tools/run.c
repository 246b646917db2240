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
        {"ranks", 'n', TOOL_INT, &ranks, "N", "how many ranks to start", .least = 1, .most = 4096},
        {"port", 0, TOOL_INT, &port, "PORT", "MASTER_PORT; a free port by default", .least = 1,
         .most = 65535},
        {"no-prefix", 0, TOOL_FLAG, &no_prefix, NULL, "leave lines as they are, without \"[r] \""},
        {"elastic", 0, TOOL_FLAG, &elastic, NULL,
         "ranks that are lost or fail leave the others to go on; status 0 if any ends well"},
        {NULL},
    };
    int rest = 0;
    int status = tool_options(command, table, argc, argv, &rest);
    if (status != TOOL_OK)
        return status;
    if (ranks == 0)
        return tool_usage_error(command, "-n says how many ranks to start, 1 to 4096: ringforge "
                                         "run -n 2 -- COMMAND");
    if (rest >= argc)
        return tool_usage_error(command,
                                "there is no command to run: ringforge run -n %d -- "
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
    .usage = "-n N [--port PORT] [--no-prefix] -- COMMAND [ARGUMENTS]",
    .main = run_main,
    .notes =
        "SIGTERM, SIGINT (Ctrl-C), SIGHUP and SIGQUIT are passed on to the ranks, which may take\n"
        "their time to end; a second one, half a second later or more, ends them at once. A rank\n"
        "that fails gives the others 5 s to end, unless --elastic is given. The status is that of "
        "the first that failed, or\n"
        "128 plus the number of the signal that ended it.\n",
};
