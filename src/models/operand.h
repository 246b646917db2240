/* SPDX-License-Identifier: MIT
 *
 * Operands of the products of a linear map, rounded by a recipe (ringforge/ops_operand.h), for
 * linear.c. A product reads rounded copies, which are in the scratch of the call, behind all else;
 * the operands themselves stay as they are.
 */
#ifndef RF_MODELS_OPERAND_H
#define RF_MODELS_OPERAND_H

#include "steps.h"

struct model_operand {
    struct rf_tensor *tensor; /* a matrix; replaced by its copy */
    enum rf_operand_role role;
    bool columns; /* as in struct rf_operand_opts */
};
/* Both operands of a product. Nothing happens for RF_RECIPE_NONE. site: of random numbers. */
int model_operands(const struct model_layer *m, enum rf_recipe recipe, uint32_t site,
                   const struct model_operand pair[2]);
/* Bytes of scratch for any product of a map with `in` inputs and `out` outputs. */
uint64_t model_operand_bytes(const struct model_layer *m, enum rf_recipe recipe, int64_t in,
                             int64_t out);
/* RF_EINVAL: unknown recipe; ranks along an axis, which would have other scales than one rank. */
int model_recipe_check(enum rf_recipe recipe);
int model_recipe_check_ranks(enum rf_recipe recipe, const char *axis, int ranks);

#endif
