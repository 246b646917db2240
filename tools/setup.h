/* SPDX-License-Identifier: MIT
 *
 * A training setup as `train` and `plan` take it: the flags they share, their checks, and the
 * resulting model, mesh and policy.
 */
#ifndef RF_TOOLS_SETUP_H
#define RF_TOOLS_SETUP_H

#include <adapter.h>
#include <ringforge/quantize.h>

#include "tool.h"

/* The recomputed values of the backward pass. */
struct recompute {
    unsigned parts; /* of layers: enum model_recompute_part */
    int blocks;     /* whole ones: rf_policy.recompute */
};

/* How blocks are divided into stages: by a rule, or count > 0 of them by hand. */
enum { SETUP_MOST_STAGES = 1024, SETUP_MOST_BLOCKS = 1 << 20, SETUP_GIVEN = 5, SETUP_LAYERS = 1 };
struct stage_list {
    enum rf_stage_split split;
    int blocks[SETUP_MOST_STAGES], count;
};

/* Low-rank adapters. */
struct lora_option {
    struct model_adapter adapter; /* targets points into this struct */
    char targets[168];
};

struct setup {
    int64_t layers, channels, heads, kv_heads, seq, batch, micro_batches, zero, head_rows;
    int64_t workspace;                             /* negative = not given */
    double clip, weight_decay, loss_scale;         /* the last two: negative = not given */
    double beta1, beta2, eps, momentum, dampening; /* negative = not given */
    bool eps_inside, no_bias_correction, centered;
    bool keep_gathered, no_prefetch, no_masters, stochastic, in_backward;
    int64_t device_bytes;
    const char *offload;
    int offloaded;  /* RF_OFFLOAD_* */
    int on_disk;    /* those of them that are in a file */
    bool any_batch; /* without --batch, take the next multiple of the ranks (plan) */
    bool batch_given;
    const char *model;                 /* gpt2, llama */
    const char *from;                  /* a folder of a hub, or NULL */
    bool allow_nan;                    /* in its weights */
    bool given[SETUP_GIVEN];           /* --model, --layers, --channels, --heads, --kv-heads */
    struct hub *hub;                   /* its config.json; opened by setup_check */
    struct tool_list freeze;           /* patterns of names */
    const char *lora;                  /* NULL: none */
    const char *quantize;              /* auto, or rf_quantization_name */
    bool quantize_auto;                /* it was auto: weights as they are in files */
    const char *streams;               /* --reversible: none, f32, fixed */
    const char *products;              /* --matmul-precision: a name of enum rf_recipe */
    const char *adapter_dir;           /* of PEFT's files, or NULL */
    struct adapter_file *adapter_file; /* opened by setup_check */
    const char *dtype, *residual, *reduce, *states, *compress, *mesh_text, *order, *update, *again,
        *schedule, *stages, *optimizer;
    char optimizers[160]; /* all names: "adamw, sgd or lion" */
    char optimizers_help[192];
    /* filled by setup_check */
    struct recompute recompute;
    struct lora_option adapter;
    enum rf_quantization quantization; /* of the weights of layers */
    int reversible;                    /* enum rf_reversible */
    enum rf_recipe recipe;
    bool sequence_parallel;
    int64_t tensor_parts;
    enum rf_pipeline_kind policy_pipeline;
    int chunks;
    struct stage_list stage_list; /* policy.stage_blocks points into it */
    enum rf_dtype type, residual_type, reduce_type, state_type;
    struct rf_compression compression;
    struct rf_mesh mesh;
    struct rf_policy policy;
};

#define SETUP_ROWS 51
/* Gradients are sums over tokens here, not means: means usually begin at 65536; with a thousand
 * tokens, sums begin at a thousandth of that. */
#define SETUP_F16_SCALE 64
#define SETUP_MOST_RANKS (1 << 20) /* of an axis */
/* Sets the defaults and writes SETUP_ROWS rows of options that point into *setup. */
void setup_init(struct setup *setup, struct tool_option *rows);
/* Checks what can be checked without ranks or devices; fills mesh and policy. Without --mesh,
 * mesh.dp is `ranks`. */
