/* SPDX-License-Identifier: MIT
 *
 * Operands of matrix products in 8 and 4 bits: recipes, and rounding to the values of codes and
 * scales. ops.h includes this.
 */
#ifndef RINGFORGE_OPS_OPERAND_H
#define RINGFORGE_OPS_OPERAND_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the operands of the products of a linear map y = x W' are rounded: x and W, and in the
 * backward pass also dy, each to numbers of 8 or 4 bits, times a scale for each block. Formats of x
 * and W / dy: E4M3 has 4 bits of exponent and 3 of mantissa, up to 448; E5M2 is up to 57344; E2M1
 * has 0, 0.5, 1, 1.5, 2, 3, 4, 6. A line of an operand is what is multiplied by a line of the other
 * one, such as a row of x in x W', and a column of x in dy' x.
 *
 * Recipes of 4 bits are experimental. They round dy at random, which keeps its mean. For dy' x they
 * transform dy and x by an orthogonal matrix for each 16 rows (a Hadamard matrix times random
 * signs), which leaves the product as it is and spreads outliers. */
enum rf_recipe {
    RF_RECIPE_NONE = 0,
    RF_RECIPE_FP8,        /* E4M3 / E5M2, a scale for the whole operand */
    RF_RECIPE_FP8_E4M3,   /* E4M3 / E4M3, a scale for the whole operand */
    RF_RECIPE_FP8_ROWS,   /* E4M3 / E4M3, a scale for each line */
    RF_RECIPE_FP8_BLOCKS, /* E4M3 / E4M3, a scale for each 128 of a line, and of W for each 128 x
                           * 128 (DeepSeek-AI 2024, DeepSeek-V3) */
    RF_RECIPE_MXFP8,      /* E4M3 / E4M3, a scale for each 32 of a line (OCP Microscaling 1.0) */
    RF_RECIPE_MXFP4,      /* E2M1 / E2M1, likewise */
    RF_RECIPE_NVFP4, /* E2M1 / E2M1, a scale for each 16 of a line, and of W for each 16 x 16, of
                      * E4M3, and one for the whole operand (NVIDIA 2025) */
    RF_RECIPE_COUNT
};

/* "none", "fp8", "fp8-e4m3", "fp8-rows", "fp8-blocks", "mxfp8", "mxfp4", "nvfp4"; NULL for other
 * numbers. */
RF_EXPORT const char *rf_recipe_name(enum rf_recipe recipe);

/* The recipe of a name, or of what Transformer Engine, torchao or Lightning call it, in any case:
 * "Float8CurrentScaling", "tensorwise", "transformer-engine", "rowwise", "Float8BlockScaling",
 * "MXFP8BlockScaling", ... -1: none. */
RF_EXPORT int rf_recipe_find(const char *text);

/* The numbers along a line that share a scale, which depends on no others; 0: there is no such
 * number, as a scale is for a whole line or operand. Parts of an operand that begin at multiples of
 * it have the scales of the whole one. */
RF_EXPORT int rf_recipe_block(enum rf_recipe recipe);

/* Whether it rounds dy at random. */
RF_EXPORT bool rf_recipe_is_random(enum rf_recipe recipe);

/* The number of layers at the end of a model that are computed as without a recipe: with recipes of
 * 4 bits an eighth, rounded up, of more than one; else 0. */
RF_EXPORT int rf_recipe_kept_layers(enum rf_recipe recipe, int layers);

enum rf_operand_role { RF_OPERAND_INPUT = 0, RF_OPERAND_WEIGHT, RF_OPERAND_GRADIENT };

struct rf_operand_opts {
    enum rf_recipe recipe;
    enum rf_operand_role role;
    bool columns; /* lines are the columns of the matrix, otherwise its rows */
    /* RF_OPERAND_GRADIENT, if rf_recipe_is_random. A random number depends on seed and step (f32,
     * RF_SCALAR_WORDS: struct rf_step_scalars), on these numbers, on `columns` and on the element.
     */
    const struct rf_tensor *scalars;
    uint32_t site, micro_batch;
};

/* out (rows, columns) = x, each element rounded to the nearest product of a number of the format
 * and its block's scale, ties to the even number. Blocks at an end may be smaller. A scale is the
 * smallest power of two with which no number of the block is above the largest of the format; for
 * RF_RECIPE_NVFP4 the smallest number of E4M3, times the smallest power of two with which there is
 * one for every block. So the products are exact in bf16 and f32. In f16 they may be infinite if
 * they are above 65504. A block with a number that is not finite becomes NaN; for RF_RECIPE_NVFP4
 * all blocks do. With `columns`, recipes of 4 bits round the transforms, in the type of out, of
 * inputs and gradients; rows after the last whole 16 are not transformed. out may alias x.
 * Dimensions before the last are rows. scratch: f32, rf_round_operand_scratch() elements; NULL if
 * that is 0. */
RF_API int rf_round_operand(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                            const struct rf_operand_opts *opts, const struct rf_tensor *scratch);

/* Pure. 0 also if the arguments are invalid. */
RF_EXPORT int64_t rf_round_operand_scratch(int64_t rows, int64_t columns,
                                           const struct rf_operand_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
