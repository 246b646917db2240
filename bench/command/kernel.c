/* SPDX-License-Identifier: MIT
 *
 * The engine of kernel benchmarks: goes through the rows of the table and the shapes of models,
 * checks, times, prints. The computations of kernels are in rows_*.c.
 */
#include <math.h>
#include <string.h>

#include "kernel.h"

#define LOOP_SAMPLES 5 /* of C loops, before and after */
#define ROWS_MOST 256

struct result {
    const char *op, *model, *path;
    char shape[96];
    double flops, bytes, error;
    struct bench_seconds seconds;
    struct bench_seconds loop; /* the same in C loops; 0: no loop */
};

struct bench {
    const struct tool_command *command;
    const struct bench_options *o;
    struct rf_device *device;
    struct rf_stream *stream;
    struct bench_ceiling ceiling;
    struct result *results;
    int count;
    bool quiet, all;
    int wrong; /* status of a kernel with wrong results; otherwise TOOL_OK */
};

#define BENCH_ROW(NAME) extern const struct bench_kernel bench_row_##NAME;
#include "rows.h"
#undef BENCH_ROW
#define BENCH_ROW(NAME) &bench_row_##NAME,
const struct bench_kernel *const bench_kernel_rows[] = {
#include "rows.h"
    NULL};

