/* SPDX-License-Identifier: MIT
 *
 * ringforge bench of collectives on host memory, with the columns of nccl-tests. A time is the
 * median over samples of the slowest rank's time; short operations are timed in batches.
 */
#include <math.h>
#include <string.h>

#include "bench.h"

#define BATCH_NS 300000.0 /* a sample of short operations lasts about this long */
#define BATCH_MAX 100

struct row {
    uint64_t bytes, count, wrong;
    double time_us, p50_us, p99_us, algbw, busbw, bound_pct;
};

struct bench {
    const struct tool_command *command;
    const struct bench_options *options;
    enum rf_coll_op op;
    char *const *argv;
};

/* What a rank brings and gets: the whole, its part of it, or nothing; on the root and elsewhere. */
enum extent { NOTHING, PART, WHOLE };
static const struct form {
    enum rf_coll_op op;
    enum extent in, out, in_elsewhere, out_elsewhere;
    double factor; /* of (ranks-1)/ranks in the bus bandwidth; 0: that is the plain bandwidth */
} forms[] = {
    {RF_COLL_ALL_REDUCE, WHOLE, WHOLE, WHOLE, WHOLE, 2},
    {RF_COLL_REDUCE_SCATTER, WHOLE, PART, WHOLE, PART, 1},
    {RF_COLL_ALL_GATHER, PART, WHOLE, PART, WHOLE, 1},
    {RF_COLL_BROADCAST, WHOLE, WHOLE, NOTHING, WHOLE, 0},
    {RF_COLL_REDUCE, WHOLE, WHOLE, WHOLE, NOTHING, 0},
    {RF_COLL_GATHER, PART, WHOLE, PART, NOTHING, 1},
    {RF_COLL_SCATTER, WHOLE, PART, NOTHING, PART, 1},
    {RF_COLL_ALL_TO_ALL, WHOLE, WHOLE, WHOLE, WHOLE, 1},
    {RF_COLL_BARRIER, NOTHING, NOTHING, NOTHING, NOTHING, 0},
    {RF_COLL_SEND, WHOLE, WHOLE, WHOLE, WHOLE, 0},
};

static const struct form *form_of(enum rf_coll_op op)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (forms[i].op == op)
            return &forms[i];
    return NULL;
}

/* One rank's view of one size. */
struct work {
    struct rf_comm *comm;
    struct bench_pattern pattern;
    struct rf_coll_opts opts;
    void *in, *out;
    size_t count; /* as the call takes it */
};

static enum rf_coll_op op_of(const char *name)
{
    for (int op = RF_COLL_NONE + 1; op < RF_COLL_OP_COUNT; op++)
        if (strcmp(rf_coll_op_name((enum rf_coll_op)op), name) == 0)
            return (enum rf_coll_op)op;
    return RF_COLL_SEND; /* sendrecv */
}

static int run_once(const struct work *w)
{
    const struct bench_pattern *p = &w->pattern;
    switch (p->op) {
    case RF_COLL_ALL_REDUCE:
        return rf_all_reduce(w->comm, w->in, w->out, w->count, p->dtype, p->redop, &w->opts);
    case RF_COLL_REDUCE_SCATTER:
        return rf_reduce_scatter(w->comm, w->in, w->out, w->count, p->dtype, p->redop, &w->opts);
    case RF_COLL_ALL_GATHER:
        return rf_all_gather(w->comm, w->in, w->out, w->count, p->dtype, &w->opts);
    case RF_COLL_BROADCAST: /* in place: the root sends what it has in out */
        return rf_broadcast(w->comm, w->out, w->count, p->dtype, p->root, &w->opts);
    case RF_COLL_REDUCE:
        return rf_reduce(w->comm, w->in, w->out, w->count, p->dtype, p->redop, p->root, &w->opts);
    case RF_COLL_GATHER:
        return rf_gather(w->comm, w->in, w->out, w->count, p->dtype, p->root, &w->opts);
    case RF_COLL_SCATTER:
        return rf_scatter(w->comm, w->in, w->out, w->count, p->dtype, p->root, &w->opts);
    case RF_COLL_ALL_TO_ALL:
        return rf_all_to_all(w->comm, w->in, w->out, w->count, p->dtype, &w->opts);
    case RF_COLL_BARRIER:
        return rf_barrier(w->comm, &w->opts);
    default:
        return rf_sendrecv(w->comm, w->in, p->in_count, (p->rank + 1) % p->ranks, w->out,
                           p->out_count, (p->rank + p->ranks - 1) % p->ranks, p->dtype, 0,
                           &w->opts);
    }
}

static int max_over_ranks(struct rf_comm *comm, double *values, size_t count)
{
    return rf_all_reduce(comm, values, values, count, RF_F64, RF_MAX, NULL);
}

