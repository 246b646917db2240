/* SPDX-License-Identifier: MIT
 *
 * ringforge tune: measures the paths and tiles of the matrix product on a device, and writes the
 * fastest for each size; rf_matmul reads that table. An inaccurate candidate is never chosen. The
 * best rates are written, too: `ringforge train` compares with them and `ringforge plan` predicts
 * with them.
 */
#include <math.h>
#include <string.h>

#include "kernel.h"

enum { MOST_CHOICES = 4096, TILES = 26 };
#define WORTH_IT 0.95 /* of the built-in rules' time: smaller gains are noise */

struct tune {
    const struct tool_command *command;
    struct bench_options o;
    struct rf_device *device;
    struct rf_stream *stream;
    bool quiet;
    double seconds;   /* 0 = no limit; no product is begun after it */
    uint64_t from_ns; /* when measuring began */
    struct rf_matmul_choice choices[MOST_CHOICES];
    uint32_t count;
    struct rf_device_rates rates; /* the previous ones, and the best of now */
    cJSON *rows;
};

static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_BF16};
static const char *const forms[] = {"nn", "nt", "tn"};
/* M x K x N: typical layers, weight gradients and heads of small and large models. */
static const int64_t cpu_shapes[][3] = {{64, 64, 64},    {256, 256, 256},  {512, 512, 512},
                                        {512, 256, 768}, {512, 1024, 256}, {512, 256, 4096},
                                        {64, 2048, 64}};
static const int64_t gpu_shapes[][3] = {
    {256, 256, 256},    {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096},
    {8192, 8192, 8192}, {8192, 768, 2304},  {8192, 768, 3072},  {8192, 3072, 768},
    {768, 8192, 768},   {2048, 2048, 8192}, {8192, 768, 50304}, {4096, 4096, 14336}};

static int launch(void *user)
{
    struct bench_case *c = user;
    return c->kernel->launch(c);
}

static double gflop_of(const struct bench_case *c)
{
    return 2e-9 * (double)c->dim[0] * (double)c->dim[1] * (double)c->dim[2];
}

/* Seconds of this path, or infinity if it does not run or is wrong. */
static int measure(struct tune *t, struct bench_case *c, const char *path, double *seconds)
{
    struct bench_seconds times = {0};
    double error = 0;
    *seconds = INFINITY;
    c->path = path;
    int rc = bench_operands_check(c, &error);
    if (rc == RF_ENOTSUP || rc == RF_EINVAL) /* no such tile, or not on this device */
        return 0;
    if (rc == 0 && !(error <= bench_tolerance(c->dtype))) {
        fprintf(stderr, "ringforge tune: %s is wrong by %.2g and left out\n", path, error);
        return 0;
    }
    if (rc == 0)
        rc = bench_time(t->stream, &t->o, launch, c, &times);
    if (rc == 0)
        *seconds = times.median;
    return rc;
}

/* Every path and tile that runs; `tried` gets the rate of each. */
static int try_all(struct tune *t, struct bench_case *c, cJSON *tried, char *best, size_t bytes,
                   double *fastest)
{
    struct rf_matmul_path_info infos[64];
    uint32_t count = 0;
    int rc = rf_matmul_paths(t->device, infos, 64, &count);
    for (uint32_t i = 0; i < count && i < 64 && rc == 0; i++) {
        if (infos[i].type != c->dtype || !infos[i].usable || infos[i].split_only)
            continue;
        for (int tile = 0; tile <= TILES && rc == 0; tile++) {
            char path[24];
            double seconds;
            snprintf(path, sizeof(path), tile ? "%.18s:%d" : "%.18s", infos[i].name, tile);
            if (tile && strcmp(infos[i].name, "cooperative") != 0)
                break; /* the others have one tile, or choose by themselves */
            rc = measure(t, c, path, &seconds);
            if (rc < 0 || !isfinite(seconds))
                continue;
            tool_json_row(tried, "path=%s gflops=%g", path, gflop_of(c) / seconds);
            if (seconds < *fastest) {
                *fastest = seconds;
                snprintf(best, bytes, "%s", path);
            }
        }
    }
    return rc;
}

/* "#   tiled 1234.5, cooperative:1 2345.6" */
static void print_tried(const cJSON *tried)
{
    const char *comma = "#   ";
    for (const cJSON *row = tried->child; row; row = row->next) {
        printf("%s%s %.1f", comma, cJSON_GetObjectItem(row, "path")->valuestring,
               cJSON_GetObjectItem(row, "gflops")->valuedouble);
        comma = ", ";
    }
    printf("\n");
}

