/* SPDX-License-Identifier: MIT
 *
 * ringforge bench of collectives on host memory, measured as nccl-tests does: out of place, then in
 * place. A time is the median over samples of the slowest rank's time, or with one clock from the
 * first rank's start to the last one's end; short operations are timed in batches. Output:
 * coll_rows.c.
 */
#include <math.h>
#include <string.h>

#include "coll.h"

#define BATCH_NS 1000000.0 /* a sample of short operations lasts about this long */
#define BATCH_MAX 1000
#define CACHE_LINE 64

/* Sizes of a rank's input and output: the whole, its part, or nothing; on the root and elsewhere.
 */
enum extent { NOTHING, PART, WHOLE };
static const struct form {
    enum rf_coll_op op;
    enum extent in, out, in_elsewhere, out_elsewhere;
    bool in_place; /* an in-place form exists, too */
    double factor; /* of (ranks-1)/ranks in the bus bandwidth; 0: the plain bandwidth */
} forms[] = {
    {RF_COLL_ALL_REDUCE, WHOLE, WHOLE, WHOLE, WHOLE, true, 2},
    {RF_COLL_REDUCE_SCATTER, WHOLE, PART, WHOLE, PART, true, 1},
    {RF_COLL_ALL_GATHER, PART, WHOLE, PART, WHOLE, true, 1},
    {RF_COLL_BROADCAST, WHOLE, WHOLE, NOTHING, WHOLE, false, 0},
    {RF_COLL_REDUCE, WHOLE, WHOLE, WHOLE, NOTHING, true, 0},
    {RF_COLL_GATHER, PART, WHOLE, PART, NOTHING, true, 1},
    {RF_COLL_SCATTER, WHOLE, PART, NOTHING, PART, true, 1},
    {RF_COLL_ALL_TO_ALL, WHOLE, WHOLE, WHOLE, WHOLE, false, 1},
    {RF_COLL_BARRIER, NOTHING, NOTHING, NOTHING, NOTHING, false, 0},
    {RF_COLL_SEND, WHOLE, WHOLE, WHOLE, WHOLE, false, 0},
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
    unsigned char *buffers[2]; /* in place: one of them; out of place: both */
    void *in, *out;
    size_t count;         /* the argument of the call */
    size_t rewrite_bytes; /* size of the rewritten input, on every rank; 0: it is not rewritten */
    int64_t together;
    bool one_clock;
};

/* A rank's time: the largest of all ranks', less_start + end, is the time of all of them. */
struct span {
    double less_start, end;
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
    case RF_COLL_BROADCAST: /* in place: the root sends its out */
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
        return rf_sendrecv(w->comm,
                           &(struct rf_sendrecv_args){.send = w->in,
                                                      .send_count = p->in_count,
                                                      .dst = (p->rank + 1) % p->ranks,
                                                      .recv = w->out,
                                                      .recv_count = p->out_count,
                                                      .src = (p->rank + p->ranks - 1) % p->ranks,
                                                      .dtype = p->dtype},
                           &w->opts);
    }
}

static int max_over_ranks(struct rf_comm *comm, double *values, size_t count)
{
    return rf_all_reduce(comm, values, values, count, RF_F64, RF_MAX, NULL);
}

/* In place, the input lies within the output, or vice versa; a broadcast's root sends its out. */
static void prepare(const struct work *w)
{
    bench_poison(&w->pattern, w->out);
    if (w->pattern.op != RF_COLL_BROADCAST)
        bench_fill(&w->pattern, w->in);
    else if (w->pattern.rank == w->pattern.root)
        bench_fill(&w->pattern, w->out);
}

static int run_together(const struct work *w)
{
    if (w->together < 2)
        return run_once(w);
    int rc = rf_group_start(w->comm);
    for (int64_t i = 0; i < w->together && rc == 0; i++)
        rc = run_once(w);
    int ended = rf_group_end(w->comm);
    return rc < 0 ? rc : ended;
}

/* Runs once on poisoned memory and counts wrong elements on all ranks. */
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

static int max_span(struct rf_comm *comm, struct span *spans, size_t count)
{
    return max_over_ranks(comm, &spans->less_start, 2 * count);
}

/* Rewrites the input, as a program does before each call: each cache line once, with the same
 * contents. All ranks write equally much, or those without input would wait for the others. Returns
 * the seconds it took. */
static double rewrite(const struct work *w)
{
    volatile unsigned char *data = w->pattern.op == RF_COLL_BROADCAST ? w->out : w->in;
    if (w->rewrite_bytes == 0)
        return 0;
    const uint64_t start_ns = rf_now_ns();
    for (size_t i = 0; i < w->rewrite_bytes; i += CACHE_LINE)
        data[i] = data[i];
    return (double)(rf_now_ns() - start_ns) / 1e9;
}

