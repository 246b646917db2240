/* SPDX-License-Identifier: MIT
 *
 * Normalizers, pre-tokenizers, decoders and post-processors of tokenizer.json as lists of steps.
 * Unknown steps are refused by name, since ignoring one would give other ids. See internal.h.
 */
#include "../base/base.h"
#include "fields.h"
#include "internal.h"
#include "json.h"
#include "utf8.h"

#define GPT2_WORDS                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

enum { MAX_DEPTH = 8 };

void rf_steps_free(struct rf_steps *steps)
{
    for (int i = 0; i < steps->count; i++) {
        rf_regex_close(steps->list[i].regex);
        rf_free(steps->list[i].text);
    }
    steps->count = 0;
}

/* Adds a step to the list, which owns it. */
static int new_step(struct rf_steps *steps, const char *field, enum rf_step_kind kind,
                    struct rf_step **out)
{
    if (steps->count == RF_MAX_STEPS)
        return rf_fail(RF_ENOTSUP, "tokenizer: %s: has more than %d steps", field, RF_MAX_STEPS);
    *out = &steps->list[steps->count++];
    **out = (struct rf_step){.kind = kind};
    return 0;
}

/* pattern: {"String": "..."} or {"Regex": "..."}. */
static int read_pattern(const cJSON *json, const char *field, struct rf_step *step)
{
    char name[RF_FIELD];
    const cJSON *pattern;
    RETURN_IF_ERROR(rf_json_get(json, field, "pattern", cJSON_Object, &pattern));
    const cJSON *literal = cJSON_GetObjectItemCaseSensitive(pattern, "String");
    const cJSON *regex = cJSON_GetObjectItemCaseSensitive(pattern, "Regex");
    const char *text = cJSON_GetStringValue(literal ? literal : regex);
    rf_json_name(name, field, "pattern");
    if (!text)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: is neither String nor Regex", name);
    return rf_regex_open(name, text, literal != NULL, &step->regex);
}

/* Calls read for the element, or for each part of a Sequence. */
struct reading {
    struct rf_tokenizer *tokenizer;
    struct rf_steps *steps;
    const char *parts; /* the name of a Sequence's list */
    int (*read)(struct reading *r, const cJSON *json, const char *field, const char *type);
};

static int read_any(struct reading *r, const cJSON *json, const char *field, int depth)
{
    const char *type;
    const cJSON *list, *part;
    char name[RF_FIELD], item[24];
    int index = 0;
    if (!cJSON_IsObject(json))
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: is no object", field);
    RETURN_IF_ERROR(rf_json_text(json, field, "type", &type));
    const struct rf_field *const tables[] = {rf_step_fields(r->parts, type), NULL};
    if (tables[0])
        RETURN_IF_ERROR(rf_check_fields(tables, field, json));
    if (strcmp(type, "Sequence") != 0)
        return r->read(r, json, field, type);
    if (depth == MAX_DEPTH)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s: is nested too deeply", field);
    RETURN_IF_ERROR(rf_json_get(json, field, r->parts, cJSON_Array, &list));
    cJSON_ArrayForEach(part, list)
    {
        snprintf(item, sizeof(item), "[%d]", index++);
        rf_json_name(name, field, item);
        RETURN_IF_ERROR(read_any(r, part, name, depth + 1));
    }
    return 0;
}

static int unknown(const char *field, const char *type)
{
    return rf_fail(RF_ENOTSUP, "tokenizer: %s: the type %.60s is not implemented", field, type);
}

/* ---- normalizers ----------------------------------------------------------------------------- */

static int read_normalizer(struct reading *r, const cJSON *json, const char *field,
                           const char *type)
{
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *text;
    struct rf_step *step = NULL;
    for (int i = 0; i < 4; i++)
        if (strcmp(type, forms[i]) == 0)
            return new_step(r->steps, field, RF_STEP_NFC + i, &step);
    if (strcmp(type, "Prepend") == 0) {
        RETURN_IF_ERROR(new_step(r->steps, field, RF_STEP_PREPEND, &step));
        RETURN_IF_ERROR(rf_json_text(json, field, "prepend", &text));
        return rf_json_copy(field, text, &step->text);
    }
    if (strcmp(type, "Replace") == 0) {
        RETURN_IF_ERROR(new_step(r->steps, field, RF_STEP_REPLACE, &step));
        RETURN_IF_ERROR(rf_json_text(json, field, "content", &text));
        RETURN_IF_ERROR(rf_json_copy(field, text, &step->text));
        return read_pattern(json, field, step);
    }
    if (strcmp(type, "Strip") == 0) {
        RETURN_IF_ERROR(new_step(r->steps, field, RF_STEP_STRIP, &step));
        RETURN_IF_ERROR(rf_json_bool(json, field, "strip_left", -1, &step->left));
        return rf_json_bool(json, field, "strip_right", -1, &step->right);
    }
    return unknown(field, type);
}

