/* SPDX-License-Identifier: MIT
 *
 * ringforge bench host_update: an update by AdamW in host memory, on one thread and on all
 * processors of the process, compared with the kernel's on a device. All are timed in turns, so
 * that conditions are equal.
 */
#include <math.h>
#include <string.h>

#include "kernel.h"

enum { ONE, ALL, DEVICE, WAYS };
enum { PARAM, GRAD, M, V, ARRAYS }; /* f32, for each parameter */
#define ELEMENTS ((int64_t)16 << 20)
#define CHECKED 1000

struct host_bench {
    const struct bench_options *o;
    int64_t count;
    int threads;
    struct rf_optimizer_opts opts;
    struct rf_step_scalars scalars;
    float *array[ARRAYS], *kept; /* kept: the parameters before the first update */
    uint16_t *copy;
    int32_t *decay;
    struct rf_device *device; /* NULL: none */
    struct rf_stream *stream;
    struct rf_optimizer_part on_device;
    struct rf_tensor scalars_on_device;
    double *seconds[WAYS], error[WAYS];
};

static double bytes_per_element(const struct host_bench *b)
{
    return 4 + 3 * 8 + (b->copy ? 2 : 0); /* parameters and states are read and written */
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int make_host(struct host_bench *b)
{
    const size_t n = (size_t)b->count;
    for (int k = 0; k < ARRAYS; k++)
        b->array[k] = calloc(n, sizeof(float));
    b->kept = calloc(n, sizeof(float));
    b->decay = calloc((n + 63) / 64, sizeof(int32_t));
    b->copy = b->o->dtype == RF_F32 ? NULL : calloc(n, sizeof(uint16_t));
    for (int w = 0; w < WAYS; w++)
        b->seconds[w] = calloc((size_t)b->o->samples, sizeof(double));
    bool there = b->kept && b->decay && (b->copy || b->o->dtype == RF_F32);
    for (int k = 0; k < ARRAYS; k++)
        there = there && b->array[k];
    for (int w = 0; w < WAYS; w++)
        there = there && b->seconds[w];
    if (!there)
        return RF_ENOMEM;
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = (float)(int32_t)state * 0x1p-31f; /* [-1, 1) */
        b->kept[i] = b->array[PARAM][i] = x;
        b->array[GRAD][i] = 0.5f - x;
        b->array[M][i] = 0.25f * x;
        b->array[V][i] = 0.5f + 0.25f * x;
    }
    for (size_t i = 0; i < (n + 63) / 64; i++)
        b->decay[i] = 1;
    return 0;
}

static int make_tensor(struct host_bench *b, struct rf_tensor *tensor, const void *data,
                       int64_t count, enum rf_dtype dtype)
{
    int rc = rf_tensor_create(b->device, rf_shape1(count), dtype, tensor);
    return rc == 0 && data ? rf_tensor_write(*tensor, data, rf_tensor_bytes(*tensor)) : rc;
}

static int make_device(struct host_bench *b)
{
    struct rf_optimizer_part *part = &b->on_device;
    int rc = rf_stream_create(b->device, "bench", &b->stream);
    if (rc == 0)
        rc = make_tensor(b, &part->param, b->array[PARAM], b->count, RF_F32);
    if (rc == 0)
        rc = make_tensor(b, &part->grad, b->array[GRAD], b->count, RF_F32);
    if (rc == 0)
        rc = make_tensor(b, &part->state[RF_STATE_M], b->array[M], b->count, RF_F32);
    if (rc == 0)
        rc = make_tensor(b, &part->state[RF_STATE_V], b->array[V], b->count, RF_F32);
    if (rc == 0 && b->copy)
        rc = make_tensor(b, &part->copy, NULL, b->count, b->o->dtype);
    if (rc == 0)
        rc = make_tensor(b, &part->decay, b->decay, (b->count + 63) / 64, RF_I32);
    if (rc == 0)
        rc = make_tensor(b, &b->scalars_on_device, &b->scalars, RF_SCALAR_WORDS, RF_F32);
    return rc;
}

