/* SPDX-License-Identifier: MIT
 *
 * Architectures of model hubs, as data: fields of config.json with their defaults in transformers,
 * and names of tensors. A new architecture is a row set here (docs/adding.md). hub_fields.c has the
 * fields that all architectures share.
 */
#include "hub_table.h"

#include <string.h>

#include "layer.h"

#define AT(field) offsetof(struct hub_values, field)
/* A field whose null is an error. */
#define SIZE(field, to, otherwise)                                                                 \
    {                                                                                              \
        field, RF_FIELD_SIZE, NULL, AT(to), otherwise, RF_FIELD_NEEDED                             \
    }
#define REAL(field, to, otherwise)                                                                 \
    {                                                                                              \
        field, RF_FIELD_REAL, NULL, AT(to), otherwise, RF_FIELD_NEEDED                             \
    }
#define FLAG(field, to, otherwise)                                                                 \
    {                                                                                              \
        field, RF_FIELD_FLAG, NULL, AT(to), otherwise, RF_FIELD_NEEDED                             \
    }
/* A field whose null means the same as 0: none, or derived from others. */
#define SIZE_OR_NULL(field, to, otherwise)                                                         \
    {                                                                                              \
        field, RF_FIELD_SIZE, NULL, AT(to), otherwise, 0                                           \
    }
/* Another name of a field. */
#define ALSO_SIZE(field, to)                                                                       \
    {                                                                                              \
        field, RF_FIELD_SIZE, NULL, AT(to), RF_FIELD_KEEP, RF_FIELD_NEEDED                         \
    }

static const char tied_head[] = "lm_head.weight";

/* ---- GPT-2 ----------------------------------------------------------------------------------- */

static const char other_heads[] = "of GPT2DoubleHeadsModel, and of models that classify";

static const struct rf_field gpt2_fields[] = {
    SIZE("vocab_size", vocab, 50257),
    SIZE("n_positions", positions, 1024),
    SIZE("n_embd", channels, 768),
    SIZE("n_layer", layers, 12),
    SIZE("n_head", heads, 12),
    SIZE_OR_NULL("n_inner", hidden, 0),
    ALSO_SIZE("max_position_embeddings", positions),
    ALSO_SIZE("hidden_size", channels),
    ALSO_SIZE("num_hidden_layers", layers),
    ALSO_SIZE("num_attention_heads", heads),
    REAL("layer_norm_epsilon", eps, 1e-5),
    FLAG("tie_word_embeddings", tied, 1),
    {"activation_function", RF_FIELD_ONLY, "\"gelu_new\" \"gelu_pytorch_tanh\""},
    {"scale_attn_weights", RF_FIELD_ONLY, "true"},
    {"scale_attn_by_inverse_layer_idx", RF_FIELD_ONLY, "false null"},
    {"reorder_and_upcast_attn", RF_FIELD_IGNORED,
     "the type of sums in attention, which are f32 here"},
    {"n_ctx", RF_FIELD_IGNORED, "an older name of n_positions, which transformers does not read"},
    {"n_special", RF_FIELD_IGNORED, "of the first version of GPT-2's code"},
    {"predict_special_tokens", RF_FIELD_IGNORED, "of the first version of GPT-2's code"},
    {"resid_pdrop", RF_FIELD_IGNORED, "dropout is not applied here"},
    {"embd_pdrop", RF_FIELD_IGNORED, "dropout is not applied here"},
    {"attn_pdrop", RF_FIELD_IGNORED, "dropout is not applied here"},
    {"summary_*", RF_FIELD_IGNORED, other_heads},
    {NULL}};

static const struct hub_row gpt2_rows[] = {
    {"wte.weight", {"@wte.weight"}, .tied = tied_head},
    {"wpe.weight", {"@wpe.weight"}},
    {"blocks.#.ln1.weight", {"@h.#.ln_1.weight"}},
    {"blocks.#.ln1.bias", {"@h.#.ln_1.bias"}},
    {"blocks.#.attention.qkv.weight", {"@h.#.attn.c_attn.weight"}, true},
    {"blocks.#.attention.qkv.bias", {"@h.#.attn.c_attn.bias"}},
    {"blocks.#.attention.proj.weight", {"@h.#.attn.c_proj.weight"}, true},
    {"blocks.#.attention.proj.bias", {"@h.#.attn.c_proj.bias"}},
    {"blocks.#.ln2.weight", {"@h.#.ln_2.weight"}},
    {"blocks.#.ln2.bias", {"@h.#.ln_2.bias"}},
    {"blocks.#.mlp.fc.weight", {"@h.#.mlp.c_fc.weight"}, true},
    {"blocks.#.mlp.fc.bias", {"@h.#.mlp.c_fc.bias"}},
    {"blocks.#.mlp.proj.weight", {"@h.#.mlp.c_proj.weight"}, true},
    {"blocks.#.mlp.proj.bias", {"@h.#.mlp.c_proj.bias"}},
    {"ln_f.weight", {"@ln_f.weight"}},
    {"ln_f.bias", {"@ln_f.bias"}},
    {NULL}};

