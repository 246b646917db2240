/* SPDX-License-Identifier: MIT
 *
 * Checkpoints of model hubs: what config.json says, which of the hub's tensors a parameter consists
 * of, and the way back. hub_table.c has one table for each architecture; everything else reads
 * these tables. Used by the tools; docs/finetuning.md describes the formats.
 *
 * Functions that can fail return 0 or a negative status; rf_last_error() has the sentence. They
 * block, and do not communicate.
 */
#ifndef RF_MODELS_HUB_H
#define RF_MODELS_HUB_H

#include <ringforge/checkpoint.h>
#include <ringforge/fields.h>
#include <ringforge/weights.h>

#include "gpt2.h"
#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The description of a model in config.json. */
struct hub_values {
    int layers, channels, heads, kv_heads, head_size, hidden, vocab;
    int positions; /* the longest sequence */
    int window;    /* of sliding attention; 0 = none */
    double theta, eps;
    bool tied;
    struct llama_rope_scaling rope_scaling;
    int rope_original; /* its length, if config.json has it beside the object; or 0 */
    int window_from;   /* the first layer with the window */
    bool uses_window;  /* of architectures with a switch for it */
};

/* How files have the weights of linear maps, as quantization_config says. */
struct hub_packing {
    enum rf_packing kind;
    int group; /* of struct rf_weights_opts, like reordered */
    bool reordered;
    /* Such weights of all layers can be taken as they are. Only the files know block sizes. */
    enum rf_quantization quantized;
};

struct hub; /* a described model */
/* Reads dir/config.json. RF_EINVAL: an unsupported setting, with the field and its value. If
 * config.json ties the head to the table of tokens, but files of weights have both, with different
 * values, the head is not tied, as in transformers. The caller destroys *out. */
RF_MUST_CHECK int hub_open(const char *dir, struct hub **out);
/* Describes a model that is not from a hub. */
RF_MUST_CHECK int hub_of_gpt2(const struct gpt2_config *config, struct hub **out);
RF_MUST_CHECK int hub_of_llama(const struct llama_config *config, struct hub **out);
void hub_destroy(struct hub *hub); /* NULL is allowed */

const char *hub_architecture(const struct hub *hub); /* "LlamaForCausalLM" */
/* The architecture of a description; lives forever. */
struct hub_arch;
const struct hub_arch *hub_arch_of(const struct hub *hub);
const struct hub_arch *hub_arch_named(const char *name); /* NULL: no architecture of that name */
struct hub_packing hub_packing_of(const struct hub *hub);
/* Options for opening the weights of a folder. */
struct rf_weights_opts hub_weights_opts(const struct hub_packing *packing, bool allow_nan);
/* What dir/config.json says of its architecture and of packed weights; other fields are ignored.
 * out->arch is NULL if there is no such file, or no such architecture in the table. out->text: the
 * file, or NULL; the caller frees it with free(). */
struct hub_look {
    const struct hub_arch *arch;
    struct hub_packing packing;
    char *text;
};
RF_MUST_CHECK int hub_look_at(const char *dir, struct hub_look *out);
/* The text of a config.json for the same weights that are not packed; freed with free(). NULL: out
 * of memory. */
char *hub_unpacked_text(const char *text);
const struct hub_values *hub_values(const struct hub *hub);
enum rf_dtype hub_dtype(const struct hub *hub); /* of the weights, from config.json */
bool hub_is_gpt2(const struct hub *hub);
/* Set the sizes and the other fields that config.json determines; the remaining fields are
 * unchanged. */
void hub_set_gpt2(const struct hub *hub, struct gpt2_config *config);
void hub_set_llama(const struct hub *hub, struct llama_config *config);
/* Whether the model can be trained with sequences of this length. */
RF_MUST_CHECK int hub_check_seq(const struct hub *hub, int64_t seq);

/* ---- architectures --------------------------------------------------------------------------- */

