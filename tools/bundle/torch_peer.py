# SPDX-License-Identifier: MIT
"""What gpu-day.sh compares with: the same measurements by PyTorch (eager) on the same GPU.

torch_peer.py name                          the GPU and the version
torch_peer.py matmul TYPE MxKxN ...         "TYPE/MxKxN TFLOP/s" a line; of f32 also "tf32/MxKxN"
torch_peer.py step TYPE LxCxHxTxBxV STEPS   "step/TYPE TOKENS/S" of a GPT-2 training step
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def median_seconds(launch, samples):
    """Batches of some milliseconds, as ringforge bench times its own."""
    for _ in range(3):
        launch()
    torch.cuda.synchronize()
    start = time.perf_counter()
    launch()
    torch.cuda.synchronize()
    batch = int(min(max(2e-3 / (time.perf_counter() - start), 1), 200))
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(batch):
            launch()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / batch)
    return sorted(times)[len(times) // 2]


def matmul(name, shapes):
    for shape in shapes:
        m, k, n = map(int, shape.split("x"))
        a = torch.rand(m, k, device="cuda", dtype=TYPES[name]) * 2 - 1
        b = torch.rand(k, n, device="cuda", dtype=TYPES[name]) * 2 - 1
        out = torch.empty(m, n, device="cuda", dtype=TYPES[name])
        for tf32 in (False, True) if name == "f32" else (False,):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            seconds = median_seconds(lambda: torch.mm(a, b, out=out), 15)
            print(f"{'tf32' if tf32 else name}/{shape} {2e-12 * m * k * n / seconds:.3f}", flush=True)


class Layer(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, channels, heads, seq, vocab):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, channels), nn.Embedding(seq, channels)
        self.layers = nn.ModuleList(Layer(channels, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


def step(name, shape, steps):
    layers, channels, heads, seq, batch, vocab = map(int, shape.split("x"))
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    model = GPT2(layers, channels, heads, seq, vocab).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    tokens, targets = torch.randint(vocab, (2, batch, seq), device="cuda")
    times = []
    for i in range(steps + 3):
        start = time.perf_counter()
        with torch.autocast("cuda", TYPES[name], enabled=name != "f32"):
            loss = model(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()  # waits, as ours does
        if i >= 3:
            times.append(time.perf_counter() - start)
    print(f"step/{name} {batch * seq / sorted(times)[len(times) // 2]:.1f}", flush=True)


def main():
    if not torch.cuda.is_available():
        sys.exit("torch_peer.py: PyTorch sees no GPU")
    command, rest = sys.argv[1], sys.argv[2:]
    if command == "name":
        print(f"PyTorch {torch.__version__} (eager) on {torch.cuda.get_device_name(0)}")
    elif command == "matmul":
        matmul(rest[0], rest[1:])
    else:
        step(rest[0], rest[1], int(rest[2]))


main()
