/* SPDX-License-Identifier: MIT
 *
 * Causal self-attention, forward (attention.comp) and backward: a pass over the keys for dQ, then
 * one over the queries for dK and dV. Neither needs a T*T tensor or atomics.
 */
#include "pick.h"

#include <math.h>

#include "../base/base.h"

#define BLOCK 8 /* rows of the other side per round; of attention.glsl */

struct push {
    uint64_t out, lse, qkv;
    uint32_t T, channels, heads;
    float scale;
    uint32_t first[1];
};

struct push_backward {
    uint64_t dqkv, dout, out, lse, qkv, delta;
    uint32_t T, channels, heads;
    float scale;
    uint32_t first[4];
};

struct size {
    int64_t batch, T, channels, heads, head;
};

static int check_size(const char *op, struct rf_device *device, struct rf_tensor qkv, int64_t heads,
                      struct size *out)
{
    char text[96];
    const struct rf_device_info *info = rf_device_get_info(device);
    RETURN_IF_ERROR(rf_check_operand(op, "qkv", qkv, RF_F32, -1));
    if (qkv.shape.ndim != 3 || heads < 1 || qkv.shape.dim[2] < 1 ||
        qkv.shape.dim[2] % (3 * heads) != 0)
        return rf_fail(RF_EINVAL,
                       "%s: qkv is %s, expected (B, T, 3 C) with C a multiple of %lld heads", op,
                       rf_tensor_text(qkv, text, sizeof(text)), (long long)heads);
    struct size size = {.batch = qkv.shape.dim[0],
                        .T = qkv.shape.dim[1],
                        .channels = qkv.shape.dim[2] / 3,
                        .heads = heads,
                        .head = qkv.shape.dim[2] / 3 / heads};
    if (size.head > 128)
        return rf_fail(RF_ENOTSUP, "%s: heads of %lld elements; up to 128 are supported", op,
                       (long long)size.head);
    if (heads > info->max_workgroup_count[1] || size.batch > info->max_workgroup_count[2])
        return rf_fail(RF_ENOTSUP, "%s: this device takes batches up to %u and up to %u heads", op,
                       info->max_workgroup_count[2], info->max_workgroup_count[1]);
    RETURN_IF_ERROR(rf_check_rounds(device, op, size.T / BLOCK + 1));
    *out = size;
    return 0;
}

/* The builds of a kernel without and with shuffles; only the latter reads through views. */
struct kernel {
    struct rf_builds builds[2];
};

/* Picks the build and the workgroups. rows_per_lane is for a head of at most 32 elements; larger
 * heads get fewer, as the rows live in registers. */
static void pick(struct rf_job *job, struct rf_device *device, const struct kernel *kernel,
                 const struct size *size, bool vector, uint32_t rows_per_lane,
                 const struct rf_source *sources, uint32_t count, uint32_t *first)
{
    const struct rf_device_info *info = rf_device_get_info(device);
    uint32_t lanes = rf_pick_row_lanes(device);
    bool shuffle = info->kind == RF_DEVICE_CPU && info->subgroup_shuffle && lanes >= BLOCK / 2;
    if (info->kind != RF_DEVICE_CPU)
        rows_per_lane = 1;
    for (int64_t head = 32; head < size->head && rows_per_lane > 1; head *= 2)
        rows_per_lane /= 2;
    while (rows_per_lane > 1 && lanes * (rows_per_lane / 2) >= size->T)
        rows_per_lane /= 2;
    rf_job_build(job, device, &kernel->builds[shuffle], vector, sources, count, first);
    rf_job_spec(job, 0, lanes);
    rf_job_spec(job, 1, (uint32_t)size->head);
    rf_job_spec(job, 2, rows_per_lane);
    rf_job_spec(job, 3, lanes >= BLOCK ? 1 : 2);
    job->groups[0] = (uint32_t)((size->T + lanes * rows_per_lane - 1) / (lanes * rows_per_lane));
    job->groups[1] = (uint32_t)size->heads;
    job->groups[2] = (uint32_t)size->batch;
}

int rf_attention(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor lse,
                 struct rf_tensor qkv, int64_t heads)
{
    static const char op[] = "attention";
    static const struct kernel kernel = {
        {{"attention_v", "attention_s", NULL, NULL},
         {"attention_vx", "attention_sx", "attention_views", NULL}}};
    struct size size = {0};
    struct rf_device *device = rf_stream_device(stream);
    RETURN_IF_ERROR(check_size(op, device, qkv, heads, &size));
    int64_t rows = size.batch * size.T;
    RETURN_IF_ERROR(rf_check_rows(op, "out", out, RF_F32, rows, size.channels));
    RETURN_IF_ERROR(rf_check_operand(op, "lse", lse, RF_F32, rows * heads));
    RETURN_IF_ERROR(rf_check_apart(op, (struct rf_operand[]){{"out", out}, {"lse", lse}}, 2,
                                   (struct rf_operand[]){{"qkv", qkv}}, 1));
    if (rows == 0)
        return 0;

