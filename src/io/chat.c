/* SPDX-License-Identifier: MIT
 *
 * The forms in which families of models write conversations; see chat.h. They are the chat
 * templates that are published with the models, without the texts that those add by themselves.
 */
#include "chat.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../base/base.h"
#include "file.h"

#define MAX_TEMPLATE ((size_t)16 << 20)
#define COUNT (sizeof(forms) / sizeof(forms[0]))

static const struct rf_chat_form forms[] = {
    /* Qwen2, Qwen3 */
    {.name = "chatml",
     .published = {"<|im_start|>", "<|im_end|>"},
     .marks = {"<|im_start|>", "<|im_end|>"},
     .by_tokens = true,
     .begin = "",
     .before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
     .after = {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"},
     .end = "<|im_end|>"},
    {.name = "llama3",
     .published = {"<|start_header_id|>", "<|eot_id|>"},
     .marks = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .by_tokens = true,
     .begin = "<|begin_of_text|>",
     .before = {"<|start_header_id|>system<|end_header_id|>\n\n",
                "<|start_header_id|>user<|end_header_id|>\n\n",
                "<|start_header_id|>assistant<|end_header_id|>\n\n"},
     .after = {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>"},
     .end = "<|eot_id|>",
     .trim = {true, true, true}},
    {.name = "llama2",
     .published = {"<<SYS>>", "[INST] ", " [/INST]"},
     .marks = {"[INST]", "[/INST]", "<<SYS>>", "</s>"},
     .begin = "",
     .before = {"<<SYS>>\n", "<s>[INST] ", " "},
     .after = {"\n<</SYS>>\n\n", " [/INST]", " </s>"},
     .end = "</s>",
     .trim = {false, true, true},
     .pairs = true,
     .inside = true},
    /* Mistral 7B v0.1 and v0.2, Mixtral 8x7B, as they are published now */
    {.name = "mistral-v1",
     .published = {"\" [INST] \"", "\" [/INST]\""},
     .marks = {"[INST]", "[/INST]", "</s>"},
     .begin = "<s>",
     .before = {"", " [INST] ", " "},
     .after = {"\n\n", " [/INST]", "</s>"},
     .end = "</s>",
     .pairs = true,
     .inside = true},
    /* As v0.1 was published first */
    {.name = "mistral-v0.1",
     .published = {"'[INST] '", "' [/INST]'", "message['content'] + eos_token + ' '"},
     .marks = {"[INST]", "[/INST]", "</s>"},
     .begin = "<s>",
     .before = {NULL, "[INST] ", ""},
     .after = {NULL, " [/INST]", "</s> "},
     .end = "</s>",
     .pairs = true},
    /* As v0.2 and Mixtral 8x7B were published first */
    {.name = "mistral-v0.2",
     .published = {"'[INST] '", "' [/INST]'", "message['content'] + eos_token"},
     .marks = {"[INST]", "[/INST]", "</s>"},
     .begin = "<s>",
     .before = {NULL, "[INST] ", ""},
     .after = {NULL, " [/INST]", "</s>"},
     .end = "</s>",
     .pairs = true},
    /* Mistral 7B v0.3, with bytes as tokens; it writes spaces where the next does not */
    {.name = "mistral-v3",
     .published = {"\"[INST] \"", "\"[/INST]\"", "message[\"content\"]|trim + eos_token"},
     .marks = {"[INST]", "[/INST]", "</s>", "<0x0A>"},
     .by_tokens = true,
     .begin = "<s>",
     .before = {NULL, "[INST] ", " "},
     .after = {NULL, "[/INST]", "</s>"},
     .end = "</s>",
     .trim = {false, false, true},
     .pairs = true},
    /* Nemo */
    {.name = "mistral-tekken",
     .published = {"\"[INST]\"", "\"[/INST]\"", "message[\"content\"] + eos_token"},
     .marks = {"[INST]", "[/INST]", "</s>"},
     .by_tokens = true,
     .begin = "<s>",
     .before = {NULL, "[INST]", ""},
     .after = {NULL, "[/INST]", "</s>"},
     .end = "</s>",
     .pairs = true},
};

static const char *const roles[RF_CHAT_ROLES] = {"system", "user", "assistant"};

int rf_chat_role_of(const char *name)
{
    for (int i = 0; i < RF_CHAT_ROLES; i++)
        if (strcmp(name, roles[i]) == 0)
            return i;
    return -1;
}

const char *rf_chat_role_name(int role)
{
    return roles[role];
}

/* ---- which form ------------------------------------------------------------------------------ */

static int refuse(const char *where, const char *what)
{
    char names[256] = "";
    for (size_t i = 0; i < COUNT; i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i ? ", " : "",
                 forms[i].name);
    return rf_fail(RF_ENOTSUP,
                   "%s: %s; name one of the chat forms %s, or write the conversation as \"prompt\" "
                   "and \"completion\"",
                   where, what, names);
}

static const struct rf_chat_form *named(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    return NULL;
}

static const struct rf_chat_form *published_as(const char *text)
{
    for (size_t i = 0; i < COUNT; i++) {
        bool has = true;
        for (int k = 0; has && k < 3 && forms[i].published[k]; k++)
            has = strstr(text, forms[i].published[k]) != NULL;
        if (has)
            return &forms[i];
    }
    return NULL;
}

static const struct rf_chat_form *by_tokens(const struct rf_tokenizer *tokenizer)
{
    for (size_t i = 0; i < COUNT; i++) {
        bool has = forms[i].by_tokens;
        for (int k = 0; has && k < 4 && forms[i].marks[k]; k++)
            has = rf_tokenizer_id(tokenizer, forms[i].marks[k]) >= 0;
        if (has && (!forms[i].begin[0] || rf_tokenizer_id(tokenizer, forms[i].begin) >= 0))
            return &forms[i];
    }
    return NULL;
}

/* A text, or a list of objects with "name" and "template"; NULL: none. */
static const char *template_of(const cJSON *config)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, "chat_template");
    for (const cJSON *one = cJSON_IsArray(item) ? item->child : NULL; one; one = one->next) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(one, "name"));
        if (name && strcmp(name, "default") == 0)
            return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(one, "template"));
    }
    return cJSON_GetStringValue(item);
}

