/* SPDX-License-Identifier: MIT
 *
 * Lists of clients: a line "NAME KEY" each, of secret keys for `ringforge coordinate`, and of
 * public ones for `ringforge train --peers`. Empty lines, and those that begin with #, have none.
 */
#include "client_list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINE = 4095 };

static int add_client(const struct tool_command *command, const char *path, char *line, int number,
                      struct tool_client_list *list)
{
    char *name = line + strspn(line, " \t"), *end = name + strcspn(name, " \t\r\n");
    char *key = end + strspn(end, " \t"), *last = key + strcspn(key, "\r\n");
    if (*name == '#' || end == name)
        return TOOL_OK;
    while (last > key && (last[-1] == ' ' || last[-1] == '\t'))
        last--;
    if (last == key || strlen(line) >= MOST_LINE)
        return tool_error(command,
                          "%s, line %d: write the name of a client and its key, in less than %d "
                          "bytes",
                          path, number, MOST_LINE);
    *end = *last = 0;
    if (list->count == TOOL_MOST_CLIENTS)
        return tool_error(command, "%s has more than %d clients", path, TOOL_MOST_CLIENTS);
    struct rf_federated_client_key *all =
        realloc(list->all, ((size_t)list->count + 1) * sizeof(*list->all));
    if (!all)
        return tool_error(command, "out of memory");
    list->all = all;
    all[list->count] = (struct rf_federated_client_key){strdup(name), strdup(key)};
    const bool sound = all[list->count].name && all[list->count].key;
    list->count++;
    return sound ? TOOL_OK : tool_error(command, "out of memory");
}

/* Whoever may read secret keys, or change public ones, can be any client. */
static int open_list(const struct tool_command *command, const char *path, bool secret, FILE **out)
{
    const mode_t wrong = secret ? S_IRWXG | S_IRWXO : S_IWGRP | S_IWOTH;
    struct stat info;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return tool_error(command, "%s cannot be read: %s", path, strerror(errno));
    int status = TOOL_OK;
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        status = tool_error(command, "%s is not a file", path);
    else if (info.st_mode & wrong)
        status = tool_error(command,
                            "%s has the keys of clients, and others may %schange it: chmod "
                            "%s %s",
                            path, secret ? "read or " : "", secret ? "600" : "go-w", path);
    if (status == TOOL_OK && !(*out = fdopen(fd, "r")))
        status = tool_error(command, "out of memory");
    if (status != TOOL_OK)
        close(fd);
    return status;
}

int tool_client_list_read(const struct tool_command *command, const char *path, bool secret,
                          struct tool_client_list *out)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    FILE *file = NULL;
    int status = open_list(command, path, secret, &file);
    for (int number = 1; status == TOOL_OK && (bytes = getline(&line, &room, file)) >= 0; number++)
        status = strlen(line) == (size_t)bytes
                     ? add_client(command, path, line, number, out)
                     : tool_error(command, "%s, line %d has a zero byte", path, number);
    if (status == TOOL_OK && !feof(file))
        status = tool_error(command, "%s cannot be read: %s", path, strerror(errno));
    if (file)
        fclose(file);
    if (line)
        memset(line, 0, room);
    free(line);
    return status;
}

void tool_client_list_free(struct tool_client_list *list)
{
    for (int k = 0; k < list->count; k++) {
        free((char *)(uintptr_t)list->all[k].name);
        free((char *)(uintptr_t)list->all[k].key);
    }
    free(list->all);
    *list = (struct tool_client_list){0};
}
