/* SPDX-License-Identifier: MIT
 *
 * The paths of rf_matmul: which products and devices each can do, and how its kernel is launched.
 * Called through the table in matmul.c, after all checks.
 */
#include "matmul.h"

#include "../base/base.h"

/* Tiles below each other run one after the other when that reads less memory again: a column of
 * tiles shares its part of b, a row of tiles its part of a. */
static bool rows_first(const struct rf_product *p)
{
    return p->n >= 4 * p->m;
}

void rf_matmul_fill(const struct rf_product *p, uint32_t tile_m, uint32_t tile_n,
                    struct rf_matmul_push *push, struct rf_job *job)
{
    *push = (struct rf_matmul_push){
        .a = rf_address_of(p->a),
        .b = rf_address_of(p->b),
        .out = rf_address_of(p->out),
        /* Read without a branch, so it must be readable: b has n elements too. */
        .bias = p->bias.buffer ? rf_address_of(p->bias) : rf_address_of(p->b),
        .pre = rf_address_of(p->pre),
        .m = (uint32_t)p->m,
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .k_end = (uint32_t)p->k,
        .tiles_m = (uint32_t)((p->m + tile_m - 1) / tile_m),
        .tiles_n = (uint32_t)((p->n + tile_n - 1) / tile_n),
        .rows_first = rows_first(p)};
    push->flags = (p->bias.buffer ? RF_MATMUL_BIAS : 0) |
                  (p->accumulate ? RF_MATMUL_ACCUMULATE : 0) | (p->gelu ? RF_MATMUL_GELU : 0) |
                  (p->pre.buffer ? RF_MATMUL_PRE : 0);
    rf_flat_groups(p->device, (uint64_t)push->tiles_m * push->tiles_n, 1, job->groups);
    push->groups_x = job->groups[0];
    job->push = push;
    job->push_bytes = sizeof(*push);
    rf_job_reads(job, p->a);
    rf_job_reads(job, p->b);
    rf_job_reads(job, p->bias);
    rf_job_writes(job, p->out);
    rf_job_writes(job, p->pre);
}

/* ---- subgroup: one tile per subgroup, for CPU drivers ---------------------------------------- */

#define SUBGROUP_ROWS 32 /* of a tile; ROWS in matmul_subgroup.comp */
#define SUBGROUP_K 1024  /* added up in one launch: that much of a and b stays in the caches */

/* Of both f32 paths. */
static const char *not_f32(const struct rf_product *p)
{
    bool f32 = p->a.dtype == RF_F32 && p->b.dtype == RF_F32 && p->out.dtype == RF_F32;
    return f32 ? NULL : "it takes and makes f32 only";
}

const char *rf_matmul_subgroup_why_not(const struct rf_device_info *info,
                                       const struct rf_product *p)
{
    uint32_t lanes = info->subgroup_size;
    if (!info->subgroup_shuffle)
        return "the device has no subgroup shuffles";
    if (lanes != 4 && lanes != 8 && lanes != 16)
        return "it is for subgroups of 4, 8 or 16";
    if (p->transpose_a && p->transpose_b)
        return "it does not take both operands transposed";
    /* Mesa's CPU driver ends a loop after 65535 rounds; a round is 4 of k. */
    if (p->k > 4 * 65000)
        return "its loops end after 65000 rounds of 4";
    return not_f32(p);
}

bool rf_matmul_subgroup_suits(const struct rf_device_info *info, const struct rf_product *p)
{
    return info->kind == RF_DEVICE_CPU;
}

/* One launch, or for a long k several that add to each other. */
static int run_parts(struct rf_stream *stream, const struct rf_product *p,
                     struct rf_matmul_push *push, const struct rf_job *job)
{
    if (p->k < 2 * SUBGROUP_K || p->gelu)
        return rf_job_run(stream, job);
    for (uint32_t k = 0; k < push->k; k += SUBGROUP_K) {
        push->k_first = k;
        push->k_end = push->k - k < SUBGROUP_K ? push->k : k + SUBGROUP_K;
        if (k > 0)
            push->flags = RF_MATMUL_ACCUMULATE;
        RETURN_IF_ERROR(rf_job_run(stream, job));
    }
    return 0;
}