static void destroy(struct host_bench *b)
{
    struct rf_optimizer_part *part = &b->on_device;
    rf_stream_destroy(b->stream);
    rf_buffer_destroy(part->param.buffer);
    rf_buffer_destroy(part->grad.buffer);
    rf_buffer_destroy(part->state[RF_STATE_M].buffer);
    rf_buffer_destroy(part->state[RF_STATE_V].buffer);
    rf_buffer_destroy(part->copy.buffer);
    rf_buffer_destroy(part->decay.buffer);
    rf_buffer_destroy(b->scalars_on_device.buffer);
    rf_device_close(b->device);
    for (int k = 0; k < ARRAYS; k++)
        free(b->array[k]);
    for (int w = 0; w < WAYS; w++)
        free(b->seconds[w]);
    free(b->kept);
    free(b->decay);
    free(b->copy);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int update(struct host_bench *b, int way)
{
    const struct rf_host_part part = {.count = b->count,
                                      .param = b->array[PARAM],
                                      .grad = b->array[GRAD],
                                      .state = {b->array[M], b->array[V]},
                                      .copy = b->copy,
                                      .copy_type = b->o->dtype,
                                      .decay = b->decay};
    if (way == ONE)
        return rf_host_step(&b->opts, &part, 0, b->count, &b->scalars);
    if (way == ALL)
        return rf_host_step_threads(&b->opts, &part, &b->scalars, b->threads);
    int rc = rf_optimizer_step(b->stream, &b->opts, &b->on_device, b->scalars_on_device);
    return rc == 0 ? rf_stream_wait(b->stream) : rc;
}

/* Element i after the first update, in fp64. */
static double wanted(const struct host_bench *b, int64_t i)
{
    const double p = (double)b->kept[i], g = 0.5 - p, lr = (double)b->scalars.lr;
    const double beta1 = (double)b->opts.beta1, beta2 = (double)b->opts.beta2;
    const double m = beta1 * 0.25 * p + (1 - beta1) * g;
    const double v = beta2 * (0.5 + 0.25 * p) + (1 - beta2) * g * g;
    const double root = sqrt(v / (double)b->scalars.bias2) + (double)b->opts.eps;
    return p - lr * (double)b->opts.weight_decay * p - lr * m / (double)b->scalars.bias1 / root;
}

static double largest_error(const struct host_bench *b, const float *param)
{
    double error = 0;
    for (int k = 0; k < CHECKED; k++) {
        const int64_t i = b->count * k / CHECKED;
        const double size = fmax(fabs((double)b->kept[i]), (double)b->scalars.lr);
        error = fmax(error, fabs((double)param[i] - wanted(b, i)) / size);
    }
    return error;
}

/* The first updates: on the host by all threads, so that each touches its own part. */
static int check(struct host_bench *b)
{
    int rc = update(b, ALL);
    b->error[ONE] = b->error[ALL] = largest_error(b, b->array[PARAM]);
    if (rc < 0 || !b->device)
        return rc;
    float *got = calloc((size_t)b->count, sizeof(float));
    rc = got ? update(b, DEVICE) : RF_ENOMEM;
    if (rc == 0)
        rc = rf_tensor_read(b->on_device.param, got, (uint64_t)b->count * sizeof(float));
    if (rc == 0)
        b->error[DEVICE] = largest_error(b, got);
    free(got);
    return rc;
}

static int measure(struct host_bench *b)
{
    for (int64_t i = -b->o->warmup; i < b->o->samples; i++)
        for (int way = ONE; way < WAYS; way++) {
            if (way == DEVICE && !b->device)
                continue;
            const uint64_t start = rf_now_ns();
            const int rc = update(b, way);
            if (rc < 0)
                return rc;
            if (i >= 0)
                b->seconds[way][i] = (double)(rf_now_ns() - start) / 1e9;
        }
    return 0;
}

static void report_way(const struct host_bench *b, int way, bool quiet, cJSON *rows)
{
    const struct bench_times times = bench_quantiles(b->seconds[way], (int)b->o->samples);
    const char *where = way == DEVICE ? "device" : "host";
    const double ns = times.p50 * 1e9 / (double)b->count;
    const int threads = way == ONE ? 1 : way == ALL ? b->threads : 0;
    char text[16] = "-";
    if (threads)
        snprintf(text, sizeof(text), "%d", threads);
    if (!quiet)
        printf("%-10s %8s %11.1f %11.1f %11.3f %8.2f %10.2e\n", where, text, times.p50 * 1e6,
               times.best * 1e6, ns, bytes_per_element(b) / ns, b->error[way]);
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "where", where);
    if (threads)
        cJSON_AddNumberToObject(row, "threads", threads);
    else
        cJSON_AddNullToObject(row, "threads");
    tool_json_put(row, "time_us=%g best_us=%g ns_per_element=%g gbps=%g max_rel_err=%g",
                  times.p50 * 1e6, times.best * 1e6, ns, bytes_per_element(b) / ns, b->error[way]);
    cJSON_AddItemToArray(rows, row);
}

