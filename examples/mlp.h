/* SPDX-License-Identifier: MIT
 *
 * Your own model, with public headers only: an embedding, MLPs with a residual, and a head with its
 * loss. trainer.c trains it.
 */
#ifndef MLP_H
#define MLP_H

#include <ringforge/ringforge.h>

enum { VOCABULARY = 32, WIDTH = 32, HIDDEN = 64, LAYERS = 5, BLOCKS = LAYERS + 2 };

/* Blocks refer to parameters and names in this struct. It must outlive plans and runs, and must not
 * be moved. */
struct model {
    struct rf_block blocks[BLOCKS];
    struct rf_param_desc params[BLOCKS][2];
    char names[LAYERS][2][16];
};
void model_make(struct model *model);

#endif
