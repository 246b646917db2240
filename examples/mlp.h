/* SPDX-License-Identifier: MIT
 *
 * Your own model, with public headers only: an embedding, MLPs with a residual, and a head with its
 * loss. trainer.c trains it.
 */
#ifndef MLP_H
#define MLP_H

#include <ringforge/ringforge.h>

enum { VOCABULARY = 32, WIDTH = 32, HIDDEN = 64, LAYERS = 5, BLOCKS = LAYERS + 2 };

struct model {
    struct rf_block blocks[BLOCKS];
};
/* The caller frees *model after its plans and runs, also if this fails. */
int model_make(struct model *model);
void model_free(struct model *model);

#endif
