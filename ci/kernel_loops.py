#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the inner loop of each product costs, from what kernel_disassemble wrote.

    kernel_loops.py GPU FILE...          a row for each file, as a table of Markdown
    kernel_loops.py --json GPU FILE...   the same as JSON, with every count

GPU is a row of GPUS below. The loop is the smallest one that holds the most matrix instructions, or
fused multiply-adds where there are none. Instructions are counted by kind, each once a round of the
loop; what else a round holds (an inner loop, both sides of a branch) counts once, too.

The bound is the share of the unit's peak that the loop allows: the cycles that its matrix
instructions (or multiply-adds) take, over the cycles of the busiest pipe. It assumes that latencies
are hidden, that no bank conflicts, and that memory keeps up: a real kernel is below it. It is a bound
and not a measurement.
"""
import json
import re
import sys

KINDS = ("matrix", "fma", "shared", "global", "scratch", "alu", "scalar", "wait", "branch")


class Gpu:
    """Per SIMD (AMD), partition of an SM (NVIDIA) or vector engine (Intel), and per cycle."""

    def __init__(self, reader, lanes, matrix, shared, cache, issue, alu_blocks_matrix):
        self.reader = reader  # of what this driver prints
        self.lanes = lanes  # fp32 multiply-adds
        self.matrix = matrix  # 16-bit multiply-adds with f32 sums on matrix units; 0: none
        self.shared = shared  # bytes of shared memory, where all share it evenly
        self.cache = cache  # bytes of the first cache, likewise; 0: shared memory is a part of it
        self.issue = issue  # instructions of all kinds; 0: each pipe issues for itself
        self.alu_blocks_matrix = alu_blocks_matrix  # one pipe does both


# Sources: bench/results/compiled-loops.json, "pipes".
GPUS = {
    "navi31": Gpu("aco", 32, 128, 64, 32, 0, True),
    "tu102": Gpu("nak", 16, 128, 16, 0, 1, False),
    "ga102": Gpu("nak", 32, 128, 32, 0, 1, False),
    "ad102": Gpu("nak", 32, 128, 32, 0, 1, False),
    "gb202": Gpu("nak", 32, 128, 32, 0, 1, False),
    "dg2": Gpu("gen", 8, 64, 8, 0, 0, False),
    "bmg": Gpu("gen", 16, 128, 16, 0, 0, False),
    "lnl": Gpu("gen", 16, 128, 16, 0, 0, False),
    "ptl": Gpu("gen", 16, 128, 16, 0, 0, False),
    "a750": Gpu("ir3", 64, 0, 64, 0, 1, True),
}


class Instruction:
    """One instruction of the text: its kind, and what it does as often as it is repeated."""

    def __init__(self, kind, count=1, macs=0, lanes=0, bytes_=0, target=None, jumps=False):
        self.kind = kind
        self.count = count  # instructions that it stands for
        self.macs = macs  # multiply-adds of all lanes
        self.lanes = lanes  # of an ALU instruction
        self.bytes = bytes_  # of shared memory or memory, all lanes
        self.target = target  # label of a branch
        self.jumps = jumps  # never continues with the next


# ---- readers: each gives a list of labels (str) and Instructions, in order ------------------------


def read_aco(lines, wave):
    """RADV."""
    for line in lines:
        label = re.match(r"(BB\d+):", line)
        if label:
            yield label[1]
            continue
        text = line.split(";")[0].strip()
        if not text:
            continue
        name = text.split()[0]
        yield read_aco_instruction(name, text, wave)


def read_aco_instruction(name, text, wave):
    width = re.search(r"_b(\d+)", name)
    size = (int(width[1]) if width else 32) // 8 * wave
    branch = re.match(r"s_c?branch\w*\s+(BB\d+)", text)
    if branch:
        return Instruction("branch", target=branch[1], jumps=name == "s_branch")
    if name == "s_endpgm":
        return Instruction("branch", jumps=True)
    if "wmma" in name:
        m, n, k = map(int, re.search(r"_(\d+)x(\d+)x(\d+)", name).groups())
        return Instruction("matrix", macs=m * n * k)
    if name.startswith(("s_waitcnt", "s_barrier", "s_delay_alu", "s_nop", "s_clause", "s_sleep")):
        return Instruction("wait")
    if name.startswith("ds_"):
        return Instruction("shared", bytes_=size * (2 if "2" in name.split("_b")[0] else 1))
    if name.startswith("scratch_"):
        return Instruction("scratch", bytes_=size)
    if name.startswith(("global_", "buffer_", "flat_")):
        return Instruction("global", bytes_=size)
    if name.startswith("s_"):
        return Instruction("scalar")
    fused = len(re.findall(r"v_(?:dual_)?fma(?:c|mk|ak|_f32|_mix)?\w*", text))
    if fused:
        return Instruction("fma", macs=fused * wave, lanes=wave)
    return Instruction("alu", lanes=wave)


def read_nak(lines, wave):
    """NVK. Blocks are printed with their labels; a branch names one."""
    for line in lines:
        label = re.match(r"block\S* \d+ (L\d+)", line)
        if label:
            yield label[1]
            continue
        text = line.split("//")[0].strip()
        if not text or text.startswith("}"):
            continue
        text = re.sub(r"^@!?u?p\d+\s+", "", text)
        text = text.split(" = ", 1)[1].strip() if " = " in text else text
        name = text.split()[0]
        uniform = re.match(r"(u[rp]\d+)", line.strip()) is not None
        yield read_nak_instruction(name, text, uniform, wave)


def read_nak_instruction(name, text, uniform, wave):
    width = re.search(r"\.b(\d+)", name)
    size = (int(width[1]) if width else 32) // 8 * wave
    if name == "bra":
        operands = text.split()[1:]
        return Instruction("branch", target=operands[-1], jumps=operands[0] == "pT")
    if name == "exit":
        return Instruction("branch", jumps=True)
    if name in ("bssy", "bsync", "bclear"):
        return Instruction("branch")
    if name.startswith("hmma"):
        m, n, k = map(int, re.search(r"m(\d+)n(\d+)k(\d+)", name).groups())
        return Instruction("matrix", macs=m * n * k)
    if name.startswith("ldsm"):
        parts = int(re.search(r"\.x(\d)", name)[1]) if ".x" in name else 1
        return Instruction("shared", bytes_=128 * parts)
    if name.startswith(("ld.shared", "st.shared")):
        return Instruction("shared", bytes_=size)
    if name.startswith(("ld.global", "st.global")):
        return Instruction("global", bytes_=size)
    if name.startswith(("ld.local", "st.local")):
        return Instruction("scratch", bytes_=size)
    if name.startswith(("bar", "membar", "nop", "depbar", "warpsync")):
        return Instruction("wait")
    if name.startswith("ffma"):
        return Instruction("fma", macs=wave, lanes=wave)
    return Instruction("scalar" if uniform else "alu", lanes=wave)


def read_gen(lines, wave):
    """ANV. Structured: only `while` jumps back, and lanes that leave early are masked."""
    for line in lines:
        label = re.match(r"(L\d+):", line)
        if label:
            yield label[1]
            continue
        text = re.sub(r"^\s*\((?:W|~?W?&?~?f\d\.\d\S*|W&\S+)\)\s*", "", line).strip()
        match = re.match(r"([a-z]\S*)\s+(?:\((\d+)(?:\|M\d+)?\))?(.*)", text)
        if not match:
            continue
        yield read_gen_instruction(match[1], int(match[2] or 1), match[3], line)


def read_gen_instruction(name, lanes, rest, line):
    if name == "while":
        return Instruction("branch", target=re.search(r"(L\d+)", rest)[1])
    if name in ("if", "else", "endif", "break", "continue", "halt", "jmpi"):
        return Instruction("branch")
    if name.startswith("dpas"):
        depth, repeat = map(int, re.search(r"dpas\.(\d)x(\d)", name).groups())
        return Instruction("matrix", macs=depth * repeat * lanes * 2)
    if name.startswith("sync") or name.startswith("nop") or "gtwy" in name:
        return Instruction("wait")
    if name.startswith("send"):
        width = re.search(r"\.d(\d+)(?:u\d+)?(?:x(\d+))?", rest)
        # A transposed message ("x32t") is one lane's, of as many elements.
        size = lanes * (int(width[1]) // 8 * int(width[2] or 1) if width else 4)
        if "fence" in line:
            return Instruction("wait")
        if ".slm" in name:
            return Instruction("shared", bytes_=size)
        return Instruction("scratch" if ".ss[" in line else "global", bytes_=size)
    if name in ("mad", "mac") and ":f" in rest:
        return Instruction("fma", macs=lanes, lanes=lanes)
    return Instruction("alu", lanes=lanes)


def read_ir3(lines, wave):
    """Turnip. An instruction may be repeated: (rpt3) stands for four of them."""
    for line in lines:
        label = re.match(r"(l\d+):", line)
        if label:
            yield label[1]
            continue
        if not re.match(r"[a-z(]", line):
            continue
        repeat = re.search(r"\(rpt(\d)\)", line)
        text = re.sub(r"^(\([a-z]+\d*\)\s*)+", "", line).strip()
        if not text:
            continue
        count = int(repeat[1]) + 1 if repeat else 1
        yield read_ir3_instruction(text.split()[0], text, count, wave)


def read_ir3_instruction(name, text, count, wave):
    target = re.search(r"#(l\d+)", text)
    if target:
        return Instruction("branch", target=target[1], jumps=name == "jump")
    if name == "end":
        return Instruction("branch", jumps=True)
    if name.startswith("mad.f32"):
        return Instruction("fma", count, macs=count * wave, lanes=count * wave)
    if name.startswith(("ldl", "stl")):
        words = re.search(r", (\d+)$", text)
        return Instruction("shared", bytes_=4 * int(words[1] if words else 1) * wave)
    if name.startswith(("ldg", "stg", "isam", "ldib", "stib")):
        return Instruction("global", bytes_=4 * wave)
    if name.startswith(("ldp", "stp")):
        return Instruction("scratch", bytes_=4 * wave)
    if name.startswith(("nop", "bar", "fence")):
        return Instruction("wait", count)
    return Instruction("alu", count, lanes=count * wave)


READERS = {"aco": read_aco, "nak": read_nak, "gen": read_gen, "ir3": read_ir3}
TITLES = {"aco": "Assembly", "nak": "NAK assembly", "gen": "GEN Assembly", "ir3": "IR3 Assembly"}

# ---- loops ----------------------------------------------------------------------------------------


class Block:
    def __init__(self):
        self.code = []
        self.next = []


def make_blocks(items):
    """Basic blocks, with the numbers of those that may come after each."""
    blocks, place = [Block()], {}
    for item in items:
        last = blocks[-1].code[-1] if blocks[-1].code else None
        if isinstance(item, str):
            if blocks[-1].code:
                blocks.append(Block())
            place[item] = len(blocks) - 1
            continue
        if last and (last.target or last.jumps):
            blocks.append(Block())
        blocks[-1].code.append(item)
    for i, block in enumerate(blocks):
        last = block.code[-1] if block.code else None
        if last and last.target in place:
            block.next.append(place[last.target])
        if i + 1 < len(blocks) and not (last and last.jumps):
            block.next.append(i + 1)
    return blocks


def find_loops(blocks):
    """Natural loops, by the jumps to a block at or before their own: sets of blocks."""
    before = [[] for _ in blocks]
    for i, block in enumerate(blocks):
        for after in block.next:
            before[after].append(i)
    loops = {}
    for end, block in enumerate(blocks):
        for head in block.next:
            if head > end:
                continue
            body, todo = {head, end}, [end] if end != head else []
            while todo:
                for i in before[todo.pop()]:
                    if i not in body:
                        body.add(i)
                        todo.append(i)
            loops.setdefault(head, set()).update(body)
    return list(loops.values())


def inner_loop(blocks):
    """The instructions of the smallest loop with the most matrix instructions, or multiply-adds."""
    best, best_key = [], (0, 0, 0)
    for loop in find_loops(blocks):
        code = [i for b in sorted(loop) for i in blocks[b].code]
        macs = {kind: sum(i.macs for i in code if i.kind == kind) for kind in ("matrix", "fma")}
        key = (macs["matrix"], macs["fma"] if not macs["matrix"] else 0, -len(code))
        if key > best_key:
            best, best_key = code, key
    return best


# ---- what a loop costs ----------------------------------------------------------------------------


def bound(gpu, code):
    """Percent of the peak of the unit that the loop's products run on, and the busiest pipe."""
    unit = "matrix" if any(i.kind == "matrix" for i in code) else "fma"
    matrix = sum(i.macs for i in code if i.kind == "matrix") / gpu.matrix if gpu.matrix else 0
    lanes = {k: sum(i.lanes for i in code if i.kind == k) / gpu.lanes for k in ("alu", "fma")}
    vector = lanes["alu"] + lanes["fma"]
    shared = sum(i.bytes for i in code if i.kind == "shared")
    memory = sum(i.bytes for i in code if i.kind in ("global", "scratch"))
    pipes = {
        "matrix": matrix + (vector if gpu.alu_blocks_matrix else 0),
        "vector": vector,
        "shared": (shared + (0 if gpu.cache else memory)) / gpu.shared,
        "memory": memory / (gpu.cache or gpu.shared),
        "issue": sum(i.count for i in code) * gpu.issue,
    }
    useful = matrix if unit == "matrix" else lanes["fma"]
    if unit == "fma":
        del pipes["matrix"]
    busiest = max(pipes, key=pipes.get)
    if not pipes[busiest]:
        return 0.0, "-"
    return 100 * useful / pipes[busiest], busiest


