/* SPDX-License-Identifier: MIT
 *
 * Architectures of model hubs, as data: fields of config.json with their defaults in transformers,
 * and names of tensors. A new architecture is a row set here (docs/adding.md).
 */
#include "hub_table.h"

#define AT(field) offsetof(struct hub_values, field)
#define LAST                                                                                       \
    {                                                                                              \
        NULL                                                                                       \
    }

static const char tied_head[] = "lm_head.weight";

/* ---- GPT-2 ----------------------------------------------------------------------------------- */

static const struct hub_field gpt2_fields[] = {
    {"vocab_size", HUB_SIZE, AT(vocab), 50257, HUB_REFUSED},
    {"n_positions", HUB_SIZE, AT(positions), 1024, HUB_REFUSED},
    {"n_embd", HUB_SIZE, AT(channels), 768, HUB_REFUSED},
    {"n_layer", HUB_SIZE, AT(layers), 12, HUB_REFUSED},
    {"n_head", HUB_SIZE, AT(heads), 12, HUB_REFUSED},
    {"n_inner", HUB_SIZE, AT(hidden), 0, 0},
    {"layer_norm_epsilon", HUB_REAL, AT(eps), 1e-5, HUB_REFUSED},
    {"tie_word_embeddings", HUB_FLAG, AT(tied), 1, HUB_REFUSED},
    {"activation_function", HUB_ONLY, .only = "\"gelu_new\" \"gelu_pytorch_tanh\""},
    {"scale_attn_weights", HUB_ONLY, .only = "true"},
    {"scale_attn_by_inverse_layer_idx", HUB_ONLY, .only = "false"},
    {"add_cross_attention", HUB_ONLY, .only = "false"},
    {"quantization_config", HUB_ONLY, .only = "null"},
    LAST};

static const struct hub_row gpt2_rows[] = {
    {"wte.weight", {"@wte.weight"}},
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
    LAST};

/* Masks of attention, which old files contain. */
static const char *const gpt2_ignored[] = {"@h.#.attn.bias", "@h.#.attn.masked_bias", tied_head,
                                           NULL};

static const struct hub_arch gpt2 = {.name = "GPT2LMHeadModel",
                                     .type = "gpt2",
                                     .prefix = "transformer.",
                                     .gpt2 = true,
                                     .fields = gpt2_fields,
                                     .rows = gpt2_rows,
                                     .ignored = gpt2_ignored};

/* ---- Llama and its relatives ----------------------------------------------------------------- */

/* All of them have these rows; a model has those of its parameters. */
static const struct hub_row llama_rows[] = {
    {"embedding.weight", {"@embed_tokens.weight"}},
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
    LAST};

static const char *const llama_ignored[] = {"@layers.#.self_attn.rotary_emb.inv_freq", tied_head,
                                            NULL};

/* Fields that all have, with the defaults that differ. */
#define COMMON(vocabulary, inner, keys, dim, longest)                                              \
    {"vocab_size", HUB_SIZE, AT(vocab), vocabulary, HUB_REFUSED},                                  \
        {"hidden_size", HUB_SIZE, AT(channels), 4096, HUB_REFUSED},                                \
        {"intermediate_size", HUB_SIZE, AT(hidden), inner, HUB_REFUSED},                           \
        {"num_hidden_layers", HUB_SIZE, AT(layers), 32, HUB_REFUSED},                              \
        {"num_attention_heads", HUB_SIZE, AT(heads), 32, HUB_REFUSED},                             \
        {"num_key_value_heads", HUB_SIZE, AT(kv_heads), keys, 0},                                  \
        {"head_dim", HUB_SIZE, AT(head_size), dim, 0},                                             \
        {"max_position_embeddings", HUB_SIZE, AT(positions), longest, HUB_REFUSED},                \
        {"rms_norm_eps", HUB_REAL, AT(eps), 1e-6, HUB_REFUSED},                                    \
        {"tie_word_embeddings", HUB_FLAG, AT(tied), 0, HUB_REFUSED},                               \
        {"hidden_act", HUB_ONLY, .only = "\"silu\" \"swish\""},                                    \
        {"mlp_bias", HUB_ONLY, .only = "false"},                                                   \
        {"partial_rotary_factor", HUB_ONLY, .only = "null 1"},                                     \
    {                                                                                              \
        "quantization_config", HUB_ONLY, .only = "null"                                            \
    }
#define QWEN_WINDOW                                                                                \
    {"sliding_window", HUB_SIZE, AT(window), 4096, 0},                                             \
        {"max_window_layers", HUB_SIZE, AT(window_from), 28, HUB_REFUSED},                         \
    {                                                                                              \
        "use_sliding_window", HUB_FLAG, AT(uses_window), 0, HUB_REFUSED                            \
    }

static const struct hub_field llama_fields[] = {
    COMMON(32000, 11008, 0, 0, 2048), {"attention_bias", HUB_ONLY, .only = "false"}, LAST};
static const struct hub_field mistral_fields[] = {
    COMMON(32000, 14336, 8, 0, 131072), {"sliding_window", HUB_SIZE, AT(window), 4096, 0}, LAST};
static const struct hub_field qwen2_fields[] = {COMMON(151936, 22016, 32, 0, 32768), QWEN_WINDOW,
                                                LAST};
static const struct hub_field qwen3_fields[] = {COMMON(151936, 22016, 32, 128, 32768),
                                                QWEN_WINDOW,
                                                {"attention_bias", HUB_ONLY, .only = "false"},
                                                LAST};

static const struct hub_arch llama = {.name = "LlamaForCausalLM",
                                      .type = "llama",
                                      .prefix = "model.",
                                      .fields = llama_fields,
                                      .rows = llama_rows,
                                      .ignored = llama_ignored};
static const struct hub_arch mistral = {.name = "MistralForCausalLM",
                                        .type = "mistral",
                                        .prefix = "model.",
                                        .always_window = true,
                                        .fields = mistral_fields,
                                        .rows = llama_rows,
                                        .ignored = llama_ignored};
static const struct hub_arch qwen2 = {.name = "Qwen2ForCausalLM",
                                      .type = "qwen2",
                                      .prefix = "model.",
                                      .qkv_bias = true,
                                      .fields = qwen2_fields,
                                      .rows = llama_rows,
                                      .ignored = llama_ignored};
static const struct hub_arch qwen3 = {.name = "Qwen3ForCausalLM",
                                      .type = "qwen3",
                                      .prefix = "model.",
                                      .qk_norm = true,
                                      .fields = qwen3_fields,
                                      .rows = llama_rows,
                                      .ignored = llama_ignored};

const struct hub_arch *const hub_archs[] = {&gpt2, &llama, &mistral, &qwen2, &qwen3, NULL};
