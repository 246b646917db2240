/* SPDX-License-Identifier: MIT
 *
 * The list of blocks, and suballocation of a block's memory for tensors; see parts.h.
 */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>

int model_blocks_create(struct model_blocks *model, int count)
{
    model->count = count;
    model->blocks = calloc((size_t)count, sizeof(*model->blocks));
    model->parts = calloc((size_t)count, sizeof(*model->parts));
    if (model->blocks && model->parts)
        return 0;
    model_blocks_destroy(model);
    return rf_fail(RF_ENOMEM, "out of memory for a model of %d blocks", count);
}

void model_blocks_destroy(struct model_blocks *model)
{
    free(model->blocks);
    free(model->parts);
    *model = (struct model_blocks){0};
}

struct rf_param_desc *model_add_param(struct model_part *part, enum rf_dtype dtype,
                                      const char *prefix, const char *name, struct rf_shape shape,
                                      float std, float value)
{
    char *text = part->names[part->param_count];
    struct rf_param_desc *param = &part->params[part->param_count++];
    snprintf(text, sizeof(part->names[0]), "%s%s", prefix, name);
    *param = (struct rf_param_desc){.name = text,
                                    .shape = shape,
                                    .dtype = dtype,
                                    .flags = shape.ndim > 1 ? RF_PARAM_DECAY : 0,
                                    .init_std = std,
                                    .init_value = value};
    return param;
}

int model_add_vector(struct model_part *part, enum rf_dtype dtype, const char *prefix,
                     const char *name, const char *what, int64_t elements, float value)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.%s", name, what);
    model_add_param(part, dtype, prefix, text, rf_shape1(elements), 0, value);
    return part->param_count - 1;
}

void model_set_block(struct model_blocks *model, int block, const struct rf_block_ops *ops,
                     void *self)
{
    const struct model_part *part = &model->parts[block];
    model->blocks[block] = (struct rf_block){.name = part->name,
                                             .ops = ops,
                                             .self = self,
                                             .params = part->params,
                                             .param_count = part->param_count,
                                             .scales_loss = block + 1 == model->count,
                                             .config = model->config};
}

const char *model_real_text(float value, char text[24])
{
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, 24, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return text;
}

static struct rf_shape shape_of(int64_t rows, const struct model_cut *cut)
{
    const int64_t own = rows / (cut->parts ? cut->parts : 1);
    return cut->columns ? rf_shape2(own, cut->columns) : rf_shape1(own);
}

int model_suballocate(struct rf_tensor region, int64_t rows, const struct model_cut *cuts,
                      int count)
{
    uint64_t at = 0;
    for (int i = 0; i < count; i++)
        if (!cuts[i].absent)
            RETURN_IF_FAILED(rf_suballocate(region, &at, shape_of(rows, &cuts[i]), cuts[i].dtype,
                                            cuts[i].tensor));
    return 0;
}

uint64_t model_cut_bytes(int64_t rows, const struct model_cut *cuts, int count)
{
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        if (!cuts[i].absent)
            bytes += rf_suballocate_bytes(shape_of(rows, &cuts[i]), cuts[i].dtype);
    return bytes;
}

int model_scratch(const struct rf_ctx *ctx, int64_t elements, struct rf_tensor *out)
{
    uint64_t at = 0;
    return rf_suballocate(ctx->scratch, &at, rf_shape1(model_max(elements, 1)), RF_F32, out);
}

uint64_t model_scratch_bytes(int64_t elements)
{
    return rf_suballocate_bytes(rf_shape1(model_max(elements, 1)), RF_F32);
}

int model_check_types(enum rf_dtype dtype, enum rf_dtype residual)
{
    if (dtype != RF_F32 && dtype != RF_F16 && dtype != RF_BF16)
        return rf_fail(RF_EINVAL, "the type of activations must be f32, f16 or bf16");
    if (residual != RF_F32 && residual != dtype)
        return rf_fail(
            RF_EINVAL,
            "the type of the residual stream must be f32 or the type of the other activations");
    return 0;
}

int model_matmul(const struct rf_ctx *ctx, struct rf_tensor out, struct rf_tensor a,
                 struct rf_tensor b, const struct rf_matmul_opts *opts)
{
    struct rf_matmul_opts all = {0};
    if (opts)
        all = *opts;
    all.scratch = ctx->workspace.buffer ? &ctx->workspace : NULL;
    return rf_matmul(ctx->stream, out, a, b, &all);
}
