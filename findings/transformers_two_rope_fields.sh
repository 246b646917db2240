#!/bin/sh
# SPDX-License-Identifier: MIT
#
# transformers 5.24.0: config.json may have rope_parameters (new) or rope_scaling with rope_theta (old). If both are
# there, rope_scaling wins, and the base is neither that of rope_parameters nor an error: it is 10000, the default.
# A converter that adds the new field and leaves the old one therefore changes the model.
#
# Expected before it was run: the new field wins, or the two are merged and keep rope_theta = 500000.
#
# Needs the network. Fails if the behaviour changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.24.0
"$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
from transformers import LlamaConfig

new = {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
old = {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
both = {**new, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}


def read(fields):
    fields = {name: dict(value) if isinstance(value, dict) else value for name, value in fields.items()}
    return LlamaConfig.from_dict({"model_type": "llama", **fields}).rope_parameters


for name, fields in (("new", new), ("old", old), ("both", both)):
    print(name, fields, "is read as", read(fields))
assert read(new)["rope_theta"] == 500000 and read(old)["rope_theta"] == 500000
assert read(both)["rope_type"] == "linear" and read(both)["rope_theta"] == 10000, "both fields are read otherwise now"
PYTHON
