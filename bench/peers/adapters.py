#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Adapters of ringforge and of PEFT, both ways: PEFT loads what `ringforge train` exports, `ringforge
# merge` gives the logits of PEFT, and adapters written by PEFT pass through a step of rate 0 unchanged, on
# one rank, with zero=3 and with pp=2. Biases stay as they are. Random models; needs torch,
# transformers and peft.
#     bench/peers/adapters.py build/ringforge
import os
import subprocess
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file

PROGRAM = os.path.abspath(sys.argv[1])
TOLERANCE = 1e-4
TOKENS = torch.arange(32).reshape(2, 16)


def run(*args):
    subprocess.run([PROGRAM, *args], check=True, stdout=subprocess.DEVNULL)


def logits(model):
    return model.eval()(input_ids=TOKENS).logits


def compare(name, model, flags, config):
    kind, sizes = type(model), ["--seq", "16", "--batch", "8"]
    with tempfile.TemporaryDirectory() as folder:
        base, ours, theirs, again, merged, text = (
            os.path.join(folder, n) for n in ("base", "ours", "theirs", "again", "merged", "text"))
        with open(text, "w") as file:
            file.write("\n".join(map(str, range(20000))))
        model.save_pretrained(base)
        train = ["train", "--data", text, "--from", base, *sizes]
        run(*train, "--lora", flags, "--steps", "12", "--lr", "1e-2", "--export-adapter", ours)
        run("merge", "--from", base, "--adapter", ours, "--export", merged)
        want = logits(peft.PeftModel.from_pretrained(kind.from_pretrained(base), ours))
        whole = kind.from_pretrained(merged)
        far = (logits(whole) - want).abs().max().item()
        assert all(torch.equal(p, whole.get_parameter(n)) for n, p in model.named_parameters()
                   if n.endswith(".bias"))
        moved = (logits(kind.from_pretrained(base)) - want).abs().max().item()
        print(f"{name}: merged beside PEFT {far:.1e}, the base {moved:.1e}")
        assert far < TOLERANCE < moved
        other = peft.get_peft_model(kind.from_pretrained(base), config)
        for parameter, value in other.named_parameters():
            if "lora_" in parameter:
                value.data.normal_(0, 0.2)
        other.save_pretrained(theirs)
        for ranks in ([], ["--ranks", "2", "--zero", "3"], ["--ranks", "2", "--mesh", "pp=2"]):
            run(*train, "--adapter", theirs, "--steps", "1", "--lr", "0",
                "--export-adapter", again, *ranks)
            a, b = (load_file(d + "/adapter_model.safetensors") for d in (theirs, again))
            assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        print(f"{name}: what PEFT writes is unchanged")


torch.manual_seed(1)
compare("llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=257, hidden_size=24, intermediate_size=37, num_hidden_layers=2,
    num_attention_heads=6, num_key_value_heads=2)),
    "r=3,alpha=4,targets=q_proj,v_proj,down_proj",
    peft.LoraConfig(r=3, lora_alpha=4, target_modules=["q_proj", "v_proj", "down_proj"],
                    task_type="CAUSAL_LM"))
for name, rank in ("qwen2", 3), ("qwen2 of another rank", 8):
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=257, hidden_size=24, intermediate_size=37, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2))
    for parameter, value in model.named_parameters():
        if parameter.endswith(".bias"):  # they begin as zeros
            value.data.normal_(0, 0.5)
    targets = ["q_proj", "k_proj", "v_proj", "gate_proj"]
    compare(name, model, f"r={rank},alpha={5 * rank},targets={','.join(targets)}",
            peft.LoraConfig(r=rank, lora_alpha=5 * rank, target_modules=targets,
                            task_type="CAUSAL_LM"))
compare("olmo2", transformers.Olmo2ForCausalLM(transformers.Olmo2Config(
    vocab_size=257, hidden_size=24, intermediate_size=37, num_hidden_layers=2,
    num_attention_heads=6, num_key_value_heads=2, eos_token_id=256)),
    "r=3,alpha=4,targets=q_proj,o_proj,up_proj",
    peft.LoraConfig(r=3, lora_alpha=4, target_modules=["q_proj", "o_proj", "up_proj"],
                    task_type="CAUSAL_LM"))
compare("gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(
    vocab_size=257, n_embd=24, n_layer=2, n_head=6, n_positions=16)),
    "r=5,alpha=4,rslora,targets=all-linear,dropout=0.1",
    peft.LoraConfig(r=5, lora_alpha=4, use_rslora=True, fan_in_fan_out=True,
                    target_modules="all-linear", task_type="CAUSAL_LM"))
