#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Writes chats.txt beside itself: the texts of transformers' apply_chat_template for some conversations, and which
# tokens are the assistant's. By hand, with transformers 5.24; chat_test.cc only reads it. For each case: the base
# of the tokenizer, the form (-: the template of the next line) and the special tokens added to the base, those
# that take white space behind them with a "+" in front; tokenizer_config.json; the line of data; the ids and the
# mask, or a word of the refusal.
#   The first cases are of the forms that have a name, with the templates that are published with the families
# (ChatML, Llama 3: without default texts of the system; Mistral: without tools). Then come templates that
# are made for this test: with {% generation %}, with the mask of transformers; and without it, where the mask is
# the part of the text after that of the messages before, up to the last special token.
import copy
import json
import os
import tempfile

import transformers
from transformers import PreTrainedTokenizerFast

transformers.logging.set_verbosity_error()
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
# Base, special tokens, form, template, and in it the assistant's text. Contents of the forms in the first
# rows follow a prompt for the answer; in the others the text before them belongs to them, too.
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


def config_of(base, special):
    """first: with a space before the beginning of the text alone, as newer files of the families have it; trim:
    with offsets without spaces at the ends."""
    with open(f"{here}/{'fallback' if base in ('first', 'fallback') else 'bytes'}.json") as f:
        text = f.read()
    if special and special[0] != "<|im_start|>":  # by which ChatML would be recognized
        text = text.replace("<|im_", "<|xx_")
    config = json.loads(text)
    if base == "first":
        config["normalizer"] = None
        config["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    if base == "trim":
        config["post_processor"]["processors"][0]["trim_offsets"] = True
    number = 480 if base in ("first", "fallback") else 422
    for text in special:
        if text.strip("+") in [token["content"] for token in config["added_tokens"]]:
            continue
        config["added_tokens"].append({"id": number, "content": text.strip("+"), "single_word": False, "lstrip": False,
                                       "rstrip": text[0] == "+", "normalized": False, "special": True})
        number += 1
    return config


def open_tokenizer(base, special, **roles):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(config_of(base, special), f)
        f.flush()
        return PreTrainedTokenizerFast(tokenizer_file=f.name, **roles)


def write(out, base, form, special, config, line, ids, mask):
    print(base, form, *special, file=out)
    print(json.dumps(config), file=out)
    print(json.dumps(line), file=out)
    print(*ids, file=out)
    print(*mask, file=out)


def named_forms(out):
    for base, special, form, template, answer in FORMS:
        t = open_tokenizer(base, special, eos_token=None if base == "bytes" and form != "mistral-tekken" else "</s>",
                           bos_token={"chatml": None, "llama3": "<|begin_of_text|>"}.get(form, "<s>"))
        assert template.count(answer) >= 1, form
        # The text of mistral-v0.1 after the end of a turn is not learned.
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
            write(out, base, form, special, {}, {"messages": messages}, got["input_ids"], got["assistant_masks"])


# ---- templates of this test's own ------------------------------------------------------------------------

WEIGHER = {"type": "function", "function": {"name": "weigh", "description": "Weighs \"things\".", "parameters": {
    "type": "object", "properties": {"what": {"type": "string"}, "scale": {"type": "number", "enum": [1.0, 0.5]}}}}}
TALK = """{%- macro body(m) -%}
    {%- if m.content is string -%}{{ m.content }}
    {%- elif m.content is not none and m.content is iterable -%}
        {%- for part in m.content if part.type == 'text' -%}{{ part.text | trim }}{{ '\\n' if not loop.last }}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(answers=0) -%}
{{- bos_token -}}
{%- if tools %}
<|tag|>tools
{% for tool in tools %}{{ loop.index }}: {{ tool.function | tojson }}{{ "\\n" }}{% endfor %}<|end|>
{% endif -%}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {%- set ns.answers = ns.answers + 1 -%}
        <|tag|>{{ message.role }}{{ "\\n" }}
        {%- generation -%}
        {%- if message.reasoning_content %}({{ message.reasoning_content.strip() }})
{% endif -%}
        {{- body(message) -}}
        {%- for call in message.tool_calls or [] -%}
            <call>{{ call.function.name ~ ' ' ~ call.function.arguments | tojson(sort_keys=true) }}</call>
        {%- endfor -%}
        {{- '<|end|>' -}}
        {%- endgeneration -%}
        {{- "\\n" -}}
    {%- else -%}
        <|tag|>{{ message.role | upper }}{% if message.name is defined and message.role == 'user' %} {{ message.name }}{% endif %}
{{ body(message) }}<|end|>{{ "\\n" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|tag|>assistant
{% endif %}"""
# Without marks; an answer that is no text ends the turn in another way.
PLAIN = """{{ bos_token }}{% for m in messages %}<|tag|>{{ m['role'] }}
{{ m['content'] | trim }}{{ '<|end|>' }}
{% endfor %}{% if add_generation_prompt %}<|tag|>assistant
{% endif %}"""
# The last answer looks unlike the others.
LAST = PLAIN.replace("{{ m['content'] | trim }}", "{{ '[last] ' if loop.last and m.role == 'assistant' }}{{ m['content'] | trim }}")
QUIET = """{% for m in messages %}{% if m.role != 'system' %}<|tag|>{{ m.content }}<|end|>{% endif %}{% endfor %}"""
INSIDE = """{% macro turn(m) %}<|tag|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>{% endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}{% endmacro %}{% for i in range(messages | length) %}{{ turn(messages[i]) }}{% endfor %}"""


def say(role, content=None, **more):
    return {"role": role, **({} if content is None else {"content": content}), **more}


def call(name, **arguments):
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


LONG = [say("system", "Be  brief.\u00a0"), say("user", " Two?\n"), say("assistant", " 2 e\u0301\n", reasoning_content=" plus\n"),
        say("user", "你好 \U0001f600"), say("assistant", "", tool_calls=[call("weigh", what="a \"b\"", scale=1.0, x=None)]),
        say("tool", "{\"kg\": 1.50}", tool_call_id="c1", name="weigh"), say("assistant", "1.5 kg  "), say("user", "Thanks")]
LINES = [
    {"messages": LONG, "tools": [WEIGHER]},
    {"messages": LONG[:3], "tools": None, "prompt": None, "id": 7},
    {"messages": [say("user", [{"type": "text", "text": "One "}, {"type": "text", "text": " two"}], name="Bo"),
                  say("assistant", "\u3000Then", thinking=None, tool_calls=None)]},
    {"messages": [say("user", "a"), say("assistant", "b", weight=0), say("user", "c"), say("assistant", "d", weight=1)]},
    {"messages": [say("developer", "D"), say("user", "q"), say("assistant", "r", thinking="t")]},
]
TAGS = ["<|tag|>", "<|end|>"]


def learned_by_prefixes(t, line):
    """None: a shorter conversation is written in another way."""
    messages, kwargs = line["messages"], {"tools": line.get("tools"), "tokenize": False}
    messages = [{k: v for k, v in m.items() if k != "weight"} for m in messages]
    whole = t.apply_chat_template(messages, **kwargs)
    got = t(whole, add_special_tokens=False, return_offsets_mapping=True)
    mask = [0] * len(got["input_ids"])
    for i, message in enumerate(line["messages"]):
        if message["role"] != "assistant" or message.get("weight") == 0:
            continue
        before = t.apply_chat_template(messages[:i], add_generation_prompt=True, **kwargs)
        upto = t.apply_chat_template(messages[:i + 1], **kwargs)
        if not whole.startswith(before) or not whole.startswith(upto):
            return None
        ours = [k for k, (b, e) in enumerate(got["offset_mapping"]) if b < len(upto) and e > len(before)]
        special = [k for k in ours if got["input_ids"][k] in t.all_special_ids or t.added_tokens_decoder.get(
            got["input_ids"][k], None) and t.added_tokens_decoder[got["input_ids"][k]].special]
        for k in ours:
            mask[k] = int(not special or k <= special[-1])
    return got["input_ids"], mask


def own_templates(out):
    for base, special in (("bytes", TAGS), ("trim", TAGS), ("fallback", TAGS), ("first", ["+<|tag|>", "<|end|>"]),
                          ("trim", ["+<|tag|>", "+<|end|>"])):
        roles = {"bos_token": "<s>"} if base in ("fallback", "first") else {"bos_token": "<|endoftext|>"}
        t = open_tokenizer(base, special, **roles)
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
        for line in LINES:
            line = copy.deepcopy(line)
            t.chat_template = TALK
            weights = [m.get("weight", 1) for m in line["messages"] if m["role"] == "assistant"]
            got = t.apply_chat_template(line["messages"], tools=line.get("tools"), return_dict=True,
                                        return_assistant_tokens_mask=True)
            mask = list(got["assistant_masks"])
            if 0 in weights:  # of the first answer alone
                first = mask.index(1)
                mask[first:mask.index(0, first)] = [0] * (mask.index(0, first) - first)
            write(out, base, "-", special, {**config, "chat_template": TALK}, line, got["input_ids"], mask)
        for template in PLAIN, LAST:
            t.chat_template = template
            for messages in ([say("user", " a\n"), say("assistant", " b")],
                             [say("system", "S"), say("user", "c"), say("assistant", "d\n"), say("user", "e"), say("assistant", "f"), say("user", "g")],
                             [say("user", "c"), say("assistant", "d", weight=0), say("user", "e"), say("assistant", "f")]):
                got = learned_by_prefixes(t, {"messages": messages})
                write(out, base, "-", special, {**config, "chat_template": template}, {"messages": messages},
                      *(got or (["refused:"], ["{% generation %}"])))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": [
        {"name": "default", "template": PLAIN.replace("{{ bos_token }}", "")}, {"name": "tool_use", "template": TALK.replace("{{- bos_token -}}", "")}]}
    t = open_tokenizer("bytes", TAGS)
    t.chat_template = {one["name"]: one["template"] for one in config["chat_template"]}
    for line in LINES[0], {"messages": LONG[:2] + [say("assistant", "x")]}:
        mark = {"return_assistant_tokens_mask": True} if line.get("tools") else {}
        got = t.apply_chat_template(line["messages"], tools=line.get("tools"), return_dict=True, **mark)
        write(out, "bytes", "-", TAGS, config, line, got["input_ids"],
              got["assistant_masks"] if mark else learned_by_prefixes(t, line)[1])
    for own in ({"pix_token": "<|tag|>"}, {"extra_special_tokens": {"pix": "<|tag|>"}}, {"add_pix_token": True, "pix_token": None},
                {"pix_token": "a", "model_specific_special_tokens": {"pix_token": "<|tag|>"}}):
        template = "{{ pix_token }}{{ pix }}{{ add_pix_token is defined }}" + INSIDE
        t = open_tokenizer("bytes", TAGS, **own)
        t.chat_template = template
        line = {"messages": [say("user", "a"), say("assistant", "b")]}
        got = t.apply_chat_template(line["messages"], return_dict=True, return_assistant_tokens_mask=True)
        write(out, "bytes", "-", TAGS, {"tokenizer_class": "PreTrainedTokenizerFast", **own, "chat_template": template}, line,
              got["input_ids"], got["assistant_masks"])
    refusals(out)