int rf_matmul_subgroup_run(struct rf_stream *stream, const struct rf_product *p)
{
    static const char *const shaders[3][3] = {
        {"matmul_subgroup_nn", "matmul_subgroup_nt", "matmul_subgroup_tn"},
        {"matmul_subgroup_longs_nn", "matmul_subgroup_longs_nt", "matmul_subgroup_longs_tn"},
        {"matmul_subgroup_views_nn", "matmul_subgroup_views_nt", "matmul_subgroup_views_tn"}};
    const struct rf_device_info *info = rf_device_get_info(p->device);
    uint32_t lanes = info->subgroup_size;
    bool a_wide = rf_pick_vector(p->transpose_a ? p->m : p->k, &p->a, 1);
    bool b_wide = rf_pick_vector(p->transpose_b ? p->k : p->n, &p->b, 1);
    bool out_wide = rf_pick_vector(p->n, (struct rf_tensor[]){p->out, p->pre}, 2);
    /* Two quads of k a round, where that leaves no remainder or there is one anyway. */
    uint32_t step = lanes == 8 && (p->k % 8 == 0 || p->k % 4 != 0) ? 2 : 1;
    struct rf_matmul_push push;
    struct rf_job job = {.op = "matmul", .subgroup_size = lanes};
    rf_matmul_fill(p, SUBGROUP_ROWS, 8 * lanes, &push, &job);
    bool views = info->int64 && rf_job_view(&job, p->a, a_wide, &push.a_first) &&
                 rf_job_view(&job, p->b, b_wide, &push.b_first) &&
                 rf_job_view(&job, p->out, out_wide, &push.out_first);
    job.shader = shaders[views ? 2 : info->int64][p->transpose_a ? 2 : p->transpose_b];
    rf_job_spec(&job, 0, lanes);
    rf_job_spec(&job, 1, lanes);
    rf_job_spec(&job, 2, a_wide);
    rf_job_spec(&job, 3, b_wide);
    rf_job_spec(&job, 4, out_wide);
    rf_job_spec(&job, 5, p->k % (4 * step) != 0);
    rf_job_spec(&job, 6, step);
    return run_parts(stream, p, &push, &job);
}

/* ---- tiled: shared memory, for GPUs ---------------------------------------------------------- */

struct tile {
    uint32_t m, n, share_m, share_n;
};

/* Large tiles read less; small ones keep more of the device busy. */
static struct tile pick_tile(const struct rf_device_info *info, const struct rf_product *p)
{
    const struct tile large = {128, 128, 8, 8}, small = {64, 64, 4, 4};
    int64_t tiles = ((p->m + large.m - 1) / large.m) * ((p->n + large.n - 1) / large.n);
    uint32_t shared = 4 * 16 * (large.m + 4 + large.n + 4);
    return tiles >= 128 && info->max_shared_bytes >= shared ? large : small;
}

const char *rf_matmul_tiled_why_not(const struct rf_device_info *info, const struct rf_product *p)
{
    if (info->max_workgroup_invocations < 256 || info->max_workgroup_size[0] < 256)
        return "it needs workgroups of 256 invocations";
    return not_f32(p);
}

bool rf_matmul_tiled_suits(const struct rf_device_info *info, const struct rf_product *p)
{
    return true;
}

int rf_matmul_tiled_run(struct rf_stream *stream, const struct rf_product *p)
{
    static const char *const shaders[2][2] = {{"matmul_tiled_nn", "matmul_tiled_nt"},
                                              {"matmul_tiled_tn", "matmul_tiled_tt"}};
    struct tile tile = pick_tile(rf_device_get_info(p->device), p);
    struct rf_matmul_push push;
    struct rf_job job = {.op = "matmul", .shader = shaders[p->transpose_a][p->transpose_b]};
    rf_matmul_fill(p, tile.m, tile.n, &push, &job);
    rf_job_spec(&job, 0, tile.m / tile.share_m * (tile.n / tile.share_n));
    rf_job_spec(&job, 1, tile.m);
    rf_job_spec(&job, 2, tile.n);
    rf_job_spec(&job, 3, tile.share_m);
    rf_job_spec(&job, 4, tile.share_n);
    return rf_job_run(stream, &job);
}