static int report(const struct tool_command *command, struct host_bench *b, bool quiet)
{
    const struct rf_device_info *info = b->device ? rf_device_get_info(b->device) : NULL;
    cJSON *json =
        tool_json_new("op=%s device=%s driver=%s dtype=%s elements=%g bytes_per_element=%g",
                      b->o->op, info ? info->name : "", info ? info->driver : "",
                      rf_dtype_name(b->o->dtype), (double)b->count, bytes_per_element(b));
    cJSON *rows = cJSON_AddArrayToObject(json, "rows");
    if (!quiet)
        printf("# adamw of %lld parameters, %.0f bytes of each%s%s; device: %s\n%-10s %8s %11s "
               "%11s %11s %8s %10s\n",
               (long long)b->count, bytes_per_element(b), b->copy ? ", with a copy in " : "",
               b->copy ? rf_dtype_name(b->o->dtype) : "", info ? info->name : "none", "# where",
               "threads", "time(us)", "best(us)", "ns/element", "GB/s", "max_err");
    for (int way = ONE; way < WAYS; way++)
        if (way != DEVICE || b->device)
            report_way(b, way, quiet, rows);
    if (b->o->json_path)
        return tool_json_write(command, b->o->json_path, json);
    cJSON_Delete(json);
    return TOOL_OK;
}

int bench_host_update(const struct tool_command *command, const struct bench_options *o)
{
    const struct rf_optimizer_info *info = rf_optimizer_get_info(RF_ADAMW);
    int64_t dims[BENCH_DIMS] = {ELEMENTS};
    const char *text = o->shapes.count ? o->shapes.item[0] : "";
    if (o->dtype != RF_F32 && o->dtype != RF_F16 && o->dtype != RF_BF16)
        return tool_usage_error(command, "a copy of parameters is f16 or bf16 (f32: none), not %s",
                                rf_dtype_name(o->dtype));
    if (o->shapes.count > 1 || (*text && !bench_read_dims(&text, NULL, 1, dims)) || *text)
        return tool_usage_error(command, "--shape of host_update wants a number of parameters");
    struct host_bench b = {.o = o,
                           .count = dims[0],
                           .threads = bench_processors(),
                           .opts = {.kind = RF_ADAMW,
                                    .beta1 = info->beta1,
                                    .beta2 = info->beta2,
                                    .eps = info->eps,
                                    .weight_decay = 0.1f},
                           .scalars = {.lr = 1e-3f, .inv_tokens = 1, .updates = 9}};
    int rc = make_host(&b);
    if (rc == 0)
        rc = rf_host_step_begin(&b.opts, &b.scalars, 1);
    if (rc == 0 && rf_device_open(o->device, NULL, &b.device) < 0 && o->device)
        rc = -1; /* it was asked for by name */
    if (rc == 0 && b.device)
        rc = make_device(&b);
    if (rc == 0)
        rc = check(&b);
    if (rc == 0)
        rc = measure(&b);
    int status = rc == 0 ? report(command, &b, o->json_path && strcmp(o->json_path, "-") == 0)
                 : rc == RF_ENOMEM ? tool_error(command, "out of memory")
                                   : tool_library_error(command, -1);
    destroy(&b);
    return status;
}
