#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# The logits processors of transformers, as its generate() builds and orders them, on logits by the
# formula of sampling_test.cc. Its output is kept in sampling_torch.txt; run it again with
#     python3 sampling_torch.py > sampling_torch.txt
# Each line: the case, the settings, then "id probability" of every token that is left.
import torch
import transformers as tf

VOCAB = 48
# logits, ids of the text so far, temperature, top_k, top_p, repetition_penalty
CASES = [
    (0, [3], 1.0, 0, 1.0, 1.0),
    (0, [3], 0.7, 0, 1.0, 1.0),
    (1, [3], 2.5, 0, 1.0, 1.0),
    (0, [3], 1.0, 1, 1.0, 1.0),
    (0, [3], 1.0, 7, 1.0, 1.0),
    (1, [3], 0.5, 5, 1.0, 1.0),
    (0, [3], 1.0, 1000, 1.0, 1.0),
    (1, [3], 1.0, 48, 1.0, 1.0),
    (0, [3], 1.0, 0, 0.9, 1.0),
    (1, [3], 1.0, 0, 0.5, 1.0),
    (0, [3], 1.0, 0, 1e-6, 1.0),
    (0, [3], 1.0, 0, 0.999, 1.0),
    (0, [1, 2, 3, 4, 5, 5, 5, 40], 1.0, 0, 1.0, 1.3),
    (1, [1, 2, 3, 4, 5, 6, 7, 8, 9], 1.0, 0, 1.0, 0.6),
    (0, [0, 10, 20, 30, 47], 0.8, 12, 0.95, 1.5),
    (1, [0, 10, 20, 30, 47], 1.7, 30, 0.8, 2.0),
    (2, [3], 1.0, 6, 1.0, 1.0),       # logits 2: ties
    (2, [3], 1.0, 0, 0.6, 1.0),
    (2, [3], 1.0, 11, 0.7, 1.0),
    (2, [3, 9, 15], 0.9, 9, 0.75, 1.2),
    (3, [3], 1.0, 0, 0.52, 1.0),      # logits 3: all equal
    (3, [3], 1.0, 4, 1.0, 1.0),
    (3, [3, 4], 1.0, 0, 0.9, 1.1),
]


def logits(kind):
    """Multiples of 1/64, which f32 has exactly."""
    if kind == 3:
        return [1.0] * VOCAB
    out = []
    for i in range(VOCAB):
        h = (i + 1) * 2654435761 % 2**32 ^ (kind + 1) * 2246822519 % 2**32
        h = (h ^ h >> 15) * 2246822519 % 2**32
        h ^= h >> 13
        x = (h >> 8) % 512 - 256 if kind < 2 else (h >> 8) % 6 * 64 - 192
        out.append(x / 64)
    return out


def processors(temperature, top_k, top_p, penalty):
    model = tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=8, n_layer=1, n_head=1))
    config = tf.GenerationConfig(do_sample=True, temperature=temperature, top_k=top_k, top_p=top_p,
                                 repetition_penalty=penalty, pad_token_id=0)
    return model._get_logits_processor(config, input_ids_seq_length=1, logits_processor=tf.LogitsProcessorList(),
                                       device="cpu", model_kwargs={})


torch.set_num_threads(1)
print(f"# sampling_torch.py, torch {torch.__version__}, transformers {tf.__version__}")
for kind, ids, temperature, top_k, top_p, penalty in CASES:
    scores = processors(temperature, top_k, top_p, penalty)(torch.tensor([ids]), torch.tensor([logits(kind)]))
    left = torch.softmax(scores[0].double(), 0)
    print(kind, len(ids), *ids, temperature, top_k, top_p, penalty)
    print(*(f"{i} {p:.9f}" for i, p in enumerate(left.tolist()) if scores[0][i] > -float("inf")))
