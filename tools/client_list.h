/* SPDX-License-Identifier: MIT
 *
 * Files of clients' names and keys.
 */
#ifndef RF_TOOLS_CLIENT_LIST_H
#define RF_TOOLS_CLIENT_LIST_H

#include <ringforge/federated.h>

#include "tool.h"

enum { TOOL_MOST_CLIENTS = 10000 };

struct tool_client_list {
    struct rf_federated_client_key *all;
    int count;
};

/* Adds the clients of a file to a list, which the caller frees in any case. secret: only its owner
 * may read it; else only its owner may change it. */
int tool_client_list_read(const struct tool_command *command, const char *path, bool secret,
                          struct tool_client_list *out);
void tool_client_list_free(struct tool_client_list *list);

#endif
