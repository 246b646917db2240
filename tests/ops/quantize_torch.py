#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Hashes of bitsandbytes' results for tensors by quantize_4bit (NF4, compressed statistics), laid
# out as in ringforge/quantize.h. Its output is kept in quantize_torch.txt; run it again with
#     python3 quantize_torch.py > quantize_torch.txt
import bitsandbytes
import numpy as np
import torch
from bitsandbytes.functional import quantize_4bit

SIZES = [1, 2, 3, 63, 64, 65, 127, 129, 1000, 4095, 16384, 16385, 16448, 70001, 200000, 1048577]


def hashed(i):
    x = (i * np.uint32(2654435769) + np.uint32(12345)).astype(np.uint32)
    x ^= x >> np.uint32(15)
    x *= np.uint32(2246822519)
    x ^= x >> np.uint32(13)
    return x


# Sums of three uniform numbers, exact in f32; some blocks larger, and one of zeros.
def values(count):
    i = np.arange(count, dtype=np.uint32)
    total = sum(hashed(3 * i + np.uint32(k)) >> np.uint32(11) for k in range(3)).astype(np.int64)
    scale = np.where(i // 64 % 5 == 4, 2.0**-20, np.where(i // 64 % 7 == 3, 0.0, 2.0**-24))
    return ((total - 3 * 2**20) * scale).astype(np.float32)


def padded(data):
    data = np.ascontiguousarray(data).view(np.uint8).ravel().tobytes()
    return data + bytes(-len(data) % 4)


def fnv(data):
    x = 0xCBF29CE484222325
    for byte in data:
        x = (x ^ byte) * 0x100000001B3 % 2**64
    return x


def main():
    torch.set_num_threads(1)
    print(f"# bitsandbytes {bitsandbytes.__version__}, torch {torch.__version__}: elements, hash")
    for count in SIZES:
        levels, state = quantize_4bit(torch.from_numpy(values(count)), quant_type="nf4",
                                      compress_statistics=True)
        offset = np.array([state.offset.item()], dtype=np.float32)
        data = b"".join(padded(x) for x in (levels.numpy(), state.absmax.numpy(),
                                            state.state2.absmax.numpy(), offset))
        print(count, f"{fnv(data):016x}")


if __name__ == "__main__":
    main()
