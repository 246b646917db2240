#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Models of transformers on the CPU (fp64), from the same weights and the same tokens as
# architectures_test.cc: prints losses of training and log-probabilities of tokens before it. The
# output is kept in reference_transformers.txt; run it again with
#     python3 reference_transformers.py > reference_transformers.txt
# Weights and tokens come from Philox4x32-10 by seed, as in reference_torch.py.
import numpy as np
import torch
import transformers
from reference_torch import SEED, below, normal

VOCAB, SEQ, BATCH, STEPS, PROBES = 61, 16, 4, 20, 6
LR, BETA1, BETA2, EPS, DECAY, CLIP = 1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=12)

# The same rows as in architectures_test.cc: layers, channels, heads, key heads, hidden, size of
# heads, theta, eps, tied, scaled.
CASES = {
    "gpt2-a": (2, 32, 4, 4, 128, 8, 0, 1e-5, True, False),
    "gpt2-b": (1, 24, 3, 3, 96, 8, 0, 1e-5, True, False),
    "llama-a": (2, 32, 4, 2, 48, 8, 10000.0, 1e-5, False, False),
    "llama-b": (2, 32, 4, 1, 40, 12, 500000.0, 1e-6, True, True),
    "mistral-a": (2, 32, 4, 2, 48, 8, 10000.0, 1e-5, False, False),
    "mistral-b": (1, 32, 4, 4, 40, 12, 1000000.0, 1e-6, False, False),
    "qwen2-a": (2, 32, 4, 2, 48, 8, 10000.0, 1e-6, True, False),
    "qwen2-b": (1, 24, 6, 3, 40, 4, 1000000.0, 1e-6, False, False),
    "qwen3-a": (2, 32, 4, 2, 48, 12, 1000000.0, 1e-6, True, False),
    "qwen3-b": (1, 32, 2, 1, 40, 16, 10000.0, 1e-5, False, False),
}


def model_of(name):
    layers, c, heads, keys, hidden, size, theta, eps, tied, scaled = CASES[name]
    kind = name.split("-")[0]
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=VOCAB, n_positions=SEQ, n_embd=c, n_layer=layers, n_head=heads,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, layer_norm_epsilon=eps)
    else:
        config = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
                  "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}[kind](
            vocab_size=VOCAB, hidden_size=c, intermediate_size=hidden, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=keys, rms_norm_eps=eps,
            max_position_embeddings=64, tie_word_embeddings=tied)
        if kind != "qwen2":
            config.head_dim = size
        rope = dict(LLAMA3) if scaled else dict(rope_type="default")
        if hasattr(config, "rope_parameters"):
            config.rope_parameters = dict(rope, rope_theta=theta)
        else:
            config.rope_theta = theta
            config.rope_scaling = rope if scaled else None
    config._attn_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_config(config).double()


def fused(model, name):
    """Our name of each parameter: those of the model, one after another along the rows. A weight of
    GPT-2 is transposed."""
    kind, tied = name.split("-")[0], CASES[name][8]
    p = dict(model.named_parameters())
    out = {}

    def put(ours, *theirs, transpose=False):
        out[ours] = ([p[t] for t in theirs], transpose)

    if kind == "gpt2":
        put("wte.weight", "transformer.wte.weight")
        put("wpe.weight", "transformer.wpe.weight")
        for end in ("weight", "bias"):
            put("ln_f." + end, "transformer.ln_f." + end)
            for i in range(CASES[name][0]):
                a, b = f"blocks.{i}.", f"transformer.h.{i}."
                put(a + "ln1." + end, b + "ln_1." + end)
                put(a + "ln2." + end, b + "ln_2." + end)
                for ours, theirs in (("attention.qkv", "attn.c_attn"), ("attention.proj", "attn.c_proj"),
                                     ("mlp.fc", "mlp.c_fc"), ("mlp.proj", "mlp.c_proj")):
                    put(f"{a}{ours}.{end}", f"{b}{theirs}.{end}", transpose=end == "weight")
        return out
    put("embedding.weight", "model.embed_tokens.weight")
    put("norm.weight", "model.norm.weight")
    if not tied:
        put("head.weight", "lm_head.weight")
    for i in range(CASES[name][0]):
        a, b = f"blocks.{i}.", f"model.layers.{i}."
        put(a + "norm1.weight", b + "input_layernorm.weight")
        put(a + "norm2.weight", b + "post_attention_layernorm.weight")
        for end in ("weight", "bias") if kind == "qwen2" else ("weight",):
            put(a + "attention.qkv." + end, *(f"{b}self_attn.{x}_proj.{end}" for x in "qkv"))
        if kind == "qwen3":
            for x in "qk":
                put(f"{a}attention.{x}_norm.weight", f"{b}self_attn.{x}_norm.weight")
        put(a + "attention.proj.weight", b + "self_attn.o_proj.weight")
        put(a + "mlp.gate_up.weight", b + "mlp.gate_proj.weight", b + "mlp.up_proj.weight")
        put(a + "mlp.down.weight", b + "mlp.down_proj.weight")
    return out


def fill(model, name):
    """Parameter number k in alphabetical order is filled from site k: matrices around 0, norms
    around 1, biases around 0."""
    used = set()
    for site, (ours, (parts, transpose)) in enumerate(sorted(fused(model, name).items())):
        shift = 1.0 if ours.endswith("weight") and parts[0].dim() == 1 else 0.0
        index = 0
        for part in parts:
            shape = part.shape[::-1] if transpose else part.shape
            count = part.numel()
            data = np.array([np.float32(shift) + normal(SEED, site, index + i) * np.float32(0.2)
                             for i in range(count)], np.float32)
            data = torch.tensor(data.astype(np.float64)).reshape(shape)
            part.data.copy_(data.t() if transpose else data)
            index += count
            used.add(id(part))
    assert used == {id(p) for p in model.parameters()}


def text(i):
    return (17 * i + i * i // 5 + below(SEED, 1000, i, 4)) % VOCAB


def batch(step):
    first = [(step * BATCH + s) * SEQ for s in range(BATCH)]
    tokens = [[text(f + t) for t in range(SEQ)] for f in first]
    targets = [[text(f + t + 1) for t in range(SEQ)] for f in first]
    return torch.tensor(tokens), torch.tensor(targets)


def main():
    torch.manual_seed(0)
    print(f"# transformers {transformers.__version__}, seed {SEED}: case, "
          f"{PROBES} log-probabilities, {STEPS} losses")
    for name in CASES:
        model = model_of(name)
        model.train()
        fill(model, name)
        params = list(model.parameters())
        tokens, targets = batch(0)
        with torch.no_grad():
            logs = model(tokens).logits.log_softmax(-1)
        # Probe k: token 7 k + 3 at position SEQ - 1 - 2 k of sequence k % BATCH.
        line = [logs[k % BATCH, SEQ - 1 - 2 * k, (7 * k + 3) % VOCAB].item() for k in range(PROBES)]
        optimizer = torch.optim.AdamW(
            [{"params": [w for w in params if w.dim() > 1], "weight_decay": DECAY},
             {"params": [w for w in params if w.dim() == 1], "weight_decay": 0.0}],
            lr=LR, betas=(BETA1, BETA2), eps=EPS)
        for step in range(STEPS):
            tokens, targets = batch(step)
            logits = model(tokens).logits
            loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(params, CLIP)
            optimizer.step()
            line.append(loss.item())
        print(name, " ".join(f"{x:.7f}" for x in line), flush=True)


if __name__ == "__main__":
    main()
