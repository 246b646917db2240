/* SPDX-License-Identifier: MIT
 *
 * Reads quantization_config of config.json: how the files pack the weights of linear maps. Each
 * method has a table of its fields; another method, or a field without a row, is refused by name.
 */
#include <string.h>

#include "config_json.h"
#include "hub_table.h"
#include "parts.h"

#define WITHIN "quantization_config."

struct packing_values {
    bool four_bits, nested, reordered;
    int group;
};
#define AT(field) offsetof(struct packing_values, field)

static const char said[] = "the files' tensors say it of each weight";
static const char made[] = "how the codes were found; the files have the codes";
static const char speed[] = "changes how the same numbers are computed";
static const char activations[] = "the type of activations is that of --dtype";

static const struct rf_field common[] = {{"quant_method", RF_FIELD_READ}, {NULL}};

static const struct rf_field bitsandbytes[] = {
    {"load_in_4bit", RF_FIELD_FLAG, NULL, AT(four_bits), 0, 0},
    {"bnb_4bit_use_double_quant", RF_FIELD_FLAG, NULL, AT(nested), 0, 0},
    {"bnb_4bit_quant_type", RF_FIELD_ONLY, "\"nf4\" \"fp4\" null"},
    {"bnb_4bit_quant_storage", RF_FIELD_ONLY,
     "\"uint8\" \"int8\" \"float16\" \"bfloat16\" \"float32\" null"},
    {"llm_int8_has_fp16_weight", RF_FIELD_ONLY, "false null"},
    {"llm_int8_skip_modules", RF_FIELD_READ},
    {"load_in_8bit", RF_FIELD_IGNORED, said},
    {"_load_in_4bit", RF_FIELD_IGNORED, said},
    {"_load_in_8bit", RF_FIELD_IGNORED, said},
    {"bnb_4bit_compute_dtype", RF_FIELD_IGNORED, activations},
    {"llm_int8_threshold", RF_FIELD_IGNORED, activations},
    {"llm_int8_enable_fp32_cpu_offload", RF_FIELD_IGNORED, speed},
    {NULL}};

static const struct rf_field grouped[] = {
    {"bits", RF_FIELD_ONLY, "4", 0, RF_FIELD_NEEDED},
    {"group_size", RF_FIELD_READ},
    {"modules_to_not_convert", RF_FIELD_IGNORED, said},
    {"modules_in_block_to_quantize", RF_FIELD_IGNORED, said},
    {"block_name_to_quantize", RF_FIELD_IGNORED, said},
    {"module_name_preceding_first_block", RF_FIELD_IGNORED, said},
    {"lm_head", RF_FIELD_IGNORED, said},
    {"dataset", RF_FIELD_IGNORED, made},
    {"tokenizer", RF_FIELD_IGNORED, made},
    {"model_seqlen", RF_FIELD_IGNORED, made},
    {"batch_size", RF_FIELD_IGNORED, made},
    {"pad_token_id", RF_FIELD_IGNORED, made},
    {"true_sequential", RF_FIELD_IGNORED, made},
    {"cache_block_outputs", RF_FIELD_IGNORED, made},
    {"meta", RF_FIELD_IGNORED, made},
    {"damp_*", RF_FIELD_IGNORED, made},
    {"sym", RF_FIELD_IGNORED, "the files have the zero of each group"},
    {"exllama_config", RF_FIELD_IGNORED, speed},
    {"max_input_length", RF_FIELD_IGNORED, speed},
    {NULL}};

static const struct rf_field gptq[] = {
    {"format", RF_FIELD_READ},
    {"checkpoint_format", RF_FIELD_READ},
    {"desc_act", RF_FIELD_FLAG, NULL, AT(reordered), 0, 0},
    {"pack_dtype", RF_FIELD_ONLY, "\"int32\" null"},
    {"is_marlin_format", RF_FIELD_ONLY, "false null"},
    {"dynamic", RF_FIELD_ONLY, "null {}"},
    {"adapter", RF_FIELD_ONLY, "null {}"},
    {"method", RF_FIELD_ONLY, "\"gptq\" null"},
    {"static_groups", RF_FIELD_IGNORED, made},
    {"act_group_aware", RF_FIELD_IGNORED, made},
    {"mse", RF_FIELD_IGNORED, made},
    {"gptaq", RF_FIELD_IGNORED, made},
    {"foem", RF_FIELD_IGNORED, made},
    {"offload_to_disk*", RF_FIELD_IGNORED, made},
    {"model_name_or_path", RF_FIELD_IGNORED, "names the source of the file"},
    {"model_file_base_name", RF_FIELD_IGNORED, "the files are model.safetensors or its shards"},
    {"backend", RF_FIELD_IGNORED, speed},
    {"use_cuda_fp16", RF_FIELD_IGNORED, speed},
    {"use_exllama", RF_FIELD_IGNORED, speed},
    {"disable_exllama", RF_FIELD_IGNORED, speed},
    {NULL}};