/* Masks of attention, which old files contain. */
static const char *const gpt2_ignored[] = {"@h.#.attn.bias", "@h.#.attn.masked_bias", tied_head,
                                           NULL};

static const struct hub_arch gpt2 = {.name = "GPT2LMHeadModel",
                                     .base = "GPT2Model",
                                     .type = "gpt2",
                                     .prefix = "transformer.",
                                     .targets = "c_attn",
                                     .gpt2 = true,
                                     .fields = {gpt2_fields, hub_common_fields},
                                     .rows = gpt2_rows,
                                     .ignored = gpt2_ignored};

/* ---- Llama and its relatives ----------------------------------------------------------------- */

/* The rows of all of them; a model uses the rows of its parameters. */
static const struct hub_row llama_rows[] = {
    {"embedding.weight", {"@embed_tokens.weight"}, .tied = tied_head},
    {"blocks.#.norm1.weight", {"@layers.#.input_layernorm.weight"}},
    {"blocks.#.attention.qkv.weight",
     {"@layers.#.self_attn.q_proj.weight", "@layers.#.self_attn.k_proj.weight",
      "@layers.#.self_attn.v_proj.weight"}},
    {"blocks.#.attention.qkv.bias",
     {"@layers.#.self_attn.q_proj.bias", "@layers.#.self_attn.k_proj.bias",
      "@layers.#.self_attn.v_proj.bias"}},
    {"blocks.#.attention.q_norm.weight", {"@layers.#.self_attn.q_norm.weight"}},
    {"blocks.#.attention.k_norm.weight", {"@layers.#.self_attn.k_norm.weight"}},
    {"blocks.#.attention.proj.weight", {"@layers.#.self_attn.o_proj.weight"}},
    {"blocks.#.norm2.weight", {"@layers.#.post_attention_layernorm.weight"}},
    {"blocks.#.mlp.gate_up.weight",
     {"@layers.#.mlp.gate_proj.weight", "@layers.#.mlp.up_proj.weight"}},
    {"blocks.#.mlp.down.weight", {"@layers.#.mlp.down_proj.weight"}},
    {"norm.weight", {"@norm.weight"}},
    {"head.weight", {"lm_head.weight"}},
    {NULL}};

static const char *const llama_ignored[] = {"@layers.#.self_attn.rotary_emb.inv_freq", tied_head,
                                            NULL};

/* Fields of all architectures of the family, with their most common defaults. */
static const struct rf_field family_fields[] = {
    SIZE("hidden_size", channels, 4096),
    SIZE("num_hidden_layers", layers, 32),
    SIZE("num_attention_heads", heads, 32),
    SIZE_OR_NULL("num_key_value_heads", kv_heads, 32),
    SIZE_OR_NULL("head_dim", head_size, 0),
    REAL("rms_norm_eps", eps, 1e-6),
    FLAG("tie_word_embeddings", tied, 0),
    {"layer_types", RF_FIELD_READ},
    {"rope_scaling", RF_FIELD_READ},
    {"rope_parameters", RF_FIELD_READ},
    REAL("rope_theta", theta, 10000),
    SIZE_OR_NULL("original_max_position_embeddings", rope_original, 0),
    {"hidden_act", RF_FIELD_ONLY, "\"silu\" \"swish\""},
    {"attention_bias", RF_FIELD_ONLY, "false null"},
    {"mlp_bias", RF_FIELD_ONLY, "false null"},
    {"partial_rotary_factor", RF_FIELD_ONLY, "null 1"},
    {"rope_interleaved", RF_FIELD_ONLY, "false null"},
    {"use_mrope", RF_FIELD_ONLY, "false null"},
    {"use_sliding_window", RF_FIELD_ONLY, "false null"},
    {"max_window_layers", RF_FIELD_IGNORED, "of models with use_sliding_window"},
    {"attention_dropout", RF_FIELD_IGNORED, "dropout is not applied here"},
    {"pretraining_tp", RF_FIELD_IGNORED, "a way to divide products, which does not change them"},
    {"is_llama_config", RF_FIELD_IGNORED, "repeats architectures"},
    {"max_sequence_length", RF_FIELD_IGNORED,
     "an older name of max_position_embeddings, which transformers does not read"},
    {NULL}};

