#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Compares rf_chat_prompt with transformers' apply_chat_template: the tokens of some conversations, by each template
# (*.jinja) of a folder. By hand; needs the Python package transformers. Templates are published with models and with
# libraries that train them. MODEL is a folder with tokenizer.json and tokenizer_config.json.
#
#   templates.py LIBRINGFORGE.so MODEL FOLDER
import ctypes
import datetime
import glob
import json
import sys
import time

from transformers import AutoTokenizer
from transformers.utils import chat_template_utils


class List(ctypes.Structure):
    _fields_ = [("items", ctypes.c_void_p), ("count", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class Options(ctypes.Structure):
    _fields_ = [("tokenizer", ctypes.c_void_p), ("model", ctypes.c_char_p), ("form", ctypes.c_char_p), ("now", ctypes.c_int64)]


class Request(ctypes.Structure):
    _fields_ = [("where", ctypes.c_char_p), ("json", ctypes.c_char_p), ("bytes", ctypes.c_size_t), ("tools", ctypes.c_char_p)]


def call(name, arguments, number):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


WEIGH = {"type": "function", "function": {"name": "weigh", "description": "Weighs \"things\" <here>.", "parameters": {
    "type": "object", "required": ["what"], "properties": {
        "what": {"type": "string", "description": "é\u00a0\u2028"}, "scale": {"type": "number", "enum": [1.0, 1e16, 1e-7]},
        "more": {"type": "array", "items": {"type": ["integer", "null"]}}}}}}
LINES = [
    {"messages": [say("user", "Hi there")]},
    {"messages": [say("system", "Be brief.\u00a0"), say("user", " What\u2028is\x7f 2+2?\n"), say("assistant", "\u00a04\u3000"),
                  say("user", "<b>你好</b> & 'x' \"y\" 😀")]},
    {"messages": [say("user", "Weigh it"), say("assistant", "", tool_calls=[call("weigh", {"what": "a \"b\"", "scale": 1.0, "more": [None, 1]}, "abcdefghi")]),
                  say("tool", "{\"kg\": 1.50}", name="weigh", tool_call_id="abcdefghi")], "tools": [WEIGH]},
    {"messages": [say("system", "S"), say("user", "Q")], "tools": [WEIGH, WEIGH["function"]]},
    {"messages": [say("user", "Q1"), say("assistant", "A1", reasoning_content="think é\n"), say("user", "Q2")]},
    {"messages": [say("user", [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}])]},
    {"messages": [say("developer", "D 2026-01-02"), say("user", "Hey", name="bo")], "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [say("user", "Ask")], "documents": [{"title": "Tït", "text": "Text 1.0"}]},
    {"messages": [say("user", "first"), say("user", "x" * 40 + "\r\ny\tz")]},
]


class Ours:
    def __init__(self, library, model, now):
        self.lib, self.model, self.now = ctypes.CDLL(library), model.encode(), now
        self.lib.rf_last_error.restype = ctypes.c_void_p
        self.tokenizer = ctypes.c_void_p()
        if self.lib.rf_tokenizer_open(self.model, ctypes.byref(self.tokenizer)) < 0:
            raise SystemExit(self.error())

    def error(self):
        raw = ctypes.string_at(self.lib.rf_last_error(), 1200)
        begins = [at for at in (raw.find(b"/"), raw.find(b"line:")) if at >= 0]
        return raw[min(begins, default=0):].split(b"\0")[0].decode(errors="replace")

    def prompt(self, template, line):
        """The ids, or what the library says."""
        chat, ids, text = ctypes.c_void_p(), List(), json.dumps(line).encode()
        options = Options(self.tokenizer, self.model, template.encode(), self.now)
        if self.lib.rf_chat_open(ctypes.byref(options), ctypes.byref(chat)) < 0:
            return self.error()
        request = Request(b"line", text, len(text), None)
        rc = self.lib.rf_chat_prompt(chat, ctypes.byref(request), ctypes.byref(ids))
        got = self.error() if rc < 0 else list((ctypes.c_int32 * ids.count).from_address(ids.items)) if ids.count else []
        self.lib.rf_token_list_free(ctypes.byref(ids))
        self.lib.rf_chat_close(chat)
        return got


def theirs(tokenizer, template, line):
    try:
        return tokenizer.apply_chat_template(
            line["messages"], chat_template=template, tools=line.get("tools"), documents=line.get("documents"),
            add_generation_prompt=True, return_dict=True, **line.get("chat_template_kwargs", {}))["input_ids"]
    except Exception as error:  # templates refuse conversations in any way
        return str(error)


def main():
    library, model, folder = sys.argv[1:]
    now = int(time.time())
    # Both write the same time.
    chat_template_utils.datetime = type("Now", (datetime.datetime,), {
        "now": classmethod(lambda cls, zone=None: datetime.datetime.fromtimestamp(now))})
    ours, tokenizer = Ours(library, model, now), AutoTokenizer.from_pretrained(model)
    counts = {"equal": 0, "refused, as a part would be left out": 0, "refused here alone": 0, "different": 0, "refused by both": 0, "refused there alone": 0}
    for path in sorted(glob.glob(folder + "/**/*.jinja", recursive=True)):
        with open(path, newline="") as file:
            template = file.read()
        for number, line in enumerate(LINES):
            got, want = ours.prompt(path, line), theirs(tokenizer, template, line)
            kind = ("equal" if got == want else "refused by both" if isinstance(got, str) and isinstance(want, str) else
                    "refused, as a part would be left out" if isinstance(got, str) and "does not write" in got else
                    "refused here alone" if isinstance(got, str) else "refused there alone" if isinstance(want, str) else "different")
            counts[kind] += 1
            if kind in ("different", "refused here alone", "refused there alone"):
                print(f"{path}: conversation {number}: {kind}: {got if isinstance(got, str) else ''}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return counts["different"] + counts["refused there alone"] > 0


if __name__ == "__main__":
    sys.exit(main())