static const struct rf_field awq[] = {
    {"zero_point", RF_FIELD_ONLY, "true", 0, RF_FIELD_NEEDED},
    {"version", RF_FIELD_ONLY, "\"gemm\" \"GEMM\" null"},
    {"format", RF_FIELD_ONLY, "\"gemm\" \"GEMM\" null"},
    {"checkpoint_format", RF_FIELD_ONLY, "\"gemm\" \"GEMM\" null"},
    {"backend", RF_FIELD_ONLY, "\"auto\" \"autoawq\" null"},
    {"desc_act", RF_FIELD_ONLY, "false null"},
    {"act_group_aware", RF_FIELD_IGNORED, made},
    {"do_fuse", RF_FIELD_IGNORED, speed},
    {"fuse_max_seq_len", RF_FIELD_IGNORED, speed},
    {"modules_to_fuse", RF_FIELD_IGNORED, speed},
    {NULL}};

static const struct rf_field fp8[] = {{"activation_scheme", RF_FIELD_ONLY, "\"dynamic\" null"},
                                      {"weight_block_size", RF_FIELD_READ},
                                      {"fmt", RF_FIELD_ONLY, "\"e4m3\" null"},
                                      {"expert_dtype", RF_FIELD_ONLY, "\"fp8\" null"},
                                      {"scale_fmt", RF_FIELD_IGNORED, said},
                                      {"modules_to_not_convert", RF_FIELD_IGNORED, said},
                                      {"modules_to_convert", RF_FIELD_IGNORED, said},
                                      {"ignored_layers", RF_FIELD_IGNORED, said},
                                      {"dequantize", RF_FIELD_IGNORED, speed},
                                      {NULL}};

struct method {
    const char *name; /* as JSON */
    const struct rf_field *fields[4];
};
static const struct method methods[] = {{"\"bitsandbytes\"", {common, bitsandbytes}},
                                        {"\"gptq\"", {common, gptq, grouped}},
                                        {"\"awq\"", {common, awq, grouped}},
                                        {"\"fp8\"", {common, fp8}}};
enum { BITSANDBYTES, GPTQ, AWQ, FP8, METHODS };

/* -1 and absence, which has the default of the programs that write it: 128. */
static int read_group(const struct rf_fields *fields, const cJSON *config, struct hub_packing *out)
{
    const cJSON *group = config_get(config, "group_size");
    out->group = 128;
    if (!group)
        return 0;
    out->group = cJSON_IsNumber(group) ? group->valueint : 0;
    return out->group == -1 || (out->group >= 1 && out->group <= 1 << 20 &&
                                (double)out->group == group->valuedouble)
               ? 0
               : rf_fields_refuse(fields, "group_size", group,
                                  "it has to be -1 or a number from 1 to 2^20");
}

/* Two equal numbers; null: no blocks. Absence is 128, as in transformers. */
static int read_square(const struct rf_fields *fields, const cJSON *config, struct hub_packing *out)
{
    static const char name[] = "weight_block_size";
    const cJSON *size = config_get(config, name);
    const cJSON *first = cJSON_GetArrayItem(size, 0), *second = cJSON_GetArrayItem(size, 1);
    out->group = size ? 0 : 128;
    if (!size || cJSON_IsNull(size))
        return 0;
    out->group = cJSON_IsNumber(first) ? first->valueint : 0;
    return cJSON_IsArray(size) && cJSON_GetArraySize(size) == 2 && cJSON_IsNumber(second) &&
                   out->group >= 1 && out->group <= 1 << 20 &&
                   (double)out->group == first->valuedouble &&
                   first->valuedouble == second->valuedouble
               ? 0
               : rf_fields_refuse(fields, name, size,
                                  "it has to be null or two equal numbers from 1 to 2^20");
}

