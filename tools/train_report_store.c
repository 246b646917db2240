/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync server` and `hogwild`: what the store has done, at the end of training.
 */
#include "train.h"

static void add_counts(cJSON *json, const char *name, const int64_t *counts)
{
    int used = RF_STORE_BUCKETS;
    cJSON *list = cJSON_AddArrayToObject(json, name);
    while (used > 0 && counts[used - 1] == 0)
        used--;
    for (int k = 0; k < used; k++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)counts[k]));
}

cJSON *report_store_json(const struct report_store *s)
{
    const struct rf_store_server_stats *n = &s->server;
    cJSON *json = tool_json_new("store=%s servers=%d path=%s", s->rule, s->servers, s->path);
    if (s->servers) {
        tool_json_put(json, "updates=%g pushes=%g pulls=%g most_stale=%g most_lag=%g",
                      (double)n->version, (double)n->pushes, (double)n->pulls,
                      (double)n->most_stale, (double)n->most_lag);
        tool_json_put(json, "pushed=%g pulled=%g other=%g", (double)n->pushed_bytes,
                      (double)n->pulled_bytes, (double)n->other_bytes);
        add_counts(json, "staleness", n->staleness);
        add_counts(json, "lag", n->lag);
    } else {
        tool_json_put(json, "additions=%g lost=%g", (double)s->additions, (double)s->lost);
    }
    return json;
}

/* A bar for each staleness that occurred, the most frequent one with 40 marks. */
static void print_staleness(const struct rf_store_server_stats *n)
{
    static const char marks[] = "########################################";
    int64_t most = 1;
    for (int k = 0; k < RF_STORE_BUCKETS; k++)
        most = n->staleness[k] > most ? n->staleness[k] : most;
    for (int k = 0; k < RF_STORE_BUCKETS; k++)
        if (n->staleness[k] > 0)
            printf("  %2d%s %8lld %.*s\n", k, k == RF_STORE_BUCKETS - 1 ? "+" : " ",
                   (long long)n->staleness[k], (int)(40 * n->staleness[k] / most), marks);
}

void report_store_print(const struct report_store *s)
{
    const struct rf_store_server_stats *n = &s->server;
    double sum = 0;
    for (int k = 0; k < RF_STORE_BUCKETS; k++)
        sum += (double)k * (double)n->staleness[k];
    if (s->servers)
        printf("store %s: %lld updates by %lld gradients, staleness %.2f updates in the mean, %lld "
               "at most; workers at most %lld pushes ahead of the slowest\n",
               s->rule, (long long)n->version, (long long)n->pushes,
               n->pushes ? sum / (double)n->pushes : 0, (long long)n->most_stale,
               (long long)n->most_lag);
    if (s->servers)
        print_staleness(n);
    else
        printf("store %s, %s: %llu additions to parameters, %llu of them lost\n", s->rule, s->path,
               (unsigned long long)s->additions, (unsigned long long)s->lost);
}

/* Pushes by their staleness, pulls by their lag. The last number has all that are larger, too. */
int report_store_draw(const struct tool_command *command, const char *path,
                      const struct rf_store_server_stats *n)
{
    double x[RF_STORE_BUCKETS], stale[RF_STORE_BUCKETS], lag[RF_STORE_BUCKETS];
    int used = 1;
    for (int k = 0; k < RF_STORE_BUCKETS; k++) {
        x[k] = k;
        stale[k] = (double)n->staleness[k];
        lag[k] = (double)n->lag[k];
        used = n->staleness[k] || n->lag[k] ? k + 1 : used;
    }
    const struct tool_series series[] = {
        {.title = "pushes by staleness", .x = x, .y = stale, .count = used},
        {.title = "pulls by lag", .x = x, .y = lag, .count = used},
    };
    const struct tool_plot plot = {.title = "Staleness",
                                   .x_label = "updates since the pull; pushes ahead of the slowest",
                                   .y_label = "number",
                                   .bars = true,
                                   .series = series,
                                   .series_count = 2};
    return tool_plot_write(command, path, &plot);
}
