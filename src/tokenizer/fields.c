/* SPDX-License-Identifier: MIT
 *
 * The tables of fields.h. tests/tokenizer/fields_test.cc compares them with the fields that
 * transformers and tokenizers write, and with each field's effect there.
 */
#include "fields.h"

#include <stdio.h>
#include <string.h>

#include "json.h"

#define READ(name)                                                                                 \
    {                                                                                              \
        name, RF_FIELD_READ                                                                        \
    }

/* ---- tokenizer.json ---------------------------------------------------------------------------
 */

static const struct rf_field whole[] = {
    READ("version"),
    READ("added_tokens"),
    READ("normalizer"),
    READ("pre_tokenizer"),
    READ("post_processor"),
    READ("decoder"),
    READ("model"),
    {"truncation", RF_FIELD_IGNORED,
     "transformers turns it off for each call, and texts are whole"},
    {"padding", RF_FIELD_IGNORED, "transformers turns it off for each call, and texts are whole"},
    {NULL}};
const struct rf_field *const rf_tokenizer_fields[] = {whole, NULL};

static const struct rf_field bpe[] = {READ("type"),
                                      READ("dropout"),
                                      READ("unk_token"),
                                      READ("continuing_subword_prefix"),
                                      READ("end_of_word_suffix"),
                                      READ("fuse_unk"),
                                      READ("byte_fallback"),
                                      READ("ignore_merges"),
                                      READ("vocab"),
                                      READ("merges"),
                                      {NULL}};
const struct rf_field *const rf_bpe_fields[] = {bpe, NULL};

static const struct rf_field added[] = {READ("id"),
                                        READ("content"),
                                        READ("special"),
                                        READ("normalized"),
                                        READ("single_word"),
                                        READ("lstrip"),
                                        READ("rstrip"),
                                        {"__type", RF_FIELD_ONLY, "\"AddedToken\""},
                                        {NULL}};
const struct rf_field *const rf_added_fields[] = {added, NULL};

/* ---- steps ------------------------------------------------------------------------------------
 */

static const char offsets[] = "offsets of tokens in the text, and not the tokens";
static const char splits[] = "of the pre-tokenizer of the same type";

static const struct rf_field no_fields[] = {READ("type"), {NULL}};
static const struct rf_field normalizers[] = {READ("type"), READ("normalizers"), {NULL}};
static const struct rf_field pretokenizers[] = {READ("type"), READ("pretokenizers"), {NULL}};
static const struct rf_field decoders[] = {READ("type"), READ("decoders"), {NULL}};
static const struct rf_field processors[] = {READ("type"), READ("processors"), {NULL}};
static const struct rf_field prepend[] = {READ("type"), READ("prepend"), {NULL}};
static const struct rf_field replace[] = {READ("type"), READ("pattern"), READ("content"), {NULL}};
static const struct rf_field strip[] = {
    READ("type"), READ("strip_left"), READ("strip_right"), {NULL}};
static const struct rf_field strip_back[] = {
    READ("type"), READ("content"), READ("start"), READ("stop"), {NULL}};
static const struct rf_field split[] = {
    READ("type"), READ("pattern"), READ("behavior"), READ("invert"), {NULL}};
static const struct rf_field digits[] = {READ("type"), READ("individual_digits"), {NULL}};
static const struct rf_field bytes[] = {READ("type"),
                                        READ("add_prefix_space"),
                                        READ("use_regex"),
                                        {"trim_offsets", RF_FIELD_IGNORED, offsets},
                                        {NULL}};
static const struct rf_field bytes_back[] = {READ("type"),
                                             {"add_prefix_space", RF_FIELD_IGNORED, splits},
                                             {"use_regex", RF_FIELD_IGNORED, splits},
                                             {"trim_offsets", RF_FIELD_IGNORED, offsets},
                                             {NULL}};