/* Old files have no format, which then is the first one. */
static int read_format(const struct rf_fields *fields, const cJSON *config, struct hub_packing *out)
{
    static const char *const names[] = {"checkpoint_format", "format"};
    out->kind = RF_PACKING_NONE;
    for (int i = 0; i < 2; i++) {
        const cJSON *item = config_get(config, names[i]);
        enum rf_packing kind = RF_PACKING_GPTQ;
        if (!item || cJSON_IsNull(item))
            continue;
        if (rf_field_is(item, "\"gptq_v2\""))
            kind = RF_PACKING_GPTQ_V2;
        else if (!rf_field_is(item, "\"gptq\""))
            return rf_fields_refuse(fields, names[i], item,
                                    "this library reads \"gptq\" and \"gptq_v2\"");
        if (out->kind && out->kind != kind)
            return rf_fields_refuse(fields, names[i], item, "checkpoint_format says another");
        out->kind = kind;
    }
    out->kind = out->kind ? out->kind : RF_PACKING_GPTQ;
    return 0;
}

static bool is_in_layers(const struct hub_arch *arch, const char *module)
{
    bool found = strstr(module, "layers") != NULL;
    for (const struct hub_row *row = arch ? arch->rows : NULL; row && row->ours; row++)
        for (int k = 0; k < HUB_PARTS && row->theirs[k]; k++)
            found = found || (strchr(row->theirs[k], '#') && strstr(row->theirs[k], module));
    return found;
}

/* Whether no linear map of a layer is left out, by the names of modules. */
static int read_skipped(const struct rf_fields *fields, const struct hub_arch *arch,
                        const cJSON *config, bool *layers)
{
    const cJSON *names = config_get(config, "llm_int8_skip_modules");
    *layers = true;
    if (!names || cJSON_IsNull(names))
        return 0;
    if (!cJSON_IsArray(names))
        return rf_fields_refuse(fields, "llm_int8_skip_modules", names, "it has to be a list");
    for (const cJSON *name = names->child; name; name = name->next) {
        if (!cJSON_IsString(name))
            return rf_fields_refuse(fields, "llm_int8_skip_modules", name,
                                    "it has to be the name of a module");
        *layers = *layers && !is_in_layers(arch, name->valuestring);
    }
    return 0;
}

static int read_method(const struct rf_fields *fields, const struct hub_arch *arch,
                       const cJSON *config, int method, struct hub_packing *out)
{
    struct packing_values values = {0};
    RETURN_IF_FAILED(rf_fields_read(fields, config, &values));
    if (method == BITSANDBYTES) {
        bool layers;
        const cJSON *type = config_get(config, "bnb_4bit_quant_type");
        RETURN_IF_FAILED(read_skipped(fields, arch, config, &layers));
        out->kind = RF_PACKING_BITSANDBYTES;
        out->quantized = layers && values.four_bits && values.nested && rf_field_is(type, "\"nf4\"")
                             ? RF_NF4
                             : RF_QUANTIZE_NONE;
        return 0;
    }
    if (method == FP8) {
        out->kind = RF_PACKING_FP8;
        return read_square(fields, config, out);
    }
    out->kind = RF_PACKING_AWQ;
    out->reordered = values.reordered;
    RETURN_IF_FAILED(read_group(fields, config, out));
    return method == GPTQ ? read_format(fields, config, out) : 0;
}

int hub_read_packing(const struct hub_arch *arch, const cJSON *config, struct hub_packing *out)
{
    const struct rf_fields plain = {.file = "config.json"};
    const cJSON *object = config_get(config, "quantization_config");
    *out = (struct hub_packing){RF_PACKING_NONE};
    if (!object || cJSON_IsNull(object))
        return 0;
    if (!cJSON_IsObject(object))
        return rf_fields_refuse(&plain, "quantization_config", object, "it has to be an object");
    if (arch && arch->gpt2)
        return rf_fields_refuse(&plain, "quantization_config", object,
                                "this library reads no quantised weights of a GPT-2");
    const cJSON *name = config_get(object, "quant_method");
    for (int i = 0; i < METHODS; i++) {
        const struct rf_fields fields = {"config.json", WITHIN, methods[i].fields, "null",
                                         "delete it if it does not change the weights"};
        if (rf_field_is(name, methods[i].name))
            return read_method(&fields, arch, object, i, out);
    }
    return rf_fields_refuse(&plain, WITHIN "quant_method", name,
                            "this library reads \"bitsandbytes\", \"gptq\", \"awq\" and \"fp8\"");
}

struct rf_weights_opts hub_weights_opts(const struct hub_packing *packing, bool allow_nan)
{
    return (struct rf_weights_opts){.allow_nan = allow_nan,
                                    .packing = packing->kind,
                                    .group = packing->group,
                                    .reordered = packing->reordered};
}
