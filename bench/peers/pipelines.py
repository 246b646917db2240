#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A training step's schedules: ringforge beside PyTorch (DDP, FSDP2, pipelining) on Gloo.

    ./forge build
    python3 -m venv ../peers && ../peers/bin/pip install torch numpy
    ../peers/bin/python bench/peers/pipelines.py [--ranks 4] [--turns 3] [--samples 2] [--times 100x100x100]

What layers compute is a time in which they wait, so ranks share two cores without being in each
other's way, and what is measured is the order of calls, messages, and what a framework does
around them. Both have the same blocks (two for each rank, 1 MiB of f32 parameters each), the same
micro-batches (two for each rank, 256 KiB between two blocks), SGD, and TCP on this host. The input
half of the first block's backward pass, which PyTorch would leave out, is waited for with its weight half.

Each turn is one run of `ringforge bench pipeline` and one of PyTorch, in an order that alternates;
in it the best of the samples counts. Printed are the medians of the turns, the median of the ratios
of single turns (above 1: ringforge is faster), and in brackets the least and the most of these.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCKS_OF_RANK, ROUNDS, TOKENS, CHANNELS, ELEMENTS = 2, 2, 64, 1024, 262144
# What bench pipeline calls it, what is nearest to it in PyTorch, and the stages of a rank there. naive
# is in ringforge alone. ScheduleInterleavedZeroBubble is ZB1P, with one stage of a rank what zbh1 is.
PEERS = [("data parallel", "DDP", 0), ("zero 3", "FSDP2", 0), ("gpipe", "ScheduleGPipe", 1),
         ("1f1b", "Schedule1F1B", 1), ("interleaved:2", "ScheduleInterleaved1F1B", 2),
         ("zbh1", "ScheduleInterleavedZeroBubble", 1), ("zbv", "ScheduleZBVZeroBubble", 2),
         ("zbv", "ScheduleInterleavedZeroBubble", 2)]

# ---- PyTorch: one rank ---------------------------------------------------------------------------
def blocks_of(torch, times):
    forward_s, input_s, weight_s = (t / BLOCKS_OF_RANK for t in times)

    class Weight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, weight, seconds):
            ctx.like, ctx.seconds = weight, seconds
            return weight.new_zeros(())

        @staticmethod
        def backward(ctx, grad):
            time.sleep(ctx.seconds)
            return torch.ones_like(ctx.like), None

    class Input(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            time.sleep(forward_s)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            time.sleep(input_s)
            return grad

    class Block(torch.nn.Module):
        def __init__(self, first):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(ELEMENTS))
            self.seconds = weight_s + (input_s if first else 0)

        def forward(self, x):
            side = Weight.apply(self.weight, self.seconds)  # first, so that backward comes to it last
            return Input.apply(x) + side

    return Block


def data_parallel(torch, name, Block, rank, ranks):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel
    model = torch.nn.Sequential(*[Block(b == 0) for b in range(BLOCKS_OF_RANK * ranks)])
    if name == "FSDP2":
        for block in model:
            fully_shard(block)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    x = torch.zeros(TOKENS, CHANNELS)

    def micro_batches():
        for k in range(ROUNDS):
            if name == "DDP" and k + 1 < ROUNDS:
                with model.no_sync():
                    model(x).mean().backward()
            else:
                model(x).mean().backward()
    return micro_batches, list(model.parameters())


def pipeline(torch, name, chunks, Block, rank, ranks):
    from torch.distributed import pipelining
    from torch.distributed.pipelining import schedules
    kind = getattr(schedules, name)
    single = issubclass(kind, schedules.PipelineScheduleSingle)
    stages = chunks * ranks
    mine = [rank, 2 * ranks - 1 - rank if "ZBV" in name else ranks + rank][:chunks]
    of_stage = BLOCKS_OF_RANK * ranks // stages
    example = torch.zeros(TOKENS, CHANNELS)
    made, parameters = [], []
    for stage in mine:
        part = torch.nn.Sequential(*[Block(stage == 0 and b == 0) for b in range(of_stage)])
        parameters += part.parameters()
        made.append(pipelining.PipelineStage(part, stage, stages, torch.device("cpu"),
                                             input_args=(example.requires_grad_(stage > 0),)))
    schedule = kind(made[0] if single else made, ROUNDS * ranks, loss_fn=lambda y, _: y.mean())
    x = torch.zeros(ROUNDS * ranks * TOKENS, CHANNELS)

    def micro_batches():
        last = any(s.is_last for s in made)
        schedule.step(*([x] if rank == 0 else []), **({"target": x} if last else {}))
    return micro_batches, parameters