int rf_load_normalizer(struct rf_tokenizer *tokenizer, const struct cJSON *json)
{
    struct reading r = {tokenizer, &tokenizer->normalizer, "normalizers", read_normalizer};
    return !json || cJSON_IsNull(json) ? 0 : read_any(&r, json, "normalizer", 0);
}

/* ---- pre-tokenizers -------------------------------------------------------------------------- */

static int add_split(struct reading *r, const char *field, const char *pattern, bool literal,
                     enum rf_split_behavior behavior)
{
    struct rf_step *step = NULL;
    RETURN_IF_ERROR(new_step(r->steps, field, RF_STEP_SPLIT, &step));
    step->behavior = behavior;
    return rf_regex_open(field, pattern, literal, &step->regex);
}

static int read_split(struct reading *r, const cJSON *json, const char *field)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *behavior;
    struct rf_step *step = NULL;
    int i = 0;
    RETURN_IF_ERROR(new_step(r->steps, field, RF_STEP_SPLIT, &step));
    RETURN_IF_ERROR(rf_json_text(json, field, "behavior", &behavior));
    while (i < 5 && strcmp(names[i], behavior) != 0)
        i++;
    if (i == 5)
        return rf_fail(RF_ENOTSUP, "tokenizer: %s.behavior: %.60s is not implemented", field,
                       behavior);
    step->behavior = (enum rf_split_behavior)i;
    RETURN_IF_ERROR(rf_json_bool(json, field, "invert", 0, &step->invert));
    return read_pattern(json, field, step);
}

static int read_byte_level(struct reading *r, const cJSON *json, const char *field)
{
    struct rf_step *step = NULL;
    bool prefix, words;
    RETURN_IF_ERROR(rf_json_bool(json, field, "add_prefix_space", -1, &prefix));
    RETURN_IF_ERROR(rf_json_bool(json, field, "use_regex", 1, &words));
    r->tokenizer->bpe.on_bytes = true;
    if (prefix)
        RETURN_IF_ERROR(new_step(r->steps, field, RF_STEP_PREFIX_SPACE, &step));
    return words ? add_split(r, field, GPT2_WORDS, false, RF_SPLIT_ISOLATED) : 0;
}

/* Reads Metaspace of a pre-tokenizer or decoder: its replacement, and whether one is prepended. */
static int read_metaspace(const cJSON *json, const char *field, struct rf_step *step)
{
    static const char *const schemes[] = {"always", "first", "never"};
    const cJSON *scheme = cJSON_GetObjectItemCaseSensitive(json, "prepend_scheme");
    const char *text = cJSON_GetStringValue(scheme);
    bool prefix;
    int i = 0;
    RETURN_IF_ERROR(rf_json_bool(json, field, "add_prefix_space", 1, &prefix));
    while (text && i < 3 && strcmp(schemes[i], text) != 0)
        i++;
    if (i == 3 || (scheme && !text) || (!prefix && text && i != RF_PREPEND_NEVER))
        return rf_fail(RF_ECORRUPT,
                       "tokenizer: %s: prepend_scheme is not one of always, first and "
                       "never, or differs from add_prefix_space",
                       field);
    step->prepend = prefix ? (enum rf_prepend)i : RF_PREPEND_NEVER;
    RETURN_IF_ERROR(rf_json_text(json, field, "replacement", &text));
    if (!text[0] || text[rf_utf8_length(text[0])])
        return rf_fail(RF_ECORRUPT, "tokenizer: %s.replacement: is not one character", field);
    return rf_json_copy(field, text, &step->text);
}

