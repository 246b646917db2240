/* SPDX-License-Identifier: MIT
 *
 * Models from folders of a hub, and back: --from of `train` and `plan`, --export of `train`.
 */
#ifndef RF_TOOLS_FROM_H
#define RF_TOOLS_FROM_H

#include <adapter_file.h>
#include <hub.h>
#include <quantized.h>

#include "setup.h"

/* ---- from.c ---------------------------------------------------------------------------------- */

/* Reads setup->from/config.json and sets the options it determines; an error if one of them is
 * given, too. setup->from NULL: does nothing. Returns an exit status, like all of these. */
int from_open(const struct tool_command *command, struct setup *setup);

/* The weights of setup->from, checked against the blocks of a model. Closed with from_close. */
struct from {
    struct rf_weights *weights;
    struct hub_source *source;
    struct quantized_source *quantized; /* or NULL */
    struct model base;                  /* without adapters */
    const struct model *model;
    uint64_t seed; /* for new adapters; set before from_fill */
};
int from_check(const struct tool_command *command, const struct setup *setup,
               const struct model *model, struct from *out);
/* Fills the run from them. Collective; a status of the library. */
int from_fill(struct from *from, struct rf_run *run);
/* A source of all parameters, also those of new adapters. `from` must outlive it. */
struct rf_param_source from_source(struct from *from);
void from_close(struct from *from);

/* ---- adapter.c ------------------------------------------------------------------------------- */

/* Whether a parameter is one of an adapter. */
bool adapter_has(const char *param);
/* Initial values of a new adapter, as in PEFT: A uniform within 1 / sqrt(K), B zero. */
void adapter_initial(const struct rf_param_desc *param, uint64_t seed, uint64_t first,
                     uint64_t count, float *values);
/* Checks setup->adapter_file, if given, against the model; fills a run with it. Collective, like
 * the next. */
int adapter_check(const struct tool_command *command, const struct setup *setup,
                  const struct model *model);
int adapter_fill(const struct tool_command *command, const struct setup *setup,
                 const struct model *model, struct rf_run *run);
/* The same for a generator. Not collective. */
struct rf_generator;
int adapter_fill_generator(const struct tool_command *command, const struct setup *setup,
                           const struct model *model, struct rf_generator *generator);
/* Rank 0 writes. */
int adapter_export(const struct tool_command *command, const struct setup *setup, const char *dir,
                   const struct model *model, struct rf_run *run, int rank);
/* The same, merged into the weights of setup->from as they are in its files. */
struct export_options;
int adapter_export_merged(const struct tool_command *command, const struct setup *setup,
                          const struct export_options *options, const struct model *model,
                          struct rf_run *run, int rank);
/* Before any work: whether --export-adapter, or merged: --export, can hold everything that is
 * trained. */
int adapter_check_export(const struct tool_command *command, const struct setup *setup,
                         const struct model *model, bool merged);

/* ---- byte_tokenizer.c ------------------------------------------------------------------------ */

/* tokenizer.json of a model of bytes; freed with free(). NULL: out of memory. */
char *byte_tokenizer_text(void);
extern const char byte_tokenizer_config[]; /* tokenizer_config.json */

/* ---- export.c -------------------------------------------------------------------------------- */

struct export_options {
    const char *dir, *dtype; /* dtype: f32, f16, bf16; NULL: that of --from, or f32 */
    int64_t shard_bytes;     /* 0 = 5e9 */
};
/* Before any work. */
int export_check(const struct tool_command *command, const struct export_options *options);
/* Writes the run's parameters and, for setup->from, the files beside its weights. Collective; rank
 * 0 writes. */
int export_run(const struct tool_command *command, const struct setup *setup,
               const struct export_options *options, const struct model *model, struct rf_run *run,
               int rank, bool together);

/* ---- hub_files.c ----------------------------------------------------------------------------- */

/* Copies the files beside config.json and the weights. A status of the library. to NULL: only tests
 * whether they can be copied. */
struct rf_export;
int export_copy_others(struct rf_export *to, const char *from);

/* ---- merge_weights.c ------------------------------------------------------------------------- */

struct merge_options {
    const char *from;
    const char *adapter;           /* the folder of `file` */
    struct adapter_file *file;     /* these adapters, or */
    const struct adapter_set *set; /* those */
    struct export_options export;  /* dtype NULL: each tensor has the base's */
    const char *config;            /* config.json; NULL: that of the base */
    bool allow_nan;
};
/* *merged: the number of modules with an adapter. */
int merge_weights(const struct tool_command *command, const struct merge_options *options,
                  int *merged);

#endif