static void prepare(const struct work *w)
{
    bench_poison(&w->pattern, w->out);
    if (w->pattern.op == RF_COLL_BROADCAST && w->pattern.rank == w->pattern.root)
        bench_fill(&w->pattern, w->out);
}

/* Runs once on poisoned memory and counts what is wrong, over all ranks. */
static int check_once(const struct work *w, uint64_t *wrong)
{
    prepare(w);
    int rc = run_once(w);
    if (rc < 0)
        return rc;
    double mine = w->pattern.op == RF_COLL_BARRIER ? 0 : (double)bench_wrong(&w->pattern, w->out);
    rc = rf_all_reduce(w->comm, &mine, &mine, 1, RF_F64, RF_SUM, NULL);
    *wrong += (uint64_t)mine;
    return rc;
}

static int time_batch(const struct work *w, int batch, double *seconds)
{
    int rc = rf_barrier(w->comm, NULL);
    uint64_t start = rf_now_ns();
    for (int i = 0; i < batch && rc == 0; i++)
        rc = run_once(w);
    *seconds = (double)(rf_now_ns() - start) / batch / 1e9;
    return rc;
}

static int time_samples(const struct work *w, int64_t warmup, int samples, double *seconds)
{
    double once = 0;
    int rc = 0;
    for (int64_t i = 0; i < warmup + 1 && rc == 0; i++)
        rc = time_batch(w, 1, &once);
    /* What follows depends on the time, so all ranks must see the same one. */
    if (rc == 0)
        rc = max_over_ranks(w->comm, &once, 1);
    if (rc == 0 && once < 1e-3) {
        rc = time_batch(w, 10, &once);
        if (rc == 0)
            rc = max_over_ranks(w->comm, &once, 1);
    }
    double wanted = BATCH_NS / 1e9 / (once > 1e-9 ? once : 1e-9);
    int batch = wanted < 1 ? 1 : wanted > BATCH_MAX ? BATCH_MAX : (int)wanted;
    for (int i = 0; i < samples && rc == 0; i++)
        rc = time_batch(w, batch, &seconds[i]);
    return rc == 0 ? max_over_ranks(w->comm, seconds, (size_t)samples) : rc;
}

static double bus_factor(enum rf_coll_op op, int ranks)
{
    double factor = form_of(op)->factor;
    return factor > 0 ? factor * (ranks - 1) / ranks : 1;
}

/* What each link has to carry at least, at the link's speed, over the time taken. */
static double bound_percent(const struct bench *b, const struct row *row)
{
    if (b->options->link_gbps <= 0 || b->op == RF_COLL_BARRIER)
        return NAN;
    return 100 * row->busbw * 8 / b->options->link_gbps;
}

/* Returns the elements of the whole: those asked for, rounded up to parts where it has some. */
static size_t set_counts(struct work *w, uint64_t bytes)
{
    struct bench_pattern *p = &w->pattern;
    const struct form *form = form_of(p->op);
    size_t whole = (size_t)bytes / rf_dtype_bytes(p->dtype);
    size_t part = (whole + (size_t)p->ranks - 1) / (size_t)p->ranks;
    bool is_root = p->rank == p->root;
    bool parts = form->in == PART || form->out == PART || p->op == RF_COLL_ALL_TO_ALL;
    whole = parts ? part * (size_t)p->ranks : whole;
    const size_t sizes[] = {[NOTHING] = 0, [PART] = part, [WHOLE] = whole};
    p->in_count = sizes[is_root ? form->in : form->in_elsewhere];
    p->out_count = sizes[is_root ? form->out : form->out_elsewhere];
    w->count = parts ? part : whole;
    return whole;
}

/* Measures one size on this rank; *row is the same on every rank. */
static int measure(const struct bench *b, struct work *w, uint64_t bytes, double *samples,
                   struct row *row)
{
    const struct bench_options *o = b->options;
    struct bench_pattern *p = &w->pattern;
    uint64_t wrong = 0;
    size_t total = set_counts(w, bytes);
    if (p->op != RF_COLL_BROADCAST)
        bench_fill(p, w->in);
    int rc = o->check ? check_once(w, &wrong) : 0;
    if (rc == 0 && !o->check)
        prepare(w);
    if (rc == 0)
        rc = time_samples(w, o->warmup, (int)o->samples, samples);
    if (rc == 0 && o->check)
        rc = check_once(w, &wrong);
    if (rc < 0)
        return rc;
    struct bench_times times = bench_quantiles(samples, (int)o->samples);
    *row = (struct row){.bytes = total * rf_dtype_bytes(p->dtype),
                        .wrong = wrong,
                        .count = w->count,
                        .time_us = times.p50 * 1e6,
                        .p50_us = times.p50 * 1e6,
                        .p99_us = times.p99 * 1e6};
    row->algbw = (double)row->bytes / times.p50 / 1e9;
    row->busbw = row->algbw * bus_factor(p->op, p->ranks);
    row->bound_pct = bound_percent(b, row);
    return 0;
}

