/* SPDX-License-Identifier: MIT
 *
 * `ringforge info --algorithms`: which collective is carried out how, by size.
 */
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

/* Sizes are those of the call's count: of one rank's piece in gather, scatter and the like. */
static void show_algorithm(cJSON *list, enum rf_coll_op op, int ranks, const char *name,
                           uint64_t from, uint64_t to)
{
    char first[16], last[16];
    uint64_t sent = 0, most = 0;
    for (int rank = 0; rank < ranks && rank < 2; rank++) /* a root and another */
        if (rf_coll_sent_bytes(op, rank, ranks, to / 4, RF_F32, RF_ORDER_ANY, 0, &sent) == 0)
            most = sent > most ? sent : most;
    const double share = to ? (double)most / (double)to : 0;
    if (!list) {
        printf("  %-16s %10s to %-10s %-14s %.2f\n", rf_coll_op_name(op), size_text(from, first),
               size_text(to, last), name, share);
        return;
    }
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "op", rf_coll_op_name(op));
    cJSON_AddNumberToObject(row, "from", (double)from);
    cJSON_AddNumberToObject(row, "to", (double)to);
    cJSON_AddStringToObject(row, "algorithm", name);
    cJSON_AddNumberToObject(row, "sent_per_byte", share);
    cJSON_AddItemToArray(list, row);
}

int info_algorithms(const struct tool_command *command, const char *json_path, int ranks)
{
    static const enum rf_coll_op ops[] = {
        RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER, RF_COLL_BROADCAST,
        RF_COLL_REDUCE,     RF_COLL_GATHER,         RF_COLL_SCATTER,    RF_COLL_ALL_TO_ALL};
    const uint64_t largest = 1ull << 30;
    cJSON *json = json_path ? cJSON_CreateObject() : NULL;
    cJSON *list = json ? cJSON_AddArrayToObject(json, "algorithms") : NULL;
    if (json)
        cJSON_AddNumberToObject(json, "ranks", ranks);
    else
        printf("Collectives of f32 among %d ranks: bytes of a call's count, the algorithm, and "
               "bytes that "
               "the root or\nrank 1 sends for each of them\n",
               ranks);
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        const char *name = NULL, *before = NULL;
        uint64_t from = 4, bytes = 4;
        for (; bytes <= largest; bytes *= 2, before = name) {
            if (rf_coll_algorithm(ops[i], ranks, bytes / 4, RF_F32, RF_ORDER_ANY, &name) < 0)
                return tool_error(command, "%s", rf_last_error()->message);
            if (before && strcmp(before, name) != 0) {
                show_algorithm(list, ops[i], ranks, before, from, bytes / 2);
                from = bytes;
            }
        }
        show_algorithm(list, ops[i], ranks, before, from, bytes / 2);
    }
    return json ? tool_json_write(command, json_path, json) : TOOL_OK;
}