static int read_pretokenizer(struct reading *r, const cJSON *json, const char *field,
                             const char *type)
{
    struct rf_step *step = NULL;
    bool flag;
    if (r->tokenizer->bpe.on_bytes)
        return rf_fail(RF_ENOTSUP, "tokenizer: %s: a step after ByteLevel is not implemented",
                       field);
    if (strcmp(type, "Split") == 0)
        return read_split(r, json, field);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(r, json, field);
    if (strcmp(type, "Digits") == 0) {
        RETURN_IF_ERROR(rf_json_bool(json, field, "individual_digits", 0, &flag));
        return add_split(r, field, "\\p{N}", false, flag ? RF_SPLIT_ISOLATED : RF_SPLIT_CONTIGUOUS);
    }
    if (strcmp(type, "Metaspace") == 0) {
        RETURN_IF_ERROR(new_step(r->steps, field, RF_STEP_METASPACE, &step));
        RETURN_IF_ERROR(read_metaspace(json, field, step));
        RETURN_IF_ERROR(rf_json_bool(json, field, "split", 1, &flag));
        return flag ? add_split(r, field, step->text, true, RF_SPLIT_MERGED_WITH_NEXT) : 0;
    }
    return unknown(field, type);
}

int rf_load_pretokenizer(struct rf_tokenizer *tokenizer, const struct cJSON *json)
{
    struct reading r = {tokenizer, &tokenizer->pre, "pretokenizers", read_pretokenizer};
    return !json || cJSON_IsNull(json) ? 0 : read_any(&r, json, "pre_tokenizer", 0);
}

/* Classes of transformers rebuild the pre-tokenizer from the config. */
int rf_check_prefix(const struct rf_tokenizer *tokenizer, const struct cJSON *json)
{
    bool known = tokenizer->bpe.on_bytes, prefix = false;
    for (int i = 0; i < tokenizer->pre.count; i++) {
        const struct rf_step *step = &tokenizer->pre.list[i];
        known = known || step->kind == RF_STEP_METASPACE;
        prefix = prefix || step->kind == RF_STEP_PREFIX_SPACE ||
                 (step->kind == RF_STEP_METASPACE && step->prepend != RF_PREPEND_NEVER);
    }
    if (!known || !json || cJSON_IsNull(json) ||
        (cJSON_IsBool(json) && cJSON_IsTrue(json) == prefix))
        return 0;
    return rf_fail(
        RF_EINVAL,
        "tokenizer_config.json: add_prefix_space is %s, and tokenizer.json puts %s space "
        "before a text; correct the one that is wrong",
        cJSON_IsTrue(json)    ? "true"
        : cJSON_IsFalse(json) ? "false"
                              : "neither true nor false",
        prefix ? "a" : "no");
}

/* ---- decoders -------------------------------------------------------------------------------- */

static int read_decoder(struct reading *r, const cJSON *json, const char *field, const char *type)
{
    const char *text;
    struct rf_step *step = NULL;
    bool bytes = false; /* texts may be parts of characters until ByteFallback or Fuse */
    for (int i = 0; i < r->steps->count; i++)
        bytes = bytes || r->steps->list[i].kind == RF_STEP_BYTE_LEVEL ||
                r->steps->list[i].kind == RF_STEP_BYTE_FALLBACK;
    if (bytes && strcmp(type, "Fuse") != 0 && strcmp(type, "Strip") != 0)
        return rf_fail(RF_ENOTSUP,
                       "tokenizer: %s: %.60s after a step that makes bytes is not implemented",
                       field, type);
    if (strcmp(type, "ByteLevel") == 0)
        return new_step(r->steps, field, RF_STEP_BYTE_LEVEL, &step);
    if (strcmp(type, "ByteFallback") == 0)
        return new_step(r->steps, field, RF_STEP_BYTE_FALLBACK, &step);
    if (strcmp(type, "Fuse") == 0)
        return new_step(r->steps, field, RF_STEP_FUSE, &step);
    if (strcmp(type, "Replace") == 0)
        return read_normalizer(r, json, field, type);
    if (strcmp(type, "Metaspace") == 0) {
        RETURN_IF_ERROR(new_step(r->steps, field, RF_STEP_UNDO_METASPACE, &step));
        return read_metaspace(json, field, step);
    }
    if (strcmp(type, "Strip") == 0) {
        RETURN_IF_ERROR(new_step(r->steps, field, RF_STEP_STRIP, &step));
        RETURN_IF_ERROR(rf_json_text(json, field, "content", &text));
        if (!text[0] || text[rf_utf8_length(text[0])])
            return rf_fail(RF_ECORRUPT, "tokenizer: %s.content: is not one character", field);
        RETURN_IF_ERROR(rf_json_copy(field, text, &step->text));
        RETURN_IF_ERROR(rf_json_int(json, field, "start", 1 << 20, &step->start));
        return rf_json_int(json, field, "stop", 1 << 20, &step->stop);
    }
    return unknown(field, type);
}

