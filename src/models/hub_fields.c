/* SPDX-License-Identifier: MIT
 *
 * Fields that the files of any architecture may have: those of config.json that all configurations
 * of transformers 4 and 5 share, those of rotary embeddings, and those of generation_config.json.
 * tests/train/hub_fields_test.cc compares them with the fields that transformers writes, and with
 * the effect of each.
 */
#include "hub_table.h"

/* ---- config.json ----------------------------------------------------------------------------- */

static const char program[] = "names the program that wrote the file, and its source";
static const char no_text[] = "of models that classify texts";
static const char called[] = "selects the results that a call returns";
static const char speed[] = "changes how the same numbers are computed";
static const char begins[] = "the values before training; those of the files replace them";
static const char encoder[] = "of models with an encoder, and this one has none";
static const char decides[] = "a setting of generation, which the options of `generate` decide";
static const char tokens[] = "the files of the tokenizer say how texts are divided";

const struct rf_field hub_common_fields[] = {
    {"architectures", RF_FIELD_READ},
    {"model_type", RF_FIELD_READ},
    {"dtype", RF_FIELD_READ},
    {"torch_dtype", RF_FIELD_READ},
    {"eos_token_id", RF_FIELD_READ}, /* by `generate` */
    {"is_causal", RF_FIELD_ONLY, "true"},
    {"quantization_config", RF_FIELD_READ},
    {"pruned_heads", RF_FIELD_ONLY, "null {}"},
    {"per_layer_config", RF_FIELD_ONLY, "null {}"},
    {"is_encoder_decoder", RF_FIELD_ONLY, "false null"},
    {"add_cross_attention", RF_FIELD_ONLY, "false null"},
    {"sliding_window", RF_FIELD_ONLY, "null"},
    {"pad_token_id", RF_FIELD_IGNORED,
     "its row of the table of tokens gets no gradient in transformers; here it is trained"},
    {"*_token_id", RF_FIELD_IGNORED, tokens},
    {"tokenizer_class", RF_FIELD_IGNORED, tokens},
    {"prefix", RF_FIELD_IGNORED, tokens},
    {"transformers_version", RF_FIELD_IGNORED, program},
    {"_name_or_path", RF_FIELD_IGNORED, program},
    {"name_or_path", RF_FIELD_IGNORED, program},
    {"_commit_hash", RF_FIELD_IGNORED, program},
    {"unsloth_*", RF_FIELD_IGNORED, program},
    {"transformers.js_config", RF_FIELD_IGNORED, program},
    {"auto_map", RF_FIELD_IGNORED,
     "code that the model brings, which transformers runs only if asked to"},
    {"initializer_range", RF_FIELD_IGNORED, begins},
    {"use_cache", RF_FIELD_IGNORED, speed},
    {"output_past", RF_FIELD_IGNORED, speed},
    {"attn_implementation", RF_FIELD_IGNORED, speed},
    {"_attn_implementation*", RF_FIELD_IGNORED, speed},
    {"_flash_attn_2_enabled", RF_FIELD_IGNORED, speed},
    {"experts_implementation", RF_FIELD_IGNORED, speed},
    {"_experts_implementation*", RF_FIELD_IGNORED, speed},
    {"chunk_size_feed_forward", RF_FIELD_IGNORED, speed},
    {"gradient_checkpointing", RF_FIELD_IGNORED, speed},
    {"use_bfloat16", RF_FIELD_IGNORED, speed},
    {"torchscript", RF_FIELD_IGNORED, speed},
    {"xla_device", RF_FIELD_IGNORED, speed},
    {"return_dict", RF_FIELD_IGNORED, called},
    {"use_return_dict", RF_FIELD_IGNORED, called},
    {"output_hidden_states", RF_FIELD_IGNORED, called},
    {"output_attentions", RF_FIELD_IGNORED, called},
    {"_output_attentions", RF_FIELD_IGNORED, called},
    {"tie_last_hidden_states", RF_FIELD_IGNORED, called},
    {"id2label", RF_FIELD_IGNORED, no_text},
    {"label2id", RF_FIELD_IGNORED, no_text},
    {"num_labels", RF_FIELD_IGNORED, no_text},
    {"_num_labels", RF_FIELD_IGNORED, no_text},
    {"problem_type", RF_FIELD_IGNORED, no_text},
    {"finetuning_task", RF_FIELD_IGNORED, no_text},
    {"tf_legacy_loss", RF_FIELD_IGNORED, no_text},
    {"is_decoder", RF_FIELD_IGNORED, encoder},
    {"tie_encoder_decoder", RF_FIELD_IGNORED, encoder},
    {"cross_attention_hidden_size", RF_FIELD_IGNORED, encoder},
    {"task_specific_params", RF_FIELD_IGNORED, decides},
    {"max_length", RF_FIELD_IGNORED, decides},
    {"min_length", RF_FIELD_IGNORED, decides},
    {"do_sample", RF_FIELD_IGNORED, decides},
    {"early_stopping", RF_FIELD_IGNORED, decides},
    {"num_beams", RF_FIELD_IGNORED, decides},
    {"num_beam_groups", RF_FIELD_IGNORED, decides},
    {"diversity_penalty", RF_FIELD_IGNORED, decides},
    {"temperature", RF_FIELD_IGNORED, decides},
    {"top_k", RF_FIELD_IGNORED, decides},
    {"top_p", RF_FIELD_IGNORED, decides},
    {"typical_p", RF_FIELD_IGNORED, decides},
    {"repetition_penalty", RF_FIELD_IGNORED, decides},
    {"encoder_repetition_penalty", RF_FIELD_IGNORED, decides},
    {"length_penalty", RF_FIELD_IGNORED, decides},
    {"no_repeat_ngram_size", RF_FIELD_IGNORED, decides},
    {"encoder_no_repeat_ngram_size", RF_FIELD_IGNORED, decides},
    {"bad_words_ids", RF_FIELD_IGNORED, decides},
    {"num_return_sequences", RF_FIELD_IGNORED, decides},
    {"output_scores", RF_FIELD_IGNORED, decides},
    {"return_dict_in_generate", RF_FIELD_IGNORED, decides},
    {"remove_invalid_values", RF_FIELD_IGNORED, decides},
    {"exponential_decay_length_penalty", RF_FIELD_IGNORED, decides},
    {"suppress_tokens", RF_FIELD_IGNORED, decides},
    {"begin_suppress_tokens", RF_FIELD_IGNORED, decides},
    {"epsilon_cutoff", RF_FIELD_IGNORED, decides},
    {"eta_cutoff", RF_FIELD_IGNORED, decides},
    {"num_assistant_tokens", RF_FIELD_IGNORED, decides},
    {"num_assistant_tokens_schedule", RF_FIELD_IGNORED, decides},
    {"assistant_confidence_threshold", RF_FIELD_IGNORED, decides},
    {"assistant_lookbehind", RF_FIELD_IGNORED, decides},
    {"target_lookbehind", RF_FIELD_IGNORED, decides},
    {NULL}};

