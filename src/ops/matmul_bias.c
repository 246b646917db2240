/* SPDX-License-Identifier: MIT
 *
 * rf_bias_grad: column sums in a fixed tree. Blocks of 64 rows are added in order, then the sums of
 * 64 blocks, until one row is left, which is added to dbias.
 */
#include "matmul.h"

#include "../base/base.h"
#include "shaders/push/matmul_bias_grad.h"

#define ROW_BLOCK 64 /* BLOCK of matmul_bias_grad.comp */

static const char op[] = "bias_grad";

static int64_t blocks_of(int64_t rows)
{
    return (rows + ROW_BLOCK - 1) / ROW_BLOCK;
}

int64_t rf_bias_grad_scratch(int64_t rows, int64_t columns)
{
    int64_t elements = 0;
    while (rows > ROW_BLOCK) {
        rows = blocks_of(rows);
        elements += rows * columns;
    }
    return elements ? elements : 1;
}

/* out (blocks,N) = sums of blocks of x (rows,N), or out (N) += if there is only one block. */
static int run_level(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                     int64_t rows, int64_t columns)
{
    struct rf_device *device = rf_stream_device(stream);
    const struct rf_device_info *info = rf_device_get_info(device);
    uint32_t lanes = info->kind == RF_DEVICE_CPU ? info->subgroup_size : 64;
    struct rf_push_matmul_bias_grad push = {
        .x = rf_address_of(x),
        .out_ = rf_address_of(out),
        .rows = (uint32_t)rows,
        .columns = (uint32_t)columns,
        .accumulate = rows <= ROW_BLOCK,
        .strips = (uint32_t)((columns + 4 * lanes - 1) / (4 * lanes))};
    static const struct rf_build shaders[2] = {RF_BUILD(matmul_bias_grad),
                                               RF_BUILD(matmul_bias_grad_views)};
    struct rf_job job = {.op = op, .push = &push, .push_bytes = RF_PUSH_BYTES(push)};
    bool wide = rf_pick_vector(columns, &x, 1);
    bool views = x.dtype == RF_F32 && rf_job_view(&job, x, wide, &push.first[0]);
    job.shader = shaders[views];
    rf_flat_groups(device, (uint64_t)push.strips * blocks_of(rows), 1, job.groups);
    push.groups_x = job.groups[0];
    rf_job_spec(&job, 0, lanes);
    rf_job_spec(&job, 1, wide);
    rf_job_spec(&job, 2, rf_matmul_type(x.dtype));
    rf_job_spec(&job, 3, rf_matmul_type(out.dtype));
    rf_job_reads(&job, x);
    rf_job_touches(&job, out, rf_tensor_count(out),
                   push.accumulate ? RF_TOUCH_UPDATE : RF_TOUCH_WRITE);
    return rf_job_run(stream, &job);
}

int rf_bias_grad(struct rf_stream *stream, struct rf_tensor dbias, struct rf_tensor dout,
                 struct rf_tensor scratch)
{
    if (!stream)
        return rf_fail(RF_EINVAL, "bias_grad: no stream");
    RETURN_IF_ERROR(rf_check_typed(op, "dout", dout, -1));
    RETURN_IF_ERROR(
        rf_check_operand(op, "dbias", dbias, dbias.dtype == RF_F32 ? RF_F32 : dout.dtype, -1));
    int64_t columns = rf_tensor_count(dbias);
    if (columns < 1)
        return rf_fail(RF_EINVAL, "bias_grad: dbias is empty");
    RETURN_IF_ERROR(rf_check_rows(op, "dout", dout, dout.dtype, -1, columns));
    int64_t rows = rf_tensor_count(dout) / columns;
    if (rows == 0)
        return 0;
    int64_t needed = rf_bias_grad_scratch(rows, columns);
    if (rows > ROW_BLOCK) {
        RETURN_IF_ERROR(rf_check_operand(op, "scratch", scratch, RF_F32, -1));
        if (rf_tensor_count(scratch) < needed)
            return rf_fail(RF_EINVAL,
                           "bias_grad: scratch has %lld elements; (%lld, %lld) needs %lld",
                           (long long)rf_tensor_count(scratch), (long long)rows, (long long)columns,
                           (long long)needed);
    }
    RETURN_IF_ERROR(
        rf_check_apart(op, (struct rf_named_tensor[]){{"dbias", dbias}, {"scratch", scratch}}, 2,
                       (struct rf_named_tensor[]){{"dout", dout}}, 1));
    struct rf_tensor x = dout;
    uint64_t offset = scratch.offset;
    while (rows > ROW_BLOCK) {
        struct rf_tensor sums = {scratch.buffer, offset, rf_shape2(blocks_of(rows), columns),
                                 RF_F32};
        RETURN_IF_ERROR(run_level(stream, sums, x, rows, columns));
        rows = blocks_of(rows);
        offset += 4 * (uint64_t)(rows * columns);
        x = sums;
    }
    return run_level(stream, dbias, x, rows, columns);
}