/* The properties of a tensor of the hub's files, by its name, with or without the prefix of the
 * whole model. */
struct hub_about {
    bool known;      /* it belongs to a parameter */
    bool transposed; /* it is (inputs, outputs) */
    bool ignored;    /* it is not a parameter */
};
struct hub_about hub_tensor_about(const struct hub_arch *arch, const char *name);
/* Whether weights of linear maps are (inputs, outputs). */
bool hub_arch_transposes(const struct hub_arch *arch);
/* The modules that have adapters if none are named, as in PEFT: "q_proj,v_proj". */
const char *hub_arch_targets(const struct hub_arch *arch);
/* Whether a target of adapters is the name of a module of the architecture, or ends one. */
bool hub_arch_has(const struct hub_arch *arch, const char *target);

/* ---- tensors --------------------------------------------------------------------------------- */

/* A tensor of the hub: rows [first_row, first_row + rows) of a parameter, or their transpose. */
struct hub_tensor {
    char name[160];
    const struct rf_param_desc *param;
    int64_t first_row, rows, columns; /* columns: elements of a row of the parameter */
    bool transposed;
    const char *tied; /* its other name, if it is also the head; or NULL */
};
struct hub_tensors { /* zero: empty */
    struct hub_tensor *list;
    int count;
};
/* The tensors of all parameters of the blocks, in their order; tied parameters occur once. prefix:
 * RF_EINVAL if a parameter has no row in the table. */
RF_MUST_CHECK int hub_list(const struct hub *hub, const struct rf_block *blocks, int count,
                           bool prefix, struct hub_tensors *out);
void hub_tensors_free(struct hub_tensors *tensors);
/* The shape of a tensor in the hub's files. */
struct rf_shape hub_tensor_shape(const struct hub_tensor *tensor);

/* A source of parameters (rf_run_fill) that reads a folder of weights. */
struct hub_source;
/* Checks names and shapes of all tensors: none may be missing or superfluous. Reads no weights,
 * unless files have a tied tensor twice. Blocks and weights must outlive the source. */
RF_MUST_CHECK int hub_source_create(const struct hub *hub, struct rf_weights *weights,
                                    const struct rf_block *blocks, int count,
                                    struct hub_source **out);
void hub_source_destroy(struct hub_source *source); /* NULL is allowed */
struct rf_param_source hub_source_of(struct hub_source *source);
/* rf_weights_quantized for elements [first, first + count) of a parameter, which are a tensor. */
RF_MUST_CHECK int hub_source_quantized(struct hub_source *source, const char *name, int64_t first,
                                       int64_t count, enum rf_quantization kind, void *bytes);

/* ---- generation ------------------------------------------------------------------------------ */

enum { HUB_MOST_ENDS = 64 };
struct hub_ends {
    int32_t ids[HUB_MOST_ENDS];
    int count;
};
/* The ids that end a text: eos_token_id of dir/generation_config.json, if the file exists and has
 * any, otherwise of config.json. RF_EINVAL: generation_config.json has a setting that changes the
 * generated tokens and that no option of `ringforge generate` supports; the sentence names the
 * field. */
RF_MUST_CHECK int hub_read_ends(const char *dir, bool has_generation, struct hub_ends *out);
/* The table of the fields of generation_config.json. */
extern const struct rf_fields hub_generation;

/* ---- export ---------------------------------------------------------------------------------- */

/* The text of config.json for weights of this type: that of the described folder, with another
 * type, and with tie_word_embeddings and architectures as exported; freed with free(). NULL: out of
 * memory. */
char *hub_config_text(const struct hub *hub, enum rf_dtype dtype);

/* Copies elements first to first + count - 1 of a tensor from its whole parameter. */
void hub_take(const struct hub_tensor *tensor, const float *param, int64_t first, int64_t count,
              float *out);

#ifdef __cplusplus
}
#endif
#endif