/* ---- output, rank 0 only --------------------------------------------------------------------- */

static bool quiet(const struct bench_options *o)
{
    return o->json_path && strcmp(o->json_path, "-") == 0;
}

static bool has_redop(enum rf_coll_op op)
{
    return op == RF_COLL_ALL_REDUCE || op == RF_COLL_REDUCE_SCATTER || op == RF_COLL_REDUCE;
}

static void print_head(const struct bench *b, struct rf_comm *comm)
{
    if (quiet(b->options))
        return;
    printf("# %s on %d rank%s, order %s\n# provider %s: %s\n", b->options->op, rf_comm_size(comm),
           rf_comm_size(comm) == 1 ? "" : "s", rf_order_name(b->options->order),
           rf_comm_provider(comm), rf_comm_why(comm));
    printf("# time: median over %lld samples of the slowest rank; bandwidths in GB/s\n",
           (long long)b->options->samples);
    printf("%12s %12s %6s %6s %11s %11s %11s %9s %9s %7s%s\n", "size(B)", "count", "type", "redop",
           "time(us)", "p50(us)", "p99(us)", "algbw", "busbw", "#wrong",
           b->options->link_gbps > 0 ? "   %link" : "");
    fflush(stdout);
}

static void print_row(const struct bench *b, const struct row *row)
{
    const struct bench_options *o = b->options;
    bool reduces = has_redop(b->op);
    if (quiet(o))
        return;
    printf("%12llu %12llu %6s %6s %11.2f %11.2f %11.2f %9.3f %9.3f ",
           (unsigned long long)row->bytes, (unsigned long long)row->count, rf_dtype_name(o->dtype),
           reduces ? rf_redop_name(o->redop) : "none", row->time_us, row->p50_us, row->p99_us,
           row->algbw, row->busbw);
    if (o->check)
        printf("%7llu", (unsigned long long)row->wrong);
    else
        printf("%7s", "n/a");
    if (o->link_gbps > 0 && !isnan(row->bound_pct))
        printf(" %7.1f", row->bound_pct);
    printf("\n");
    fflush(stdout);
}

static int write_json(const struct bench *b, struct rf_comm *comm, const struct row *rows,
                      int count)
{
    const struct bench_options *o = b->options;
    bool reduces = has_redop(b->op);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "op", o->op);
    cJSON_AddNumberToObject(json, "ranks", rf_comm_size(comm));
    cJSON_AddStringToObject(json, "provider", rf_comm_provider(comm));
    cJSON_AddStringToObject(json, "dtype", rf_dtype_name(o->dtype));
    cJSON_AddStringToObject(json, "redop", reduces ? rf_redop_name(o->redop) : "none");
    cJSON_AddStringToObject(json, "order", rf_order_name(o->order));
    cJSON_AddStringToObject(json, "algorithm", o->algorithm ? o->algorithm : "by size");
    cJSON_AddStringToObject(json, "buffers", o->private_buffers ? "private" : "library");
    cJSON_AddNumberToObject(json, "samples", (double)o->samples);
    cJSON *list = cJSON_AddArrayToObject(json, "rows");
    for (int i = 0; i < count; i++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "bytes", (double)rows[i].bytes);
        cJSON_AddNumberToObject(row, "count", (double)rows[i].count);
        cJSON_AddNumberToObject(row, "time_us", rows[i].time_us);
        cJSON_AddNumberToObject(row, "p50_us", rows[i].p50_us);
        cJSON_AddNumberToObject(row, "p99_us", rows[i].p99_us);
        cJSON_AddNumberToObject(row, "algbw", rows[i].algbw);
        cJSON_AddNumberToObject(row, "busbw", rows[i].busbw);
        if (o->check)
            cJSON_AddNumberToObject(row, "wrong", (double)rows[i].wrong);
        else
            cJSON_AddNullToObject(row, "wrong");
        if (isnan(rows[i].bound_pct))
            cJSON_AddNullToObject(row, "bound_pct");
        else
            cJSON_AddNumberToObject(row, "bound_pct", rows[i].bound_pct);
        cJSON_AddItemToArray(list, row);
    }
    return tool_json_write(b->command, o->json_path, json);
}