/* The form of the template in the folder. *has: there is a template. */
static int by_folder(const char *folder, const struct rf_chat_form **out, bool *has)
{
    char path[4096], *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    *has = false;
    RETURN_IF_ERROR(rf_join_path(path, folder, "chat_template.jinja"));
    if (access(path, F_OK) == 0) {
        RETURN_IF_ERROR(rf_read_file(path, MAX_TEMPLATE, &text, &bytes));
        *has = true;
        *out = published_as(text);
        rf_free(text);
        return 0;
    }
    RETURN_IF_ERROR(rf_join_path(path, folder, "tokenizer_config.json"));
    if (access(path, F_OK) != 0)
        return 0;
    RETURN_IF_ERROR(rf_read_file(path, MAX_TEMPLATE, &text, &bytes));
    cJSON *config = cJSON_ParseWithLength(text, bytes);
    rf_free(text);
    if (!cJSON_IsObject(config)) {
        cJSON_Delete(config);
        return rf_fail(RF_ECORRUPT, "%s is no JSON object", path);
    }
    const char *published = template_of(config);
    *has = published != NULL;
    *out = published ? published_as(published) : NULL;
    cJSON_Delete(config);
    return 0;
}

/* Whether the tokenizer makes one token of it. */
static int is_token(const struct rf_tokenizer *tokenizer, const char *text, bool *out)
{
    const struct rf_encode_opts opts = {0};
    struct rf_token_list ids = {0};
    const int rc = rf_tokenizer_encode(tokenizer, text, strlen(text), &opts, &ids);
    *out = ids.count == 1 && ids.ids[0] == rf_tokenizer_id(tokenizer, text);
    rf_token_list_free(&ids);
    return rc;
}

int rf_chat_form_find(const struct rf_data_opts *opts, const char *where,
                      const struct rf_chat_form **out)
{
    const struct rf_chat_form *form = NULL;
    bool has = false, begins = true, ends = true;
    char what[160];
    if (opts->chat) {
        form = named(opts->chat);
        snprintf(what, sizeof(what), "there is no chat form \"%.40s\"", opts->chat);
    } else {
        if (opts->model)
            RETURN_IF_ERROR(by_folder(opts->model, &form, &has));
        if (!has)
            form = by_tokens(opts->tokenizer);
        snprintf(what, sizeof(what), "no chat form is known for this %s",
                 has ? "model's chat template" : "tokenizer");
    }
    if (!form)
        return refuse(where, what);
    if (form->begin[0])
        RETURN_IF_ERROR(is_token(opts->tokenizer, form->begin, &begins));
    RETURN_IF_ERROR(is_token(opts->tokenizer, form->end, &ends));
    if (!begins || !ends) {
        snprintf(what, sizeof(what), "the tokenizer has no token %s, which %s needs",
                 begins ? form->end : form->begin, form->name);
        return refuse(where, what);
    }
    *out = form;
    return 0;
}