/* If ranks outnumber the cores, a late rank may find everything in the system's buffers. The ranks'
 * own times do not include the wait for it; one clock does. */
static int time_batch(const struct work *w, int batch, struct span *out)
{
    int rc = rf_barrier(w->comm, NULL);
    const double start = (double)rf_now_ns() / 1e9 / batch;
    double rewriting = 0;
    for (int i = 0; i < batch && rc == 0; i++) {
        rewriting += rewrite(w);
        rc = run_together(w);
    }
    const double end = ((double)rf_now_ns() / 1e9 - rewriting) / batch;
    *out = w->one_clock ? (struct span){-start, end} : (struct span){0, end - start};
    return rc;
}

/* spans: [samples], the same on every rank */
static int time_samples(const struct work *w, int64_t warmup, int samples, struct span *spans)
{
    struct span one = {0};
    int rc = 0;
    for (int64_t i = 0; i < warmup + 1 && rc == 0; i++)
        rc = time_batch(w, 1, &one);
    /* The following choices depend on the time, so all ranks must see the same one. Ranks that have
     * just started, and share cores, take ten times as long as a moment later. */
    int batch = 1;
    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = max_span(w->comm, &one, 1);
        const double once = one.less_start + one.end;
        const double fit = BATCH_NS / 1e9 / (once > 1e-9 ? once : 1e-9);
        const int wanted = fit < 1 ? 1 : fit > BATCH_MAX ? BATCH_MAX : (int)fit;
        if (wanted <= batch)
            break;
        batch = wanted < 10 * batch ? wanted : 10 * batch;
        if (rc == 0)
            rc = time_batch(w, batch, &one);
    }
    for (int i = 0; i < samples && rc == 0; i++)
        rc = time_batch(w, batch, &spans[i]);
    return rc == 0 ? max_span(w->comm, spans, (size_t)samples) : rc;
}

static double bus_factor(enum rf_coll_op op, int ranks)
{
    double factor = form_of(op)->factor;
    return factor > 0 ? factor * (ranks - 1) / ranks : 1;
}

/* Returns the elements of the whole: the requested ones, rounded up to parts if it has any. */
static size_t set_counts(struct work *w, bool rewrites, uint64_t bytes)
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
    w->rewrite_bytes = rewrites ? sizes[form->in] * rf_dtype_bytes(p->dtype) : 0;
    return whole;
}

static void set_places(struct work *w, bool in_place)
{
    const struct bench_pattern *p = &w->pattern;
    const struct form *form = form_of(p->op);
    unsigned char *whole = w->buffers[in_place ? 1 : 0];
    unsigned char *own = whole + (size_t)p->rank * w->count * rf_dtype_bytes(p->dtype);
    w->in = w->buffers[0];
    w->out = w->buffers[1];
    if (!in_place)
        return;
    w->in = form->in == PART ? own : whole;
    w->out = form->out == PART ? own : whole;
}

/* One of the two forms of one size; *out is the same on every rank. */
static int measure_form(const struct coll_bench *b, struct work *w, struct span *spans,
                        uint64_t bytes, struct coll_times *out)
{
    const struct bench_options *o = b->options;
    uint64_t wrong = 0;
    int rc = o->check ? check_once(w, &wrong) : 0;
    if (rc == 0 && !o->check)
        prepare(w);
    const uint64_t began_ns = rf_now_ns();
    if (rc == 0)
        rc = time_samples(w, o->warmup, (int)o->samples, spans);
    const uint64_t ended_ns = rf_now_ns();
    if (rc == 0 && o->check)
        rc = check_once(w, &wrong);
    if (rc < 0)
        return rc;
    double *samples = &spans->less_start; /* replaces the spans, each of which takes two */
    for (int64_t i = 0; i < o->samples; i++)
        samples[i] = spans[i].less_start + spans[i].end;
    struct bench_times times = bench_quantiles(samples, (int)o->samples);
    const double each = 1e6 / (double)w->together;
    *out = (struct coll_times){.wrong = wrong,
                               .time_us = times.p50 * each,
                               .p50_us = times.p50 * each,
                               .p99_us = times.p99 * each,
                               .began_ns = began_ns,
                               .ended_ns = ended_ns};
    out->algbw = (double)bytes / out->time_us / 1e3;
    out->busbw = out->algbw * bus_factor(w->pattern.op, w->pattern.ranks);
    const double sent = out->busbw *
                        (double)rf_dtype_bytes(o->wire_dtype ? o->wire_dtype : o->dtype) /
                        (double)rf_dtype_bytes(o->dtype);
    /* The minimum that each link must carry, at the link's speed, divided by the time. */
    out->bound_pct =
        o->link_gbps > 0 && b->op != RF_COLL_BARRIER ? 100 * sent * 8 / o->link_gbps : NAN;
    return 0;
}

