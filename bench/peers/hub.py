#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Fine-tuning from a hub's checkpoint and back, beside transformers: for two small models with random
# weights of each architecture, trains both from the same files on the same samples (f32, SGD and
# AdamW), compares the losses, loads the export with transformers, and compares logits. Needs torch
# and transformers. Run by hand:
#     python3 bench/peers/hub.py build/ringforge [NAME]
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers as tf

SEQ, BATCH, STEPS, SEED, LR = 24, 4, 20, 3, 2e-3
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
SIZES = dict(vocab_size=301, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, max_position_embeddings=64, initializer_range=0.1)


def gpt2(**more):
    return tf.GPT2LMHeadModel(tf.GPT2Config(
        **{**dict(vocab_size=301, n_positions=48, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0,
                  embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.1, bos_token_id=256,
                  eos_token_id=256), **more}))


def like(config, model, **more):
    return lambda: model(config(**{**SIZES, **more}))


MODELS = {
    "gpt2": gpt2,
    "gpt2-wide": lambda: gpt2(n_embd=48, n_head=3, n_layer=3, vocab_size=513),
    "llama": like(tf.LlamaConfig, tf.LlamaForCausalLM),
    "llama-gqa-tied": like(tf.LlamaConfig, tf.LlamaForCausalLM, num_key_value_heads=2,
                           tie_word_embeddings=True, rms_norm_eps=1e-5),
    "llama3": like(tf.LlamaConfig, tf.LlamaForCausalLM, num_key_value_heads=2, head_dim=16,
                   rope_parameters=LLAMA3),
    "mistral": like(tf.MistralConfig, tf.MistralForCausalLM, num_key_value_heads=2),
    "mistral-head-dim": like(tf.MistralConfig, tf.MistralForCausalLM, num_key_value_heads=1,
                             head_dim=16, sliding_window=None),
    "qwen2": like(tf.Qwen2Config, tf.Qwen2ForCausalLM, num_key_value_heads=2),
    "qwen2-tied": like(tf.Qwen2Config, tf.Qwen2ForCausalLM, num_key_value_heads=4,
                       tie_word_embeddings=True),
    "qwen3": like(tf.Qwen3Config, tf.Qwen3ForCausalLM, num_key_value_heads=2, head_dim=8),
    "olmo2": like(tf.Olmo2Config, tf.Olmo2ForCausalLM, num_key_value_heads=2),
    "olmo2-tied": like(tf.Olmo2Config, tf.Olmo2ForCausalLM, num_key_value_heads=4,
                       tie_word_embeddings=True),
    "exaone4": like(tf.Exaone4Config, tf.Exaone4ForCausalLM, num_key_value_heads=2, sliding_window=None,
                    layer_types=["full_attention"] * 2),
    "exaone4-tied": like(tf.Exaone4Config, tf.Exaone4ForCausalLM, num_key_value_heads=1, sliding_window=None,
                         head_dim=16, layer_types=["full_attention"] * 2, tie_word_embeddings=True),
    "qwen3-tied": like(tf.Qwen3Config, tf.Qwen3ForCausalLM, num_key_value_heads=1, head_dim=16,
                       tie_word_embeddings=True),
}


# ---- the samples of `ringforge train` (include/ringforge/data.h) ----------------------------------


def philox(seed, low, high):
    m = 0xFFFFFFFF
    k0, k1 = seed & m, seed >> 32
    c = [low & m, low >> 32, high & m, high >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & m, (p0 >> 32) ^ c[3] ^ k1, p0 & m]
        k0, k1 = (k0 + 0x9E3779B9) & m, (k1 + 0xBB67AE85) & m
    return c


def batch(tokens, step):
    train = len(tokens) - len(tokens) // 10
    rows = []
    for k in range(step * BATCH, (step + 1) * BATCH):
        r = philox(SEED, k, 0x64617461)
        at = ((r[0] << 32 | r[1]) * (train - SEQ)) >> 64
        rows.append(tokens[at:at + SEQ + 1])
    return torch.tensor(rows)


# ---- both sides ----------------------------------------------------------------------------------


def train_torch(model, rule, tokens):
    params = list(model.parameters())
    if rule == "sgd":
        optimizer = torch.optim.SGD(params, lr=LR * 10)
    else:
        optimizer = torch.optim.AdamW(params, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses = []
    for step in range(STEPS):
        rows = batch(tokens, step)
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_ours(program, folder, rule, text, log, out, more):
    lr = LR * 10 if rule == "sgd" else LR
    command = [program, "train", "--from", folder, "--data", text, "--seq", str(SEQ), "--batch",
               str(BATCH), "--steps", str(STEPS), "--seed", str(SEED), "--optimizer", rule, "--lr",
               str(lr), "--clip", "0", "--weight-decay", "0", "--log", log, "--export", out,
               "--eval-sequences", "4"] + more
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr or done.stdout)
    with open(log) as lines:
        rows = [json.loads(line) for line in lines]
    return [row["loss"] for row in rows if "loss" in row and "step" in row][:STEPS]


def load_quietly(folder):
    """An exported model, and everything that was said while it was loaded."""
    said = []

    class Keep(__import__("logging").Handler):
        def emit(self, record):
            said.append(record.getMessage())

    handler = Keep()
    tf.utils.logging.add_handler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = tf.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    tf.utils.logging.remove_handler(handler)
    said += [str(w.message) for w in caught]
    said += [f"{key}: {value}" for key, value in info.items() if value]
    return model.eval(), said


def difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def one(program, name, rule, place, text, tokens, more):
    torch.manual_seed(7)
    model = MODELS[name]().eval()
    folder, out = os.path.join(place, name), os.path.join(place, name + "-out")
    model.save_pretrained(folder, max_shard_size="40KB")
    ours = train_ours(program, folder, rule, text, os.path.join(place, "log"), out, more)
    theirs = train_torch(model, rule, tokens)
    loaded, said = load_quietly(out)
    rows = batch(tokens, STEPS)[:, :-1]
    with torch.no_grad():
        logits = (loaded(rows).logits - model(rows).logits).abs().max().item()
    shutil.rmtree(out)
    worst = difference(ours, theirs)
    good = len(ours) == STEPS and worst < 1e-4 and logits < 1e-4 and not said
    print(f"{name:18} {rule:6} loss {ours[0]:.4f} -> {ours[-1]:.4f}  first differs by "
          f"{abs(ours[0] - theirs[0]):.1e}, all by {worst:.1e}; logits after {STEPS} steps by "
          f"{logits:.1e}  {'ok' if good else 'FAILED'}", flush=True)
    for line in said:
        print(f"    said: {line}")
    return good


def main():
    program, names = sys.argv[1], sys.argv[2:3] or list(MODELS)
    more = sys.argv[3:]
    tf.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        text = os.path.join(place, "text")
        with open(text, "w") as file:
            file.write("\n".join(str(i) for i in range(1, 3000)))
        with open(text, "rb") as file:
            tokens = list(file.read()) + [256]
        good = [one(program, name, rule, place, text, tokens, more)
                for name in names for rule in ("sgd", "adamw")]
    sys.exit(not all(good))


main()
