/* SPDX-License-Identifier: MIT
 *
 * `ringforge info --algorithms`: the algorithm of each collective, by size; from the built-in
 * table, or from measured links between ranks.
 */
#include <ringforge/schedule.h>
#include <stdlib.h>
#include <string.h>

#include "info.h"

static const char *size_text(uint64_t bytes, char text[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    int unit = 0;
    while (bytes >= 1024 && bytes % 1024 == 0 && unit < 3) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 16, "%llu %s", (unsigned long long)bytes, units[unit]);
    return text;
}

struct table {
    const struct tool_command *command;
    const char *json_path;
    cJSON *json, *list; /* NULL: text is printed */
    int ranks;
    struct rf_comm *comm; /* with measured links; NULL: the built-in table */
    bool apart;           /* as if its ranks shared no memory */
};

static int choice(const struct table *t, enum rf_coll_op op, uint64_t bytes, const char **name,
                  double *seconds)
{
    *seconds = -1;
    if (t->comm)
        return rf_comm_algorithm(t->comm, op, bytes / 4, RF_F32, RF_ORDER_ANY, !t->apart, name,
                                 seconds);
    return rf_coll_algorithm(op, t->ranks, bytes / 4, RF_F32, RF_ORDER_ANY, name);
}

static struct table apart_of(const struct table *t)
{
    struct table apart = *t;
    apart.apart = true;
    return apart;
}

/* Sizes are those of the call's count: of one rank's piece in gather, scatter and the like. The
 * prediction is for the largest. */
static void show_algorithm(const struct table *t, enum rf_coll_op op, const char *name,
                           uint64_t from, uint64_t to, double seconds)
{
    char first[16], last[16], call[32];
    uint64_t sent = 0, most = 0;
    bool known = false; /* unknown for those that depend on hosts */
    const struct table apart = apart_of(t);
    const char *counted; /* messages of the others count as sent in shared memory, too */
    double ignored;
    if (choice(&apart, op, to, &counted, &ignored) < 0)
        return;
    snprintf(call, sizeof(call), "%s%s", rf_coll_op_name(op), t->apart ? " (apart)" : "");
    for (int rank = 0; rank < t->ranks && rank < 2; rank++) /* a root and another */
        if (rf_coll_sent_bytes_as(op, counted, rank, t->ranks, to / 4, RF_F32, RF_ORDER_ANY, 0,
                                  &sent) == 0) {
            most = sent > most ? sent : most;
            known = true;
        }
    const double share = to ? (double)most / (double)to : 0;
    if (!t->json) {
        char per_byte[16] = "-";
        if (known)
            snprintf(per_byte, sizeof(per_byte), "%.2f", share);
        printf("  %-18s %10s to %-10s %-18s %-4s", call, size_text(from, first),
               size_text(to, last), name, per_byte);
        if (seconds >= 0)
            printf(" %14.1f us", seconds * 1e6);
        printf("\n");
        return;
    }
    cJSON *row = tool_json_new("op=%s from=%g to=%g algorithm=%s", rf_coll_op_name(op),
                               (double)from, (double)to, name);
    if (t->apart)
        cJSON_AddBoolToObject(row, "apart", true);
    if (known)
        cJSON_AddNumberToObject(row, "sent_per_byte", share);
    if (seconds >= 0)
        cJSON_AddNumberToObject(row, "predicted_us", seconds * 1e6);
    cJSON_AddItemToArray(t->list, row);
}

static int show_op(const struct table *t, enum rf_coll_op op)
{
    const uint64_t largest = 1ull << 30;
    const struct table apart = apart_of(t);
    const char *name = NULL, *before = NULL, *others = NULL;
    double seconds, ignored, then = -1;
    bool differs = false;
    uint64_t from = 4, bytes = 4;
    for (; bytes <= largest; bytes *= 2, before = name, then = seconds) {
        if (choice(t, op, bytes, &name, &seconds) < 0 ||
            choice(&apart, op, bytes, &others, &ignored) < 0)
            return tool_error(t->command, "%s", rf_last_error()->message);
        differs = differs || strcmp(name, others) != 0;
        if (before && strcmp(before, name) != 0) {
            show_algorithm(t, op, before, from, bytes / 2, then);
            from = bytes;
        }
    }
    show_algorithm(t, op, before, from, bytes / 2, then);
    return differs ? show_op(&apart, op) : TOOL_OK;
}

static void show_links(const struct table *t, const struct rf_link_figures *l)
{
    if (!t->json) {
        printf(
            "Measured: %.1f us for a short message to a neighbour, %.3g Gbit/s; %.1f us for each "
            "more at the same\ntime, %.3g Gbit/s; sums %.3g GB/s\n",
            l->message_s * 1e6, l->bytes_per_s * 8e-9, l->more_message_s * 1e6,
            l->more_bytes_per_s * 8e-9, l->fold_bytes_per_s * 1e-9);
        if (l->host_round_s > 0)
            printf("Short messages to all ranks of the host %.1f us, %.3g Gbit/s; to all others "
                   "%.1f us, %.3g Gbit/s\n",
                   l->host_round_s * 1e6, l->host_bytes_per_s * 8e-9, l->between_round_s * 1e6,
                   l->between_bytes_per_s * 8e-9);
        return;
    }
    cJSON *links = cJSON_AddObjectToObject(t->json, "links");
    if (l->host_round_s > 0) {
        tool_json_put(
            links,
            "host_round_us=%g host_bytes_per_s=%g between_round_us=%g between_bytes_per_s=%g",
            l->host_round_s * 1e6, l->host_bytes_per_s, l->between_round_s * 1e6,
            l->between_bytes_per_s);
    }
    tool_json_put(
        links,
        "message_us=%g bytes_per_s=%g more_message_us=%g more_bytes_per_s=%g fold_bytes_per_s=%g",
        l->message_s * 1e6, l->bytes_per_s, l->more_message_s * 1e6, l->more_bytes_per_s,
        l->fold_bytes_per_s);
}

