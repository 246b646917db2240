#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Losses of small models of each architecture in transformers (CPU, f32), with weights by the formula
# of hub_test.cc. Its output is kept in hub_torch.txt; run it again with
#     python3 hub_torch.py > hub_torch.txt
# or for a new case alone with
#     python3 hub_torch.py NAME >> hub_torch.txt
# Each case: a name, config.json on one line, and the losses of five steps of SGD.
import json
import sys

import numpy as np
import torch
import transformers as tf

SEQ, BATCH, STEPS, LR = 16, 8, 5, 0.05
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
SIZES = dict(vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=32)


def llama(kind, **more):
    return getattr(tf, kind + "ForCausalLM")(getattr(tf, kind + "Config")(**{**SIZES, **more}))


CASES = {
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(
        vocab_size=61, n_positions=24, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0)),
    "llama": lambda: llama("Llama", tie_word_embeddings=True, rms_norm_eps=1e-5),
    "llama gqa": lambda: llama("Llama", num_key_value_heads=2),
    "mistral": lambda: llama("Mistral", num_key_value_heads=2, head_dim=16),
    "llama3": lambda: llama("Llama", num_key_value_heads=2, rope_parameters=LLAMA3),
    "qwen2": lambda: llama("Qwen2", num_key_value_heads=2),
    "qwen3": lambda: llama("Qwen3", num_key_value_heads=2, head_dim=16, tie_word_embeddings=True),
    "olmo2": lambda: llama("Olmo2", num_key_value_heads=2),
    "exaone4": lambda: llama("Exaone4", num_key_value_heads=2, sliding_window=None, layer_types=["full_attention"] * 2),
}


def formula(name, count):
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    h = (np.uint64(h) ^ np.arange(count, dtype=np.uint64)) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)
    h = (h ^ h >> np.uint64(15)) * np.uint64(2246822519) & np.uint64(0xFFFFFFFF)
    h = h ^ h >> np.uint64(13)
    small = (h >> np.uint64(8)).astype(np.float32) / np.float32(67108864) - np.float32(0.125)
    return small + np.float32(1) if "norm" in name or "ln_" in name else small


def at(k):
    return (k * k * 7 + k * 3) % 61


def fill(model, scale=1):
    with torch.no_grad():
        for key, param in model.named_parameters():
            param.copy_(torch.from_numpy(formula(key, param.numel())).view(param.shape))
            if param.dim() > 1:
                param.mul_(scale)


def config_line(model):
    config = json.loads(model.config.to_json_string(use_diff=False))
    keep = {"architectures", "model_type", "rope_parameters", "tie_word_embeddings", "head_dim",
            *SIZES, "num_key_value_heads", "rms_norm_eps", "n_positions", "n_embd", "n_layer",
            "n_head", "use_sliding_window", "sliding_window", "layer_types"}
    config["architectures"] = [type(model).__name__]
    return json.dumps({key: value for key, value in config.items() if key in keep})


def run(name, model):
    fill(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    losses = []
    for step in range(STEPS):
        rows = torch.tensor([[at((row + step * BATCH) * 5 + c) for c in range(SEQ + 1)]
                             for row in range(BATCH)])
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).logits.flatten(0, 1),
                                                 rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(name)
    print(config_line(model))
    print(*(f"{loss:.7f}" for loss in losses))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if not sys.argv[1:]:
        print(f"# hub_torch.py, torch {torch.__version__}, transformers {tf.__version__}")
    for case in sys.argv[1:] or CASES:
        run(case, CASES[case]().eval())
