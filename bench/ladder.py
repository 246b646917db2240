#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The largest published models that train in the memory of a device, by technique. Every figure is a plan
(ringforge plan --fits); no weights are read.

  ladder.py PROGRAM | bench/results/table --put ladder models

PROGRAM: ringforge, as built.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

SEQ, GIB = 1024, 2**30
SIZES = (4, 8, 16, 24)


def gpt2(layers, channels, heads):
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": layers,
            "n_embd": channels, "n_head": heads, "n_positions": 1024, "vocab_size": 50257,
            "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}


def llama(kind, layers, channels, hidden, heads, kv_heads, vocab, head, tied, theta, eps, positions):
    return {"architectures": [kind + "ForCausalLM"], "model_type": kind.lower(), "hidden_act": "silu",
            "num_hidden_layers": layers, "hidden_size": channels, "intermediate_size": hidden,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
            "head_dim": head, "tie_word_embeddings": tied, "rope_theta": theta, "rms_norm_eps": eps,
            "max_position_embeddings": positions, "sliding_window": None}


def llama3(layers, channels, hidden, heads, head, tied):
    return llama("Llama", layers, channels, hidden, heads, 8, 128256, head, tied, 5e5, 1e-5, 131072)


def qwen2(layers, channels, hidden, heads, kv_heads, vocab, tied):
    return llama("Qwen2", layers, channels, hidden, heads, kv_heads, vocab, channels // heads, tied,
                 1e6, 1e-6, 32768)


def qwen3(layers, channels, hidden, heads, tied):
    return llama("Qwen3", layers, channels, hidden, heads, 8, 151936, 128, tied, 1e6, 1e-6, 40960)


# The published number of parameters, and the dimensions, with which it has to agree.
MODELS = {
    "GPT-2 124M": (124439808, gpt2(12, 768, 12)),
    "GPT-2 355M": (354823168, gpt2(24, 1024, 16)),
    "GPT-2 774M": (774030080, gpt2(36, 1280, 20)),
    "GPT-2 1.5B": (1557611200, gpt2(48, 1600, 25)),
    "Llama-3.2-1B": (1235814400, llama3(16, 2048, 8192, 32, 64, True)),
    "Llama-3.2-3B": (3212749824, llama3(28, 3072, 8192, 24, 128, True)),
    "Llama-3.1-8B": (8030261248, llama3(32, 4096, 14336, 32, 128, False)),
    "Mistral-7B": (7248023552, llama("Mistral", 32, 4096, 14336, 32, 8, 32768, 128, False, 1e6, 1e-5,
                                     32768)),
    "Qwen2.5-0.5B": (494032768, qwen2(24, 896, 4864, 14, 2, 151936, True)),
    "Qwen2.5-1.5B": (1543714304, qwen2(28, 1536, 8960, 12, 2, 151936, True)),
    "Qwen2.5-3B": (3085938688, qwen2(36, 2048, 11008, 16, 2, 151936, True)),
    "Qwen2.5-7B": (7615616512, qwen2(28, 3584, 18944, 28, 4, 152064, False)),
    "Qwen3-0.6B": (596049920, qwen3(28, 1024, 3072, 16, True)),
    "Qwen3-1.7B": (1720574976, qwen3(28, 2048, 6144, 16, True)),
    "Qwen3-4B": (4022468096, qwen3(36, 2560, 9728, 32, True)),
    "Qwen3-8B": (8190735360, qwen3(36, 4096, 12288, 32, False)),
}


def plan(program, folder, config):
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
    out = subprocess.run([program, "plan", "--from", folder, "--seq", str(SEQ), "--batch", "1",
                          "--head-rows", "128", "--device-bytes", "24G", "--fits", "--json", "-"],
                         check=True, stdout=subprocess.PIPE)
    return json.loads(out.stdout)


def table(program):
    needs = {}  # options: (parameters, model, bytes) of each model
    refused = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, (params, config) in MODELS.items():
            answer = plan(program, folder, config)
            if answer["param_count"] != params:
                sys.exit(f"{name}: {answer['param_count']} parameters, not {params}")
            for row in answer["fits"][1:]:
                if "device_bytes" in row:
                    needs.setdefault(row["options"], []).append((params, name, row["device_bytes"]))
                else:
                    refused.add(row["options"])
    print("refused for some models:", *sorted(refused), sep="\n  ", file=sys.stderr)
    lines = ["| options | " + " | ".join(f"{size} GiB" for size in SIZES) + " |",
             "|---" * (1 + len(SIZES)) + "|"]
    for options, rows in needs.items():
        # The table has the ends of each scale.
        if "gelu" in options or "--offload activations" in options or " optimizer,act" in options:
            continue
        if "--lora" in options and "--offload optimizer" in options and "--zero" not in options:
            continue
        best = [max((row for row in rows if row[2] <= size * GIB), default=None) for size in SIZES]
        cells = [f"{row[1]} ({row[2] / GIB:.1f})" if row else "-" for row in best]
        lines.append(f"| `{options}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(table(sys.argv[1]), end="")


if __name__ == "__main__":
    main()
