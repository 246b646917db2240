#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# The effect of each field of config.json, generation_config.json and adapter_config.json in transformers and
# PEFT: tiny models with random weights are loaded from folders in which one field has another value. Its
# output is kept in hub_fields.txt, which hub_fields_test.cc compares with the tables; run it again with
#     python3 hub_fields.py > hub_fields.txt
# or for a new architecture alone with
#     python3 hub_fields.py NAME >> hub_fields.txt
# A part begins with "file" and a name; then come the whole file as it was written, on one line, and for each
# change: the effect (same, other: other logits or another text, error), the field and the value as JSON. Last come the values
# that an architecture's absent fields have (default).
import copy
import dataclasses
import json
import os
import sys
import tempfile
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
warnings.filterwarnings("ignore")
import peft
import torch
import transformers as tf

tf.logging.disable_progress_bar()
SIZES = dict(vocab_size=29, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=4, max_position_embeddings=64, bos_token_id=0, eos_token_id=1)
PROMPT = torch.tensor([[3, 17, 4, 9, 20, 21, 5, 11, 2, 7], [8, 8, 3, 1, 2, 6, 14, 9, 10, 27]])
GONE = object()

# Values to try beside those that follow from the value that is there.
TRY = {
    "hidden_act": ["gelu", "swish"], "activation_function": ["relu", "gelu_pytorch_tanh"], "dtype": ["bfloat16"],
    "torch_dtype": ["float16"], "is_causal": [False], "sliding_window": [4], "use_sliding_window": [True],
    "attention_chunk_size": [4], "layer_types": [["sliding_attention", "full_attention"]], "eos_token_id": [12, [1, 12]],
    "rope_theta": [100.0], "rope_scaling": [{"rope_type": "linear", "factor": 4.0}], "head_dim": [8], "tie_word_embeddings": [True],
    "original_max_position_embeddings": [32], "partial_rotary_factor": [0.5], "hidden_size": [32], "n_embd": [32],
    "max_window_layers": [0, 1], "attn_implementation": ["eager"], "_attn_implementation": ["eager"], "architectures": [["LlamaModel"]],
    "pruned_heads": [{"0": [1]}], "per_layer_config": [{"0": {"intermediate_size": 12}}], "suppress_tokens": [[12]],
    "quantization_config": [{"quant_method": "bitsandbytes", "load_in_4bit": True}], "auto_map": [{"AutoConfig": "x.Y"}],
    "id2label": [{"0": "a", "1": "b"}], "label2id": [{"a": 0}], "model_type": ["bert"], "_name_or_path": ["x"],
    "problem_type": ["regression"], "unsloth_version": ["1"], "is_decoder": [True], "mlp_bias": [True],
}
# Fields that a file may have and transformers does not write for these models.
MORE = ["is_causal", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "rope_theta", "rope_scaling",
        "original_max_position_embeddings", "partial_rotary_factor", "torch_dtype", "attn_implementation", "_attn_implementation",
        "quantization_config", "pruned_heads", "per_layer_config", "auto_map", "attention_bias", "mlp_bias", "is_decoder",
        "add_cross_attention", "num_labels", "use_bfloat16", "torchscript", "tie_encoder_decoder", "gradient_checkpointing",
        "output_attentions", "finetuning_task", "tokenizer_class", "prefix", "task_specific_params", "max_length",
        "temperature", "suppress_tokens", "unsloth_version", "sep_token_id", "name_or_path", "_commit_hash", "model_type",
        "tie_last_hidden_states", "num_key_value_heads", "head_dim", "max_sequence_length", "pretraining_tp"]
