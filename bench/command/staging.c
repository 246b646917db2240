/* SPDX-License-Identifier: MIT
 *
 * ringforge bench staging: the cost of tensors that the host cannot map. Two ranks as threads
 * all-reduce the same tensor in place and through staging memory, on links of several speeds. If
 * the link is slower than the copies, all copies but the first window's and the last one's are
 * hidden.
 */
#include <string.h>

#include "bench.h"

enum { RANKS = 2, WINDOWS = 16, MAPPED = 0, HIDDEN = 1 };
#define WINDOW_BYTES ((uint64_t)4 << 20)

struct staging {
    const struct tool_command *command;
    const struct bench_options *options;
    struct rf_device *devices[RANKS][2]; /* they outlive the communicator */
    double bytes_per_s;
    double seconds[2], copy_s; /* on rank 0; copy_s: of one window in one direction */
};

static int time_calls(const struct staging *s, struct rf_comm *comm, struct rf_tensor tensor,
                      double *out)
{
    double samples[64];
    const int count = s->options->samples < 64 ? (int)s->options->samples : 64;
    int rc = 0;
    for (int i = -1; i < count && rc == 0; i++) { /* the first allocates staging memory */
        rc = rf_barrier(comm, NULL);
        const uint64_t start = rf_now_ns();
        if (rc == 0)
            rc = rf_all_reduce_tensor(comm, tensor, tensor, RF_MAX, NULL);
        if (i >= 0)
            samples[i] = (double)(rf_now_ns() - start) * 1e-9;
    }
    if (rc == 0)
        *out = bench_quantiles(samples, count).best;
    return rc;
}

/* Copies one window from the device and nothing else. */
static int time_copy(struct rf_device *device, struct rf_tensor tensor, double *out)
{
    struct rf_buffer *slot = NULL;
    struct rf_stream *stream = NULL;
    double samples[WINDOWS];
    int rc = rf_buffer_create(device, WINDOW_BYTES, RF_MEMORY_HOST, RF_CATEGORY_OTHER, &slot);
    if (rc == 0)
        rc = rf_stream_create(device, "copy", &stream);
    for (int i = 0; i < WINDOWS && rc == 0; i++) {
        const uint64_t start = rf_now_ns();
        rc = rf_stream_copy(stream, (struct rf_buffer_place){slot, 0},
                            (struct rf_buffer_place){tensor.buffer, (uint64_t)i * WINDOW_BYTES},
                            WINDOW_BYTES);
        if (rc == 0)
            rc = rf_stream_wait(stream);
        samples[i] = (double)(rf_now_ns() - start) * 1e-9;
    }
    rf_stream_destroy(stream);
    rf_buffer_destroy(slot);
    if (rc == 0)
        *out = bench_quantiles(samples, WINDOWS).best;
    return rc;
}

static int run_rank(struct rf_comm *comm, void *user)
{
    struct staging *s = user;
    const int rank = rf_comm_rank(comm);
    for (int kind = MAPPED; kind <= HIDDEN; kind++) {
        struct rf_tensor tensor = {0};
        double seconds = 0, copy_s = 0;
        int rc =
            rf_tensor_create(s->devices[rank][kind],
                             rf_shape1((int64_t)(WINDOWS * WINDOW_BYTES / 4)), RF_F32, &tensor);
        if (rc == 0)
            rc = time_calls(s, comm, tensor, &seconds);
        if (rc == 0 && kind == HIDDEN && rank == 0)
            rc = time_copy(s->devices[rank][kind], tensor, &copy_s);
        rf_buffer_destroy(tensor.buffer);
        if (rc < 0)
            return tool_library_error(s->command, rank);
        if (rank == 0) {
            s->seconds[kind] = seconds;
            s->copy_s = copy_s;
        }
    }
    return TOOL_OK;
}

static int measure(struct staging *s, cJSON *rows)
{
    const struct bench_options *o = s->options;
    struct tool_ranks ranks = {.ranks = RANKS,
                               .provider = "loopback",
                               .timeout_s = o->ranks.timeout_s,
                               .link = {.bytes_per_s = s->bytes_per_s}};
    int status = tool_ranks_run(s->command, &ranks, NULL, run_rank, s);
    if (status != TOOL_OK)
        return status;
    const double exposed = s->seconds[HIDDEN] - s->seconds[MAPPED];
    const double all = 2 * WINDOWS * s->copy_s, two = 2 * s->copy_s;
    if (!o->json_path || strcmp(o->json_path, "-") != 0)
        printf("%10.2f %10.1f %10.1f %10.1f %12.1f %12.1f\n", s->bytes_per_s * 1e-9,
               s->seconds[MAPPED] * 1e3, s->seconds[HIDDEN] * 1e3, exposed * 1e3, two * 1e3,
               all * 1e3);
    fflush(stdout);
    tool_json_row(rows,
                  "link_gbytes_per_s=%g in_place_ms=%g staged_ms=%g two_windows_copied_ms=%g "
                  "all_copied_ms=%g",
                  s->bytes_per_s * 1e-9, s->seconds[MAPPED] * 1e3, s->seconds[HIDDEN] * 1e3,
                  two * 1e3, all * 1e3);
    return TOOL_OK;
}

int bench_staging(const struct tool_command *command, const struct bench_options *options)
{
    static const double speeds[] = {0.25e9, 0.5e9, 1e9, 2e9};
    struct staging s = {.command = command, .options = options};
    int status = TOOL_OK;
    for (int i = 0; i < 2 * RANKS && status == TOOL_OK; i++) {
        const struct rf_device_opts opts = {.hide_host_memory = i % 2 == HIDDEN};
        if (rf_device_open(options->device, &opts, &s.devices[i / 2][i % 2]) < 0)
            status = tool_library_error(command, i / 2);
    }
    cJSON *json = tool_json_new("op=%s bytes=%g", options->op, (double)(WINDOWS * WINDOW_BYTES));
    cJSON *rows = cJSON_AddArrayToObject(json, "rows");
    if (status == TOOL_OK && (!options->json_path || strcmp(options->json_path, "-") != 0))
        printf("# all_reduce of %d MiB, %d ranks as threads; best of %lld in ms; copies: of one "
               "window each way, of all\n%10s %10s %10s %10s %12s %12s\n",
               (int)(WINDOWS * WINDOW_BYTES >> 20), RANKS, (long long)options->samples,
               "link(GB/s)", "in place", "staged", "exposed", "two copies", "all copies");
    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]) && status == TOOL_OK; i++) {
        s.bytes_per_s = speeds[i];
        status = measure(&s, rows);
    }
    for (int i = 0; i < 2 * RANKS; i++)
        rf_device_close(s.devices[i / 2][i % 2]);
    if (status == TOOL_OK && options->json_path)
        return tool_json_write(command, options->json_path, json);
    cJSON_Delete(json);
    return status;
}
