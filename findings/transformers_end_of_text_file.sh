#!/bin/sh
# SPDX-License-Identifier: MIT
#
# transformers 5.24.0: if a model's folder has a generation_config.json without eos_token_id, the eos_token_id of
# config.json is not used for generation, and no text ends before its longest length. Without that file the id of
# config.json is used. So a file that says only {"temperature": 1.0} changes where texts end.
#
# Expected before it was run: what generation_config.json does not say is taken from config.json.
#
# Needs the network (PyTorch is some GB). Fails if the behaviour changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.24.0 torch==2.15.0
"$folder/venv/bin/python" - "$folder/model" 2>/dev/null <<'PYTHON'
import json
import os
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

folder = sys.argv[1]
torch.manual_seed(0)
sizes = {"vocab_size": 8, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 2}
LlamaForCausalLM(LlamaConfig(**sizes, bos_token_id=1, eos_token_id=2, pad_token_id=0)).save_pretrained(folder)
path = os.path.join(folder, "generation_config.json")


def end_of(content):
    if os.path.exists(path):
        os.remove(path)
    if content is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
    model = LlamaForCausalLM.from_pretrained(folder)
    assert model.config.eos_token_id == 2
    print("generation_config.json", content, ": texts end at", model.generation_config.eos_token_id)
    return model.generation_config.eos_token_id


assert end_of(None) == 2 and end_of({"eos_token_id": 3}) == 3
assert end_of({"temperature": 1.0}) is None, "config.json is asked now"
PYTHON