GENERATION = {
    "eos_token_id": [12, [1, 12]], "num_beams": [3], "do_sample": [True], "temperature": [0.5], "top_k": [1], "top_p": [0.1],
    "repetition_penalty": [3.0], "no_repeat_ngram_size": [1], "bad_words_ids": [[[12]]], "suppress_tokens": [[12]],
    "begin_suppress_tokens": [[12, 28]], "min_length": [20], "min_new_tokens": [10], "max_length": [12], "max_new_tokens": [2],
    "forced_bos_token_id": [5], "forced_eos_token_id": [5], "sequence_bias": [[[[12], 10.0]]], "guidance_scale": [2.0],
    "exponential_decay_length_penalty": [[1, 2.0]], "num_return_sequences": [2], "stop_strings": [["a"]], "token_healing": [True],
    "watermarking_config": [{"bias": 20.0, "seeding_scheme": "selfhash"}], "encoder_no_repeat_ngram_size": [1],
    "encoder_repetition_penalty": [3.0], "penalty_alpha": [0.6], "dola_layers": ["high"], "num_beam_groups": [2],
    "max_time": [0.0], "early_stopping": [True], "length_penalty": [3.0], "min_p": [0.5], "top_h": [0.5], "typical_p": [0.5],
    "epsilon_cutoff": [0.1], "eta_cutoff": [0.1], "diversity_penalty": [0.5], "remove_invalid_values": [True],
    "renormalize_logits": [True], "use_cache": [False], "cache_implementation": ["static"], "prompt_lookup_num_tokens": [2],
    "pad_token_id": [3], "bos_token_id": [3], "decoder_start_token_id": [3], "constraints": [[1]], "force_words_ids": [[[12]]],
}
ADAPTER = {
    "r": [2, 8], "lora_alpha": [32], "use_rslora": [True], "target_modules": [["q_proj"], ["q_proj", "v_proj", "lm_head"], "all-linear"],
    "bias": ["all", "lora_only"], "use_dora": [True], "rank_pattern": [{"q_proj": 2}], "alpha_pattern": [{"q_proj": 64}],
    "layers_to_transform": [[0]], "layers_pattern": ["layers"], "modules_to_save": [["lm_head"]], "exclude_modules": [["v_proj"]],
    "init_lora_weights": ["gaussian", "orthogonal", "eva", "pissa", "olora", "loftq", "mica", False], "lora_bias": [True],
    "trainable_token_indices": [[1]], "alora_invocation_tokens": [[1, 2]], "use_qalora": [True], "layer_replication": [[[0, 2], [0, 2]]],
    "target_parameters": [["mlp.up_proj.weight"]], "fan_in_fan_out": [True], "peft_type": ["IA3"], "task_type": [None, "SEQ_CLS"],
    "megatron_config": [{"a": 1}], "arrow_config": [{}], "kasa_config": [{}], "velora_config": [{}], "monteclora_config": [{}],
    "use_bdlora": [{}], "inference_mode": [False], "base_model_name_or_path": ["x"], "lora_dropout": [0.5], "revision": ["x"],
    "ensure_weight_tying": [True], "qalora_group_size": [8], "peft_version": ["0"], "loftq_config": [{"loftq_bits": 4}],
}