def be_a_rank(options):
    import torch
    import torch.distributed as dist
    rank, ranks = int(os.environ["RANK"]), options.ranks
    torch.set_num_threads(1)
    Block = blocks_of(torch, options.seconds)
    for row, name, chunks in PEERS:
        if options.only and row not in options.only:
            continue
        store = "file://" + os.path.join(options.folder, f"{name}{chunks}")
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
        micro_batches, parameters = (pipeline(torch, name, chunks, Block, rank, ranks) if chunks
                                     else data_parallel(torch, name, Block, rank, ranks))
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        best = float("inf")
        for sample in range(-1, options.samples):
            dist.barrier()
            start = time.monotonic()
            micro_batches()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            slowest = torch.tensor([time.monotonic() - start])
            dist.all_reduce(slowest, dist.ReduceOp.MAX)  # as ringforge, whose steps end together
            if sample >= 0:
                best = min(best, slowest.item())
        dist.barrier()
        dist.destroy_process_group()
        if rank == 0:
            print(json.dumps({"row": row, "peer": f"{name}, {chunks}" if chunks else name,
                              "ms": best * 1e3, "torch": torch.__version__}), flush=True)


# ---- turns ---------------------------------------------------------------------------------------
def run_torch(options):
    with tempfile.TemporaryDirectory() as folder:
        again = [sys.executable, __file__, *sys.argv[1:], "--folder", folder]
        ranks = [subprocess.Popen(again, env={**os.environ, "RANK": str(r)}, text=True,
                                  stdout=subprocess.PIPE if r == 0 else None)
                 for r in range(options.ranks)]
        try:
            out, _ = ranks[0].communicate(timeout=600)
            for other in ranks:
                if other.wait(timeout=60) != 0:
                    sys.exit("pipelines.py: a rank of PyTorch failed")
        finally:
            for other in ranks:
                other.kill()
    rows = [json.loads(line) for line in out.splitlines()]
    return {(r["row"], r["peer"]): r["ms"] for r in rows}, rows[0]["torch"]


def run_ringforge(options):
    build = Path(os.environ.get("BUILD", Path(__file__).parents[2] / "build"))
    out = subprocess.run([build / "ringforge", "bench", "pipeline", "--ranks", str(options.ranks),
                          "--provider", "tcp", "-n", str(options.samples), "--times", options.times,
                          "--json", "-"], check=True, text=True, stdout=subprocess.PIPE, timeout=600).stdout
    return {r["setting"]: r for r in json.loads(out)["rows"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--times", default="100x100x100")
    parser.add_argument("--only", action="append", help="a row; may be repeated")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.seconds = [float(t) * 1e-3 for t in options.times.split("x")]
    if options.folder:
        return be_a_rank(options)
    ours, theirs = [], []
    for turn in range(options.turns):
        for side in ((0, 1) if turn % 2 == 0 else (1, 0)):
            if side == 0:
                ours.append(run_ringforge(options))
            else:
                rows, version = run_torch(options)
                theirs.append(rows)
    print(f"# {options.ranks} ranks, {options.times} ms, PyTorch {version}, {options.turns} turns")
    print("| | formula | ringforge | PyTorch | which | ratio |\n|---|---|---|---|---|---|")
    for row, which in theirs[0]:
        steps, peers = [t[row]["step_ms"] for t in ours], [t[row, which] for t in theirs]
        ratios = [b / a for a, b in zip(steps, peers)]
        formula = ours[0][row]["computed_step_ms"]
        print(f"| {row} | {formula or float('nan'):.0f} | {statistics.median(steps):.1f} | "
              f"{statistics.median(peers):.1f} | {which} | {statistics.median(ratios):.3f} "
              f"({min(ratios):.3f}, {max(ratios):.3f}) |")


if __name__ == "__main__":
    main()