STATISTICS = {
    "registers": ("VGPRs", "Number of GPRs", "Max live registers", "Registers used"),
    "spills": ("Spilled VGPRs", "Spills to memory", "Spill Count", "Spills", "STP Count"),
    "scratch_bytes": ("Scratch size", "SLM size", "Scratch Memory Size"),
    "occupancy": ("Subgroups per SIMD", "Max warps/SM", "Max Waves Per Core"),
}


def read_file(gpu, path):
    header, statistics, texts, title = {}, {}, {}, None
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            entry = re.match(r"# (statistic )?([^:]+): (.*)", line) if title is None else None
            if entry:
                (statistics if entry[1] else header)[entry[2]] = entry[3]
            elif line.startswith("=== "):
                title = line[4:].strip()
                texts[title] = []
            elif title:
                texts[title].append(line)
    wave = int(statistics.get("Subgroup size", 0)) or 32
    lines = texts.get(TITLES[gpu.reader], [])
    code = inner_loop(make_blocks(READERS[gpu.reader](lines, wave)))
    row = {"shader": header.get("shader", path), "launch": header.get("launch", path)}
    row.update({kind: sum(i.count for i in code if i.kind == kind) for kind in KINDS})
    row["total"] = sum(i.count for i in code)
    macs = sum(i.macs for i in code if i.kind == ("matrix" if row["matrix"] else "fma"))
    row["macs"] = macs
    row["macs_per_instruction"] = macs / row["total"] if code else 0
    row["share"] = 100 * (row["matrix"] or row["fma"]) / row["total"] if code else 0
    row["bound"], row["busiest"] = bound(gpu, code)
    for key, names in STATISTICS.items():
        row[key] = next((int(statistics[n]) for n in names if n in statistics), -1)
    return row


def main(arguments):
    as_json = arguments[:1] == ["--json"]
    arguments = arguments[as_json:]
    if len(arguments) < 2 or arguments[0] not in GPUS:
        sys.exit(__doc__)
    rows = [read_file(GPUS[arguments[0]], path) for path in sorted(arguments[1:])]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print("| product | units | shared | global | scratch | other | all | share | MACs each | bound % | by |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        other = sum(row[kind] for kind in ("alu", "scalar", "wait", "branch"))
        if row["matrix"]:
            other += row["fma"]
        print(
            f"| {row['launch']} | {row['matrix'] or row['fma']} | {row['shared']} | {row['global']} "
            f"| {row['scratch']} | {other} | {row['total']} | {row['share']:.0f} % "
            f"| {row['macs_per_instruction']:.0f} | {row['bound']:.0f} | {row['busiest']} |"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