def others(value):
    """Other values of about the same kind."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [value * 2 + 0.25]
    if isinstance(value, str):
        return [value + "_other"]
    if value is None:
        return [1]
    return [] if value == type(value)() else [type(value)()]


def changes(content, table, more=()):
    """(path, value): each field with other values, and within objects each of theirs."""
    for name in [*content, *(m for m in more if m not in content)]:
        value = content.get(name, GONE)
        tried = list(table.get(name, []))
        tried += [] if value is GONE and tried else others(None if value is GONE else value)
        if value is not GONE and value is not None:
            tried.append(None)
        for other in tried:
            if other != value or type(other) is not type(value):
                yield [name], other
        if isinstance(value, dict) and name.startswith("rope"):
            for path, other in changes(value, table, ["type", "factor", "partial_rotary_factor", "attention_factor",
                                                      "low_freq_factor", "original_max_position_embeddings", "beta_fast"]):
                yield [name, *path], other


def read(path):
    with open(path) as file:
        return json.load(file)


def write(path, content):
    with open(path, "w") as file:
        json.dump(content, file)


def report(name, path, table, more, measure):
    """Prints what each change of the file does to measure()."""
    before = read(path)
    print("file", name)
    print(json.dumps(before))
    first = measure()
    for way, value in changes(before, table, more):
        content = copy.deepcopy(before)
        at = content
        for step in way[:-1]:
            at = at[step]
        at[way[-1]] = value
        write(path, content)
        try:
            effect = "same" if is_near(measure(), first) else "other"
        except KeyboardInterrupt:
            raise
        except BaseException:
            effect = "error"
        print(effect, ".".join(way), json.dumps(value), sep="\t", flush=True)
    write(path, before)


def saved(made, folder):
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in made.named_parameters():
            p.normal_(0, 0.4)
            if "norm" in name or "ln_" in name:
                p.add_(0 if name.endswith("bias") else 1)
    made.save_pretrained(folder)


def is_near(a, b):
    """Whether texts are equal, and logits but for the order of sums."""
    return a[1] == b[1] and a[0].shape == b[0].shape and torch.allclose(a[0], b[0], atol=1e-4)


def seen(model, logits=True, **more):
    """Logits of a model, and the texts that it writes."""
    model.eval()
    with torch.no_grad():
        scores = model(PROMPT).logits.double() if logits else torch.zeros(1)
        torch.manual_seed(0)
        texts = [model.generate(row[None], attention_mask=torch.ones_like(row[None]), **more).tolist() for row in PROMPT]
    return scores, texts


def load(folder):
    return tf.AutoModelForCausalLM.from_pretrained(folder)


def llama(kind, **more):
    return getattr(tf, kind + "ForCausalLM")(getattr(tf, kind + "Config")(**{**SIZES, **more}))


def gpt2():
    return tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=29, n_positions=64, n_embd=16, n_layer=2, n_head=4, bos_token_id=0,
                                            eos_token_id=1))


def defaults(config):
    """Prints what an absent field means."""
    for field in dataclasses.fields(config):
        if field.default is not dataclasses.MISSING:
            print("default", field.name, json.dumps(field.default), sep="\t")


def configs(folder, names):
    llama3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 16}
    models = {"gpt2": gpt2, "llama": lambda: llama("Llama"), "llama3": lambda: llama("Llama", rope_parameters=llama3),
              "mistral": lambda: llama("Mistral", sliding_window=64), "qwen2": lambda: llama("Qwen2"),
              "qwen2 window": lambda: llama("Qwen2", use_sliding_window=True, sliding_window=64, max_window_layers=1),
              "qwen3": lambda: llama("Qwen3", tie_word_embeddings=True), "olmo2": lambda: llama("Olmo2"),
              "exaone4": lambda: llama("Exaone4", sliding_window=None, layer_types=["full_attention"] * 2)}
    for name in names or models:
        where = os.path.join(folder, name.replace(" ", "_"))
        made = models[name]()
        saved(made, where)
        os.remove(where + "/generation_config.json")
        # All fields, not only those that differ from the defaults.
        whole = json.loads(tf.AutoConfig.from_pretrained(where).to_json_string(use_diff=False))
        whole.update(read(where + "/config.json"))
        write(where + "/config.json", whole)
        report("config.json of " + name, where + "/config.json", TRY, MORE,
               lambda where=where: seen(load(where), max_new_tokens=8))
        defaults(type(made.config))


def generation(folder):
    where = folder + "/llama"
    written = tf.GenerationConfig(eos_token_id=1, pad_token_id=0).to_dict()
    write(where + "/generation_config.json", written)

    def measure():
        content = read(where + "/generation_config.json")
        own = content["max_length"] or content["max_new_tokens"]
        return seen(load(where), logits=False, **({} if own else {"max_new_tokens": 8}))

    report("generation_config.json", where + "/generation_config.json", GENERATION, [], measure)
    os.remove(where + "/generation_config.json")


def adapters(folder):
    base, where = folder + "/llama", folder + "/adapter"
    tuned = peft.get_peft_model(load(base), peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"],
                                                            task_type="CAUSAL_LM"))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in tuned.named_parameters():
            if "lora_" in name:
                p.normal_(0, 0.4)
    tuned.save_pretrained(where)
    content = read(where + "/adapter_config.json")
    content["base_model_name_or_path"] = "base"
    content["target_modules"] = sorted(content["target_modules"])
    write(where + "/adapter_config.json", content)
    report("adapter_config.json", where + "/adapter_config.json", ADAPTER, [],
           lambda: seen(peft.PeftModel.from_pretrained(load(base), where), max_new_tokens=2))


def main():
    torch.set_num_threads(1)
    names = sys.argv[1:]
    if not names:
        print(f"# hub_fields.py, torch {torch.__version__}, transformers {tf.__version__}, peft {peft.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        configs(folder, names)
        if not names:
            generation(folder)
            adapters(folder)


if __name__ == "__main__":
    sys.stderr = open(os.devnull, "w") if len(sys.argv) < 2 else sys.stderr
    main()
