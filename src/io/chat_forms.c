/* SPDX-License-Identifier: MIT
 *
 * Chat templates in the forms that model families were published with, without default system
 * prompts and without tools; see chat_forms.h.
 */
#include "chat_forms.h"

#include <stddef.h>

/* The loop over messages. The form has the roles user, assistant, and `first` at the beginning. */
#define TURNS(first)                                                                               \
    "{%- for message in messages -%}"                                                              \
    "{%- if message.role not in ['user', 'assistant'] and (message.role != '" first                \
    "' or not loop.first) -%}"                                                                     \
    "{{- raise_exception('message ' ~ loop.index ~ ' is of \"' ~ message.role ~ '\"; this form "   \
    "has user and assistant, and first a system') -}}"                                             \
    "{%- endif -%}"

#define CHATML                                                                                     \
    TURNS("system")                                                                                \
    "{{- '<|im_start|>' + message.role + '\\n' -}}"                                                \
    "{%- if message.role == 'assistant' -%}"                                                       \
    "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}"                      \
    "{%- else -%}{{ message.content + '<|im_end|>' }}{%- endif -%}"                                \
    "{{- '\\n' -}}"                                                                                \
    "{%- endfor -%}"                                                                               \
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"

#define LLAMA3                                                                                     \
    "{{- '<|begin_of_text|>' -}}" TURNS(                                                           \
        "system") "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}"       \
                  "{%- if message.role == 'assistant' -%}"                                         \
                  "{% generation %}{{ message.content|trim + '<|eot_id|>' }}{% endgeneration %}"   \
                  "{%- else -%}{{ message.content|trim + '<|eot_id|>' }}{%- endif -%}"             \
                  "{%- endfor -%}"                                                                 \
                  "{%- if add_generation_prompt -%}"                                               \
                  "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}"

/* User and assistant alternate. There is no generation prompt: the text before an answer is learned
 * with it. skip: the number of leading system messages; user and answer: the text of each turn. */
#define PAIRS(begin, skip, user, answer, behind)                                                   \
    begin "{%- set skip = " skip " -%}"                                                            \
          "{%- for message in messages[skip:] -%}"                                                 \
          "{%- set previous = messages[skip + loop.index0 - 1].role if loop.index0 else 'system' " \
          "-%}"                                                                                    \
          "{%- if message.role not in ['user', 'assistant'] or "                                   \
          "(message.role == 'user') != (loop.index0 % 2 == 0) -%}"                                 \
          "{{- raise_exception('message ' ~ (skip + loop.index) ~ ' is of \"' ~ message.role ~ "   \
          "'\" ' ~ "                                                                               \
          "('and the first' if skip + loop.index0 == 0 else 'after one of ' ~ previous) ~ "        \
          "'; in this form user and assistant alternate, and the user begins') -}}"                \
          "{%- endif -%}"                                                                          \
          "{%- if message.role == 'user' -%}" user "{%- else -%}"                                  \
          "{% generation %}{{ " answer " }}{% endgeneration %}" behind "{%- endif -%}"             \
          "{%- endfor -%}"

#define SYSTEM_FIRST "1 if messages and messages[0].role == 'system' else 0"
#define LLAMA2_USER                                                                                \
    "{{- '<s>[INST] ' -}}"                                                                         \
    "{%- if loop.first and skip -%}"                                                               \
    "{{ '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' + message.content.rstrip() }}"    \
    "{%- else -%}{{ message.content.strip() }}{%- endif -%}"                                       \
    "{{- ' [/INST]' -}}"
#define MISTRAL_V1_USER                                                                            \
    "{{- ' [INST] ' -}}"                                                                           \
    "{%- if loop.first and skip -%}{{ messages[0].content + '\\n\\n' }}{%- endif -%}"              \
    "{{- message.content + ' [/INST]' -}}"

const struct rf_chat_form rf_chat_forms[] = {
    /* Qwen2, Qwen3 */
    {.name = "chatml",
     .text = CHATML,
     .tokens = {"<|im_end|>"},
     .marks = {"<|im_start|>", "<|im_end|>"},
     .by_tokens = true},
    {.name = "llama3",
     .text = LLAMA3,
     .tokens = {"<|begin_of_text|>", "<|eot_id|>"},
     .marks = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .by_tokens = true},
    {.name = "llama2",
     .text = PAIRS("", SYSTEM_FIRST, LLAMA2_USER, "' ' + message.content.strip() + ' </s>'", ""),
     .tokens = {"</s>"},
     .marks = {"[INST]", "[/INST]", "<<SYS>>", "</s>"}},
    /* Mistral 7B v0.1 and v0.2, Mixtral 8x7B, as published now */
    {.name = "mistral-v1",
     .text = PAIRS("{{- '<s>' -}}", SYSTEM_FIRST, MISTRAL_V1_USER, "' ' + message.content + '</s>'",
                   ""),
     .tokens = {"<s>", "</s>"},
     .marks = {"[INST]", "[/INST]", "</s>"}},
    /* v0.1 as first published */
    {.name = "mistral-v0.1",
     .text = PAIRS("{{- '<s>' -}}", "0", "{{- '[INST] ' + message.content + ' [/INST]' -}}",
                   "message.content + '</s>'", "{{- ' ' -}}"),
     .tokens = {"<s>", "</s>"},
     .marks = {"[INST]", "[/INST]", "</s>"}},
    /* v0.2 and Mixtral 8x7B as first published */
    {.name = "mistral-v0.2",
     .text = PAIRS("{{- '<s>' -}}", "0", "{{- '[INST] ' + message.content + ' [/INST]' -}}",
                   "message.content + '</s>'", ""),
     .tokens = {"<s>", "</s>"},
     .marks = {"[INST]", "[/INST]", "</s>"}},
    /* Mistral 7B v0.3, with byte tokens; it writes spaces that the next form omits */
    {.name = "mistral-v3",
     .text = PAIRS("{{- '<s>' -}}", "0", "{{- '[INST] ' + message.content + '[/INST]' -}}",
                   "' ' + message.content|trim + '</s>'", ""),
     .tokens = {"<s>", "</s>"},
     .marks = {"[INST]", "[/INST]", "</s>", "<0x0A>"},
     .by_tokens = true},
    /* Nemo */
    {.name = "mistral-tekken",
     .text = PAIRS("{{- '<s>' -}}", "0", "{{- '[INST]' + message.content + '[/INST]' -}}",
                   "message.content + '</s>'", ""),
     .tokens = {"<s>", "</s>"},
     .marks = {"[INST]", "[/INST]", "</s>"},
     .by_tokens = true},
    {NULL}};