static const struct rf_field bytes_after[] = {READ("type"),
                                              {"add_prefix_space", RF_FIELD_IGNORED, offsets},
                                              {"use_regex", RF_FIELD_IGNORED, splits},
                                              {"trim_offsets", RF_FIELD_IGNORED, offsets},
                                              {NULL}};
static const struct rf_field metaspace[] = {
    READ("type"),
    READ("replacement"),
    READ("prepend_scheme"),
    READ("add_prefix_space"),
    READ("split"),
    {"str_rep", RF_FIELD_IGNORED, "says what replacement says"},
    {NULL}};
static const struct rf_field template[] = {
    READ("type"),
    READ("single"),
    READ("special_tokens"),
    {"pair", RF_FIELD_IGNORED, "of pairs of texts, which are not encoded here"},
    {NULL}};

static const struct {
    const char *list, *type;
    const struct rf_field *fields;
} steps[] = {{"normalizers", "Sequence", normalizers},
             {"normalizers", "NFC", no_fields},
             {"normalizers", "NFD", no_fields},
             {"normalizers", "NFKC", no_fields},
             {"normalizers", "NFKD", no_fields},
             {"normalizers", "Prepend", prepend},
             {"normalizers", "Replace", replace},
             {"normalizers", "Strip", strip},
             {"pretokenizers", "Sequence", pretokenizers},
             {"pretokenizers", "Split", split},
             {"pretokenizers", "ByteLevel", bytes},
             {"pretokenizers", "Digits", digits},
             {"pretokenizers", "Metaspace", metaspace},
             {"decoders", "Sequence", decoders},
             {"decoders", "ByteLevel", bytes_back},
             {"decoders", "ByteFallback", no_fields},
             {"decoders", "Fuse", no_fields},
             {"decoders", "Replace", replace},
             {"decoders", "Metaspace", metaspace},
             {"decoders", "Strip", strip_back},
             {"processors", "Sequence", processors},
             {"processors", "ByteLevel", bytes_after},
             {"processors", "TemplateProcessing", template}};

const struct rf_field *rf_step_fields(const char *list, const char *type)
{
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        if (strcmp(steps[i].list, list) == 0 && strcmp(steps[i].type, type) == 0)
            return steps[i].fields;
    return NULL;
}

int rf_check_fields(const struct rf_field *const *tables, const char *field,
                    const struct cJSON *json)
{
    char within[RF_FIELD + 1];
    snprintf(within, sizeof(within), "%s%s", field, field[0] ? "." : "");
    const struct rf_fields fields = {"tokenizer.json", within, tables, "null", RF_TOKENIZER_ADVICE};
    return rf_fields_read(&fields, json, NULL);
}

/* ---- tokenizer_config.json --------------------------------------------------------------------
 */

static const char file_says[] = "tokenizer.json says how texts are divided";
static const char around[] = "tokenizer.json says which tokens are put around a text";
static const char chats[] = "of chat templates, which have their own reader";
static const char batches[] = "of batches of texts of equal lengths, which are not made here";
static const char program[] = "says which program wrote the file, and where it came from";
static const char other_code[] = "of implementations that do not read tokenizer.json";

