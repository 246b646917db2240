/* SPDX-License-Identifier: MIT
 *
 * A model of one's own, by the public headers alone: an embedding, MLPs with a residual, and a head
 * with its loss. trainer.c trains it.
 */
#ifndef MLP_H
#define MLP_H

#include <ringforge/ringforge.h>

enum { VOCABULARY = 32, WIDTH = 32, HIDDEN = 64, LAYERS = 5, BLOCKS = LAYERS + 2 };

/* Parameters and names of the blocks lie in here: it outlives plans and runs, and is not moved. */
struct model {
    struct rf_block blocks[BLOCKS];
    struct rf_param_desc params[BLOCKS][2];
    char names[LAYERS][2][16];
};
void model_make(struct model *model);

#endif
