/* SPDX-License-Identifier: MIT
 *
 * The device's limits, measured in the same run as the kernels compared with them: the bandwidth of
 * a copy, and the rate of multiplies and adds in registers.
 */
#include "kernel.h"
#include "multiply_add.h"

#define LANES 64
#define OPERATIONS 64 /* of a lane in a round */
#define ROUNDS 1024

struct work {
    struct rf_stream *stream;
    struct rf_tensor out, in;
    struct rf_kernel *kernel;
    uint32_t groups;
};

static int launch_copy(void *user)
{
    struct work *w = user;
    return rf_copy(w->stream, w->out, w->in);
}

/* The same copy by one of the library's kernels. */
static int launch_kernel_copy(void *user)
{
    struct work *w = user;
    return rf_scale(w->stream, w->out, w->in, 1);
}

static int launch_multiply_add(void *user)
{
    struct work *w = user;
    const struct {
        uint64_t address;
        uint32_t rounds;
        float factor;
    } push = {rf_buffer_address(w->out.buffer), ROUNDS, 0.5f};
    const struct rf_range range = {push.address, rf_tensor_bytes(w->out), true};
    return rf_launch(
        w->stream, w->kernel,
        (struct rf_dispatch){&push, sizeof(push), (const uint32_t[3]){w->groups, 1, 1}, &range, 1});
}

static int measure_copy(struct rf_device *device, struct work *w, const struct bench_options *o,
                        struct bench_ceiling *out)
{
    /* Larger than any cache. */
    const bool cpu = rf_device_get_info(device)->kind == RF_DEVICE_CPU;
    const int64_t count = (cpu ? 16 : 128) << 20;
    struct bench_seconds seconds = {0};
    int rc = rf_tensor_create(device, rf_shape1(count), RF_F32, &w->in);
    if (rc == 0)
        rc = rf_tensor_create(device, rf_shape1(count), RF_F32, &w->out);
    if (rc == 0)
        rc = bench_time(w->stream, o, launch_copy, w, &seconds);
    if (rc == 0)
        out->copy_bytes = 2.0 * (double)rf_tensor_bytes(w->in) / seconds.best;
    if (rc == 0)
        rc = bench_time(w->stream, o, launch_kernel_copy, w, &seconds);
    if (rc == 0)
        out->kernel_copy_bytes = 2.0 * (double)rf_tensor_bytes(w->in) / seconds.best;
    if (out->copy_bytes < out->kernel_copy_bytes)
        out->copy_bytes = out->kernel_copy_bytes;
    rf_buffer_destroy(w->in.buffer);
    rf_buffer_destroy(w->out.buffer);
    w->in = w->out = (struct rf_tensor){0};
    return rc;
}

/* Fused or not, with few chains or many: the fastest counts. */
static int measure_multiply_add(struct rf_device *device, struct work *w,
                                const struct bench_options *o, struct bench_ceiling *out)
{
    w->groups = rf_device_get_info(device)->kind == RF_DEVICE_CPU ? 64 : 8192;
    int rc = rf_tensor_create(device, rf_shape2((int64_t)w->groups * LANES, 4), RF_F32, &w->out);
    for (uint32_t variant = 0; variant < 4 && rc == 0; variant++) {
        const struct rf_spec specs[2] = {{0, variant & 1}, {1, variant >> 1}};
        const struct rf_kernel_desc desc = {.name = "multiply_add",
                                            .spirv = multiply_add,
                                            .spirv_bytes = sizeof(multiply_add),
                                            .specs = specs,
                                            .spec_count = 2,
                                            .push_bytes = 16};
        struct bench_seconds seconds = {0};
        rc = rf_kernel_create(device, &desc, &w->kernel);
        if (rc == 0)
            rc = bench_time(w->stream, o, launch_multiply_add, w, &seconds);
        double flops = (double)w->groups * LANES * OPERATIONS * ROUNDS / seconds.best;
        if (rc == 0 && flops > out->flops)
            out->flops = flops;
        rf_kernel_destroy(w->kernel);
        w->kernel = NULL;
    }
    rf_buffer_destroy(w->out.buffer);
    return rc;
}

int bench_ceiling_measure(struct rf_device *device, struct rf_stream *stream,
                          const struct bench_options *o, struct bench_ceiling *out)
{
    struct work w = {.stream = stream};
    *out = (struct bench_ceiling){0};
    int rc = measure_copy(device, &w, o, out);
    return rc == 0 ? measure_multiply_add(device, &w, o, out) : rc;
}

/* Launches that each wait for the one before. */
static int measure_launch(struct rf_device *device, struct work *w, const struct bench_options *o,
                          double *launch_s)
{
    struct bench_seconds seconds = {0};
    int rc = rf_tensor_create(device, rf_shape1(64), RF_F32, &w->out);
    w->in = w->out;
    if (rc == 0)
        rc = bench_time(w->stream, o, launch_kernel_copy, w, &seconds);
    if (rc == 0)
        *launch_s = seconds.median;
    rf_buffer_destroy(w->out.buffer);
    return rc;
}

int bench_memory_measure(struct rf_device *device, struct rf_stream *stream,
                         const struct bench_options *o, double *bytes_per_s, double *launch_s)
{
    struct work w = {.stream = stream};
    struct bench_ceiling ceiling = {0};
    int rc = measure_copy(device, &w, o, &ceiling);
    if (rc < 0)
        return rc;
    *bytes_per_s = ceiling.kernel_copy_bytes;
    return measure_launch(device, &w, o, launch_s);
}