/* Measures one size on this rank; *row is the same on every rank. */
static int measure(const struct coll_bench *b, struct work *w, uint64_t bytes, struct span *spans,
                   struct coll_row *row)
{
    size_t total = set_counts(w, b->options->rewrite, bytes);
    *row =
        (struct coll_row){.bytes = total * rf_dtype_bytes(w->pattern.dtype),
                          .count = w->count,
                          .has_in_place = b->options->in_place && form_of(w->pattern.op)->in_place};
    set_places(w, false);
    int rc = measure_form(b, w, spans, row->bytes, &row->apart);
    if (rc < 0 || !row->has_in_place)
        return rc;
    set_places(w, true);
    return measure_form(b, w, spans, row->bytes, &row->in_place);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static int run_sizes(const struct coll_bench *b, struct work *w, struct span *spans)
{
    const struct bench_options *o = b->options;
    struct coll_row *rows = NULL;
    int count = 0, status = TOOL_OK;
    uint64_t wrong = 0;
    bool first = rf_comm_rank(w->comm) == 0;
    if (first)
        coll_print_head(b, w->comm);
    uint64_t bytes = b->op == RF_COLL_BARRIER ? 0 : (uint64_t)o->min_bytes;
    uint64_t most = b->op == RF_COLL_BARRIER ? 0 : (uint64_t)o->max_bytes;
    while (bytes <= most && status == TOOL_OK) {
        struct coll_row *grown = realloc(rows, ((size_t)count + 1) * sizeof(*rows));
        if (!grown) {
            status = tool_error(b->command, "out of memory");
            break;
        }
        rows = grown;
        if (measure(b, w, bytes, spans, &rows[count]) < 0) {
            status = tool_library_error(b->command, rf_comm_rank(w->comm));
            break;
        }
        wrong += rows[count].apart.wrong + rows[count].in_place.wrong;
        if (first)
            coll_print_row(b, &rows[count]);
        count++;
        if (bytes == most || bytes == 0)
            break;
        bytes = o->step > 0 ? bytes + (uint64_t)o->step : bytes * (uint64_t)o->factor;
    }
    if (first && status == TOOL_OK && o->json_path)
        status = coll_write_json(b, w->comm, rows, count);
    if (first && status == TOOL_OK && o->plot_path)
        status = coll_draw(b, rows, count);
    free(rows);
    if (status != TOOL_OK || !wrong)
        return status;
    return first ? tool_error(b->command, "%llu elements were wrong", (unsigned long long)wrong)
                 : TOOL_ERROR;
}

/* Memory of the library, or any; zeroed. */
static int get_buffer(const struct work *w, const struct bench_options *o, size_t bytes,
                      unsigned char **out)
{
    void *memory = NULL;
    int rc = 0;
    if (!o->private_buffers)
        rc = rf_comm_alloc(w->comm, bytes, &memory);
    else if (!(memory = aligned_alloc(4096, bytes)))
        rc = RF_ENOMEM;
    *out = memory;
    if (rc == 0)
        memset(memory, 0, bytes);
    return rc;
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
    const struct coll_bench *b = user;
    const struct bench_options *o = b->options;
    int ranks = rf_comm_size(comm);
    struct work w = {.comm = comm,
                     .pattern = {.op = b->op,
                                 .dtype = o->dtype,
                                 .wire_dtype = o->wire_dtype,
                                 .redop = o->redop,
                                 .rank = rf_comm_rank(comm),
                                 .ranks = ranks,
                                 .root = (int)o->root},
                     .opts = {.order = o->order,
                              .label = "bench",
                              .algorithm = o->algorithm,
                              .wire_dtype = o->wire_dtype},
                     .together = o->together,
                     .one_clock = o->one_clock};
    if (o->root >= ranks)
        return tool_usage_error(b->command, "--root %lld is not one of %d ranks",
                                (long long)o->root, ranks);
    /* Sizes are rounded up to whole elements for every rank. */
    size_t capacity = ((size_t)o->max_bytes + 8 * (size_t)ranks + 4095) & ~(size_t)4095;
    struct span *spans = calloc((size_t)o->samples, sizeof(*spans));
    int status;
    if (!spans || get_buffer(&w, o, capacity, &w.buffers[0]) < 0 ||
        get_buffer(&w, o, capacity, &w.buffers[1]) < 0)
        status = tool_error(b->command, "out of memory for two buffers of %zu bytes", capacity);
    else
        status = run_sizes(b, &w, spans);
    free_buffer(&w, o, w.buffers[1]);
    free_buffer(&w, o, w.buffers[0]);
    free(spans);
    return status;
}

int bench_collective(const struct tool_command *command, const struct bench_options *options,
                     char *const *argv)
{
    struct coll_bench bench = {
        .command = command, .options = options, .op = op_of(options->op), .argv = argv};
    return tool_ranks_run(command, &options->ranks, argv, run_rank, &bench);
}
