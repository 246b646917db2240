/* SPDX-License-Identifier: MIT
 *
 * The option --coordinator of `ringforge train`: what can be checked of it before a rank is
 * started.
 */
#include <ringforge/rounds.h>
#include <string.h>

#include "client_list.h"
#include "train.h"

bool train_client_address(const char *text, char host[256], int *port)
{
    const char *colon = strrchr(text, ':');
    int64_t number;
    if (!colon || colon == text || colon - text >= 256 ||
        tool_read_int(colon + 1, strlen(colon + 1), 1, 65535, &number) != TOOL_NUMBER_OK)
        return false;
    snprintf(host, 256, "%.*s", (int)(colon - text), text);
    *port = (int)number;
    return true;
}

int train_client_check(const struct tool_command *command, const struct train_options *o,
                       int workers, const struct rf_rounds_rule *rule)
{
    char host[256];
    int port;
    const struct {
        bool given;
        const char *name, *why;
    } others[] = {
        {workers > 1, "ranks", "a client is one --mesh; start others with names of their own"},
        {o->elastic, "elastic",
         "a client that has lost a rank ends, and joins again when it is started again"},
        {o->accept != 0, "accept", "clients join the coordinator"},
        {o->join != NULL, "join", "clients join the coordinator"}};
    if (!train_client_address(o->coordinator, host, &port))
        return tool_usage_error(command, "--coordinator %s: write HOST:PORT", o->coordinator);
    if (!o->client)
        return tool_usage_error(command, "--coordinator needs --client NAME, under which the "
                                         "coordinator has this client's key");
    for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
        if (others[k].given)
            return tool_usage_error(command, "--coordinator is not for --%s: %s", others[k].name,
                                    others[k].why);
    struct tool_client_list peers = {0};
    const int status = o->peers ? tool_client_list_read(command, o->peers, false, &peers) : TOOL_OK;
    tool_client_list_free(&peers); /* read again when there is a client */
    if (status != TOOL_OK)
        return status;
    if (o->steps % rule->every != 0)
        return tool_usage_error(command,
                                "--steps %lld is no multiple of the %lld local steps of a round: "
                                "the last ones would not be sent",
                                (long long)o->steps, (long long)rule->every);
    return TOOL_OK;
}