static const struct rf_field llama_fields[] = {SIZE("vocab_size", vocab, 32000),
                                               SIZE("intermediate_size", hidden, 11008),
                                               SIZE_OR_NULL("num_key_value_heads", kv_heads, 0),
                                               SIZE("max_position_embeddings", positions, 2048),
                                               SIZE_OR_NULL("sliding_window", window, 0),
                                               {NULL}};

static const struct rf_field mistral_fields[] = {SIZE("vocab_size", vocab, 32000),
                                                 SIZE("intermediate_size", hidden, 14336),
                                                 SIZE_OR_NULL("num_key_value_heads", kv_heads, 8),
                                                 SIZE("max_position_embeddings", positions, 131072),
                                                 SIZE_OR_NULL("sliding_window", window, 4096),
                                                 {NULL}};

/* Fields of both Qwens. */
static const struct rf_field qwen_fields[] = {
    SIZE("vocab_size", vocab, 151936),
    SIZE("intermediate_size", hidden, 22016),
    SIZE("max_position_embeddings", positions, 32768),
    SIZE_OR_NULL("sliding_window", window, 4096),
    {"max_window_layers", RF_FIELD_COUNT, NULL, AT(window_from), 28, RF_FIELD_NEEDED},
    FLAG("use_sliding_window", uses_window, 0),
    {NULL}};

static const struct rf_field qwen2_fields[] = {
    {"attention_bias", RF_FIELD_IGNORED, "queries, keys and values of Qwen2 always have biases"},
    {NULL}};

static const struct rf_field qwen3_fields[] = {SIZE_OR_NULL("head_dim", head_size, 128), {NULL}};

static const struct hub_arch llama = {.name = "LlamaForCausalLM",
                                      .base = "LlamaModel",
                                      .type = "llama",
                                      .prefix = "model.",
                                      .targets = "q_proj,v_proj",
                                      .always_window = true,
                                      .fields = {llama_fields, family_fields, hub_common_fields},
                                      .rows = llama_rows,
                                      .ignored = llama_ignored};
static const struct hub_arch mistral = {
    .name = "MistralForCausalLM",
    .base = "MistralModel",
    .type = "mistral",
    .prefix = "model.",
    .targets = "q_proj,v_proj",
    .always_window = true,
    .fields = {mistral_fields, family_fields, hub_common_fields},
    .rows = llama_rows,
    .ignored = llama_ignored};
static const struct hub_arch qwen2 = {
    .name = "Qwen2ForCausalLM",
    .base = "Qwen2Model",
    .type = "qwen2",
    .prefix = "model.",
    .targets = "q_proj,v_proj",
    .qkv_bias = true,
    .fields = {qwen2_fields, qwen_fields, family_fields, hub_common_fields},
    .rows = llama_rows,
    .ignored = llama_ignored};
static const struct hub_arch qwen3 = {
    .name = "Qwen3ForCausalLM",
    .base = "Qwen3Model",
    .type = "qwen3",
    .prefix = "model.",
    .targets = "q_proj,v_proj",
    .qk_norm = true,
    .fields = {qwen3_fields, qwen_fields, family_fields, hub_common_fields},
    .rows = llama_rows,
    .ignored = llama_ignored};

/* ---- OLMo 2 ---------------------------------------------------------------------------------- */

/* Post-norms, and norms of all heads together (Team OLMo 2025). */
static const struct layer_op olmo2_layer[] = {
    {LAYER_IDENTITY},
    {LAYER_COLUMN_LINEAR, "attention.qkv", LAYER_PACKED},
    {LAYER_HEADS, "attention", {LAYER_QUERIES, LAYER_KEYS}},
    {LAYER_ATTEND},
    {LAYER_ROW_LINEAR, "attention.proj", {LAYER_CHANNELS}},
    {LAYER_NORM, "norm1"},
    {LAYER_ADD},
    {LAYER_IDENTITY},
    {LAYER_COLUMN_LINEAR, "mlp.gate_up", {LAYER_HIDDEN, LAYER_HIDDEN}},
    {LAYER_GATE, .act = RF_ACT_SILU},
    {LAYER_ROW_LINEAR, "mlp.down", {LAYER_CHANNELS}},
    {LAYER_NORM, "norm2"},
    {LAYER_ADD},
    {LAYER_END}};

