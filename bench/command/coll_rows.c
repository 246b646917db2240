/* SPDX-License-Identifier: MIT
 *
 * Rows of `ringforge bench` of a collective: as text in the columns of nccl-tests, as JSON, and as
 * a picture.
 */
#include <math.h>
#include <string.h>

#include "coll.h"

static bool quiet(const struct bench_options *o)
{
    return o->json_path && strcmp(o->json_path, "-") == 0;
}

static bool has_redop(enum rf_coll_op op)
{
    return op == RF_COLL_ALL_REDUCE || op == RF_COLL_REDUCE_SCATTER || op == RF_COLL_REDUCE;
}

static bool has_root(enum rf_coll_op op)
{
    return op == RF_COLL_BROADCAST || op == RF_COLL_REDUCE || op == RF_COLL_GATHER ||
           op == RF_COLL_SCATTER;
}

static void print_titles(const struct bench_options *o)
{
    printf(" %11s %11s %9s %9s %7s%s", "time(us)", "p99(us)", "algbw", "busbw", "#wrong",
           o->link_gbps > 0 ? "   %link" : "");
}

void coll_print_head(const struct coll_bench *b, struct rf_comm *comm)
{
    const struct bench_options *o = b->options;
    if (quiet(o))
        return;
    printf("# %s on %d rank%s, order %s\n# provider %s: %s\n", o->op, rf_comm_size(comm),
           rf_comm_size(comm) == 1 ? "" : "s", rf_order_name(o->order), rf_comm_provider(comm),
           rf_comm_why(comm));
    if (o->private_buffers && rf_comm_own_memory(comm))
        printf("# own memory: %s\n", rf_comm_own_memory(comm));
    if (o->wire_dtype != RF_F32)
        printf("# sent as %s, added in f32\n", rf_dtype_name(o->wire_dtype));
    if (o->rewrite)
        printf("# what a call reads is written anew before it\n");
    printf("# time: median (p50) over %lld samples of %s; bandwidths in GB/s%s\n",
           (long long)o->samples,
           o->one_clock ? "the first rank's start to the last one's end" : "the slowest rank",
           o->in_place ? "; out of place | in place" : "");
    printf("%12s %12s %6s %6s %5s", "size(B)", "count", "type", "redop", "root");
    print_titles(o);
    if (o->in_place) {
        printf(" |");
        print_titles(o);
    }
    printf("\n");
    fflush(stdout);
}

static void print_times(const struct bench_options *o, const struct coll_times *t)
{
    printf(" %11.2f %11.2f %9.3f %9.3f ", t->time_us, t->p99_us, t->algbw, t->busbw);
    if (o->check)
        printf("%7llu", (unsigned long long)t->wrong);
    else
        printf("%7s", "n/a");
    if (o->link_gbps > 0 && !isnan(t->bound_pct))
        printf(" %7.1f", t->bound_pct);
}

void coll_print_row(const struct coll_bench *b, const struct coll_row *row)
{
    const struct bench_options *o = b->options;
    if (quiet(o))
        return;
    printf("%12llu %12llu %6s %6s %5lld", (unsigned long long)row->bytes,
           (unsigned long long)row->count, rf_dtype_name(o->dtype),
           has_redop(b->op) ? rf_redop_name(o->redop) : "none",
           has_root(b->op) ? (long long)o->root : -1);
    print_times(o, &row->apart);
    if (row->has_in_place) {
        printf(" |");
        print_times(o, &row->in_place);
    }
    printf("\n");
    fflush(stdout);
}

static void add_times(cJSON *to, const struct bench_options *o, const struct coll_times *t)
{
    tool_json_put(to, "time_us=%g p50_us=%g p99_us=%g began_s=%g ended_s=%g algbw=%g busbw=%g",
                  t->time_us, t->p50_us, t->p99_us, (double)t->began_ns * 1e-9,
                  (double)t->ended_ns * 1e-9, t->algbw, t->busbw);
    if (o->check)
        cJSON_AddNumberToObject(to, "wrong", (double)t->wrong);
    else
        cJSON_AddNullToObject(to, "wrong");
    if (isnan(t->bound_pct))
        cJSON_AddNullToObject(to, "bound_pct");
    else
        cJSON_AddNumberToObject(to, "bound_pct", t->bound_pct);
}

int coll_write_json(const struct coll_bench *b, struct rf_comm *comm, const struct coll_row *rows,
                    int count)
{
    const struct bench_options *o = b->options;
    cJSON *json = tool_json_new(
        "op=%s ranks=%d provider=%s dtype=%s redop=%s root=%g order=%s algorithm=%s wire_dtype=%s "
        "one_clock=%hhd rewritten=%hhd buffers=%s",
        o->op, rf_comm_size(comm), rf_comm_provider(comm), rf_dtype_name(o->dtype),
        has_redop(b->op) ? rf_redop_name(o->redop) : "none", has_root(b->op) ? (double)o->root : -1,
        rf_order_name(o->order), o->algorithm ? o->algorithm : "by size",
        rf_dtype_name(o->wire_dtype != RF_F32 ? o->wire_dtype : o->dtype), o->one_clock, o->rewrite,
        o->private_buffers ? "private" : "library");
    if (o->private_buffers && rf_comm_own_memory(comm))
        cJSON_AddStringToObject(json, "own_memory", rf_comm_own_memory(comm));
    tool_json_put(json, "samples=%g together=%g", (double)o->samples, (double)o->together);
    cJSON *list = cJSON_AddArrayToObject(json, "rows");
    for (int i = 0; i < count; i++) {
        cJSON *row =
            tool_json_new("bytes=%g count=%g", (double)rows[i].bytes, (double)rows[i].count);
        add_times(row, o, &rows[i].apart);
        if (rows[i].has_in_place)
            add_times(cJSON_AddObjectToObject(row, "in_place"), o, &rows[i].in_place);
        else
            cJSON_AddNullToObject(row, "in_place");
        cJSON_AddItemToArray(list, row);
    }
    return tool_json_write(b->command, o->json_path, json);
}

int coll_draw(const struct coll_bench *b, const struct coll_row *rows, int count)
{
    double *x = calloc(2 * (size_t)count + 1, sizeof(*x)), *y = x + count;
    char title[96];
    if (!x)
        return tool_error(b->command, "out of memory for a picture of %d sizes", count);
    for (int i = 0; i < count; i++) {
        x[i] = (double)rows[i].bytes;
        y[i] = b->op == RF_COLL_BARRIER ? rows[i].apart.time_us : rows[i].apart.busbw;
    }
    snprintf(title, sizeof(title), "%s, %s", b->options->op, rf_dtype_name(b->options->dtype));
    struct tool_series series = {.title = "busbw", .x = x, .y = y, .count = count};
    struct tool_plot plot = {.title = title,
                             .x_label = "bytes",
                             .y_label = "bus bandwidth, GB/s",
                             .log_x = b->op != RF_COLL_BARRIER,
                             .series = &series,
                             .series_count = 1};
    int status = tool_plot_write(b->command, b->options->plot_path, &plot);
    free(x);
    return status;
}
