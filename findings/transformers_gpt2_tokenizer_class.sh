#!/bin/sh
# SPDX-License-Identifier: MIT
#
# transformers 5.24.0 with tokenizers 0.23.3: "tokenizer_class": "GPT2Tokenizer" in tokenizer_config.json replaces the
# pre-tokenizer of the tokenizer.json beside it. A file whose pre-tokenizer divides digits gives other ids through
# AutoTokenizer than through the tokenizers library. Without the class, or with PreTrainedTokenizerFast or
# Qwen2Tokenizer, the ids are those of the file. Nothing is said about it.
#
# Expected before it was run: tokenizer.json decides, as it did with the fast tokenizers of transformers 4; a class
# only adds names of special tokens.
#
# Needs the network. Fails if the behaviour changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.24.0 tokenizers==0.23.3
"$folder/venv/bin/python" - "$folder/model" 2>/dev/null <<'PYTHON'
import json, os, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

folder = sys.argv[1]
os.mkdir(folder)
vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
vocabulary["12"], vocabulary["123"] = 256, 257
plain = Tokenizer(models.BPE(vocab=vocabulary, merges=[("1", "2"), ("12", "3")]))
plain.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
plain.decoder = decoders.ByteLevel()
plain.save(folder + "/tokenizer.json")
json.dump({}, open(folder + "/config.json", "w"))
own = plain.encode("a 123").ids
print("the file, by the tokenizers library:", own)
seen = {}
for name in ("", "PreTrainedTokenizerFast", "Qwen2Tokenizer", "GPT2Tokenizer"):
    json.dump({"tokenizer_class": name} if name else {}, open(folder + "/tokenizer_config.json", "w"))
    seen[name] = AutoTokenizer.from_pretrained(folder)("a 123", add_special_tokens=False)["input_ids"]
    print("AutoTokenizer, tokenizer_class", name or "absent:", seen[name])
assert own == [64, 220, 16, 17, 18]
assert all(seen[name] == own for name in seen if name != "GPT2Tokenizer")
assert seen["GPT2Tokenizer"] == [64, 220, 257], "the class no longer replaces the pre-tokenizer"
PYTHON
