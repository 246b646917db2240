/* SPDX-License-Identifier: MIT
 *
 * What leaves the program besides plain lines: JSON files, numbers for people, and plots.
 */
#define _GNU_SOURCE /* memfd_create, pipe2, environ */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool.h"

int tool_json_write(const struct tool_command *command, const char *path, cJSON *json)
{
    char *text = cJSON_Print(json);
    cJSON_Delete(json);
    size_t bytes = text ? strlen(text) : 0;
    char *line = text ? realloc(text, bytes + 2) : NULL;
    if (!line) {
        cJSON_free(text);
        return tool_error(command, "out of memory while writing JSON");
    }
    memcpy(line + bytes, "\n", 2);
    int status = tool_file_write(command, path, line, bytes + 1);
    free(line);
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

const char *tool_flops_text(double flops, char *text, size_t size)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    int unit = 0;
    while (flops >= 999.95 && unit < 6) {
        flops /= 1000;
        unit++;
    }
    snprintf(text, size, "%.1f %sFLOP", flops, units[unit]);
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

int tool_plot_check(const struct tool_command *command, const char *path)
{
    if (!terminal_of(path))
        return tool_usage_error(command,
                                "--plot wants a file name that ends in .svg or .png, "
                                "not \"%s\"",
                                path);
    return TOOL_OK;
}

static void print_text(FILE *script, const char *keyword, const char *text)
{
    fprintf(script, "set %s \"", keyword);
    for (; *text; text++)
        if (*text != '"' && *text != '\\' && *text != '\n')
            fputc(*text, script);
    fprintf(script, "\" noenhanced\n");
}

static void print_script(FILE *script, const char *path, const struct tool_plot *plot)
{
    fprintf(script, "set terminal %s\nset grid\nset key top right\n", terminal_of(path));
    print_text(script, "title", plot->title);
    print_text(script, "xlabel", plot->x_label);
    print_text(script, "ylabel", plot->y_label);
    if (plot->log_x)
        fprintf(script, "set logscale x\n");
    if (plot->log_y)
        fprintf(script, "set logscale y\n");
    for (int s = 0; s < plot->series_count; s++) {
        fprintf(script, "$data%d << END\n", s);
        for (int i = 0; i < plot->series[s].count; i++)
            fprintf(script, "%.10g %.10g\n", plot->series[s].x[i], plot->series[s].y[i]);
        fprintf(script, "END\n");
    }
    for (int s = 0; s < plot->series_count; s++)
        fprintf(script, "%s $data%d using 1:2 with %s linewidth 2 title \"%s\"", s ? "," : "plot",
                s, plot->series[s].count > 64 ? "lines" : "linespoints pointsize 0.5",
                plot->series[s].title);
    fprintf(script, "\n");
}

/* All that comes until the end; free it. NULL: out of memory, or it could not be read. */
static char *read_all(int fd, size_t *bytes)
{
    size_t capacity = 1 << 16, used = 0;
    char *data = malloc(capacity);
    while (data) {
        ssize_t n = read(fd, data + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            *bytes = used;
            if (n == 0)
                return data;
            break;
        }
        used += (size_t)n;
        if (used < capacity)
            continue;
        char *larger = realloc(data, capacity *= 2);
        if (!larger)
            break;
        data = larger;
    }
    free(data);
    return NULL;
}

/* What gnuplot makes of the script, through a pipe: it does not notice when a disk is full. */
static char *draw(FILE *script, size_t *bytes)
{
    char *const argv[] = {"gnuplot", NULL};
    int ends[2], exited = -1;
    posix_spawn_file_actions_t actions;
    pid_t child = -1;
    char *image = NULL;
    if (fflush(script) != 0 || lseek(fileno(script), 0, SEEK_SET) != 0 ||
        pipe2(ends, O_CLOEXEC) != 0)
        return NULL;
    bool started = posix_spawn_file_actions_init(&actions) == 0;
    if (started) {
        started = posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO) == 0 &&
                  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) == 0 &&
                  posix_spawnp(&child, argv[0], &actions, NULL, argv, environ) == 0;
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (started)
        image = read_all(ends[0], bytes);
    close(ends[0]);
    while (started && waitpid(child, &exited, 0) < 0 && errno == EINTR)
        ;
    if (image && exited == 0 && *bytes > 0)
        return image;
    free(image);
    return NULL;
}

int tool_plot_write(const struct tool_command *command, const char *path,
                    const struct tool_plot *plot)
{
    size_t bytes = 0;
    int memory = memfd_create("plot", MFD_CLOEXEC);
    FILE *script = memory >= 0 ? fdopen(memory, "w+") : NULL;
    if (!script) {
        if (memory >= 0)
            close(memory);
        return tool_error(command, "cannot draw %s: %s", path, strerror(errno));
    }
    print_script(script, path, plot);
    char *image = draw(script, &bytes);
    fclose(script);
    int status = image ? tool_file_write(command, path, image, bytes)
                       : tool_error(command, "gnuplot could not draw %s", path);
    free(image);
    return status;
}