static int draw(const struct bench *b, const struct row *rows, int count)
{
    double x[64], y[64];
    char title[96];
    for (int i = 0; i < count; i++) {
        x[i] = (double)rows[i].bytes;
        y[i] = b->op == RF_COLL_BARRIER ? rows[i].time_us : rows[i].busbw;
    }
    snprintf(title, sizeof(title), "%s, %s", b->options->op, rf_dtype_name(b->options->dtype));
    struct tool_series series = {.title = "busbw", .x = x, .y = y, .count = count};
    struct tool_plot plot = {.title = title,
                             .x_label = "bytes",
                             .y_label = "bus bandwidth, GB/s",
                             .log_x = b->op != RF_COLL_BARRIER,
                             .series = &series,
                             .series_count = 1};
    return tool_plot_write(b->command, b->options->plot_path, &plot);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static int run_sizes(const struct bench *b, struct work *w, double *samples)
{
    const struct bench_options *o = b->options;
    struct row *rows = NULL;
    int count = 0, status = TOOL_OK;
    uint64_t wrong = 0;
    bool first = rf_comm_rank(w->comm) == 0;
    if (first)
        print_head(b, w->comm);
    uint64_t bytes = b->op == RF_COLL_BARRIER ? 0 : (uint64_t)o->min_bytes;
    uint64_t most = b->op == RF_COLL_BARRIER ? 0 : (uint64_t)o->max_bytes;
    while (bytes <= most && status == TOOL_OK) {
        struct row *grown = realloc(rows, ((size_t)count + 1) * sizeof(*rows));
        if (!grown) {
            status = tool_error(b->command, "out of memory");
            break;
        }
        rows = grown;
        if (measure(b, w, bytes, samples, &rows[count]) < 0) {
            status = tool_library_error(b->command, rf_comm_rank(w->comm));
            break;
        }
        wrong += rows[count].wrong;
        if (first)
            print_row(b, &rows[count]);
        count++;
        if (bytes == most || bytes == 0)
            break;
        bytes = o->step > 0 ? bytes + (uint64_t)o->step : bytes * (uint64_t)o->factor;
    }
    if (first && status == TOOL_OK && o->json_path)
        status = write_json(b, w->comm, rows, count);
    if (first && status == TOOL_OK && o->plot_path)
        status = draw(b, rows, count);
    free(rows);
    if (status != TOOL_OK || !wrong)
        return status;
    return first ? tool_error(b->command, "%llu elements were wrong", (unsigned long long)wrong)
                 : TOOL_ERROR;
}

/* The library's, or any. */
static int get_buffer(const struct work *w, const struct bench_options *o, size_t bytes, void **out)
{
    if (!o->private_buffers)
        return rf_comm_alloc(w->comm, bytes, out);
    *out = aligned_alloc(4096, bytes);
    return *out ? 0 : RF_ENOMEM;
}

static void free_buffer(const struct work *w, const struct bench_options *o, void *buffer)
{
    if (o->private_buffers)
        free(buffer);
    else
        rf_comm_free(w->comm, buffer);
}

static int run_rank(struct rf_comm *comm, void *user)
{
    const struct bench *b = user;
    const struct bench_options *o = b->options;
    int ranks = rf_comm_size(comm);
    struct work w = {.comm = comm,
                     .pattern = {.op = b->op,
                                 .dtype = o->dtype,
                                 .redop = o->redop,
                                 .rank = rf_comm_rank(comm),
                                 .ranks = ranks,
                                 .root = (int)o->root},
                     .opts = {.order = o->order, .label = "bench", .algorithm = o->algorithm}};
    if (o->root >= ranks)
        return tool_usage_error(b->command, "--root %lld is not one of %d ranks",
                                (long long)o->root, ranks);
    /* Sizes are rounded up to whole elements for every rank. */
    size_t room = ((size_t)o->max_bytes + 8 * (size_t)ranks + 4095) & ~(size_t)4095;
    double *samples = calloc((size_t)o->samples, sizeof(*samples));
    int status;
    if (!samples || get_buffer(&w, o, room, &w.in) < 0 || get_buffer(&w, o, room, &w.out) < 0) {
        status = tool_error(b->command, "out of memory for two buffers of %zu bytes", room);
    } else {
        memset(w.in, 0, room);
        memset(w.out, 0, room);
        status = run_sizes(b, &w, samples);
    }
    free_buffer(&w, o, w.out);
    free_buffer(&w, o, w.in);
    free(samples);
    return status;
}

int bench_collective(const struct tool_command *command, const struct bench_options *options,
                     char *const *argv)
{
    struct bench bench = {
        .command = command, .options = options, .op = op_of(options->op), .argv = argv};
    return tool_ranks_run(command, &options->ranks, argv, run_rank, &bench);
}