def refusals(out):
    def refuse(template, words, *messages, **more):
        config = {"tokenizer_class": more.pop("tokenizer_class", "PreTrainedTokenizerFast"), "chat_template": template}
        write(out, "bytes", "-", TAGS, config, {"messages": messages, **more}, ["refused:"], [words])

    quiet, answer = say("user", "a"), say("assistant", "b")
    refuse(QUIET, 'message 1 has "content"', say("system", "S"), quiet, answer)
    refuse(QUIET, 'message 2 has "tool_calls"', quiet, say("assistant", "b", tool_calls=[call("weigh")]))
    refuse(QUIET, 'message 2 has "reasoning"', quiet, say("assistant", "b", reasoning="r"))
    refuse(QUIET, 'message 1 has "name"', say("user", "a", name="Bo"), answer)
    refuse(QUIET, 'message 2 has "train"', quiet, say("assistant", "b", train=True))
    refuse(QUIET, 'message 1 has "content"', say("user", [{"type": "text", "text": "a"}]), answer)
    refuse(QUIET, 'of the type "image"', say("user", [{"type": "image"}]), answer)
    refuse(QUIET, 'has "tools"', quiet, answer, tools=[WEIGHER])
    refuse(QUIET, 'has "documents"', quiet, answer, documents=[{"text": "t"}])
    refuse(QUIET, 'chat_template_kwargs has "loud"', quiet, answer, chat_template_kwargs={"loud": True})
    refuse(QUIET, 'has the key "label"', quiet, answer, label=1)
    refuse(QUIET, "a text has <|end|>", quiet, say("assistant", "b<|end|>"))
    refuse(QUIET, "weight 1", say("user", "a", weight=1), answer)
    refuse(QUIET, "neither 0 nor 1", quiet, say("assistant", "b", weight=0.5))
    refuse(QUIET, 'no role "human"', say("human", "a"), answer)
    refuse(INSIDE, "whose text it marks", quiet, answer, quiet, say("assistant", "c", weight=0))
    refuse("{{ bos_token }}" + QUIET, "does not say which it is", quiet, answer, tokenizer_class="Another")
    refuse("{{ bos_token }}" + QUIET, "does not say which it is", quiet, answer, tokenizer_class="LlamaTokenizer")
    refuse("{{ raise_exception('only on Sundays') }}", "only on Sundays", quiet, answer)
    refuse("{% include 'a' %}", 'statement "include"', quiet, answer)
    refuse([{"name": "rag", "template": QUIET}], 'name "default"', quiet, answer)


if __name__ == "__main__":
    with open(here + "/chats.txt", "w") as file:
        named_forms(file)
        own_templates(file)
