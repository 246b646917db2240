/* SPDX-License-Identifier: MIT
 *
 * The tables of hub_table.c. hub.c reads the fields, hub_tensors.c the rows.
 */
#ifndef RF_MODELS_HUB_TABLE_H
#define RF_MODELS_HUB_TABLE_H

#include <stddef.h>

#include "hub.h"

/* A field of config.json. */
enum hub_kind {
    HUB_SIZE, /* int in struct hub_values */
    HUB_REAL, /* double */
    HUB_FLAG, /* bool */
    HUB_ONLY  /* not stored: has to be one of `only`, or absent */
};
#define HUB_REFUSED (-1.0) /* of hub_field.null: null is an error */
struct hub_field {
    const char *name;
    enum hub_kind kind;
    size_t at;           /* offset in struct hub_values */
    double absent, null; /* the value if the field is absent, as in transformers, or null */
    const char *only;    /* JSON texts, separated by spaces */
};

/* A parameter and the hub's tensors of it, which follow each other along its rows. In names # is
 * the layer, and @ a prefix that base models lack, such as "model.". */
enum { HUB_PARTS = 3 };
struct hub_row {
    const char *ours;
    const char *theirs[HUB_PARTS];
    bool transposed; /* the hub has (inputs, outputs) */
};

struct hub_arch {
    const char *name, *type; /* architectures[0] and model_type */
    const char *prefix;
    bool gpt2; /* else a struct llama_config */
    bool qkv_bias, qk_norm;
    bool always_window;             /* every layer has the window; else see uses_window */
    const struct hub_field *fields; /* the last has no name */
    const struct hub_row *rows;     /* the last has no name */
    const char *const *ignored;     /* tensors that hold no parameters; ends with NULL */
};
extern const struct hub_arch *const hub_archs[]; /* ends with NULL */

struct hub {
    const struct hub_arch *arch;
    struct hub_values values;
    enum rf_dtype dtype;
    char *text; /* config.json; NULL: came from no hub */
};

/* hub_config.c. Whether the text of a config describes something that can be computed. Fills all
 * but hub->text. */
int hub_parse(const char *text, struct hub *hub, char fault[HUB_FAULT_BYTES]);

#endif
