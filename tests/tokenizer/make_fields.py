#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# The effect of each field of tokenizer.json (in the library tokenizers) and of tokenizer_config.json,
# special_tokens_map.json and added_tokens.json (in AutoTokenizer of transformers): fields.txt, which
# fields_test.cc compares with the result of this library. Run it again with
#     python3 make_fields.py > fields.txt
# A part begins with "file", its name and that of the tokenizer (bytes.json or fallback.json); then the text of
# the file on one line, unless it is tokenizer.json, and the ids of the texts. For each change: the effect
# (same, other, error), the path of the field, its value, and the ids if they are others.
import copy
import json
import os
import tempfile
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
warnings.filterwarnings("ignore")
import tokenizers
import transformers as tf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

FOLDER = os.path.dirname(os.path.abspath(__file__))
TEXTS = ["a<sep>b <|im_end|> the<new>", "  [PAD] x <unk></s>the  don't\n12345", "<s> the "]
GONE = object()
OUT = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the libraries print, too
SKIPPED = {"vocab", "merges", "id", "content", "ids", "tokens", "type", "String", "Regex"}

TRY = {
    "sep_token": ["<sep>", None, {"__type": "AddedToken", "content": "<sep>", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False, "special": True}],
    "pad_token": ["[PAD]", "<unk>", "the"], "image_token": ["<new>"], "bos_token": ["<s>"], "eos_token": ["<|im_end|>"], "mask_token": ["<sep>"],
    "extra_special_tokens": [["<sep>", "<new>"], {"a_token": "<new>"}], "additional_special_tokens": [["<new>"]], "split_special_tokens": [True],
    "clean_up_tokenization_spaces": [True, False], "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": [True],
    "add_bos_token": [True, False], "add_eos_token": [True, False], "add_prefix_space": [True, False, None], "legacy": [True, False],
    "tokenizer_class": ["LlamaTokenizerFast", "PreTrainedTokenizerFast"], "model_max_length": [4], "padding_side": ["left"], "truncation_side": ["left"],
    "fix_mistral_regex": [True, False], "fast_tokenizer_files": [["tokenizer.json"]], "use_default_system_prompt": [True], "chat_template": ["{{ messages }}"],
    "sp_model_kwargs": [{}], "errors": ["replace"], "do_lower_case": [True], "model_input_names": [["input_ids"]], "processor_class": ["x"],
    "spaces_between_special_tokens": [False], "max_length": [2], "stride": [1], "truncation_strategy": ["longest_first"],
    "truncation": [{"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}],
    "padding": [{"strategy": {"Fixed": 40}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}],
    "behavior": ["Removed", "Contiguous", "MergedWithNext"], "prepend_scheme": ["first", "never"], "replacement": ["_"], "prepend": ["_"],
    "unk_token": ["<s>", "<unk>"], "dropout": [0.5], "continuing_subword_prefix": ["##"], "end_of_word_suffix": ["</w>"], "a_new_field": [1],
    "single_word": [True], "lstrip": [True], "rstrip": [True], "special": [False, True], "normalized": [True, False], "version": ["2.0"],
}
MORE = ["sep_token", "mask_token", "image_token", "extra_special_tokens", "additional_special_tokens", "split_special_tokens", "add_bos_token", "add_eos_token",
        "clean_up_tokenization_spaces", "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", "add_prefix_space", "legacy",
        "fix_mistral_regex", "fast_tokenizer_files", "use_default_system_prompt", "chat_template", "sp_model_kwargs", "errors", "do_lower_case",
        "model_input_names", "processor_class", "spaces_between_special_tokens", "padding_side", "truncation_side", "max_length", "stride", "truncation_strategy",
        "pad_token", "unk_token", "use_fast", "name_or_path", "from_slow", "pad_to_multiple_of", "pad_token_type_id"]


def others(value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, str):
        return [value + "_other"]
    return [1] if value is None else []


def changes(content, more=(), way=()):
    """(path, value) of each field, and within objects and lists of each of theirs."""
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in [*items, *((m, GONE) for m in more if m not in content)]:
        tried = list(TRY.get(name, [])) if isinstance(name, str) else []
        if isinstance(name, str) and name not in SKIPPED:
            tried += others(value) if value is not GONE else []
            tried += [None] if value is not GONE and value is not None else []
        for other in tried:
            if value is GONE or other != value or type(other) is not type(value):
                yield [*way, name], other
        if isinstance(value, (dict, list)) and name not in SKIPPED:
            yield from changes(value, ["a_new_field"] if isinstance(value, dict) and "type" in value else [], [*way, name])


def report(content, more, measure):
    first = measure(content)
    print(json.dumps(first), file=OUT)
    for way, value in changes(content, more):
        changed = copy.deepcopy(content)
        at = changed
        for step in way[:-1]:
            at = at[step]
        at[way[-1]] = value
        try:
            got = measure(changed)
            effect = "same" if got == first else "other"
        except KeyboardInterrupt:
            raise
        except BaseException:
            effect = "error"
        print(effect, ".".join(map(str, way)), json.dumps(value), *([json.dumps(got)] if effect == "other" else []), sep="\t", file=OUT)


def tokenizer_json(name):
    print("file tokenizer.json", name, file=OUT)
    with open(os.path.join(FOLDER, name)) as file:
        content = json.load(file)
    # A few added tokens are enough.
    content["added_tokens"] = content["added_tokens"][:3]

    def measure(changed):
        made = Tokenizer.from_str(json.dumps(changed))
        made.no_truncation()  # as transformers does
        made.no_padding()
        return [made.encode(text).ids for text in TEXTS]

    print(json.dumps(content["added_tokens"]), file=OUT)
    report(content, ["a_new_field"], measure)


def folder_of(name, folder):
    """A folder with the tokenizer, and what transformers says of it."""
    with open(os.path.join(FOLDER, name)) as file:
        content = json.load(file)
    content["added_tokens"] = content["added_tokens"][:3]
    made = tf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(content)))
    made.save_pretrained(folder)
    for file, text in (("config.json", {"model_type": "llama"}), ("tokenizer.json", content)):
        with open(os.path.join(folder, file), "w") as out:
            json.dump(text, out)
    with open(os.path.join(folder, "tokenizer_config.json")) as file:
        return json.load(file)


