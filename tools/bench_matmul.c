/* SPDX-License-Identifier: MIT
 *
 * ringforge bench matmul: speed of the library's matrix product, with the result compared to a sum
 * in double precision at sampled places.
 */
#include <math.h>
#include <string.h>

#include "bench.h"

#define SAMPLED 256 /* elements that are compared */

struct shape {
    int64_t m, k, n;
};

struct result {
    struct shape shape;
    const char *path;
    double time_us, gflops, gbps, error;
};

/* Small, signed, not periodic in any tile size. */
static float element(uint64_t index)
{
    uint32_t h = (uint32_t)(index * 2654435761u) ^ (uint32_t)(index >> 7);
    return (float)((int)(h >> 8 & 0xffff) - 32768) / 32768.0f;
}

static int upload(struct rf_device *device, int64_t rows, int64_t columns, uint64_t salt,
                  struct rf_tensor *out)
{
    int64_t count = rows * columns;
    float *host = malloc((size_t)count * sizeof(float));
    int rc = rf_tensor_create(device, rf_shape2(rows, columns), RF_F32, out);
    if (rc < 0 || !host) {
        free(host);
        return rc < 0 ? rc : RF_ENOMEM;
    }
    for (int64_t i = 0; i < count; i++)
        host[i] = element((uint64_t)i + salt);
    rc = rf_tensor_write(*out, host, (uint64_t)count * sizeof(float));
    free(host);
    return rc;
}

/* Largest |difference| over the sum of |products|: the natural scale of rounding in a dot product.
 */
static int compare(struct rf_tensor out, struct shape s, double *error)
{
    uint64_t bytes = rf_tensor_bytes(out);
    float *host = malloc(bytes);
    int rc = host ? rf_tensor_read(out, host, bytes) : RF_ENOMEM;
    *error = 0;
    for (int i = 0; rc == 0 && i < SAMPLED; i++) {
        uint64_t at = i < 4 ? (uint64_t[]){0, (uint64_t)s.n - 1, (uint64_t)(s.m - 1) * s.n,
                                           (uint64_t)s.m * s.n - 1}[i]
                            : (uint64_t)i * 0x9e3779b97f4a7c15ull % ((uint64_t)s.m * s.n);
        uint64_t row = at / (uint64_t)s.n, column = at % (uint64_t)s.n;
        double sum = 0, scale = 0;
        for (uint64_t k = 0; k < (uint64_t)s.k; k++) {
            double product =
                (double)element(row * (uint64_t)s.k + k) * element(k * (uint64_t)s.n + column + 77);
            sum += product;
            scale += fabs(product);
        }
        double difference = fabs(host[at] - sum) / (scale > 0 ? scale : 1);
        if (!(difference <= *error)) /* a NaN is the largest */
            *error = difference;
    }
    free(host);
    return rc;
}

static int time_shape(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                      struct rf_tensor b, const struct bench_options *o, double *seconds)
{
    struct rf_matmul_opts opts = {.path = o->path};
    double *samples = calloc((size_t)o->samples, sizeof(*samples));
    int rc = samples ? 0 : RF_ENOMEM;
    for (int64_t i = 0; i < o->warmup + 1 && rc == 0; i++) { /* the first compiles */
        rc = rf_matmul(stream, out, a, b, &opts);
        if (rc == 0)
            rc = rf_stream_wait(stream);
    }
    for (int64_t i = 0; i < o->samples && rc == 0; i++) {
        uint64_t start = rf_now_ns();
        rc = rf_matmul(stream, out, a, b, &opts);
        if (rc == 0)
            rc = rf_stream_wait(stream);
        samples[i] = (double)(rf_now_ns() - start) / 1e9;
    }
    if (rc == 0)
        *seconds = bench_quantiles(samples, (int)o->samples).p50;
    free(samples);
    return rc;
}

static int measure(struct rf_device *device, struct rf_stream *stream,
                   const struct bench_options *o, struct shape s, struct result *result)
{
    struct rf_tensor a = {0}, b = {0}, out = {0};
    double seconds = 0, error = 0;
    struct rf_matmul_opts opts = {.path = o->path};
    int rc = upload(device, s.m, s.k, 0, &a);
    if (rc == 0)
        rc = upload(device, s.k, s.n, 77, &b);
    if (rc == 0)
        rc = rf_tensor_create(device, rf_shape2(s.m, s.n), RF_F32, &out);
    if (rc == 0)
        rc = time_shape(stream, out, a, b, o, &seconds);
    if (rc == 0)
        rc = compare(out, s, &error);
    if (rc == 0) {
        double m = (double)s.m, k = (double)s.k, n = (double)s.n;
        *result = (struct result){
            .shape = s,
            .path = rf_matmul_path(device, RF_F32, s.m, s.n, s.k, &opts),
            .time_us = seconds * 1e6,
            .gflops = 2 * m * k * n / seconds / 1e9,
            .gbps = 4 * (m * k + k * n + m * n) / seconds / 1e9,
            .error = error,
        };
    }
    rf_buffer_destroy(out.buffer);
    rf_buffer_destroy(b.buffer);
    rf_buffer_destroy(a.buffer);
    return rc;
}