/* ---- rotary embeddings ----------------------------------------------------------------------- */

static const char scaled[] = "of other kinds of rotary embeddings";

#define AT(field) offsetof(struct hub_rope, field)

const struct rf_field hub_rope_fields[] = {
    {"rope_type", RF_FIELD_READ},
    {"type", RF_FIELD_READ},
    {"rope_theta", RF_FIELD_REAL, NULL, AT(theta), RF_FIELD_KEEP, RF_FIELD_NEEDED},
    {"partial_rotary_factor", RF_FIELD_ONLY, "null 1"},
    {"attention_factor", RF_FIELD_IGNORED, scaled},
    {"beta_fast", RF_FIELD_IGNORED, scaled},
    {"beta_slow", RF_FIELD_IGNORED, scaled},
    {"mscale", RF_FIELD_IGNORED, scaled},
    {"mscale_all_dim", RF_FIELD_IGNORED, scaled},
    {"truncate", RF_FIELD_IGNORED, scaled},
    {"short_factor", RF_FIELD_IGNORED, scaled},
    {"long_factor", RF_FIELD_IGNORED, scaled},
    {NULL}};

const struct rf_field hub_plain_rope_fields[] = {
    {"factor", RF_FIELD_IGNORED, scaled},
    {"low_freq_factor", RF_FIELD_IGNORED, scaled},
    {"high_freq_factor", RF_FIELD_IGNORED, scaled},
    {"original_max_position_embeddings", RF_FIELD_IGNORED, scaled},
    {NULL}};

const struct rf_field hub_llama3_rope_fields[] = {
    {"factor", RF_FIELD_REAL, NULL, AT(factor), 0, RF_FIELD_NEEDED},
    {"low_freq_factor", RF_FIELD_REAL, NULL, AT(low_freq), 0, RF_FIELD_NEEDED},
    {"high_freq_factor", RF_FIELD_REAL, NULL, AT(high_freq), 0, RF_FIELD_NEEDED},
    {"original_max_position_embeddings", RF_FIELD_SIZE, NULL, AT(original), 0, RF_FIELD_NEEDED},
    {NULL}};

/* ---- generation_config.json ------------------------------------------------------------------ */

static const char option[] = "the options of `generate` decide";
static const char beams[] = "of beam search";
static const char assisted[] = "of assisted generation, which gives the same tokens";