const struct bench_kernel *bench_kernel_find(const char *name)
{
    for (int i = 0; bench_kernel_rows[i]; i++)
        if (strcmp(bench_kernel_rows[i]->name, name) == 0)
            return bench_kernel_rows[i];
    return NULL;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int launch_case(void *user)
{
    struct bench_case *c = user;
    return c->kernel->launch(c);
}

static double bytes_moved(const struct bench_case *c)
{
    double bytes = 0;
    for (int k = 0; k < c->count; k++) {
        const struct bench_operand *o = &c->operand[k];
        const int64_t all = rf_tensor_count(o->tensor);
        const int64_t touched = o->touched && o->touched < all ? o->touched : all;
        for (int use = o->use; use; use &= use - 1)
            bytes += (double)touched * (double)rf_dtype_bytes(o->tensor.dtype);
    }
    return bytes;
}

static void print_row(const struct bench *b, const struct result *r)
{
    const struct bench_ceiling *most = &b->ceiling;
    char loop[16] = "-";
    if (b->quiet)
        return;
    if (r->loop.best > 0)
        snprintf(loop, sizeof(loop), "%.1f", 100 * r->loop.best / r->seconds.best);
    printf("%-26s %-10s %20s %5s %-9s %11.1f %11.1f %9.2f %8.2f %6.1f %6.1f %6s %10.2e\n", r->op,
           r->model, r->shape, rf_dtype_name(b->o->dtype), r->path, r->seconds.median * 1e6,
           r->seconds.best * 1e6, r->flops / r->seconds.median / 1e9,
           r->bytes / r->seconds.median / 1e9,
           100 * r->bytes / r->seconds.median / most->copy_bytes,
           100 * r->flops / r->seconds.median / most->flops, loop, r->error);
    if (r->loop.best > 0)
        printf(
            "#   best %.1f GFLOP/s, C loops %.1f; per second of a processor %.1f, C loops %.1f\n",
            r->flops / r->seconds.best / 1e9, r->flops / r->loop.best / 1e9,
            r->flops / r->seconds.work / 1e9, r->flops / r->loop.work / 1e9);
    fflush(stdout);
}

/* Kernels without this type are skipped when all are measured. */
static bool lacks_type(const struct bench *b, int rc)
{
    return b->all && b->o->dtype != RF_F32 && (rc == RF_EINVAL || rc == RF_ENOTSUP);
}

/* On a CPU device C loops are timed before and after, so that both are measured under the same
 * load. */
static int time_with_loop(struct bench *b, struct bench_case *c, struct result *r)
{
    double seconds[2 * LOOP_SAMPLES], *half = seconds + LOOP_SAMPLES, work = INFINITY;
    const bool loop = c->kernel->loop && rf_device_get_info(b->device)->kind == RF_DEVICE_CPU;
    int rc = loop ? c->kernel->loop(c, LOOP_SAMPLES, seconds, &work) : 0;
    if (rc == 0)
        rc = bench_time(b->stream, b->o, launch_case, c, &r->seconds);
    if (rc == 0 && loop)
        rc = c->kernel->loop(c, LOOP_SAMPLES, half, &work);
    if (rc == 0 && loop) {
        r->loop.median = bench_quantiles(seconds, 2 * LOOP_SAMPLES).p50;
        r->loop.best = seconds[0];
        r->loop.work = work;
    }
    return rc;
}

/* No correct kernel exceeds this: chains of operations round more often than a product does. Split
 * operands may have only one 16-bit part. */
static double most_error(const struct bench_options *o)
{
    const int more = o->dtype == RF_F32 ? 10 : o->dtype == RF_F16 ? 4 : 2;
    return o->split ? bench_tolerance(RF_BF16) : more * bench_tolerance(o->dtype);
}

static int measure(struct bench *b, const struct bench_kernel *kernel, const char *model,
                   const int64_t *dims)
{
    struct bench_case c = {.kernel = kernel,
                           .device = b->device,
                           .stream = b->stream,
                           .path = b->o->path,
                           .split = (uint32_t)b->o->split,
                           .transpose_a = strcmp(b->o->form, "tn") == 0,
                           .transpose_b = strcmp(b->o->form, "nt") == 0,
                           .dtype = b->o->dtype};
    struct result r = {.op = kernel->name, .model = model, .path = "-"};
    memcpy(c.dim, dims, sizeof(c.dim));
    bench_print_dims(kernel, dims, r.shape, sizeof(r.shape));
    kernel->plan(&c);
    r.flops = c.flops;
    r.bytes = bytes_moved(&c);
    int rc = bench_operands_make(&c);
    if (rc == 0)
        rc = bench_operands_check(&c, &r.error);
    if (rc == 0)
        rc = time_with_loop(b, &c, &r);
    if (rc == 0 && kernel->path)
        r.path = kernel->path(&c);
    bench_operands_free(&c);
    if (lacks_type(b, rc))
        return 0;
    if (rc == 0 && b->count < ROWS_MOST) {
        b->results[b->count++] = r;
        print_row(b, &r);
        if (!(r.error <= most_error(b->o)))
            b->wrong = tool_error(b->command, "%s of %s is wrong by %.2g", r.op, r.shape, r.error);
    }
    return rc;
}

static int measure_models(struct bench *b, const struct bench_kernel *kernel)
{
    const bool cpu = rf_device_get_info(b->device)->kind == RF_DEVICE_CPU;
    int rc = 0;
    for (int m = 0; m < 2; m++) {
        const char *text = kernel->shapes;
        int64_t dims[BENCH_DIMS] = {0};
        while (rc == 0 && *text) {
            if (!bench_read_dims(&text, &bench_models[cpu][m], bench_count_dims(kernel->dims),
                                 dims))
                abort(); /* a row's own mistake */
            rc = measure(b, kernel, bench_models[cpu][m].name, dims);
        }
    }
    return rc;
}

/* The user's shapes, which have been parsed before. */
static int measure_shapes(struct bench *b, const struct bench_kernel *kernel)
{
    int rc = 0;
    for (int i = 0; i < b->o->shapes.count && rc == 0; i++) {
        const char *text = b->o->shapes.item[i];
        int64_t dims[BENCH_DIMS] = {0};
        if (bench_read_dims(&text, NULL, bench_count_dims(kernel->dims), dims))
            rc = measure(b, kernel, "-", dims);
    }
    return rc;
}

/* ---- results --------------------------------------------------------------------------------- */

static int write_json(const struct bench *b)
{
    const struct rf_device_info *info = rf_device_get_info(b->device);
    cJSON *json = tool_json_new(
        "op=%s device=%s driver=%s copy_gbps=%g kernel_copy_gbps=%g multiply_add_gflops=%g",
        b->o->op, info->name, info->driver, b->ceiling.copy_bytes / 1e9,
        b->ceiling.kernel_copy_bytes / 1e9, b->ceiling.flops / 1e9);
    cJSON *rows = cJSON_AddArrayToObject(json, "rows");
    for (int i = 0; i < b->count; i++) {
        const struct result *r = &b->results[i];
        const double s = r->seconds.median;
        cJSON *row = tool_json_new("op=%s model=%s shape=%s dtype=%s path=%s time_us=%g best_us=%g "
                                   "gflops=%g gbps=%g copy_pct=%g multiply_add_pct=%g",
                                   r->op, r->model, r->shape, rf_dtype_name(b->o->dtype), r->path,
                                   s * 1e6, r->seconds.best * 1e6, r->flops / s / 1e9,
                                   r->bytes / s / 1e9, 100 * r->bytes / s / b->ceiling.copy_bytes,
                                   100 * r->flops / s / b->ceiling.flops);
        if (r->loop.best > 0) {
            tool_json_put(row,
                          "c_loop_us=%g c_loop_best_us=%g processor_us=%g c_loop_processor_us=%g",
                          r->loop.median * 1e6, r->loop.best * 1e6, r->seconds.work * 1e6,
                          r->loop.work * 1e6);
        }
        if (isfinite(r->error))
            cJSON_AddNumberToObject(row, "max_rel_err", r->error);
        else
            cJSON_AddNullToObject(row, "max_rel_err");
        cJSON_AddItemToArray(rows, row);
    }
    return tool_json_write(b->command, b->o->json_path, json);
}

static int draw(const struct bench *b)
{
    double x[ROWS_MOST], y[ROWS_MOST];
    for (int i = 0; i < b->count; i++) {
        x[i] = b->results[i].flops / 1e9;
        y[i] = b->results[i].flops / b->results[i].seconds.median / 1e9;
    }
    struct tool_series series = {
        .title = rf_dtype_name(b->o->dtype), .x = x, .y = y, .count = b->count};
    struct tool_plot plot = {.title = b->o->op,
                             .x_label = "work, GFLOP",
                             .y_label = "GFLOP/s",
                             .log_x = true,
                             .series = &series,
                             .series_count = 1};
    return tool_plot_write(b->command, b->o->plot_path, &plot);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int check(const struct tool_command *command, const struct bench_options *o,
                 const struct bench_kernel *kernel)
{
    if (o->dtype != RF_F32 && o->dtype != RF_F16 && o->dtype != RF_BF16)
        return tool_usage_error(command, "kernels compute on f32, f16 and bf16, not on %s",
                                rf_dtype_name(o->dtype));
    if (!kernel && o->shapes.count)
        return tool_usage_error(command, "--shape belongs to one kernel, not to all of them");
    for (int i = 0; i < o->shapes.count; i++) {
        const char *text = o->shapes.item[i];
        int64_t dims[BENCH_DIMS];
        if (!bench_read_dims(&text, NULL, bench_count_dims(kernel->dims), dims) || *text)
            return tool_usage_error(command, "--shape of %s wants %s, numbers from 1, not \"%s\"",
                                    kernel->name, kernel->dims, o->shapes.item[i]);
    }
    return TOOL_OK;
}

static int measure_kernel(struct bench *b, const struct bench_kernel *kernel)
{
    int rc = rf_device_open(b->o->device, NULL, &b->device);
    if (rc == 0)
        rc = rf_stream_create(b->device, "bench", &b->stream);
    if (rc == 0)
        rc = bench_ceiling_measure(b->device, b->stream, b->o, &b->ceiling);
    if (rc == 0 && !b->quiet)
        printf("# %s on %s; copy %.2f GB/s (by a kernel %.2f), multiply-add %.1f GFLOP/s\n"
               "%-26s %-10s %20s %5s %-9s %11s %11s %9s %8s %6s %6s %6s %10s\n",
               b->o->op, rf_device_get_info(b->device)->name, b->ceiling.copy_bytes / 1e9,
               b->ceiling.kernel_copy_bytes / 1e9, b->ceiling.flops / 1e9, "# kernel", "model",
               "shape", "type", "path", "time(us)", "best(us)", "GFLOP/s", "GB/s", "%copy", "%mad",
               "%C", "max_err");
    for (int i = 0; rc == 0 && bench_kernel_rows[i]; i++)
        if (b->all || bench_kernel_rows[i] == kernel)
            rc = b->o->shapes.count ? measure_shapes(b, kernel)
                                    : measure_models(b, bench_kernel_rows[i]);
    return rc == 0 ? TOOL_OK : tool_library_error(b->command, -1);
}

int bench_kernels(const struct tool_command *command, const struct bench_options *o)
{
    const struct bench_kernel *kernel = bench_kernel_find(o->op);
    struct bench b = {.command = command,
                      .o = o,
                      .all = !kernel,
                      .quiet = o->json_path && strcmp(o->json_path, "-") == 0};
    int status = check(command, o, kernel);
    if (status != TOOL_OK)
        return status;
    b.results = calloc(ROWS_MOST, sizeof(*b.results));
    if (!b.results)
        return tool_error(command, "out of memory");
    status = measure_kernel(&b, kernel);
    if (status == TOOL_OK && o->json_path)
        status = write_json(&b);
    if (status == TOOL_OK && o->plot_path)
        status = draw(&b);
    rf_stream_destroy(b.stream);
    rf_device_close(b.device);
    free(b.results);
    return status == TOOL_OK ? b.wrong : status;
}