/* `tried` becomes part of the row. */
static void note(struct tune *t, const struct bench_case *c, const char *form, cJSON *tried,
                 const char *best, double fastest, double built_in)
{
    const double gflops = gflop_of(c);
    rf_device_rates_note(&t->rates, c->dtype, 1e9 * gflops / fastest);
    const char *usual = c->kernel->path(c);
    const bool wins = best[0] && strcmp(best, usual) != 0 && fastest < WORTH_IT * built_in &&
                      t->count < MOST_CHOICES;
    char shape[64];
    snprintf(shape, sizeof(shape), "%lldx%lldx%lld", (long long)c->dim[0], (long long)c->dim[1],
             (long long)c->dim[2]);
    if (wins) {
        struct rf_matmul_choice *choice = &t->choices[t->count++];
        *choice = (struct rf_matmul_choice){.type = c->dtype,
                                            .transpose_a = c->transpose_a,
                                            .transpose_b = c->transpose_b,
                                            .m_class = rf_matmul_class(c->dim[0]),
                                            .k_class = rf_matmul_class(c->dim[1]),
                                            .n_class = rf_matmul_class(c->dim[2])};
        snprintf(choice->path, sizeof(choice->path), "%s", best);
    }
    if (!t->quiet)
        printf("%-20s %5s %4s %-16s %9.1f %-16s %9.1f %s\n", shape, rf_dtype_name(c->dtype), form,
               usual, gflops / built_in, best, gflops / fastest, wins ? "<- taken" : "");
    if (!t->quiet)
        print_tried(tried);
    fflush(stdout);
    cJSON *row = tool_json_new("shape=%s dtype=%s form=%s built_in=%s built_in_gflops=%g best=%s "
                               "best_gflops=%g taken=%hhd",
                               shape, rf_dtype_name(c->dtype), form, usual, gflops / built_in, best,
                               gflops / fastest, wins);
    cJSON_AddItemToObject(row, "tried", tried);
    cJSON_AddItemToArray(t->rows, row);
}

static int tune_product(struct tune *t, enum rf_dtype type, const char *form, const int64_t *shape)
{
    struct bench_case c = {.kernel = bench_kernel_find("matmul"),
                           .device = t->device,
                           .stream = t->stream,
                           .transpose_a = strcmp(form, "tn") == 0,
                           .transpose_b = strcmp(form, "nt") == 0,
                           .dtype = type};
    cJSON *tried = cJSON_CreateArray();
    char best[24] = "";
    double fastest = INFINITY, built_in = INFINITY;
    memcpy(c.dim, shape, 3 * sizeof(*shape));
    c.kernel->plan(&c);
    int rc = bench_operands_make(&c);
    if (rc == 0)
        rc = measure(t, &c, NULL, &built_in);
    if (rc == 0)
        rc = try_all(t, &c, tried, best, sizeof(best), &fastest);
    c.path = NULL;
    if (rc == 0 && isfinite(built_in))
        note(t, &c, form, tried, best, fastest, built_in);
    else
        cJSON_Delete(tried);
    bench_operands_free(&c);
    return rc;
}

static bool is_late(const struct tune *t)
{
    return t->seconds > 0 && (double)(rf_now_ns() - t->from_ns) / 1e9 > t->seconds;
}

static int tune_shape(struct tune *t, const int64_t *shape, int only)
{
    int rc = 0;
    for (int i = 0; i < 3; i++)
        for (int f = 0; f < 3 && rc == 0 && (only < 0 || only == i) && !is_late(t); f++)
            rc = tune_product(t, types[i], forms[f], shape);
    return rc;
}

static int tune_all(struct tune *t, int only)
{
    const bool cpu = rf_device_get_info(t->device)->kind == RF_DEVICE_CPU;
    const int64_t(*shapes)[3] = cpu ? cpu_shapes : gpu_shapes;
    const int count = cpu ? sizeof(cpu_shapes) / sizeof(cpu_shapes[0])
                          : sizeof(gpu_shapes) / sizeof(gpu_shapes[0]);
    int rc = 0;
    t->from_ns = rf_now_ns();
    for (int i = 0; i < t->o.shapes.count && rc == 0; i++) {
        int64_t shape[3] = {0};
        if (bench_read_product(t->o.shapes.item[i], shape)) /* it has been checked */
            rc = tune_shape(t, shape, only);
    }
    for (int i = 0; i < count && t->o.shapes.count == 0 && rc == 0; i++)
        rc = tune_shape(t, shapes[i], only);
    return rc < 0 ? tool_library_error(t->command, -1) : TOOL_OK;
}