const struct rf_field hub_generation_fields[] = {
    {"eos_token_id", RF_FIELD_READ},
    /* Fields that change the generated tokens, and have no option. */
    {"num_beams", RF_FIELD_ONLY, "null 1"},
    {"num_beam_groups", RF_FIELD_ONLY, "null 1"},
    {"num_return_sequences", RF_FIELD_ONLY, "null 1"},
    {"min_length", RF_FIELD_ONLY, "null 0"},
    {"min_new_tokens", RF_FIELD_ONLY, "null 0"},
    {"no_repeat_ngram_size", RF_FIELD_ONLY, "null 0"},
    {"encoder_no_repeat_ngram_size", RF_FIELD_ONLY, "null 0"},
    {"encoder_repetition_penalty", RF_FIELD_ONLY, "null 1"},
    {"bad_words_ids", RF_FIELD_ONLY, "null []"},
    {"suppress_tokens", RF_FIELD_ONLY, "null []"},
    {"begin_suppress_tokens", RF_FIELD_ONLY, "null []"},
    {"forced_bos_token_id", RF_FIELD_ONLY, "null"},
    {"forced_eos_token_id", RF_FIELD_ONLY, "null"},
    {"exponential_decay_length_penalty", RF_FIELD_ONLY, "null"},
    {"sequence_bias", RF_FIELD_ONLY, "null"},
    {"token_healing", RF_FIELD_ONLY, "null false"},
    {"guidance_scale", RF_FIELD_ONLY, "null 1"},
    {"watermarking_config", RF_FIELD_ONLY, "null"},
    {"penalty_alpha", RF_FIELD_ONLY, "null 0"},
    {"dola_layers", RF_FIELD_ONLY, "null"},
    {"constraints", RF_FIELD_ONLY, "null"},
    {"force_words_ids", RF_FIELD_ONLY, "null"},
    {"stop_strings", RF_FIELD_ONLY, "null []"},
    {"max_time", RF_FIELD_ONLY, "null"},
    {"do_sample", RF_FIELD_IGNORED, option},
    {"temperature", RF_FIELD_IGNORED, option},
    {"top_k", RF_FIELD_IGNORED, option},
    {"top_p", RF_FIELD_IGNORED, option},
    {"min_p", RF_FIELD_IGNORED, option},
    {"top_h", RF_FIELD_IGNORED, option},
    {"typical_p", RF_FIELD_IGNORED, option},
    {"epsilon_cutoff", RF_FIELD_IGNORED, option},
    {"eta_cutoff", RF_FIELD_IGNORED, option},
    {"repetition_penalty", RF_FIELD_IGNORED, option},
    {"max_length", RF_FIELD_IGNORED, option},
    {"max_new_tokens", RF_FIELD_IGNORED, option},
    {"early_stopping", RF_FIELD_IGNORED, beams},
    {"length_penalty", RF_FIELD_IGNORED, beams},
    {"diversity_penalty", RF_FIELD_IGNORED, beams},
    {"low_memory", RF_FIELD_IGNORED, beams},
    {"is_assistant", RF_FIELD_IGNORED, assisted},
    {"num_assistant_tokens", RF_FIELD_IGNORED, assisted},
    {"num_assistant_tokens_schedule", RF_FIELD_IGNORED, assisted},
    {"assistant_*", RF_FIELD_IGNORED, assisted},
    {"target_lookbehind", RF_FIELD_IGNORED, assisted},
    {"prompt_lookup_num_tokens", RF_FIELD_IGNORED, assisted},
    {"max_matching_ngram_size", RF_FIELD_IGNORED, assisted},
    {"speculation_type", RF_FIELD_IGNORED, assisted},
    {"use_mtp", RF_FIELD_IGNORED, assisted},
    {"use_cache", RF_FIELD_IGNORED, speed},
    {"cache_implementation", RF_FIELD_IGNORED, speed},
    {"cache_config", RF_FIELD_IGNORED, speed},
    {"max_cache_len", RF_FIELD_IGNORED, speed},
    {"compile_config", RF_FIELD_IGNORED, speed},
    {"disable_compile", RF_FIELD_IGNORED, speed},
    {"continuous_batching_config", RF_FIELD_IGNORED, speed},
    {"prefill_chunk_size", RF_FIELD_IGNORED, speed},
    {"remove_invalid_values", RF_FIELD_IGNORED, "logits that are not finite are an error here"},
    {"renormalize_logits", RF_FIELD_IGNORED, "changes scores that a call returns, and no token"},
    {"return_dict_in_generate", RF_FIELD_IGNORED, called},
    {"output_*", RF_FIELD_IGNORED, called},
    {"*_token_id", RF_FIELD_IGNORED, tokens},
    {"_from_model_config", RF_FIELD_IGNORED, program},
    {"_commit_hash", RF_FIELD_IGNORED, program},
    {"transformers_version", RF_FIELD_IGNORED, program},
    {"trust_remote_code", RF_FIELD_IGNORED, program},
    {NULL}};