static const struct rf_field config[] = {
    READ("bos_token"),
    READ("eos_token"),
    READ("unk_token"),
    READ("sep_token"),
    READ("pad_token"),
    READ("cls_token"),
    READ("mask_token"),
    READ("added_tokens_decoder"),
    READ("additional_special_tokens"),
    READ("extra_special_tokens"),
    READ("model_specific_special_tokens"),
    READ("add_prefix_space"),
    {"split_special_tokens", RF_FIELD_ONLY, "false null"},
    {"fix_mistral_regex", RF_FIELD_ONLY, "false null"},
    {"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", RF_FIELD_ONLY,
     "false null"},
    {"fast_tokenizer_files", RF_FIELD_ONLY, "null [] [\"tokenizer.json\"]"},
    {"init_inputs", RF_FIELD_ONLY, "null []"},
    {"add_bos_token", RF_FIELD_IGNORED, around},
    {"add_eos_token", RF_FIELD_IGNORED, around},
    READ("*_token"), /* additional tokens of models */
    {"tokenizer_class", RF_FIELD_IGNORED, file_says},
    {"legacy", RF_FIELD_IGNORED, file_says},
    {"do_lower_case", RF_FIELD_IGNORED, file_says},
    {"clean_up_tokenization_spaces", RF_FIELD_IGNORED, "of vocabularies that are not BPE"},
    {"chat_template", RF_FIELD_IGNORED, chats},
    {"use_default_system_prompt", RF_FIELD_IGNORED, chats},
    {"response_template", RF_FIELD_IGNORED, chats},
    {"response_schema", RF_FIELD_IGNORED, chats},
    {"chat_control_tokens", RF_FIELD_IGNORED, chats},
    {"model_max_length", RF_FIELD_IGNORED, "config.json says how long sequences may be"},
    {"max_len", RF_FIELD_IGNORED, "config.json says how long sequences may be"},
    {"max_length", RF_FIELD_IGNORED, batches},
    {"stride", RF_FIELD_IGNORED, batches},
    {"truncation", RF_FIELD_IGNORED, batches},
    {"truncation_side", RF_FIELD_IGNORED, batches},
    {"truncation_strategy", RF_FIELD_IGNORED, batches},
    {"padding", RF_FIELD_IGNORED, batches},
    {"padding_side", RF_FIELD_IGNORED, batches},
    {"pad_to_multiple_of", RF_FIELD_IGNORED, batches},
    {"return_tensors", RF_FIELD_IGNORED, batches},
    {"pad_token_type_id", RF_FIELD_IGNORED, batches},
    {"model_input_names", RF_FIELD_IGNORED, batches},
    {"errors", RF_FIELD_IGNORED, other_code},
    {"sp_model_kwargs", RF_FIELD_IGNORED, other_code},
    {"spaces_between_special_tokens", RF_FIELD_IGNORED, other_code},
    {"from_slow", RF_FIELD_IGNORED, other_code},
    {"use_fast", RF_FIELD_IGNORED, other_code},
    {"vocab_size", RF_FIELD_IGNORED, other_code},
    {"vocab_file", RF_FIELD_IGNORED, other_code},
    {"merges_file", RF_FIELD_IGNORED, other_code},
    {"tokenizer_file", RF_FIELD_IGNORED, other_code},
    {"special_tokens_map_file", RF_FIELD_IGNORED, other_code},
    {"auto_map", RF_FIELD_IGNORED, other_code},
    {"trust_remote_code", RF_FIELD_IGNORED, other_code},
    {"backend", RF_FIELD_IGNORED, program},
    {"is_local", RF_FIELD_IGNORED, program},
    {"local_files_only", RF_FIELD_IGNORED, program},
    {"files_loaded", RF_FIELD_IGNORED, program},
    {"name_or_path", RF_FIELD_IGNORED, program},
    {"_name_or_path", RF_FIELD_IGNORED, program},
    {"_commit_hash", RF_FIELD_IGNORED, program},
    {"revision", RF_FIELD_IGNORED, program},
    {"processor_class", RF_FIELD_IGNORED, program},
    {"transformers_version", RF_FIELD_IGNORED, program},
    {"unsloth_*", RF_FIELD_IGNORED, program},
    {"verbose", RF_FIELD_IGNORED, program},
    {NULL}};
const struct rf_field *const rf_tokenizer_config_fields[] = {config, NULL};

static const struct rf_field special[] = {READ("*_token"),
                                          READ("additional_special_tokens"),
                                          READ("extra_special_tokens"),
                                          READ("model_specific_special_tokens"),
                                          {NULL}};
const struct rf_field *const rf_special_fields[] = {special, NULL};
