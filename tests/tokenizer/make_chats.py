#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Writes chats.txt beside itself: what transformers' apply_chat_template makes of some conversations with the
# templates that are published with the families (without default texts of the system), and which tokens are the
# assistant's ({% generation %}). By hand, with transformers 5.23; chat_test.cc only reads it. Of each case: the
# base of the tokenizer and the special tokens added to it, the messages, the ids, and the mask.
import json
import os

from transformers import PreTrainedTokenizerFast

here = os.path.dirname(os.path.abspath(__file__))


def turns(before, content, after):
    return ("{% for message in messages %}{{ " + before + " }}{% if message['role'] == 'assistant' %}{% generation %}"
            "{{ " + content + " + '" + after[0] + "' }}{% endgeneration %}{% else %}{{ " + content + " + '" + after[0]
            + "' }}{% endif %}" + after[1] + "{% endfor %}")


INST = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST]SPACE' + message['content'] + '[/INST]' }}"
        "{% else %}{{ 'SPACE' }}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{% endif %}{% endfor %}")
FORMS = [
    ("bytes", ["<|im_start|>", "<|im_end|>"], None,
     turns("'<|im_start|>' + message['role'] + '\\n'", "message['content']", ("<|im_end|>", "{{ '\\n' }}"))),
    ("bytes", ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "<|begin_of_text|>",
     "{{ bos_token }}" + turns("'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'",
                               "message['content'] | trim", ("<|eot_id|>", ""))),
    ("fallback", ["[INST]", "[/INST]"], "<s>", INST.replace("SPACE", " ")),
    ("bytes", ["<s>", "</s>", "[INST]", "[/INST]"], "<s>", INST.replace("SPACE", "")),
]
CHATS = [
    [("user", "What is data?"), ("assistant", "The schedule is data.")],
    [("user", "  One\n"), ("assistant", " Two, three\n\n"), ("user", "12345 é 你"), ("assistant", "And\nmore!")],
    [("system", "Be brief."), ("user", "Why?"), ("assistant", "It\tis."), ("user", "Thanks")],
]

with open(here + "/chats.txt", "w") as out:
    for base, special, bos, template in FORMS:
        t = PreTrainedTokenizerFast(tokenizer_file=f"{here}/{base}.json", bos_token=bos, eos_token="</s>" if "INST" in template else None)
        t.add_special_tokens({"extra_special_tokens": special})
        t.chat_template = template
        for chat in CHATS:
            if "INST" in template and chat[0][0] == "system":
                continue
            messages = [{"role": r, "content": c} for r, c in chat]
            got = t.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            for text in special:
                assert len(t.encode(text, add_special_tokens=False)) == 1
            print(base, *special, file=out)
            print(json.dumps({"messages": messages}), file=out)
            print(*got["input_ids"], file=out)
            print(*got["assistant_masks"], file=out)