static const struct hub_row olmo2_rows[] = {
    {"embedding.weight", {"@embed_tokens.weight"}, .tied = tied_head},
    {"blocks.#.attention.qkv.weight",
     {"@layers.#.self_attn.q_proj.weight", "@layers.#.self_attn.k_proj.weight",
      "@layers.#.self_attn.v_proj.weight"}},
    {"blocks.#.attention.q_norm.weight", {"@layers.#.self_attn.q_norm.weight"}},
    {"blocks.#.attention.k_norm.weight", {"@layers.#.self_attn.k_norm.weight"}},
    {"blocks.#.attention.proj.weight", {"@layers.#.self_attn.o_proj.weight"}},
    {"blocks.#.norm1.weight", {"@layers.#.post_attention_layernorm.weight"}},
    {"blocks.#.mlp.gate_up.weight",
     {"@layers.#.mlp.gate_proj.weight", "@layers.#.mlp.up_proj.weight"}},
    {"blocks.#.mlp.down.weight", {"@layers.#.mlp.down_proj.weight"}},
    {"blocks.#.norm2.weight", {"@layers.#.post_feedforward_layernorm.weight"}},
    {"norm.weight", {"@norm.weight"}},
    {"head.weight", {"lm_head.weight"}},
    {NULL}};

static const struct rf_field olmo2_fields[] = {SIZE("vocab_size", vocab, 50304),
                                               SIZE("intermediate_size", hidden, 11008),
                                               SIZE_OR_NULL("num_key_value_heads", kv_heads, 0),
                                               SIZE("max_position_embeddings", positions, 2048),
                                               REAL("rms_norm_eps", eps, 1e-5),
                                               {NULL}};

static const struct hub_arch olmo2 = {.name = "Olmo2ForCausalLM",
                                      .base = "Olmo2Model",
                                      .type = "olmo2",
                                      .prefix = "model.",
                                      .targets = "q_proj,v_proj",
                                      .layer = olmo2_layer,
                                      .fields = {olmo2_fields, family_fields, hub_common_fields},
                                      .rows = olmo2_rows,
                                      .ignored = llama_ignored};

/* ---- EXAONE 4 -------------------------------------------------------------------------------- */

/* Post-norms, and a norm of each head. */
static const struct layer_op exaone4_layer[] = {
    {LAYER_IDENTITY},
    {LAYER_COLUMN_LINEAR, "attention.qkv", LAYER_PACKED},
    {LAYER_HEADS, "attention", {LAYER_HEAD_SIZE, LAYER_HEAD_SIZE}},
    {LAYER_ATTEND},
    {LAYER_ROW_LINEAR, "attention.proj", {LAYER_CHANNELS}},
    {LAYER_NORM, "norm1"},
    {LAYER_ADD},
    {LAYER_IDENTITY},
    {LAYER_COLUMN_LINEAR, "mlp.gate_up", {LAYER_HIDDEN, LAYER_HIDDEN}},
    {LAYER_GATE, .act = RF_ACT_SILU},
    {LAYER_ROW_LINEAR, "mlp.down", {LAYER_CHANNELS}},
    {LAYER_NORM, "norm2"},
    {LAYER_ADD},
    {LAYER_END}};

/* With a sliding window, layers without a window are not rotated. */
static const struct rf_field exaone4_fields[] = {
    SIZE("vocab_size", vocab, 102400),
    SIZE("intermediate_size", hidden, 16384),
    SIZE("max_position_embeddings", positions, 2048),
    REAL("rms_norm_eps", eps, 1e-5),
    {"sliding_window", RF_FIELD_ONLY, "null", .absent = RF_FIELD_NEEDED},
    {"sliding_window_pattern", RF_FIELD_IGNORED, "of models with a sliding window"},
    {NULL}};

static const struct hub_arch exaone4 = {
    .name = "Exaone4ForCausalLM",
    .base = "Exaone4Model",
    .type = "exaone4",
    .prefix = "model.",
    .targets = "q_proj,v_proj",
    .layer = exaone4_layer,
    .fields = {exaone4_fields, family_fields, hub_common_fields},
    .rows = olmo2_rows,
    .ignored = llama_ignored};

const struct hub_arch *const hub_archs[] = {&gpt2,  &llama, &mistral, &qwen2,
                                            &qwen3, &olmo2, &exaone4, NULL};

const struct hub_arch *hub_arch_named(const char *name)
{
    for (int i = 0; hub_archs[i]; i++)
        if (strcmp(hub_archs[i]->name, name) == 0)
            return hub_archs[i];
    return NULL;
}
