#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Writes places.txt beside itself: which part of a text each token is of, as the library `tokenizers` (0.23.3) gives
# it. By hand; chat_test.cc only reads it. For each case: the base of the tokenizer and its normalizer; the text's bytes
# in hexadecimal; the ids; where each token begins and ends, as bytes.
import json

from tokenizers import Tokenizer

from make_chats import config_of, here

TEXTS = [
    "", " ", "It's data.", "  two  spaces\n\n\tand a tab\r\n ", "naïve 你好 😀👩‍👩‍👧",
    "e\u0301\u0327x \u1100\u1161\u11a8y \u212b \u00a0ﬁ ½\u3000", "a  <|strip|>  b<|word|> c<|strip|>", " <s> hello </s>",
    "<|tag|>  a <|end|>\n b", "\u0344\u0958 ｱﾞ\u1e9b\u0323",
]

with open(here + "/places.txt", "w") as out:
    for base, form in (("bytes", "NFC"), ("bytes", "NFKD"), ("trim", "NFKC"), ("trim", "NFD"), ("fallback", "-"), ("first", "-")):
        config = config_of(base, ["+<|tag|>", "<|end|>"])
        if form != "-":
            config["normalizer"]["type"] = form
        t = Tokenizer.from_str(json.dumps(config))
        for text in TEXTS:
            got = t.encode(text, add_special_tokens=False)
            at = [len(text[:k].encode()) for k in range(len(text) + 1)]
            print(base, form, file=out)
            print(text.encode().hex(), file=out)
            print(*got.ids, file=out)
            print(*[f"{at[b]} {at[e]}" for b, e in got.offsets], file=out)