    struct push push = {.out = rf_address_of(out),
                        .lse = rf_address_of(lse),
                        .qkv = rf_address_of(qkv),
                        .T = (uint32_t)size.T,
                        .channels = (uint32_t)size.channels,
                        .heads = (uint32_t)heads,
                        .scale = (float)(1.0 / sqrt((double)size.head))};
    struct rf_job job = {.op = op, .push = &push, .push_bytes = sizeof(push)};
    pick(&job, device, &kernel, &size, rf_pick_vector(size.head, (struct rf_tensor[]){out, qkv}, 2),
         4, (struct rf_source[]){{qkv}}, 1, push.first);
    rf_job_reads(&job, qkv);
    rf_job_writes(&job, out);
    rf_job_writes(&job, lse);
    return rf_job_run(stream, &job);
}

static int check_backward(const char *op, struct rf_device *device, struct rf_tensor dqkv,
                          struct rf_tensor dout, struct rf_tensor out, struct rf_tensor lse,
                          struct rf_tensor qkv, int64_t heads, struct rf_tensor delta,
                          struct size *size)
{
    RETURN_IF_ERROR(check_size(op, device, qkv, heads, size));
    int64_t rows = size->batch * size->T;
    RETURN_IF_ERROR(rf_check_rows(op, "dqkv", dqkv, RF_F32, rows, 3 * size->channels));
    RETURN_IF_ERROR(rf_check_rows(op, "dout", dout, RF_F32, rows, size->channels));
    RETURN_IF_ERROR(rf_check_rows(op, "out", out, RF_F32, rows, size->channels));
    RETURN_IF_ERROR(rf_check_operand(op, "lse", lse, RF_F32, rows * heads));
    RETURN_IF_ERROR(rf_check_operand(op, "delta", delta, RF_F32, rows * heads));
    return rf_check_apart(
        op, (struct rf_operand[]){{"dqkv", dqkv}, {"delta", delta}}, 2,
        (struct rf_operand[]){{"dout", dout}, {"out", out}, {"lse", lse}, {"qkv", qkv}}, 4);
}

int rf_attention_backward(struct rf_stream *stream, struct rf_tensor dqkv, struct rf_tensor dout,
                          struct rf_tensor out, struct rf_tensor lse, struct rf_tensor qkv,
                          int64_t heads, struct rf_tensor delta)
{
    static const char op[] = "attention_backward";
    static const struct kernel query = {
        {{"attention_backward_query_v", "attention_backward_query_s", NULL, NULL},
         {"attention_backward_query_vx", "attention_backward_query_sx",
          "attention_backward_query_views", NULL}}};
    static const struct kernel key = {
        {{"attention_backward_key_v", "attention_backward_key_s", NULL, NULL},
         {"attention_backward_key_vx", "attention_backward_key_sx", "attention_backward_key_views",
          NULL}}};
    struct size size = {0};
    struct rf_device *device = rf_stream_device(stream);
    RETURN_IF_ERROR(check_backward(op, device, dqkv, dout, out, lse, qkv, heads, delta, &size));
    if (size.batch * size.T == 0)
        return 0;

    struct push_backward push = {.dqkv = rf_address_of(dqkv),
                                 .dout = rf_address_of(dout),
                                 .out = rf_address_of(out),
                                 .lse = rf_address_of(lse),
                                 .qkv = rf_address_of(qkv),
                                 .delta = rf_address_of(delta),
                                 .T = (uint32_t)size.T,
                                 .channels = (uint32_t)size.channels,
                                 .heads = (uint32_t)heads,
                                 .scale = (float)(1.0 / sqrt((double)size.head))};
    bool vector = rf_pick_vector(size.head, (struct rf_tensor[]){dqkv, dout, out, qkv}, 4);
    struct rf_job job = {.op = op, .push = &push, .push_bytes = sizeof(push)};
    rf_job_reads(&job, dout);
    rf_job_reads(&job, out);
    rf_job_reads(&job, lse);
    rf_job_reads(&job, qkv);
    rf_job_writes(&job, delta);
    rf_job_writes(&job, dqkv);
    struct rf_job second = job;
    pick(&job, device, &query, &size, vector, 2, (struct rf_source[]){{qkv}, {dout}, {out}}, 3,
         push.first);
    RETURN_IF_ERROR(rf_job_run(stream, &job));
    pick(&second, device, &key, &size, vector, 2,
         (struct rf_source[]){{qkv}, {dout}, {lse, true}, {delta, true}}, 4, push.first);
    return rf_job_run(stream, &second);
}
