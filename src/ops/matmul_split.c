/* SPDX-License-Identifier: MIT
 *
 * Products with few tiles and a long k: parts of k are multiplied in parallel into scratch, and
 * their sums are added in a fixed order. Called by matmul.c. The split of k depends on the sizes
 * and on the kind of device only.
 */
#include "matmul.h"

#include "../base/base.h"

#define PART_MULTIPLE 64 /* keeps rows of parts aligned, and steps of all kernels whole */
#define LEAST_PART 256   /* below this, adding the parts costs more than it gains */
#define MOST_PARTS 64

int64_t rf_matmul_parts(const struct rf_product *p, int64_t part)
{
    return (p->k + part - 1) / part;
}

int64_t rf_matmul_part(const struct rf_product *p, const struct rf_matmul_path *path,
                       int64_t capacity)
{
    const struct rf_device_info *info = rf_device_get_info(p->device);
    int64_t wanted = info->kind == RF_DEVICE_CPU ? 8 : 256; /* workgroups */
    int64_t parts = wanted / path->tiles(info, p);
    parts = parts < p->k / LEAST_PART ? parts : p->k / LEAST_PART;
    parts = parts < MOST_PARTS ? parts : MOST_PARTS;
    capacity = capacity < INT32_MAX ? capacity : INT32_MAX;
    parts = parts < capacity / (p->m * p->n) ? parts : capacity / (p->m * p->n);
    if (parts < 2 || p->batch > 1)
        return 0;
    return (p->k + PART_MULTIPLE * parts - 1) / (PART_MULTIPLE * parts) * PART_MULTIPLE;
}

static int run_fold(struct rf_stream *stream, const struct rf_product *p, struct rf_tensor sums,
                    int64_t parts)
{
    struct rf_push_matmul push;
    struct rf_job job = {.op = "matmul", .shader = RF_BUILD(matmul_fold)};
    struct rf_product fold = *p;
    fold.a = sums;
    fold.b = (struct rf_tensor){0};
    fold.quantized = RF_QUANTIZE_NONE;
    fold.k = parts;
    fold.a_layout = (struct rf_layout){.row = p->n, .step = p->m * p->n};
    rf_matmul_fill(&fold, 1, 1, &push, &job);
    uint32_t lanes = rf_pick_row_lanes(p->device);
    rf_flat_groups(p->device, (uint64_t)p->m * ((p->n + 3) / 4), lanes, job.groups);
    push.groups_x = job.groups[0];
    rf_job_spec(&job, 0, lanes);
    rf_job_spec(&job, 1, rf_pick_vector(p->n, &sums, 1));
    rf_job_spec(&job, 2, rf_matmul_out_wide(p));
    rf_job_spec(&job, 3, rf_matmul_type(p->a.dtype));
    rf_job_spec(&job, 4, rf_matmul_type(p->out.dtype));
    rf_job_spec(&job, 5, p->act != RF_ACT_NONE);
    return rf_job_run(stream, &job);
}

int rf_matmul_run_split(struct rf_stream *stream, const struct rf_matmul_path *path,
                        const struct rf_product *p, struct rf_tensor scratch, int64_t part)
{
    int64_t parts = rf_matmul_parts(p, part), size = p->m * p->n;
    struct rf_product partial = *p;
    struct rf_tensor sums = {scratch.buffer, scratch.offset, rf_shape1(parts * size), RF_F32};
    partial.out = sums;
    partial.bias = partial.pre = partial.residual = (struct rf_tensor){0};
    partial.accumulate = partial.act_backward = false;
    partial.act = RF_ACT_NONE;
    partial.alpha = 1;
    partial.part = part;
    partial.batch = parts;
    partial.a_layout.step = part * (p->transpose_a ? p->a_layout.row : 1);
    partial.b_layout.step = part * (p->transpose_b ? 1 : p->b_layout.row);
    partial.out_layout = (struct rf_layout){.row = p->n, .step = size};
    RETURN_IF_ERROR(path->run(stream, &partial));
    return run_fold(stream, p, sums, parts);
}
