#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Small Llama, Qwen2 and GPT-2 models of transformers with adapters of PEFT, on the CPU in fp64, from the same
# weights and tokens as adapter_peft_test.cc: prints one loss a step. Its output is kept in
# adapter_peft.txt; run it again with
#     python3 adapter_peft.py > adapter_peft.txt
# Weights and tokens come from Philox4x32-10 by seed (reference_torch.py). Tensor number k in the
# alphabetical order of PEFT's names is filled from site k.
import numpy as np
import peft
import torch
import torch.nn.functional as F
import transformers

from reference_torch import below, normal

BATCH, SEQ, STEPS, SEED, VOCAB, LR = 6, 16, 20, 11, 61, 1e-2


def fill(model):
    parameters = dict(model.named_parameters())
    for site, name in enumerate(sorted(parameters)):
        p = parameters[name]
        norm = "norm" in name or ".ln_" in name
        values = np.array([normal(SEED, site, i) for i in range(p.numel())], np.float64)
        std = 0.1 if name.endswith("bias") else 0.2
        values = 1 + 0.1 * values if norm and name.endswith("weight") else std * values
        p.data = torch.tensor(values.astype(np.float32).astype(np.float64)).reshape(p.shape)


def text(i):
    return (17 * i + i * i // 5 + below(SEED, 1000, i, 4)) % VOCAB


def train(name, model, config):
    torch.manual_seed(0)
    model = peft.get_peft_model(model.double(), config).double()
    fill(model)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    print(name, "trains", sum(p.numel() for p in trained))
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
    for step in range(STEPS):
        rows = [[text((step * BATCH + s) * SEQ + t) for t in range(SEQ + 1)] for s in range(BATCH)]
        tokens = torch.tensor(rows)
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        print(name, step, f"{loss.item():.9f}")


def main():
    print(f"# peft {peft.__version__} transformers {transformers.__version__} torch {torch.__version__}")
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=37, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=SEQ, rms_norm_eps=1e-5,
        rope_theta=10000.0, tie_word_embeddings=False, attn_implementation="eager"))
    train("llama", llama, peft.LoraConfig(r=3, lora_alpha=4, target_modules=[
        "q_proj", "v_proj", "o_proj", "up_proj", "down_proj"], task_type="CAUSAL_LM"))
    qwen2 = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=37, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=SEQ, rms_norm_eps=1e-5,
        rope_theta=10000.0, tie_word_embeddings=False, attn_implementation="eager"))
    train("qwen2", qwen2, peft.LoraConfig(r=4, lora_alpha=10, target_modules=[
        "q_proj", "k_proj", "v_proj", "gate_proj"], task_type="CAUSAL_LM"))
    train("qwen2-lora-only", transformers.Qwen2ForCausalLM(qwen2.config), peft.LoraConfig(
        r=4, lora_alpha=10, target_modules=["q_proj", "k_proj", "v_proj"], bias="lora_only",
        task_type="CAUSAL_LM"))
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=24, n_layer=2, n_head=6, n_positions=SEQ, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0, attn_implementation="eager"))
    train("gpt2", gpt2, peft.LoraConfig(r=5, lora_alpha=4, use_rslora=True, fan_in_fan_out=True,
                                        target_modules=["c_attn", "c_proj", "c_fc"],
                                        task_type="CAUSAL_LM"))
    for bias in "all", "lora_only":
        train(f"gpt2-{bias.replace('_', '-')}", transformers.GPT2LMHeadModel(gpt2.config), peft.LoraConfig(
            r=5, lora_alpha=4, fan_in_fan_out=True, target_modules=["c_attn"], bias=bias,
            task_type="CAUSAL_LM"))


main()
