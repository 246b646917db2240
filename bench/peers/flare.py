#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Federated averaging: ringforge beside NVIDIA FLARE, two clients on this host.

    ./forge build
    python3 -m venv ../peers && ../peers/bin/pip install nvflare==2.9.0 torch
    ../peers/bin/python bench/peers/flare.py [--build build] [--rounds 10] [--secure]

First both train one linear model on the same two partitions (30 and 50 points, 5 local steps of SGD), and
the losses of the global model are compared; then both send 1,000,000 parameters (4 MB) in each round, and a
round's median time is printed. FLARE runs in its simulator, each client in a process of its own; its clients ask for
work every 0.05 s instead of every 0.5 s. Exit status 1: the losses differ by more than 1e-4.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

NET = """
import math, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(%d, %d, bias=%s)
        with torch.no_grad():
            for p in self.l.parameters():
                p.zero_()
    def forward(self, x):
        return self.l(x)
def part(k):
    xs = [[math.sin(1.3 * k + 0.37 * i + 0.9 * j) for j in range(8)] for i in range([30, 50][k])]
    ys = [[sum((j + 1) * 0.1 * x[j] for j in range(8)) + 0.5 + 0.2 * k] for x in xs]
    return torch.tensor(xs, dtype=torch.float32), torch.tensor(ys, dtype=torch.float32)
"""
CLIENT = """
import sys, time
sys.path.insert(0, %r)
import torch, nvflare.client as flare
from net import Net, part
flare.init()
k = int(flare.get_site_name()[-1]) - 1
x, y = part(k)
xs, ys = zip(part(0), part(1))
all_x, all_y = torch.cat(xs), torch.cat(ys)
while flare.is_running():
    m = flare.receive()
    if m is None:
        break
    params = {name: torch.as_tensor(value) for name, value in m.params.items()}
    loss = 0
    if %r:
        net = Net()
        net.load_state_dict(params)
        loss = ((net(all_x) - all_y) ** 2).mean().item()
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        for _ in range(5):
            opt.zero_grad()
            ((net(x) - y) ** 2).mean().backward()
            opt.step()
        params = net.state_dict()
    if k == 0:
        with open(%r, "a") as log:
            log.write(f"{m.current_round} {loss:.8f} {time.time()}\\n")
    flare.send(flare.FLModel(params=params, meta={"NUM_STEPS_CURRENT_ROUND": len(x)}))
"""
JOB = """
import sys
sys.path.insert(0, %r)
from net import Net
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv
recipe = FedAvgRecipe(name="job", model=Net(), min_clients=2, num_rounds=%d, train_script="client.py")
recipe.execute(SimEnv(num_clients=2, num_threads=2, workspace_root=%r),
               server_exec_params={"server": {"task_request_interval": 0.05}})
"""


def run_flare(trains, rounds):
    """(loss, time of arrival) of each round's parameters at the first client."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        shape = (8, 1, True) if trains else (1000, 1000, False)
        Path(folder, "net.py").write_text(NET % shape)
        Path(folder, "client.py").write_text(CLIENT % (folder, trains, log))
        Path(folder, "job.py").write_text(JOB % (folder, rounds, os.path.join(folder, "work")))
        job = subprocess.run([sys.executable, "job.py"], cwd=folder, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, timeout=1200)
        if not os.path.exists(log):
            sys.exit("NVFLARE has not trained:\n" + job.stdout[-2000:])
        return [tuple(map(float, line.split()[1:])) for line in open(log)]


def run_ringforge(program, *words):
    command = [program, *map(str, words)]
    out = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True, timeout=600)
    return [float(line.split()[1]) for line in out.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--secure", action="store_true", help="also ringforge with secure aggregation")
    args = parser.parse_args()
    program = os.path.join(args.build, "bench/federated_rounds")
    ours = run_ringforge(program, "curve", args.rounds)
    theirs = [loss for loss, _ in run_flare(True, args.rounds)]
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    for number, (a, b) in enumerate(zip(ours, theirs)):
        print(f"round {number}: loss {a:.8f} ringforge, {b:.8f} FLARE")
    print(f"largest difference of {len(theirs)} losses {worst:.2e}")
    times = [time for _, time in run_flare(False, args.rounds)]
    peer = statistics.median(b - a for a, b in zip(times, times[1:]))
    for threshold in [0, 2] if args.secure else [0]:
        own = statistics.median(run_ringforge(program, "times", args.rounds, 1000000, threshold)) / 1000
        print(f"a round of 4 MB: {own:.3f} s ringforge{', secure' if threshold else ''}, {peer:.3f} s FLARE: "
              f"{peer / own:.1f} times")
    return worst > 1e-4 or len(theirs) < args.rounds


if __name__ == "__main__":
    sys.exit(main())
