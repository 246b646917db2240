/* SPDX-License-Identifier: MIT
 *
 * Rounded copies of operands; see operand.h.
 */
#include "operand.h"

static struct rf_operand_opts opts_of(enum rf_recipe recipe, const struct model_operand *o)
{
    return (struct rf_operand_opts){.recipe = recipe, .role = o->role, .columns = o->columns};
}

/* f32: the largest magnitudes of an operand's blocks. */
static int64_t scratch_of(enum rf_recipe recipe, const struct model_operand *o)
{
    const struct rf_operand_opts opts = opts_of(recipe, o);
    return rf_round_operand_scratch(o->tensor->shape.dim[0], o->tensor->shape.dim[1], &opts);
}

static int64_t scratch_of_pair(enum rf_recipe recipe, const struct model_operand pair[2])
{
    return model_max(scratch_of(recipe, &pair[0]), scratch_of(recipe, &pair[1]));
}

static uint64_t bytes_of(enum rf_recipe recipe, const struct model_operand pair[2])
{
    return rf_suballocate_bytes(pair[0].tensor->shape, pair[0].tensor->dtype) +
           rf_suballocate_bytes(pair[1].tensor->shape, pair[1].tensor->dtype) +
           model_scratch_bytes(scratch_of_pair(recipe, pair));
}

int model_operands(const struct model_layer *m, enum rf_recipe recipe, uint32_t site,
                   const struct model_operand pair[2])
{
    const struct rf_tensor all = m->ctx->scratch;
    struct rf_tensor most;
    if (!recipe)
        return 0;
    const int64_t count = model_max(scratch_of_pair(recipe, pair), 1);
    uint64_t at = ((uint64_t)rf_tensor_count(all) - bytes_of(recipe, pair)) / 256 * 256;
    RETURN_IF_FAILED(rf_suballocate(all, &at, rf_shape1(count), RF_F32, &most));
    for (int k = 0; k < 2; k++) {
        struct rf_operand_opts opts = opts_of(recipe, &pair[k]);
        const struct rf_tensor x = *pair[k].tensor;
        opts.scalars = &m->ctx->scalars;
        opts.site = site;
        opts.micro_batch = (uint32_t)m->ctx->micro_batch;
        RETURN_IF_FAILED(rf_suballocate(all, &at, x.shape, x.dtype, pair[k].tensor));
        RETURN_IF_FAILED(rf_round_operand(m->ctx->stream, *pair[k].tensor, x, &opts, &most));
    }
    return 0;
}

uint64_t model_operand_bytes(const struct model_layer *m, enum rf_recipe recipe, int64_t in,
                             int64_t out)
{
    struct rf_tensor x = {.shape = rf_shape2(m->rows, in), .dtype = m->dtype};
    struct rf_tensor w = {.shape = rf_shape2(out, in), .dtype = m->dtype};
    struct rf_tensor dy = {.shape = rf_shape2(m->rows, out), .dtype = m->dtype};
    if (!recipe)
        return 0;
    const uint64_t bytes[] = {
        bytes_of(recipe, (struct model_operand[]){{&x, RF_OPERAND_INPUT, false},
                                                  {&w, RF_OPERAND_WEIGHT, false}}),
        bytes_of(recipe, (struct model_operand[]){{&dy, RF_OPERAND_GRADIENT, false},
                                                  {&w, RF_OPERAND_WEIGHT, true}}),
        bytes_of(recipe, (struct model_operand[]){{&dy, RF_OPERAND_GRADIENT, true},
                                                  {&x, RF_OPERAND_INPUT, true}})};
    return model_most(bytes, 3);
}

int model_recipe_check(enum rf_recipe recipe)
{
    return rf_recipe_name(recipe)
               ? 0
               : rf_fail(RF_EINVAL, "recipe %d: use one of enum rf_recipe", (int)recipe);
}

int model_recipe_check_ranks(enum rf_recipe recipe, const char *axis, int ranks)
{
    return recipe && ranks > 1
               ? rf_fail(RF_EINVAL,
                         "products of %s have scales of numbers that several %s ranks have; use "
                         "%s=1",
                         rf_recipe_name(recipe), axis, axis)
               : 0;
}