/* Explains the ring: its bytes, and those through rank 0 in the simplest algorithm. */
static int show_bottleneck(const struct table *t)
{
    static const char *const names[] = {"ring", "naive"};
    const uint64_t bytes = 64 << 20;
    if (t->ranks < 2)
        return TOOL_OK;
    printf("All-reduce of 64 MiB: bytes sent\n");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char first[24], other[24];
        uint64_t sent[2] = {0, 0};
        for (int rank = 0; rank < 2; rank++)
            if (rf_coll_sent_bytes_as(RF_COLL_ALL_REDUCE, names[i], rank, t->ranks, bytes / 4,
                                      RF_F32, RF_ORDER_RING, 0, &sent[rank]) < 0)
                return tool_error(t->command, "%s", rf_last_error()->message);
        printf("  %-6s %12s by rank 0, %s by rank 1\n", names[i],
               tool_bytes_text(sent[0], first, sizeof(first)),
               tool_bytes_text(sent[1], other, sizeof(other)));
    }
    return TOOL_OK;
}

static int show_table(struct table *t)
{
    static const enum rf_coll_op ops[] = {
        RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER, RF_COLL_BROADCAST,
        RF_COLL_REDUCE,     RF_COLL_GATHER,         RF_COLL_SCATTER,    RF_COLL_ALL_TO_ALL};
    struct rf_link_figures links = {.measured = false};
    struct rf_provider_info provider;
    t->json = t->json_path ? cJSON_CreateObject() : NULL;
    if (t->json)
        cJSON_AddNumberToObject(t->json, "ranks", t->ranks);
    if (t->comm && rf_comm_links(t->comm, &links) == 0 && links.measured)
        show_links(t, &links);
    t->list = t->json ? cJSON_AddArrayToObject(t->json, "algorithms") : NULL;
    if (!t->json)
        printf(
            "Collectives of f32 among %d ranks: bytes of a call's count, the algorithm, and bytes "
            "that the root or\nrank 1 sends for each of them%s\n",
            t->ranks, links.measured ? "; predicted time of the largest" : "");
    int status = TOOL_OK;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]) && status == TOOL_OK; i++)
        status = show_op(t, ops[i]);
    if (!t->json && !t->comm)
        printf("On one host all_reduce of more than 8 KiB on buffers of rf_comm_alloc is fused.\n");
    else if (!t->json && rf_provider_find(rf_comm_provider(t->comm), &provider) == 0 &&
             provider.shares_memory)
        printf("On buffers of rf_comm_alloc; (apart): as ranks that share no memory, whose bytes "
               "are counted\n");
    if (!t->json && t->comm && rf_comm_own_memory(t->comm))
        printf("Own memory: %s\n", rf_comm_own_memory(t->comm));
    if (status == TOOL_OK && t->json)
        return tool_json_write(t->command, t->json_path, t->json);
    return status == TOOL_OK ? show_bottleneck(t) : status;
}

/* ---- the table of docs/collectives.md ----------------------------------------------------------
 */

static int print_rows(const struct tool_command *command, enum rf_coll_op op)
{
    struct rf_schedule_algorithm_info infos[32];
    const struct rf_schedule_desc desc = {.op = op, .ranks = 2, .count = 1};
    uint32_t count = 0;
    if (rf_schedule_algorithms(&desc, infos, 32, &count) < 0)
        return tool_error(command, "%s", rf_last_error()->message);
    for (uint32_t i = 0; i < count && i < 32; i++)
        printf("| %s%s| `%s` | %s | %s | %s |\n", i == 0 ? rf_coll_op_name(op) : "",
               i == 0 ? " " : "", infos[i].name, *infos[i].rounds ? infos[i].rounds : "counted",
               infos[i].bytes, infos[i].note);
    return TOOL_OK;
}

int info_algorithms_markdown(const struct tool_command *command)
{
    int status = TOOL_OK;
    printf("| operation | algorithm | rounds | bytes | used for |\n|---|---|---|---|---|\n");
    for (int op = RF_COLL_NONE + 1; op <= RF_COLL_BARRIER && status == TOOL_OK; op++)
        status = print_rows(command, (enum rf_coll_op)op);
    return status;
}

int info_algorithms(const struct tool_command *command, const char *json_path, int ranks)
{
    struct table table = {.command = command, .json_path = json_path, .ranks = ranks};
    return show_table(&table);
}

static int show_measured(struct rf_comm *comm, void *user)
{
    struct table table = *(const struct table *)user;
    table.comm = comm;
    table.ranks = rf_comm_size(comm);
    return rf_comm_rank(comm) == 0 ? show_table(&table) : TOOL_OK;
}

int info_measured_algorithms(const struct tool_command *command, const char *json_path,
                             const struct tool_ranks *ranks, char *const *argv)
{
    struct table table = {.command = command, .json_path = json_path};
    setenv("RF_MEASURE", "1", 1);
    return tool_ranks_run(command, ranks, argv, show_measured, &table);
}
