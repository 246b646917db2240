#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Greedy text of `ringforge generate` beside that of transformers, on random tiny models in f32.

    bench/peers/generate.py PROGRAM [--prompts 50] [--max-new 24] [--quantize nf4|int8]

Needs torch, transformers and safetensors. With --quantize the model of transformers gets the values of the
quantised weights in f32: those of nf4 by bitsandbytes, which this then needs. Each architecture gets random weights, large enough that the
largest logit is mostly far from the second one. Prints how many texts are equal, the smallest distance of
the two largest logits, the largest difference of the log probabilities, and the tokens per second of both,
for what they tell of a CPU. Exit status 1 if a text differs, or a log probability by 1e-4.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time

import torch
import transformers


def models(names):
    common = dict(vocab_size=199, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64)
    all_of_them = {
        "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel,
                 dict(vocab_size=199, n_positions=128, n_embd=48, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2)),
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, dict(common, tie_word_embeddings=True)),
        "llama3": (transformers.LlamaConfig, transformers.LlamaForCausalLM,
                   dict(common, head_dim=16, rope_theta=500000.0, rope_scaling=llama3)),
        "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM,
                    dict(common, sliding_window=None)),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, common),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, dict(common, head_dim=16)),
        "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM, common),
        "exaone4": (transformers.Exaone4Config, transformers.Exaone4ForCausalLM,
                    dict(common, sliding_window=None, layer_types=["full_attention"] * 3)),
    }
    for name, (config, model, sizes) in all_of_them.items():
        if not names or name in names:
            yield name, model(config(**sizes))


def randomize(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0, 0.2)
            if "norm" in name or "ln_" in name:
                p.add_(0 if name.endswith("bias") else 1)


# Weights that are quantised as one; the last parts of their names.
FUSED = (("q_proj.weight", "k_proj.weight", "v_proj.weight"), ("gate_proj.weight", "up_proj.weight"),
         ("o_proj.weight",), ("down_proj.weight",), ("c_attn.weight",), ("c_proj.weight",), ("c_fc.weight",))


def unpacked(x, kind):
    """The values of quantised x, which is flat."""
    if kind == "nf4":
        from bitsandbytes import functional
        packed, state = functional.quantize_4bit(x, blocksize=64, compress_statistics=True, quant_type="nf4")
        return functional.dequantize_4bit(packed, state)
    blocks = torch.nn.functional.pad(x, (0, -len(x) % 64)).view(-1, 64)
    largest = blocks.abs().amax(1, keepdim=True)
    levels = torch.round((blocks.double() * (127 / largest.double())).float())
    return (levels * (largest / 127)).flatten()[:len(x)]


def quantize(model, kind):
    transposed = isinstance(model, transformers.GPT2LMHeadModel)
    with torch.no_grad():
        params = dict(model.named_parameters())
        for first in list(params):
            group = next((g for g in FUSED if first.endswith("." + g[0])), None)
            if not group:
                continue
            parts = [params[first[:-len(group[0])] + name] for name in group]
            rows = torch.cat([p.t() if transposed else p for p in parts])
            values = unpacked(rows.flatten().contiguous(), kind).view(rows.shape)
            for part, own in zip(parts, values.split([p.shape[1 if transposed else 0] for p in parts])):
                part.copy_(own.t() if transposed else own)


def reference(model, prompt, count):
    """transformers' own generate: ids, log probabilities, the smallest distance of the two largest logits."""
    out = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0,
                         return_dict_in_generate=True, output_logits=True)
    ids = out.sequences[0, len(prompt):].tolist()
    best = [torch.topk(logits[0], 2).values for logits in out.logits]
    logprobs = [float(torch.log_softmax(x[0].double(), 0)[i]) for x, i in zip(out.logits, ids)]
    return ids, logprobs, min(float(b[0] - b[1]) for b in best)


def compare(name, model, args):
    model = model.eval().float()
    randomize(model)
    prompts = [torch.randint(3, 199, (int(n),)).tolist() for n in torch.randint(1, 40, (args.prompts,))]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        command = [args.program, "generate", "--from", folder, "--max-new", str(args.max_new), "--json", "-"]
        for p in prompts:
            command += ["--prompt-ids", ",".join(map(str, p))]
        if args.quantize:
            command += ["--quantize", args.quantize]
            quantize(model, args.quantize)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: {done.stderr.strip()}")
            return False
        got = json.loads(done.stdout)
        equal, least, worst, tokens = 0, float("inf"), 0.0, 0
        start = time.time()
        texts = [reference(model, p, args.max_new) for p in prompts]
        seconds = time.time() - start
        for p, text, (ids, logprobs, margin) in zip(prompts, got["texts"], texts):
            least = min(least, margin)
            tokens += len(ids)
            if text["ids"] == ids and text["prompt_ids"] == p:
                equal += 1
                worst = max([worst] + [abs(a - b) for a, b in zip(text["logprobs"], logprobs)])
            else:
                print(f"{name}: prompt {p}: {text['ids']} for {ids}, margin {margin:.2g}")
    print(f"{name}: {equal} of {len(prompts)} texts equal, margin {least:.2g}, log probabilities within "
          f"{worst:.2g}; {tokens / got['seconds']:.0f} tokens/s, transformers one by one {tokens / seconds:.0f}")
    return equal == len(prompts) and worst < 1e-4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--max-new", type=int, default=24)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--quantize", choices=("nf4", "int8"))
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)  # bitsandbytes then computes the bits of nf4 that this library does
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    good = [compare(name, model, args) for name, model in models(args.only)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