def written_by_classes():
    """Fields that the classes of these families write."""
    fields = {}
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for kind in (tf.GPT2Tokenizer, tf.LlamaTokenizer, tf.Qwen2Tokenizer):
        with tempfile.TemporaryDirectory() as folder:
            kind(vocab=dict(vocabulary), merges=[]).save_pretrained(folder)
            with open(folder + "/tokenizer_config.json") as file:
                fields.update(json.load(file))
    return fields


def beside(name, file, content, more):
    print("file", file, name, file=OUT)
    print(json.dumps(content), file=OUT)

    with tempfile.TemporaryDirectory() as folder:
        folder_of(name, folder)
        os.remove(os.path.join(folder, "tokenizer_config.json"))

        def measure(changed):
            with open(os.path.join(folder, file), "w") as out:
                json.dump(changed, out)
            made = tf.AutoTokenizer.from_pretrained(folder)
            return [made(text)["input_ids"] for text in TEXTS]

        report(content, more, measure)


def main():
    print(f"# make_fields.py, tokenizers {tokenizers.__version__}, transformers {tf.__version__}", file=OUT)
    print(json.dumps(TEXTS), file=OUT)
    for name in "bytes.json", "fallback.json":
        tokenizer_json(name)
    with tempfile.TemporaryDirectory() as folder:
        config = folder_of("bytes.json", folder)
    classes = {k: v for k, v in written_by_classes().items() if k not in config and not (k.endswith("_token") and v)}
    beside("bytes.json", "tokenizer_config.json", {**config, **classes, "added_tokens_decoder": {}}, MORE)
    first = {"content": "<|endoftext|>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    beside("bytes.json", "tokenizer_config.json", {"added_tokens_decoder": {"0": first, "420": {**first, "content": "<new>"}},
                                                   "eos_token": "<|im_end|>"}, ["sep_token"])
    beside("bytes.json", "tokenizer_config.json", {"eos_token": "<|im_end|>"}, ["sep_token", "additional_special_tokens"])
    beside("bytes.json", "special_tokens_map.json", {"eos_token": "<|im_end|>", "sep_token": {k: v for k, v in {**first, "content": "<sep>"}.items() if k != "special"}},
           ["mask_token", "additional_special_tokens", "image_token"])
    beside("bytes.json", "added_tokens.json", {"<new>": 420}, ["<sep>"])


if __name__ == "__main__":
    main()
