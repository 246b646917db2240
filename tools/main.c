/* SPDX-License-Identifier: MIT
 *
 * The program's entry: a table of subcommands.
 */
#include <signal.h>
#include <string.h>

#include "tool.h"

static const struct tool_command *const commands[] = {
    &tool_info,     &tool_run,    &tool_bench,    &tool_plan,  &tool_train,    &tool_tune,
    &tool_schedule, &tool_flight, &tool_tokenize, &tool_merge, &tool_generate, &tool_coordinate,
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void print_usage(FILE *file)
{
    fprintf(file,
            "ringforge %s: train large models on any GPU that speaks Vulkan\n\n"
            "Usage: ringforge COMMAND [OPTIONS]\n\nCommands:\n",
            rf_version());
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(file, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(file, "\n'ringforge COMMAND --help' lists a command's options.\n");
}

/* So that a waiting process sees the cause: a shell reports 128 plus the number. */
static int end_by_signal(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    signal(number, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    return 128 + number;
}

/* Dispositions and the mask of signals survive exec. If the parent ignores SIGCHLD, the kernel
 * reaps the processes started here, and their status is lost; a blocked signal would end nothing.
 * Ignored ones stay ignored: nohup and shells intend that. */
static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int main(int argc, char **argv)
{
    reset_signals();
    if (argc < 2) {
        print_usage(stderr);
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return TOOL_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("ringforge %s\n", rf_version());
        return TOOL_OK;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i]->name) != 0)
            continue;
        int status = commands[i]->main(commands[i], argc - 1, argv + 1);
        tool_errors_release(commands[i]);
        if (status == TOOL_DONE)
            status = TOOL_OK;
        /* A full disk behind the standard output is not a success. */
        if ((fflush(stdout) != 0 || ferror(stdout)) && status == TOOL_OK)
            status = tool_error(commands[i], "cannot write to the standard output");
        return status > TOOL_BY_SIGNAL ? end_by_signal(status - TOOL_BY_SIGNAL) : status;
    }
    fprintf(stderr, "ringforge: there is no command \"%s\"; 'ringforge --help' lists them\n",
            argv[1]);
    return TOOL_USAGE;
}
