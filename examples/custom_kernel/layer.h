/* SPDX-License-Identifier: MIT
 *
 * Your own block: token -> table row -> x|x| by your own kernel -> scores of the next token. This
 * block is the whole model of the example. A list may mix such blocks with any others.
 */
#ifndef LAYER_H
#define LAYER_H

#include <ringforge/ringforge.h>

#define VOCABULARY 16
#define WIDTH 32

struct layer {
    struct rf_kernel *activation, *gradient;
};
int layer_init(struct layer *layer, struct rf_device *device);
void layer_fini(struct layer *layer);
extern const struct rf_block_ops layer_ops;
extern const struct rf_param_desc layer_params[2];

#endif
