#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# Greedy texts and logits of transformers (CPU, f32) for two small models of each architecture, whose
# matrices are 4 times those of the formula of hub_torch.py. Its output is kept in generate_torch.txt; run it again with
#     python3 generate_torch.py > generate_torch.txt
# or for new cases alone with
#     python3 generate_torch.py NAME... >> generate_torch.txt
# Each case: a name, config.json on one line, three lines "prompt > text", and the logits after
# tokens 1, 5 and 11 of the last prompt.
import sys

import torch
import transformers as tf
from hub_torch import CASES, at, config_line, fill, llama

MAX_NEW, LENGTHS, POSITIONS, SCALE = 12, (1, 5, 11), (0, 4, 10), 4
MORE = {
    "gpt2 wide": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=61, n_positions=24, n_embd=48, n_layer=1, n_head=3)),
    "mistral one key head": lambda: llama("Mistral", num_key_value_heads=1, num_hidden_layers=1),
    "qwen2 tied": lambda: llama("Qwen2", num_key_value_heads=4, intermediate_size=40, tie_word_embeddings=True),
    "qwen3 one key head": lambda: llama("Qwen3", num_key_value_heads=1, head_dim=8, rms_norm_eps=1e-5),
    "olmo2 tied": lambda: llama("Olmo2", num_key_value_heads=4, head_dim=16, tie_word_embeddings=True),
}


def run(name, model):
    fill(model, SCALE)
    model.generation_config = tf.GenerationConfig(do_sample=False, max_new_tokens=MAX_NEW, pad_token_id=0)
    print(name)
    print(config_line(model))
    for k, length in enumerate(LENGTHS):
        prompt = [at(7 * k + i) for i in range(length)]
        out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, length, dtype=torch.long),
                             return_dict_in_generate=True, output_logits=True)
        best = [torch.topk(logits[0], 2).values for logits in out.logits]
        assert min(float(b[0] - b[1]) for b in best) > 1e-4, name
        print(*prompt, ">", *out.sequences[0, length:].tolist())
    logits = model(torch.tensor([prompt])).logits[0]
    print(*(f"{x:.6f}" for p in POSITIONS for x in logits[p].tolist()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    tf.logging.set_verbosity_error()
    if not sys.argv[1:]:
        print(f"# generate_torch.py, torch {torch.__version__}, transformers {tf.__version__}")
    cases = {**CASES, **MORE}
    for case in sys.argv[1:] or cases:
        run(case, cases[case]().eval())
