/* SPDX-License-Identifier: MIT
 *
 * The tables of hub_table.c and hub_fields.c. hub_config.c reads the fields, hub_tensors.c the
 * rows, hub_modules.c both for adapters.
 */
#ifndef RF_MODELS_HUB_TABLE_H
#define RF_MODELS_HUB_TABLE_H

#include <ringforge/fields.h>
#include <stddef.h>

#include "hub.h"

struct cJSON;

/* A parameter and its tensors in the hub, which are consecutive along its rows. In names # is the
 * layer, and @ a prefix that base models lack, such as "model.". The name of a matrix without
 * ".weight" is the name of its module, for adapters. */
enum { HUB_PARTS = 3 };
struct hub_row {
    const char *ours;
    const char *theirs[HUB_PARTS];
    bool transposed;  /* the hub has (inputs, outputs) */
    const char *tied; /* its other name, if it is also the head */
};

struct hub_arch {
    const char *name, *type; /* architectures[0] and model_type */
    const char *base;        /* architectures[0] of a folder of the model without its head */
    const char *prefix;
    const char *targets; /* the modules that PEFT adapts if none are named */
    bool gpt2;           /* else a struct llama_config */
    bool qkv_bias, qk_norm;
    const struct layer_op *layer;     /* the operations of a layer; NULL: those of a Llama */
    bool always_window;               /* every layer has the window; else see uses_window */
    const struct rf_field *fields[5]; /* of config.json; ends with NULL */
    const struct hub_row *rows;       /* the last has no name */
    const char *const *ignored;       /* tensors that hold no parameters; ends with NULL */
};
extern const struct hub_arch *const hub_archs[]; /* ends with NULL */

/* ---- hub_fields.c ---------------------------------------------------------------------------- */

extern const struct rf_field hub_common_fields[];     /* of config.json, for any architecture */
extern const struct rf_field hub_generation_fields[]; /* of generation_config.json */

/* Fields of rope_scaling and rope_parameters. */
struct hub_rope {
    double theta, factor, low_freq, high_freq; /* 0: absent */
    int original;
};
extern const struct rf_field hub_rope_fields[]; /* of both kinds */
extern const struct rf_field hub_plain_rope_fields[], hub_llama3_rope_fields[];

struct hub {
    const struct hub_arch *arch;
    struct hub_values values;
    enum rf_dtype dtype;
    struct hub_packing packing;
    bool head_settled; /* whether values.tied agrees with the files of the weights */
    char *text;        /* config.json; NULL: not from a hub */
};

/* hub_config.c. Checks whether a config is supported. Sets all members except hub->text. */
int hub_parse(const char *text, struct hub *hub);

/* The architecture that a config names, and how its weights are packed; *out is NULL if the table
 * has none of that name. An error if architectures and model_type name different ones. */
int hub_find_arch(const char *text, const struct hub_arch **out, struct hub_packing *packing);

/* hub_packing.c. Reads quantization_config, if there is one. arch may be NULL: not known. */
int hub_read_packing(const struct hub_arch *arch, const struct cJSON *config,
                     struct hub_packing *out);

/* hub_tensors.c. If files have a head beside the table of tokens, with other values, the head is
 * not tied, whatever config.json says. No effect on folders without weights. */
int hub_settle_head(struct hub *hub, const char *dir);

#endif