int setup_check(const struct tool_command *command, struct setup *setup, int ranks);
void setup_close(struct setup *setup);
/* The value in use of a number, &setup->beta1 or such, whose option may not have been given. False:
 * not one of these, or the rule does not have it. */
bool setup_in_use(const struct setup *setup, const void *value, float *out);
/* setup_optimizer.c. An option that the rule does not have would change nothing, so it is refused.
 * Fills policy.optimizer. Called by setup_check. */
int setup_check_optimizer(const struct tool_command *command, struct setup *setup);
/* Of the whole mesh. */
int setup_ranks(const struct setup *setup);
/* Reads "dp=2,tp=2" into the values of the named axes (names: NULL-terminated); others stay. A
 * repeated axis, or one out of range, is a usage error. */
int setup_mesh_read(const struct tool_command *command, const char *text, const char *const *names,
                    int64_t *values);
/* "dp=2,tp=2"; axes of one rank are omitted, except dp. */
const char *setup_mesh_text(const struct setup *setup, char text[64]);

/* ---- recompute.c: "none", or words separated by commas --------------------------------------- */

int recompute_parse(const struct tool_command *command, const char *text, struct recompute *out);
/* --reversible, beside what else the setup has. */
int reversible_parse(const struct tool_command *command, struct setup *setup);

/* ---- offload.c: "none", or words separated by commas ----------------------------------------- */

int offload_parse(const struct tool_command *command, const char *text, int *out, int *disk);

/* ---- setup.c: auto, or rf_quantization_name -------------------------------------------------- */

/* Sets quantization and quantize_auto of a setup. auto: as the files of --from have the weights of
 * layers, if kept is set and they can be taken so; else none. */
int quantize_parse(const struct tool_command *command, const char *text, bool kept,
                   struct setup *setup);

/* ---- lora.c: settings separated by commas ---------------------------------------------------- */

/* The adapters of --lora or --adapter, or NULL. */
const struct model_adapter *setup_adapter(const struct setup *setup);

/* targets: used if the text names none. */
int lora_parse(const struct tool_command *command, const char *text, const char *targets,
               struct lora_option *out);

/* ---- adapter.c: adapters in files ------------------------------------------------------------ */

/* Opens setup->adapter_dir, if it is given. An exit status. */
int adapter_open(const struct tool_command *command, struct setup *setup);

/* ---- split.c: "even", "cost", or counts separated by commas ---------------------------------- */

int stages_parse(const struct tool_command *command, const char *text, struct stage_list *out);

/* ---- model.c: the blocks that a setup describes ---------------------------------------------- */

/* A usage error if a store of this rule (of --sync) cannot train so. */
struct rf_store_opts;
int setup_check_store(const struct tool_command *command, const struct setup *setup,
                      const char *rule, const struct rf_store_opts *store);
/* A worker has no optimizer: the store has it, and adds each use of a tied parameter over the
 * workers. */
void setup_store_policy(const struct rf_store_opts *store, struct rf_policy *policy);
/* The ranges of a plan that `next` tells, as rf_plan_trained_use does, and their number. out: room
 * for them, or NULL. */
struct rf_store_keys;
int setup_store_ranges(const struct rf_plan *plan,
                       int (*next)(const struct rf_plan *plan, int index, int64_t *first,
                                   int64_t *count),
                       struct rf_store_keys *out);

struct model {
    const struct rf_block *blocks;
    int count;
    void *owner;
    void (*destroy)(void *owner);
    int (*freeze)(void *owner, const char *pattern);
    int (*modules)(void *owner, struct model_adapter_module *out, int capacity);
};
int model_create(const struct tool_command *command, const struct setup *setup,
                 struct model *model);
/* As in a hub: without adapters and quantised weights; nothing is frozen. */
int model_create_plain(const struct tool_command *command, const struct setup *setup,
                       struct model *model);
/* One block with `params` parameters and no activations: to plan for a size without a model. */
int model_create_sized(const struct tool_command *command, const struct setup *setup, double params,
                       struct model *model);
void model_destroy(struct model *model);
/* As an architecture of a hub; destroyed with hub_destroy. A status of the library. */
struct hub;
int model_describe(const struct setup *setup, struct hub **out);
/* That of --from, or the one as which the model is exported. */
struct hub_arch;
const struct hub_arch *model_arch(const struct setup *setup);

#endif
