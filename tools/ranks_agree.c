/* SPDX-License-Identifier: MIT
 *
 * What the ranks of a job agree on before they compute: that they have the same options, and that
 * all continue or none. A rank that cannot take part tells the others why, and what several ranks
 * would say alike is said once. Called by ranks.c and train.
 */
#include <string.h>

#include "tool.h"

/* For a refused rank: to find rank 0, before it prints its own message, and after. */
static const double FIRST_S = 1, LATE_S = 4;

void tool_ranks_begin(void)
{
    struct rf_launcher_info launched;
    if (rf_launcher_find(&launched) == 0 && launched.size > 1)
        tool_errors_hold();
}

/* Tells rank 0, within this time. Returns whether this rank need not print it itself. */
static bool decline(double seconds)
{
    const char *why = tool_errors_held();
    const struct rf_comm_opts opts = {.rank = -1, .start_timeout_s = seconds};
    const int rc = rf_comm_decline("env:", &opts, *why ? why : "it failed");
    /* "rank 0 says: the same" */
    return rc == 0 || (rc == RF_EABORT && *why && strstr(rf_last_error()->message, why));
}

int tool_ranks_refuse(const struct tool_command *command, int status)
{
    struct rf_launcher_info launched;
    if (status == TOOL_DONE || rf_launcher_find(&launched) < 0 || launched.size < 2) {
        tool_errors_release(command);
        return status;
    }
    char why[TOOL_HELD_BYTES];
    snprintf(why, sizeof(why), "%s", tool_errors_held());
    if (launched.rank > 0 && decline(FIRST_S)) {
        tool_errors_drop();
        return status;
    }
    if (launched.rank > 0 && rf_last_error()->status != RF_ETIMEOUT) {
        tool_errors_release(command);
        return status;
    }
    tool_errors_release(command);
    fflush(NULL);
    const struct rf_comm_opts opts = {.rank = -1, .start_timeout_s = LATE_S};
    (void)!rf_comm_decline("env:", &opts, *why ? why : "it failed");
    return status;
}

/* One rank's report to all. */
struct report {
    int32_t status;
    uint32_t bytes; /* of its text */
    uint64_t hash;
};

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 1099511628211u;
    return hash;
}

/* Rank 0 prints the ranks' messages, equal ones once. */
static int say_all(const struct tool_command *command, struct rf_comm *comm,
                   const struct report *all, const char *own)
{
    const int rank = rf_comm_rank(comm), size = rf_comm_size(comm);
    for (int r = 0; r < size; r++) {
        char text[TOOL_HELD_BYTES] = "";
        int alike = 0, first = 0;
        while (first < r && (all[first].bytes != all[r].bytes || all[first].hash != all[r].hash))
            first++;
        if (all[r].status == TOOL_OK || all[r].bytes == 0 || first < r)
            continue;
        for (int k = r; k < size; k++)
            alike += all[k].bytes == all[r].bytes && all[k].hash == all[r].hash;
        snprintf(text, sizeof(text), "%s", own);
        if (rf_broadcast(comm, text, sizeof(text), RF_U8, r, NULL) < 0)
            return -1;
        text[sizeof(text) - 1] = 0;
        for (const char *at = text; rank == 0 && *at;) {
            const size_t bytes = strcspn(at, "\n");
            if (alike == size || r == 0)
                fprintf(stderr, "ringforge %s: %.*s\n", command->name, (int)bytes, at);
            else
                fprintf(stderr, "ringforge %s: rank %d: %.*s\n", command->name, r, (int)bytes, at);
            at += bytes + (at[bytes] == '\n');
        }
    }
    /* Nobody ends the job before all have the last message. A rank that reaches the barrier has it,
     * so the barrier's failure does not matter. */
    (void)!rf_barrier(comm, NULL);
    return 0;
}

/* Without "rank 3: ", which would make equal messages differ. */
static const char *without_rank(const char *text)
{
    for (size_t digits; strncmp(text, "rank ", 5) == 0; text += 5 + digits + 2) {
        digits = strspn(text + 5, "0123456789");
        if (digits == 0 || strncmp(text + 5 + digits, ": ", 2) != 0)
            break;
    }
    return text;
}

int tool_ranks_settle(const struct tool_command *command, struct rf_comm *comm, int status)
{
    const int size = rf_comm_size(comm);
    char own[TOOL_HELD_BYTES];
    snprintf(own, sizeof(own), "%s", without_rank(tool_errors_held()));
    const struct report mine = {status, (uint32_t)strlen(own), hash_text(own)};
    struct report *all = size > 1 ? calloc((size_t)size, sizeof(*all)) : NULL;
    if (!all) {
        tool_errors_release(command);
        return status;
    }
    int rc = rf_all_gather(comm, &mine, all, sizeof(mine), RF_U8, NULL), worst = TOOL_OK;
    for (int r = 0; rc == 0 && r < size && worst == TOOL_OK; r++)
        worst = all[r].status;
    if (rc == 0 && worst != TOOL_OK)
        rc = say_all(command, comm, all, own);
    free(all);
    if (rc < 0) {
        tool_errors_release(command);
        return status != TOOL_OK ? status : tool_library_error(command, rf_comm_rank(comm));
    }
    tool_errors_drop();
    return status != TOOL_OK ? status : worst;
}

/* The files are on rank 0's host, so it tests them. Options are compared with its own. */
int tool_ranks_agree(const struct tool_command *command, const struct tool_ranks *ranks,
                     struct rf_comm *comm)
{
    const int rank = rf_comm_rank(comm);
    char *terms = NULL;
    int status = TOOL_OK;
    if (!ranks->options)
        return TOOL_OK;
    if (rf_comm_size(comm) > 1 && !ranks->terms)
        status = tool_terms_whole(command, ranks->options, &terms);
    if (status == TOOL_OK && rf_comm_size(comm) > 1 &&
        rf_comm_check_terms(comm, ranks->terms ? ranks->terms : terms) < 0) {
        const bool known = rf_last_error()->status == RF_EINVAL; /* equal on all ranks */
        status = TOOL_USAGE;
        if (rank == 0 || !known)
            status = known ? tool_usage_error(command, "%s", rf_last_error()->message)
                           : tool_library_error(command, rank);
    }
    free(terms);
    if (status != TOOL_OK)
        return status;
    tool_errors_hold();
    status = rank == 0 ? tool_outputs_check(command, ranks->options) : TOOL_OK;
    return tool_ranks_settle(command, comm, status);
}