/* All operations other than products depend on it. */
static int tune_memory(struct tune *t)
{
    if (bench_memory_measure(t->device, t->stream, &t->o, &t->rates.bytes_per_s,
                             &t->rates.launch_s) < 0)
        return tool_library_error(t->command, -1);
    if (!t->quiet)
        printf("# a kernel copies %.1f GB/s and takes at least %.1f us\n",
               1e-9 * t->rates.bytes_per_s, 1e6 * t->rates.launch_s);
    return TOOL_OK;
}

static int measure_chosen(struct tune *t, int only, bool dry)
{
    char path[1100] = "";
    int rc = rf_device_open(t->o.device, NULL, &t->device);
    if (rc == 0)
        rc = rf_stream_create(t->device, "tune", &t->stream);
    if (rc == 0) /* against the built-in rules, not against an earlier table */
        rc = rf_matmul_table_use(t->device, NULL, 0);
    if (rc < 0)
        return tool_library_error(t->command, -1);
    rf_device_rates_load(t->device, &t->rates);
    if (!t->quiet)
        printf("# matmul on %s\n%-20s %5s %4s %-16s %9s %-16s %9s\n",
               rf_device_get_info(t->device)->name, "# MxKxN", "type", "form", "built-in",
               "GFLOP/s", "best", "GFLOP/s");
    int status = tune_all(t, only);
    if (status == TOOL_OK)
        status = tune_memory(t);
    if (status == TOOL_OK && !dry &&
        (rf_matmul_table_save(t->device, t->choices, t->count, path, sizeof(path)) < 0 ||
         rf_device_rates_save(t->device, &t->rates) < 0))
        status = tool_library_error(t->command, -1);
    if (status == TOOL_OK && !t->quiet)
        printf("%u choice%s%s%s\n", t->count, t->count == 1 ? "" : "s",
               dry ? "; nothing is written" : " written to ", path);
    return status;
}

static int tune_main(const struct tool_command *command, int argc, char **argv)
{
    static struct tune t;
    static const char *const names[] = {"f32", "f16", "bf16", NULL};
    const char *dtype = NULL;
    bool dry = false;
    t = (struct tune){.command = command, .o = {.samples = 15}};
    struct tool_option table[] = {
        {"device", TOOL_TEXT, &t.o.device, "WHICH", "device: its index, or part of its name"},
        {"dtype", TOOL_TEXT, &dtype, "TYPE", "the only type to measure: f32, f16 or bf16"},
        {"shape", TOOL_LIST, &t.o.shapes, "MxKxN",
         "product to measure in place of a list; may be repeated"},
        {"iters", TOOL_INT, &t.o.samples, "N", "number of timed samples of each (15)", .least = 1,
         .most = 100000},
        {"seconds", TOOL_REAL, &t.seconds, "S",
         "time after which no product begins; those before count"},
        {"dry-run", TOOL_FLAG, &dry, NULL, "measurement only, no table written"},
        {"json", TOOL_FILE, &t.o.json_path, "FILE", "the measurements as JSON (no FILE: printed)",
         .path = TOOL_WRITES},
        {NULL}};
    int status = tool_options(command, table, argc, argv, NULL);
    if (status != TOOL_OK)
        return status;
    int only = dtype ? tool_choice(dtype, names) : -1;
    if (dtype && only < 0)
        return tool_usage_error(command, "there is no type \"%s\"; there are f32, f16 and bf16",
                                dtype);
    for (int i = 0; i < t.o.shapes.count; i++) {
        int64_t shape[3];
        if (!bench_read_product(t.o.shapes.item[i], shape))
            return tool_usage_error(command, "--shape %s is not like 512x256x768",
                                    t.o.shapes.item[i]);
    }
    status = tool_outputs_check(command, table);
    if (status != TOOL_OK)
        return status;
    t.quiet = t.o.json_path && strcmp(t.o.json_path, "-") == 0;
    t.rows = cJSON_CreateArray();
    status = measure_chosen(&t, only, dry);
    cJSON *json = cJSON_CreateObject();
    if (t.device)
        cJSON_AddStringToObject(json, "device", rf_device_get_info(t.device)->name);
    tool_json_put(json, "choices=%u copied_gbps=%g launch_us=%g", t.count,
                  1e-9 * t.rates.bytes_per_s, 1e6 * t.rates.launch_s);
    cJSON_AddItemToObject(json, "rows", t.rows);
    if (status == TOOL_OK && t.o.json_path)
        status = tool_json_write(command, t.o.json_path, json);
    else
        cJSON_Delete(json);
    rf_stream_destroy(t.stream);
    rf_device_close(t.device);
    return status;
}

const struct tool_command tool_tune = {
    .name = "tune",
    .summary = "measure this device's matrix product, and write which kernels to take",
    .usage = "[--device WHICH] [--dtype TYPE] [--shape MxKxN ...] [--dry-run]",
    .main = tune_main,
};
