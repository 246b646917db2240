#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Writes bytes.json, fallback.json and cases.txt beside itself: two small tokenizers, trained on this project's
# documents, and the results of the library `tokenizers` (0.23.3) for some texts. By hand; the tests only read them.
# A line of cases.txt: tokenizer, whether special tokens are added, the text's bytes in hexadecimal, the ids, and
# the bytes of the text that they decode to without special tokens.
import glob
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = os.path.dirname(os.path.abspath(__file__))
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = [
    b"", b" ", b"The schedule is data.", b"  two  spaces\n\n\tand a tab\r\n ", b"it's IT'LL I'VE 12345 x=y+1; // code",
    "naïve café, Привет, 你好世界, नमस्ते, مرحبا, 👩‍👩‍👧 é ﬁ".encode(), b"\xff\xc3(\xe2\x82 \xf0\x9f\x98 \xed\xa0\x80 a\x00b",
    b"<|im_start|>user\nhi<|im_end|>", b"a  <|strip|>  b", b"x<|word|>y <|word|> z", b"<s>hello</s> there", b"a" * 200,
    "e\u0301\u0327 \u1100\u1161\u11a8 \u212b \u00a0\u180e\u2003x\u3000".encode(), b"<0x41>", "▁a ▁".encode(),
    b"\n" * 40 + b" " * 40 + b"end",
]


def train(t, lines, size, special, alphabet):
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, special_tokens=special, limit_alphabet=90 if not alphabet else 400,
                                                     initial_alphabet=alphabet, show_progress=False))


def main():
    lines = [line for name in sorted(glob.glob(here + "/../../docs/*.md")) for line in open(name)]
    b = Tokenizer(models.BPE(ignore_merges=True))
    b.normalizer = normalizers.NFC()
    b.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(WORDS), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    b.decoder = decoders.ByteLevel()
    train(b, lines, 420, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], pre_tokenizers.ByteLevel.alphabet())
    b.add_tokens([AddedToken("<|word|>", single_word=True), AddedToken("<|strip|>", lstrip=True, rstrip=True, normalized=False)])
    b.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)])])
    f = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    f.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    train(f, lines, 480, ["<unk>", "<s>", "</s>"] + bytes_, [])
    f = Tokenizer.from_str(f.to_str())
    f.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    f.pre_tokenizer = pre_tokenizers.Sequence([])
    f.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    f.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    with open(here + "/cases.txt", "w") as out:
        for name, t in (("bytes", b), ("fallback", f)):
            t.save(f"{here}/{name}.json", pretty=False)
            for data in TEXTS:
                for special in (False, True):
                    ids = t.encode(data.decode("utf-8", errors="replace"), add_special_tokens=special).ids
                    print(name, int(special), data.hex() or "-", ",".join(map(str, ids)) or "-",
                          t.decode(ids).encode().hex() or "-", file=out)


main()
