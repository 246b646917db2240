#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Twenty updates of five parameters by PyTorch's optimizers in fp64, from gradients that are simple
# fractions. Its output is kept in optimizer_torch.txt; run it again with
#     python3 optimizer_torch.py > optimizer_torch.txt
import torch

LR, STEPS, COUNT = 0.0625, 20, 5
RULES = {
    "adamw": (torch.optim.AdamW, dict(betas=(0.875, 0.9375), eps=2**-20, weight_decay=0.125)),
    "adam": (torch.optim.Adam, dict(betas=(0.875, 0.9375), eps=2**-20, weight_decay=0.125)),
    "sgd": (torch.optim.SGD, dict(weight_decay=0.125)),
    "momentum": (torch.optim.SGD, dict(momentum=0.75, dampening=0.25, weight_decay=0.125)),
    "nesterov": (torch.optim.SGD, dict(momentum=0.75, nesterov=True, weight_decay=0.125)),
    "adagrad": (torch.optim.Adagrad, dict(eps=2**-20, weight_decay=0.125)),
    "rmsprop": (torch.optim.RMSprop, dict(alpha=0.9375, eps=2**-20, weight_decay=0.125)),
    "rmsprop-centered-momentum": (torch.optim.RMSprop,
                                  dict(alpha=0.9375, eps=2**-20, weight_decay=0.125, momentum=0.75,
                                       centered=True)),
}


def gradient(step, i):
    return ((7 * i + 13 * step) % 11 - 5 + i % 2 / 4) / 8


def main():
    print(f"# torch {torch.__version__}: rule and its parameters after {STEPS} steps")
    for name, (rule, options) in RULES.items():
        p = torch.tensor([(i - 2) / 4 for i in range(COUNT)], dtype=torch.float64,
                         requires_grad=True)
        optimizer = rule([p], lr=LR, **options)
        for step in range(STEPS):
            p.grad = torch.tensor([gradient(step, i) for i in range(COUNT)], dtype=torch.float64)
            optimizer.step()
        print(name, " ".join(f"{x:.15g}" for x in p.tolist()))


if __name__ == "__main__":
    main()
