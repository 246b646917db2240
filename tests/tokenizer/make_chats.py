#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Writes chats.txt beside itself: what transformers' apply_chat_template makes of some conversations with the
# templates that are published with the families (ChatML, Llama 3: without default texts of the system; Mistral:
# without tools), and which tokens are the assistant's ({% generation %}). By hand, with transformers 5.23;
# chat_test.cc only reads it. Of each case: the base of the tokenizer, the form and the special tokens added to
# the base; the template; the messages; the ids; the mask.
import json
import os
import tempfile

from transformers import PreTrainedTokenizerFast

here = os.path.dirname(os.path.abspath(__file__))


def turns(before, content, end, behind):
    return ("{% for message in messages %}{{ " + before + " }}{% if message['role'] == 'assistant' %}{{ " + content
            + " + '" + end + "' }}{% else %}{{ " + content + " + '" + end + "' }}{% endif %}" + behind + "{% endfor %}")


ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must "
             "alternate user/assistant/user/assistant/...') }}{% endif %}")
FIRST = ("{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message['role'] == 'user' %}{{ '[INST] ' + "
         "message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + "
         "' ' }}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}")
NOW = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.first and system_message is defined %}
            {{- " [INST] " + system_message + "\\n\\n" + message["content"] + " [/INST]" }}
        {%- else %}
            {{- " [INST] " + message["content"] + " [/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
          "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
          "{% for message in loop_messages %}" + ALTERNATE + "{% if loop.index0 == 0 and system_message != false %}{% set "
          "content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = "
          "message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + "
          "' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}"
          "{% endfor %}")
INST = ("{{- bos_token }}{%- for message in messages %}{%- if message[\"role\"] == \"user\" %}{{- \"[INST]SPACE\" + "
        "message[\"content\"] + \"[/INST]\" }}{%- elif message[\"role\"] == \"assistant\" %}{{- LEAD + eos_token}}{%- endif %}"
        "{%- endfor %}")
V3 = INST.replace("SPACE", " ").replace("LEAD", '" " + message["content"]|trim')
# Base, special tokens, form, template, and in it what the assistant writes. Contents of the forms in the first
# rows follow a prompt for the answer; in the others what is before them is theirs, too.
LLAMA = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
FORMS = [
    ("bytes", ["<|im_start|>", "<|im_end|>"], "chatml",
     turns("'<|im_start|>' + message['role'] + '\\n'", "message['content']", "<|im_end|>", "{{ '\\n' }}"),
     "{{ message['content'] + '<|im_end|>' }}"),
    ("bytes", LLAMA, "llama3", "{{ bos_token }}" + turns(
        "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'", "message['content'] | trim", "<|eot_id|>", ""),
     "{{ message['content'] | trim + '<|eot_id|>' }}"),
    ("fallback", ["[INST]", "[/INST]"], "mistral-v3", V3, '{{- " " + message["content"]|trim + eos_token}}'),
    ("bytes", ["<s>", "</s>", "[INST]", "[/INST]"], "mistral-tekken",
     INST.replace("SPACE", "").replace("LEAD", 'message["content"]'), '{{- message["content"] + eos_token}}'),
]
for base in "fallback", "first":
    FORMS += [
        (base, [], "llama2", LLAMA2, "{{ ' '  + content.strip() + ' ' + eos_token }}"),
        (base, [], "mistral-v0.1", FIRST, "{{ message['content'] + eos_token + ' ' }}"),
        (base, [], "mistral-v0.2", FIRST.replace(" + ' ' }}{% else", "}}{% else"), "{{ message['content'] + eos_token}}"),
        (base, [], "mistral-v1", NOW, '{{- " " + message["content"] + eos_token}}'),
    ]
CHATS = [
    [("user", "What is data?"), ("assistant", "The schedule is data.")],
    [("user", "  One\n"), ("assistant", " Two, three\n\n"), ("user", "12345 é 你"), ("assistant", "And\nmore!")],
    [("system", "Be brief."), ("user", "Why?"), ("assistant", "It\tis."), ("user", "Thanks")],
    [("system", " Be \n"), ("user", "\u00a0 7"), ("assistant", "8\u2003"), ("user", "9\x1f"), ("assistant", "10")],
]


def config_of(base):
    """first: with a space before the beginning of the text alone, as newer files of the families have it."""
    with open(f"{here}/{'fallback' if base == 'first' else base}.json") as f:
        config = json.load(f)
    if base == "first":
        config["normalizer"] = None
        config["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return config


with open(here + "/chats.txt", "w") as out:
    for base, special, form, template, answer in FORMS:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(config_of(base), f)
            f.flush()
            t = PreTrainedTokenizerFast(tokenizer_file=f.name, eos_token=None if base == "bytes" and form != "mistral-tekken" else "</s>",
                                        bos_token={"chatml": None, "llama3": "<|begin_of_text|>"}.get(form, "<s>"))
        t.add_special_tokens({"extra_special_tokens": special})
        assert template.count(answer) >= 1, form
        # What mistral-v0.1 has behind the end of a turn is not learned.
        learned = answer.replace(" + ' ' }}", " }}")
        behind = "{{ ' ' }}" if learned != answer else ""
        t.chat_template = template.replace(answer, "{% generation %}" + learned + "{% endgeneration %}" + behind, 1)
        for chat in CHATS:
            if chat[0][0] == "system" and form in ("mistral-v0.1", "mistral-v0.2", "mistral-v3", "mistral-tekken"):
                continue
            messages = [{"role": r, "content": c} for r, c in chat]
            got = t.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            plain = t.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True)
            assert got["input_ids"] == plain["input_ids"]
            for text in special:
                assert len(t.encode(text, add_special_tokens=False)) == 1
            print(base, form, *special, file=out)
            print(json.dumps({"chat_template": template}), file=out)
            print(json.dumps({"messages": messages}), file=out)
            print(*got["input_ids"], file=out)
            print(*got["assistant_masks"], file=out)
