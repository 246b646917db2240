/* SPDX-License-Identifier: MIT
 *
 * What leaves the program besides plain lines: JSON files, numbers for people, and plots.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

int tool_json_write(const struct tool_command *command, const char *path, cJSON *json)
{
    char *text = cJSON_Print(json);
    cJSON_Delete(json);
    if (!text)
        return tool_error(command, "out of memory while writing JSON");
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    int status = TOOL_OK;
    if (!file) {
        status = tool_error(command, "cannot write %s: %s", path, strerror(errno));
        free(text);
        return status;
    }
    bool bad = fprintf(file, "%s\n", text) < 0 || fflush(file) != 0;
    int error = errno;
    if (file != stdout && fclose(file) != 0) {
        bad = true;
        error = errno;
    }
    if (bad)
        status = tool_error(command, "cannot write %s: %s", path, strerror(error));
    free(text);
    return status;
}

const char *tool_bytes_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1023.95 && unit < 5) {
        value /= 1024;
        unit++;
    }
    snprintf(text, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

const char *tool_seconds_text(double seconds, char *text, size_t size)
{
    long whole = (long)(seconds + 0.5);
    if (whole >= 3600)
        snprintf(text, size, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
    else if (whole >= 60)
        snprintf(text, size, "%ldm%02lds", whole / 60, whole % 60);
    else
        snprintf(text, size, "%lds", whole);
    return text;
}

static const char *terminal_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".svg") == 0)
        return "svg size 900,520 background 'white'";
    if (dot && strcmp(dot, ".png") == 0)
        return "png size 900,520";
    return NULL;
}

static bool gnuplot_installed(void)
{
    const char *path = getenv("PATH");
    if (!path)
        return false;
    while (*path) {
        char candidate[4096];
        int length = (int)strcspn(path, ":");
        snprintf(candidate, sizeof(candidate), "%.*s/gnuplot", length, path);
        if (access(candidate, X_OK) == 0)
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

int tool_plot_check(const struct tool_command *command, const char *path)
{
    if (!terminal_of(path) || strchr(path, '\'') || strchr(path, '\n'))
        return tool_usage_error(command,
                                "--plot wants a plain file name that ends in .svg or .png,"
                                " not \"%s\"",
                                path);
    if (!gnuplot_installed())
        return tool_error(command, "--plot needs gnuplot, which is not installed (Debian: apt "
                                   "install gnuplot-nox)");
    return TOOL_OK;
}

static void print_text(FILE *pipe, const char *keyword, const char *text)
{
    fprintf(pipe, "set %s \"", keyword);
    for (; *text; text++)
        if (*text != '"' && *text != '\\' && *text != '\n')
            fputc(*text, pipe);
    fprintf(pipe, "\" noenhanced\n");
}

int tool_plot_write(const struct tool_command *command, const char *path,
                    const struct tool_plot *plot)
{
    int status = tool_plot_check(command, path);
    if (status != TOOL_OK)
        return status;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGPIPE, &ignore, &before);
    FILE *pipe = popen("gnuplot", "w");
    if (!pipe)
        return tool_error(command, "cannot start gnuplot: %s", strerror(errno));
    fprintf(pipe, "set terminal %s\nset output '%s'\nset grid\nset key top right\n",
            terminal_of(path), path);
    print_text(pipe, "title", plot->title);
    print_text(pipe, "xlabel", plot->x_label);
    print_text(pipe, "ylabel", plot->y_label);
    if (plot->log_x)
        fprintf(pipe, "set logscale x\n");
    if (plot->log_y)
        fprintf(pipe, "set logscale y\n");
    for (int s = 0; s < plot->series_count; s++) {
        fprintf(pipe, "$data%d << END\n", s);
        for (int i = 0; i < plot->series[s].count; i++)
            fprintf(pipe, "%.10g %.10g\n", plot->series[s].x[i], plot->series[s].y[i]);
        fprintf(pipe, "END\n");
    }
    for (int s = 0; s < plot->series_count; s++)
        fprintf(pipe, "%s $data%d using 1:2 with %s linewidth 2 title \"%s\"", s ? "," : "plot", s,
                plot->series[s].count > 64 ? "lines" : "linespoints pointsize 0.5",
                plot->series[s].title);
    fprintf(pipe, "\n");
    int rc = pclose(pipe);
    sigaction(SIGPIPE, &before, NULL);
    if (rc != 0)
        return tool_error(command, "gnuplot could not write %s", path);
    return TOOL_OK;
}
