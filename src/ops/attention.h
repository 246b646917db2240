/* SPDX-License-Identifier: MIT
 *
 * The interface between attention.c, which checks and chooses a path, and attention_paths.c, which
 * launches.
 */
#ifndef RF_OPS_ATTENTION_H
#define RF_OPS_ATTENTION_H

#include "heads.h"

/* A checked call; grads: NULL in the forward pass. */
struct rf_attention_call {
    const char *op;
    struct rf_device *device;
    const struct rf_attention_args *args;
    const struct rf_attention_grads *grads;
};

/* An implementation. can: RF_ENOTSUP gives the reason why not; NULL: known only when it runs. */
struct rf_attention_path {
    const char *name;
    bool has_forms; /* a name can select one: "tiled:2" (attention_forms.h) */
    RF_MUST_CHECK int (*can)(const struct rf_attention_call *call);
    bool (*suits)(const struct rf_attention_call *call);
    /* Without a stream, only chooses the forms. */
    RF_MUST_CHECK int (*run)(struct rf_stream *stream, const struct rf_attention_call *call);
};
/* In order of preference among those that suit. */
extern const struct rf_attention_path rf_attention_paths[];
extern const size_t rf_attention_path_count;

#endif