int rf_load_decoder(struct rf_tokenizer *tokenizer, const struct cJSON *json)
{
    struct reading r = {tokenizer, &tokenizer->decoder, "decoders", read_decoder};
    tokenizer->has_decoder = json && !cJSON_IsNull(json);
    return tokenizer->has_decoder ? read_any(&r, json, "decoder", 0) : 0;
}

/* ---- post-processors ------------------------------------------------------------------------- */

/* The ids of a special token of a template, prepended (`back`) or appended to the list. */
static int add_special(struct rf_tokenizer *tokenizer, const cJSON *json, const char *field,
                       const char *name, int32_t *list, int *count)
{
    const cJSON *tokens, *token, *ids, *id;
    RETURN_IF_ERROR(rf_json_get(json, field, "special_tokens", cJSON_Object, &tokens));
    token = cJSON_GetObjectItemCaseSensitive(tokens, name);
    ids = cJSON_GetObjectItemCaseSensitive(token, "ids");
    if (!cJSON_IsArray(ids))
        return rf_fail(RF_ECORRUPT, "tokenizer: %s.special_tokens: has no ids of \"%.60s\"", field,
                       name);
    cJSON_ArrayForEach(id, ids)
    {
        if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble <= RF_MAX_TOKEN_ID) ||
            id->valuedouble != (double)(int32_t)id->valuedouble ||
            !rf_tokenizer_token(tokenizer, (int32_t)id->valuedouble))
            return rf_fail(RF_ECORRUPT,
                           "tokenizer: %s.special_tokens: an id of \"%.60s\" is none "
                           "of the vocabulary",
                           field, name);
        if (*count == RF_MAX_TEMPLATE)
            return rf_fail(RF_ENOTSUP, "tokenizer: %s: adds more than %d tokens", field,
                           RF_MAX_TEMPLATE);
        list[(*count)++] = (int32_t)id->valuedouble;
    }
    return 0;
}

static int read_template(struct reading *r, const cJSON *json, const char *field)
{
    struct rf_tokenizer *t = r->tokenizer;
    int32_t before[RF_MAX_TEMPLATE];
    const cJSON *single, *piece;
    int before_count = 0, texts = 0;
    RETURN_IF_ERROR(rf_json_get(json, field, "single", cJSON_Array, &single));
    cJSON_ArrayForEach(piece, single)
    {
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(piece, "SpecialToken");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(piece, "Sequence");
        const char *name =
            cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(special ? special : text, "id"));
        if (!name || (text && strcmp(name, "A") != 0) || (text && ++texts > 1))
            return rf_fail(RF_ECORRUPT,
                           "tokenizer: %s.single: is no list of special tokens around "
                           "one sequence A",
                           field);
        if (special && texts == 0)
            RETURN_IF_ERROR(add_special(t, json, field, name, before, &before_count));
        else if (special)
            RETURN_IF_ERROR(add_special(t, json, field, name, t->after, &t->after_count));
    }
    if (texts != 1)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s.single: has no sequence A", field);
    if (before_count + t->before_count > RF_MAX_TEMPLATE)
        return rf_fail(RF_ENOTSUP, "tokenizer: %s: adds more than %d tokens", field,
                       RF_MAX_TEMPLATE);
    memmove(t->before + before_count, t->before, (size_t)t->before_count * sizeof(*before));
    memcpy(t->before, before, (size_t)before_count * sizeof(*before));
    t->before_count += before_count;
    return 0;
}

static int read_processor(struct reading *r, const cJSON *json, const char *field, const char *type)
{
    if (strcmp(type, "ByteLevel") == 0) { /* changes only offsets */
        bool trims;
        RETURN_IF_ERROR(rf_json_bool(json, field, "trim_offsets", 1, &trims));
        r->tokenizer->trims += trims;
        return rf_json_bool(json, field, "add_prefix_space", 1, &r->tokenizer->trims_prefix);
    }
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(r, json, field);
    return unknown(field, type);
}

int rf_load_template(struct rf_tokenizer *tokenizer, const struct cJSON *json)
{
    struct reading r = {tokenizer, NULL, "processors", read_processor};
    return !json || cJSON_IsNull(json) ? 0 : read_any(&r, json, "post_processor", 0);
}
