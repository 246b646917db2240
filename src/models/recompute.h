/* SPDX-License-Identifier: MIT
 *
 * What the layers of a model do not keep from forward to backward, but compute again in the
 * backward pass: less memory for more work. All results are the same bits. docs/training.md has the
 * bytes and the work of each.
 */
#ifndef RF_MODELS_RECOMPUTE_H
#define RF_MODELS_RECOMPUTE_H

/* A bit set. 0: everything is kept. */
enum model_recompute_part {
    /* The output of the activation function, from its inputs. Of a GPT-2 in 16 bits this means MLP,
     * too: GELU took sums in f32, and what is kept of them is rounded. */
    MODEL_RECOMPUTE_GELU = 1,
    MODEL_RECOMPUTE_NORMS = 2,     /* outputs of the norms, from the inputs of each */
    MODEL_RECOMPUTE_ATTENTION = 4, /* its output and lse, from queries, keys and values */
    MODEL_RECOMPUTE_MLP = 8, /* all between the MLP's norm and its last product; so GELU, too */
    MODEL_RECOMPUTE_ALL = 15
};

#endif