static int write_json(const struct tool_command *command, const struct bench_options *o,
                      const struct rf_device_info *info, const struct result *results, int count)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "op", "matmul");
    cJSON_AddStringToObject(json, "device", info->name);
    cJSON_AddStringToObject(json, "driver", info->driver);
    cJSON *rows = cJSON_AddArrayToObject(json, "rows");
    for (int i = 0; i < count; i++) {
        const struct result *r = &results[i];
        cJSON *row = cJSON_CreateObject();
        char shape[80];
        snprintf(shape, sizeof(shape), "%lldx%lldx%lld", (long long)r->shape.m,
                 (long long)r->shape.k, (long long)r->shape.n);
        cJSON_AddStringToObject(row, "shape", shape);
        cJSON_AddStringToObject(row, "dtype", "f32");
        cJSON_AddStringToObject(row, "path", r->path);
        cJSON_AddNumberToObject(row, "time_us", r->time_us);
        cJSON_AddNumberToObject(row, "gflops", r->gflops);
        cJSON_AddNumberToObject(row, "gbps", r->gbps);
        cJSON_AddNumberToObject(row, "max_rel_err", r->error);
        cJSON_AddItemToArray(rows, row);
    }
    return tool_json_write(command, o->json_path, json);
}

static int draw(const struct tool_command *command, const struct bench_options *o,
                const struct result *results, int count)
{
    double x[TOOL_LIST_MAX], y[TOOL_LIST_MAX];
    for (int i = 0; i < count; i++) {
        x[i] = 2e-9 * (double)results[i].shape.m * (double)results[i].shape.k *
               (double)results[i].shape.n;
        y[i] = results[i].gflops;
    }
    struct tool_series series = {.title = "f32", .x = x, .y = y, .count = count};
    struct tool_plot plot = {.title = "matmul",
                             .x_label = "work, GFLOP",
                             .y_label = "GFLOP/s",
                             .log_x = true,
                             .series = &series,
                             .series_count = 1};
    return tool_plot_write(command, o->plot_path, &plot);
}

static int read_shapes(const struct tool_command *command, const struct bench_options *o,
                       struct shape *shapes, int *count)
{
    static const char *const usual[] = {"256x256x256", "512x512x512", "1024x1024x1024",
                                        "512x768x3072", "1000x130x257"};
    int wanted = o->shapes.count ? o->shapes.count : (int)(sizeof(usual) / sizeof(usual[0]));
    for (int i = 0; i < wanted; i++) {
        const char *text = o->shapes.count ? o->shapes.item[i] : usual[i];
        long long m, k, n;
        int used = 0;
        if (sscanf(text, "%lldx%lldx%lld%n", &m, &k, &n, &used) != 3 || text[used] || m < 1 ||
            k < 1 || n < 1 || m > 1 << 20 || k > 1 << 20 || n > 1 << 20)
            return tool_usage_error(command,
                                    "--shape wants MxKxN, three numbers from 1, not "
                                    "\"%s\"",
                                    text);
        shapes[i] = (struct shape){m, k, n};
    }
    *count = wanted;
    return TOOL_OK;
}

int bench_matmul(const struct tool_command *command, const struct bench_options *o)
{
    struct shape shapes[TOOL_LIST_MAX];
    struct result results[TOOL_LIST_MAX];
    int count = 0;
    int status = read_shapes(command, o, shapes, &count);
    if (status != TOOL_OK)
        return status;
    if (o->dtype != RF_F32)
        return tool_usage_error(command, "matmul in %s is not in this version; use --dtype f32",
                                rf_dtype_name(o->dtype));
    struct rf_device *device = NULL;
    struct rf_stream *stream = NULL;
    bool quiet = o->json_path && strcmp(o->json_path, "-") == 0;
    int done = 0;
    int rc = rf_device_open(o->device, NULL, &device);
    if (rc == 0)
        rc = rf_stream_create(device, "bench", &stream);
    if (rc == 0 && !quiet)
        printf("# matmul on %s\n%18s %6s %10s %12s %10s %9s %12s\n",
               rf_device_get_info(device)->name, "shape", "type", "path", "time(us)", "GFLOP/s",
               "GB/s", "max_rel_err");
    for (; rc == 0 && done < count; done++) {
        rc = measure(device, stream, o, shapes[done], &results[done]);
        if (rc == 0 && !quiet) {
            const struct result *r = &results[done];
            char shape[80];
            snprintf(shape, sizeof(shape), "%lldx%lldx%lld", (long long)r->shape.m,
                     (long long)r->shape.k, (long long)r->shape.n);
            printf("%18s %6s %10s %12.1f %10.1f %9.2f %12.2e\n", shape, "f32", r->path, r->time_us,
                   r->gflops, r->gbps, r->error);
            fflush(stdout);
        }
    }
    status = rc == 0 ? TOOL_OK : tool_library_error(command, -1);
    if (status == TOOL_OK && o->json_path)
        status = write_json(command, o, rf_device_get_info(device), results, count);
    if (status == TOOL_OK && o->plot_path)
        status = draw(command, o, results, count);
    rf_stream_destroy(stream);
    rf_device_close(device);
    return status;
}
