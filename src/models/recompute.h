/* SPDX-License-Identifier: MIT
 *
 * Values that a model's layers do not keep from forward to backward, but recompute in the backward
 * pass. This saves memory and costs work. The results have the same bits. docs/memory.md has the
 * bytes and the work of each choice.
 */
#ifndef RF_MODELS_RECOMPUTE_H
#define RF_MODELS_RECOMPUTE_H

#include <ringforge/layer.h> /* enum rf_reversible */

/* A set of bits. 0: everything is kept. */
enum model_recompute_part {
    /* The output of the activation function, from its inputs. In a GPT-2 with 16-bit activations
     * this includes MLP: GELU gets sums in f32 in forward, and a kept copy of them would be
     * rounded. */
    MODEL_RECOMPUTE_GELU = 1,
    MODEL_RECOMPUTE_NORMS = 2,     /* outputs of the norms, from their inputs */
    MODEL_RECOMPUTE_ATTENTION = 4, /* its output and lse, from queries, keys and values */
    MODEL_RECOMPUTE_MLP = 8,       /* everything from the MLP's norm to its last product; includes
                                    * GELU */
    MODEL_RECOMPUTE_ALL = 15
};

#endif
