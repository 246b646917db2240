/* SPDX-License-Identifier: MIT
 *
 * Cutting the memory of a block into tensors; see parts.h.
 */
#include "parts.h"

static struct rf_shape shape_of(int64_t rows, const struct model_cut *cut)
{
    return cut->columns ? rf_shape2(rows, cut->columns) : rf_shape1(rows);
}

int model_carve(struct rf_tensor region, int64_t rows, const struct model_cut *cuts, int count)
{
    uint64_t at = 0;
    for (int i = 0; i < count; i++)
        RETURN_IF_FAILED(
            rf_carve(region, &at, shape_of(rows, &cuts[i]), cuts[i].dtype, cuts[i].tensor));
    return 0;
}

uint64_t model_cut_bytes(int64_t rows, const struct model_cut *cuts, int count)
{
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += rf_carve_bytes(shape_of(rows, &cuts[i]), cuts[i].dtype);
    return bytes;
}

int model_scratch(const struct rf_ctx *ctx, int64_t elements, struct rf_tensor *out)
{
    uint64_t at = 0;
    return rf_carve(ctx->scratch, &at, rf_shape1(model_max(elements, 1)), RF_F32, out);
}

uint64_t model_scratch_bytes(int64_t elements)
{
    return rf_carve_bytes(rf_shape1(model_max(elements, 1)), RF_F32);
}
