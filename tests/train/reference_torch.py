#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# The same small GPT-2 in PyTorch on the CPU (fp64), from the same weights and the same tokens as the
# training test: prints one loss a step. Its output is kept in reference_torch.txt; run it again with
#     python3 reference_torch.py > reference_torch.txt
# Weights and tokens come from Philox4x32-10 (Salmon et al. 2011) by seed, so no file is exchanged.
import math

import numpy as np
import torch
import torch.nn.functional as F

LAYERS, CHANNELS, HEADS, SEQ, VOCAB = 2, 32, 4, 16, 61
BATCH, STEPS, SEED = 6, 20, 11
LR, BETA1, BETA2, EPS, DECAY, CLIP = 1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0


def philox(seed, low, high):
    m = 0xFFFFFFFF
    k0, k1 = seed & m, seed >> 32
    c0, c1, c2, c3 = low & m, low >> 32, high & m, high >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & m, (p0 >> 32) ^ c3 ^ k1, p0 & m
        k0, k1 = (k0 + 0x9E3779B9) & m, (k1 + 0xBB67AE85) & m
    return c0, c1, c2, c3


def normal(seed, site, index):
    r = philox(seed, index, site)
    u, v = (r[0] + 1.0) / 4294967296.0, r[1] / 4294967296.0
    return np.float32(math.sqrt(-2.0 * math.log(u)) * math.cos(6.283185307179586 * v))


def below(seed, site, index, bound):
    r = philox(seed, index, site)
    return ((r[0] << 32 | r[1]) * bound) >> 64


def shapes():
    c, out = CHANNELS, {"wte.weight": (VOCAB, CHANNELS), "wpe.weight": (SEQ, CHANNELS)}
    for i in range(LAYERS):
        b = f"blocks.{i}."
        out.update({b + "ln1.weight": (c,), b + "ln1.bias": (c,),
                    b + "attention.qkv.weight": (3 * c, c), b + "attention.qkv.bias": (3 * c,),
                    b + "attention.proj.weight": (c, c), b + "attention.proj.bias": (c,),
                    b + "ln2.weight": (c,), b + "ln2.bias": (c,),
                    b + "mlp.fc.weight": (4 * c, c), b + "mlp.fc.bias": (4 * c,),
                    b + "mlp.proj.weight": (c, 4 * c), b + "mlp.proj.bias": (c,)})
    out.update({"ln_f.weight": (c,), "ln_f.bias": (c,)})
    return out


def weights():
    """Parameter number k in alphabetical order is filled from site k."""
    out = {}
    for site, (name, shape) in enumerate(sorted(shapes().items())):
        count = int(np.prod(shape))
        if ".ln" in name or name.startswith("ln"):
            data = np.full(count, 1.0 if name.endswith("weight") else 0.0, np.float32)
        elif name.endswith("bias"):
            data = np.zeros(count, np.float32)
        else:
            std = np.float32(0.2)
            data = np.array([normal(SEED, site, i) * std for i in range(count)], np.float32)
        out[name] = torch.tensor(data.astype(np.float64).reshape(shape), requires_grad=True)
    return out


def text(i):
    return (17 * i + i * i // 5 + below(SEED, 1000, i, 4)) % VOCAB


def batch(step):
    """Sequence s of a step starts at (step * BATCH + s) * SEQ; targets are the next tokens."""
    first = [(step * BATCH + s) * SEQ for s in range(BATCH)]
    tokens = [[text(f + t) for t in range(SEQ)] for f in first]
    targets = [[text(f + t + 1) for t in range(SEQ)] for f in first]
    return torch.tensor(tokens), torch.tensor(targets)


def loss_of(p, tokens, targets):
    x = p["wte.weight"][tokens] + p["wpe.weight"]
    mask = torch.tril(torch.ones(SEQ, SEQ, dtype=torch.bool))
    for i in range(LAYERS):
        g = lambda rest: p[f"blocks.{i}.{rest}"]
        y = F.layer_norm(x, (CHANNELS,), g("ln1.weight"), g("ln1.bias"), 1e-5)
        qkv = F.linear(y, g("attention.qkv.weight"), g("attention.qkv.bias"))
        q, k, v = (z.view(BATCH, SEQ, HEADS, -1).transpose(1, 2) for z in qkv.split(CHANNELS, 2))
        score = (q @ k.transpose(2, 3)) / math.sqrt(CHANNELS // HEADS)
        y = score.masked_fill(~mask, -math.inf).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(BATCH, SEQ, CHANNELS)
        x = x + F.linear(y, g("attention.proj.weight"), g("attention.proj.bias"))
        y = F.layer_norm(x, (CHANNELS,), g("ln2.weight"), g("ln2.bias"), 1e-5)
        y = F.gelu(F.linear(y, g("mlp.fc.weight"), g("mlp.fc.bias")), approximate="tanh")
        x = x + F.linear(y, g("mlp.proj.weight"), g("mlp.proj.bias"))
    x = F.layer_norm(x, (CHANNELS,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    return F.cross_entropy(F.linear(x, p["wte.weight"]).view(-1, VOCAB), targets.view(-1))


def main():
    p = weights()
    groups = [{"params": [w for n, w in p.items() if w.dim() > 1], "weight_decay": DECAY},
              {"params": [w for n, w in p.items() if w.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), eps=EPS)
    print(f"# torch {torch.__version__} seed {SEED}: step loss norm")
    for step in range(STEPS):
        tokens, targets = batch(step)
        loss = loss_of(p, tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(p.values(), CLIP)
        optimizer.step()
        print(f"{step} {loss.item():.9f} {norm.item():.9f}")


if __name__ == "__main__":
    main()
