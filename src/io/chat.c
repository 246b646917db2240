/* SPDX-License-Identifier: MIT
 *
 * The forms in which families of models write conversations; see document.h. They are the chat
 * templates that are published with the models, without the texts that those add by themselves.
 */
#include <string.h>

#include "document.h"

static const struct rf_chat_form forms[] = {
    /* ChatML: Qwen2, Qwen3 */
    {.marks = {"<|im_start|>", "<|im_end|>"},
     .begin = "",
     .before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
     .after = {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"},
     .end = "<|im_end|>"},
    /* Llama 3 */
    {.marks = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>",
     .before = {"<|start_header_id|>system<|end_header_id|>\n\n",
                "<|start_header_id|>user<|end_header_id|>\n\n",
                "<|start_header_id|>assistant<|end_header_id|>\n\n"},
     .after = {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>"},
     .end = "<|eot_id|>",
     .trim = true},
    /* Mistral with bytes as tokens (7B v0.3); it writes spaces where the next does not */
    {.marks = {"[INST]", "[/INST]", "</s>", "<0x0A>"},
     .begin = "<s>",
     .before = {NULL, "[INST] ", " "},
     .after = {NULL, "[/INST]", "</s>"},
     .end = "</s>",
     .pairs = true},
    /* Mistral with Tekken (Nemo) */
    {.marks = {"[INST]", "[/INST]", "</s>"},
     .begin = "<s>",
     .before = {NULL, "[INST]", ""},
     .after = {NULL, "[/INST]", "</s>"},
     .end = "</s>",
     .pairs = true},
};

static const char *const roles[RF_CHAT_ROLES] = {"system", "user", "assistant"};

const struct rf_chat_form *rf_chat_form_of(const struct rf_tokenizer *tokenizer)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        bool has = true;
        for (int k = 0; has && k < 4 && forms[i].marks[k]; k++)
            has = rf_tokenizer_id(tokenizer, forms[i].marks[k]) >= 0;
        if (has && (!forms[i].begin[0] || rf_tokenizer_id(tokenizer, forms[i].begin) >= 0))
            return &forms[i];
    }
    return NULL;
}

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
