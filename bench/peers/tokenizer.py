#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Compares rf_tokenizer_* with the `tokenizers` library: equal ids and texts, and the speed of both on one
# thread, in turns within one run. By hand; needs the Python package tokenizers.
#
#   tokenizer.py LIBRINGFORGE.so TEXT TOKENIZER.json...     check and time
#   tokenizer.py --train FOLDER TEXT                        writes tokenizers of several kinds into FOLDER
import ctypes
import os
import random
import statistics
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


class List(ctypes.Structure):
    _fields_ = [("items", ctypes.c_void_p), ("count", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class Options(ctypes.Structure):
    _fields_ = [("add_special", ctypes.c_bool), ("plain", ctypes.c_bool)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int)]


class Ours:
    def __init__(self, library, path):
        self.lib = ctypes.CDLL(library)
        self.handle = ctypes.c_void_p()
        self.ids, self.text = List(), List()
        begin = time.perf_counter()
        if self.lib.rf_tokenizer_open(path.encode(), ctypes.byref(self.handle)) < 0:
            raise SystemExit(f"{path}: {self.error()}")
        self.load_s = time.perf_counter() - begin

    def error(self):
        self.lib.rf_status_text.restype = ctypes.c_char_p
        self.lib.rf_last_error.restype = ctypes.c_void_p
        raw = ctypes.string_at(self.lib.rf_last_error(), 1200)
        at = raw.find(b"tokenizer")
        return raw[at:].split(b"\0")[0].decode(errors="replace")

    def encode(self, data, special=False, want=True):
        self.ids.count = 0
        options = Options(special, False)
        if self.lib.rf_tokenizer_encode(self.handle, data, ctypes.c_size_t(len(data)), ctypes.byref(options),
                                        ctypes.byref(self.ids)) < 0:
            raise SystemExit(self.error())
        if not want or self.ids.count == 0:
            return []
        return list((ctypes.c_int32 * self.ids.count).from_address(self.ids.items))

    def decode(self, ids, skip=True):
        self.text.count = 0
        array = (ctypes.c_int32 * len(ids))(*ids)
        if self.lib.rf_tokenizer_decode(self.handle, array, ctypes.c_size_t(len(ids)), skip,
                                        ctypes.byref(self.text)) < 0:
            raise SystemExit(self.error())
        return ctypes.string_at(self.text.items, self.text.count).decode()

    def stream(self, ids, skip=True):
        decoder, out = ctypes.c_void_p(), []
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.lib.rf_decoder_open(self.handle, skip, ctypes.byref(decoder))
        for token in ids:
            self.lib.rf_decoder_next(decoder, ctypes.c_int32(token), ctypes.byref(text), ctypes.byref(size))
            out.append(ctypes.string_at(text, size.value).decode())
        self.lib.rf_decoder_end(decoder, ctypes.byref(text), ctypes.byref(size))
        out.append(ctypes.string_at(text, size.value).decode())
        self.lib.rf_decoder_close(decoder)
        return "".join(out)


def documents(path):
    """Texts of different lengths; some with bytes that are not UTF-8."""
    data = open(path, "rb").read()
    rng = random.Random(1)
    out, at = [], 0
    while at < len(data):
        size = rng.choice([10, 100, 1000, 3000, 20000, 100000])
        part = bytearray(data[at:at + size])
        if rng.random() < 0.2:
            for _ in range(3):
                part[rng.randrange(len(part))] = rng.randrange(128, 256)
        out.append(bytes(part))
        at += size
    return out


def first_difference(a, b):
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i
    return min(len(a), len(b))


def check(ours, theirs, docs):
    wrong = tokens = 0
    for data in docs:
        text = data.decode("utf-8", errors="replace")
        for special in (False, True):
            mine, his = ours.encode(data, special), theirs.encode(text, add_special_tokens=special).ids
            tokens += len(mine)
            if mine != his:
                wrong += 1
                at = first_difference(mine, his)
                if wrong < 4:
                    print("  ids differ at", at, mine[at:at + 6], his[at:at + 6],
                          repr(theirs.decode(his[max(at - 3, 0):at + 4])))
        for skip in (True, False):
            mine, his = ours.decode(his_ids := theirs.encode(text).ids, skip), theirs.decode(his_ids, skip)
            if mine != his:
                wrong += 1
                at = first_difference(mine, his)
                if wrong < 4:
                    print("  texts differ at", at, repr(mine[at - 5:at + 20]), repr(his[at - 5:at + 20]))
        if len(data) <= 1000:
            if ours.stream(his_ids) != ours.decode(his_ids):
                wrong += 1
                print("  the stream differs", repr(ours.stream(his_ids))[:80])
    return wrong, tokens


def speed(ours, theirs, docs, rounds=3):
    texts = [d.decode("utf-8", errors="replace") for d in docs]
    pairs, size = [], sum(map(len, docs))
    for i in range(rounds):
        seconds = {}
        for name in ("ours", "theirs") if i % 2 else ("theirs", "ours"):
            begin = time.perf_counter()
            if name == "ours":
                for d in docs:
                    ours.encode(d, want=False)
            else:
                for t in texts:
                    theirs.encode(t, add_special_tokens=False)
            seconds[name] = time.perf_counter() - begin
        pairs.append((seconds["ours"], seconds["theirs"]))
    mine = statistics.median(p[0] for p in pairs)
    ratio = statistics.median(p[1] / p[0] for p in pairs)
    return size / mine / 1e6, ratio


def train(folder, path):
    os.makedirs(folder, exist_ok=True)
    text = open(path, "rb").read().decode("utf-8", errors="replace")
    lines = text.splitlines(keepends=True)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

    def byte_level(name, size, pre, normalizer=None, **more):
        t = Tokenizer(models.BPE(**more))
        if normalizer:
            t.normalizer = normalizer
        t.pre_tokenizer = pre
        t.decoder = decoders.ByteLevel()
        t.post_processor = processors.ByteLevel(trim_offsets=False)
        t.train_from_iterator(lines, trainers.BpeTrainer(
            vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False))
        t.add_tokens([AddedToken("<|word|>", single_word=True, normalized=True),
                      AddedToken(" <|strip|>", lstrip=True, rstrip=True, normalized=False)])
        t.save(f"{folder}/{name}.json")

    split = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    byte_level("gpt2-2k", 2000, pre_tokenizers.ByteLevel(add_prefix_space=False))
    byte_level("gpt2-prefix-8k", 8000, pre_tokenizers.ByteLevel(add_prefix_space=True))
    byte_level("llama3-32k", 32000, split, ignore_merges=True)
    byte_level("qwen-8k", 8000, split, normalizers.NFC())
    byte_level("digits-4k", 4000, pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        normalizers.NFKC())
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    for name, size, legacy in (("llama2-8k", 8000, True), ("mistral-16k", 16000, False)):
        t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
        t.train_from_iterator(lines, trainers.BpeTrainer(
            vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"] + bytes_, limit_alphabet=400,
            show_progress=False))
        if legacy:
            t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
            t.pre_tokenizer = pre_tokenizers.Sequence([])
        else:
            t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
        t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                         special_tokens=[("<s>", 1)])
        t.save(f"{folder}/{name}.json")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--train":
        return train(sys.argv[2], sys.argv[3])
    if len(sys.argv) < 4:
        raise SystemExit(__doc__ or "tokenizer.py LIBRARY TEXT TOKENIZER.json...")
    docs, failed = documents(sys.argv[2]), 0
    docs += [b"", b" ", b"\xff", b"<|im_start|> a<|im_end|>", b"x <|strip|>  y<|word|> z<|word|>w <|word|> ", b"a" * 70000,
             b" " * 70000, b"<s> hi</s>  <s>", "e\u0301\u0300\u0327 \u1100\u1161\u11a8".encode(), b"\n \n\n \t\n x"]
    size = sum(map(len, docs))
    print(f"{len(docs)} documents, {size / 1e6:.1f} MB; tokenizers {tokenizers.__version__}")
    for path in sys.argv[3:]:
        begin = time.perf_counter()
        theirs = Tokenizer.from_file(path)
        load = time.perf_counter() - begin
        ours = Ours(sys.argv[1], path)
        wrong, tokens = check(ours, theirs, docs)
        rate, ratio = speed(ours, theirs, docs)
        failed += wrong
        print(f"{os.path.basename(path)}: {tokens} tokens, {wrong} differences; {rate:.1f} MB/s, {ratio:.2f} times "
              f"the reference; loads in {1e3 * ours.load_s:.0f} ms ({1e3 * load:.0f})", flush=True)
    sys.exit(failed > 0)


main()
