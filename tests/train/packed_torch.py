# SPDX-License-Identifier: MIT
"""Values of packed weights by other programs, for packed_weights_test.cc.

`python3 packed_torch.py > packed_torch.txt` needs torch 2.15 and bitsandbytes 0.50; the last five
cases are the formulas of GPTQModel 7.7 (dequantize_weight, after convert_gptq_v1_to_v2_format) and
AutoAWQ 0.2.9 (dequantize_gemm), and codes times scales of FP8, in torch. Tensors are the formula
below; a row has a case and the FNV hash of its values' bits as f32, then the first four values.
"""
import struct

import bitsandbytes.functional as F
import torch


class Numbers:
    """The same in packed_weights_test.cc."""

    def __init__(self, seed):
        self.x = seed

    def next(self):
        self.x = (self.x * 1664525 + 1013904223) & 0xFFFFFFFF
        return self.x

    def bytes(self, count):
        return torch.tensor([self.next() >> 24 for _ in range(count)], dtype=torch.uint8)

    def words(self, rows, columns):
        words = [self.next() ^ self.next() >> 16 for _ in range(rows * columns)]
        return torch.tensor([w - (w >> 31 << 32) for w in words], dtype=torch.int32).view(rows, columns)

    def scales(self, count):
        return torch.tensor([((self.next() >> 8) + 1) * 2.0**-28 for _ in range(count)], dtype=torch.float32)

    def halves(self, count, dtype):
        return torch.tensor([((self.next() >> 24) + 1) * 2.0**-14 for _ in range(count)]).to(dtype)


def show(name, values):
    h = 14695981039346656037
    flat = values.float().flatten().tolist()
    for v in flat:
        for byte in struct.pack("<f", v + 0.0):  # no negative zero
            h = ((h ^ byte) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    print(name, f"{h:016x}", *[float.hex(v) for v in flat[:4]])


def four_bits(name, kind, rows, columns, block, nested, dtype):
    n = Numbers(rows * columns + block)
    codes = n.bytes((rows * columns + 1) // 2)
    blocks = -(-rows * columns // block)
    absmax = n.bytes(blocks) if nested else n.scales(blocks)
    if nested:
        largest = n.scales(-(-blocks // 256))
        table = F.create_dynamic_map()
        absmax = F.dequantize_blockwise(
            absmax, F.QuantState(largest, code=table, blocksize=256, dtype=torch.float32)) + torch.tensor(0.0625)
    # Its CPU kernel restarts blocks at each row, so the weight is one row here.
    state = F.QuantState(absmax, torch.Size([1, rows * columns]), F.get_4bit_type(kind, device="cpu"), block, kind,
                         dtype)
    show(name, F.dequantize_4bit(codes.view(-1, 1), state))


def int8(name, rows, columns):
    n = Numbers(rows * columns)
    codes = n.bytes(rows * columns).view(torch.int8).view(rows, columns)
    show(name, F.int8_vectorwise_dequant(codes, n.scales(rows)))


def fp8(name, rows, columns, block, dtype):
    n = Numbers(rows * columns + block)
    codes = [n.next() >> 24 for _ in range(rows * columns)]
    codes = torch.tensor([c ^ 1 if c & 127 == 127 else c for c in codes], dtype=torch.uint8)
    weight = codes.view(torch.float8_e4m3fn).view(rows, columns).to(dtype)
    down, across = (-(-rows // block), -(-columns // block)) if block else (rows, 1)
    scales = n.scales(down * across) if dtype == torch.float32 else n.halves(down * across, dtype)
    scales = scales.view(down, across)
    if block:
        scales = scales.repeat_interleave(block, 0).repeat_interleave(block, 1)[:rows, :columns]
    show(name, weight * scales)


def nibbles(words, dim):
    parts = [words >> 4 * i & 15 for i in range(8)]
    return torch.stack(parts, dim + 1).flatten(dim, dim + 1)


def gptq(name, inputs, outputs, group, order, adds_one, dtype):
    n = Numbers(inputs * outputs)
    codes = n.words(inputs // 8, outputs)
    groups = -(-inputs // group)
    zeros = n.words(groups, outputs // 8)
    scales = n.halves(groups * outputs, dtype).view(groups, outputs)
    g = torch.tensor([(7 * i % inputs if order else i) // group for i in range(inputs)])
    if adds_one:
        zeros = zeros + 0x11111111
    weight = scales[g] * (nibbles(codes, 0) - nibbles(zeros, 1)[g])
    show(name, weight.T)


def awq(name, inputs, outputs, group):
    n = Numbers(inputs * outputs)
    codes = n.words(inputs, outputs // 8)
    zeros = n.words(inputs // group, outputs // 8)
    scales = n.halves(inputs // group * outputs, torch.float16).view(-1, outputs)
    back = torch.arange(outputs).view(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].flatten()
    codes, zeros = nibbles(codes, 1)[:, back], nibbles(zeros, 1)[:, back]
    show(name, ((codes - zeros.repeat_interleave(group, 0)) * scales.repeat_interleave(group, 0)).T)


four_bits("nf4", "nf4", 24, 72, 64, False, torch.float32)
four_bits("nf4-bf16", "nf4", 24, 72, 128, False, torch.bfloat16)
four_bits("nf4-nested", "nf4", 136, 136, 64, True, torch.float32)
four_bits("nf4-nested-f16", "nf4", 136, 136, 64, True, torch.float16)
four_bits("fp4", "fp4", 24, 72, 64, False, torch.float32)
four_bits("fp4-nested", "fp4", 24, 72, 64, True, torch.bfloat16)
int8("int8", 24, 72)
gptq("gptq", 72, 24, 32, False, True, torch.float16)
gptq("gptq-v2", 72, 24, 32, True, False, torch.bfloat16)
awq("awq", 96, 24, 32)
fp8("fp8-blocks", 136, 192, 128, torch.float32)
fp8("fp8-rows", 24, 72, 0, torch.bfloat16)
