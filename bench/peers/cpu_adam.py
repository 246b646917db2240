#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""AdamW in memory of the host: ringforge, DeepSpeed's CPU Adam and PyTorch's fused AdamW.

    ninja -C build src/libringforge.so
    python3 -m venv ../peers && ../peers/bin/pip install torch deepspeed ninja
    ../peers/bin/python bench/peers/cpu_adam.py [--elements 1e6,1e7,1e8] [--threads 1,2] [--samples 15]

DeepSpeed compiles its part at the first start (a C++ compiler is needed). All work on the same
arrays, in turns within each sample, in an order that alternates. Each turn is one untimed update
and then a batch of at least 5 ms. On one thread the time is the processor's, which others on the
machine disturb less; on several it is the clock's. Printed are the best times, and the peer's time
over ringforge's: of the best, and the median over samples (quartiles). Above 1, ringforge is faster.
The last column is what the bytes of a parameter take at least, over ringforge's time (best): by an
addition to 256 MiB in place, on as many threads, which reads and writes memory and hardly computes.

Forms: f32, everything in f32. copy, f32 and the new parameters in bf16, too; grad, bf16 gradients and
that copy: DeepSpeed and PyTorch convert by a pass of their own. bf16, parameters and gradients in
bf16 and states in f32: not by PyTorch, which wants all in one type.
"""
import argparse
import ctypes as c
import statistics
import time
from pathlib import Path

import torch
from deepspeed.ops.op_builder import CPUAdamBuilder

LR, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.1
F32, BF16, ADAMW = 0, 3, 0
MOVED = 64 << 20  # floats of the addition in place


class Options(c.Structure):  # rf_optimizer_opts
    _fields_ = [("kind", c.c_int), ("beta1", c.c_float), ("beta2", c.c_float), ("eps", c.c_float),
                ("weight_decay", c.c_float), ("momentum", c.c_float), ("dampening", c.c_float),
                ("flags", c.c_bool * 4)]


class Part(c.Structure):  # rf_host_part
    _fields_ = [("count", c.c_int64), ("first", c.c_uint64), ("param", c.c_void_p),
                ("grad", c.c_void_p), ("state", c.c_void_p * 3), ("copy", c.c_void_p),
                ("decay", c.c_void_p), ("param_type", c.c_int), ("grad_type", c.c_int),
                ("copy_type", c.c_int)]


class Scalars(c.Structure):  # rf_step_scalars
    _fields_ = [("lr", c.c_float), ("inv_tokens", c.c_float), ("clip", c.c_float),
                ("step", c.c_float), ("seed", c.c_uint32 * 2), ("loss_scale", c.c_float),
                ("good_steps", c.c_uint32), ("updates", c.c_uint32), ("skipped", c.c_uint32),
                ("norm", c.c_float), ("factor", c.c_float), ("bias1", c.c_float),
                ("bias2", c.c_float), ("prescale", c.c_float), ("reserved", c.c_uint32)]


def load(path):
    library = c.CDLL(str(path))
    library.rf_status_text.restype = c.c_char_p
    return library


class Work:
    """The arrays, and each contestant's update of them."""

    def __init__(self, library, deepspeed, form, count, step, threads):
        torch.set_num_threads(threads)  # those of DeepSpeed, too
        self.library, self.deepspeed, self.form, self.step = library, deepspeed, form, step
        self.threads = threads
        own = torch.bfloat16 if form == "bf16" else torch.float32
        half = torch.bfloat16 if form in ("grad", "bf16") else torch.float32
        self.param = torch.empty(count, dtype=own).uniform_(-1, 1)
        self.grad = torch.empty(count, dtype=half).uniform_(-1, 1)
        self.m = torch.empty(count).uniform_(-0.1, 0.1)
        self.v = torch.empty(count).uniform_(0.1, 1)
        self.copy = torch.zeros(count, dtype=torch.bfloat16) if form in ("copy", "grad") else None
        self.wide = torch.zeros(count) if form == "grad" else self.grad  # of the peers
        self.decay = torch.ones((count + 63) // 64, dtype=torch.int32)
        self.moved = torch.ones(MOVED)
        self.tensor_step = torch.tensor(float(step))
        self.options = Options(ADAMW, BETA1, BETA2, EPS, DECAY)
        self.scalars = Scalars(lr=LR, inv_tokens=1, updates=step - 1)
        self.check(library.rf_host_step_begin(c.byref(self.options), c.byref(self.scalars), c.c_float(1)))
        kind = {torch.float32: F32, torch.bfloat16: BF16}
        self.part = Part(count, 0, self.param.data_ptr(), self.grad.data_ptr(),
                         (c.c_void_p * 3)(self.m.data_ptr(), self.v.data_ptr(), None),
                         None if self.copy is None else self.copy.data_ptr(),
                         self.decay.data_ptr(), kind[own], kind[half], BF16)

    def check(self, rc):
        if rc < 0:
            raise SystemExit(self.library.rf_status_text(rc).decode())

    def bytes(self):
        """Of a parameter: read and written, by one pass."""
        return {"f32": 28, "copy": 30, "grad": 28, "bf16": 22}[self.form]

    def ringforge(self):
        self.check(self.library.rf_host_step_threads(c.byref(self.options), c.byref(self.part),
                                                     c.byref(self.scalars), self.threads))

    def peer(self, update):
        if self.wide is not self.grad:
            self.wide.copy_(self.grad)
        update()
        if self.copy is not None:
            self.copy.copy_(self.param)

    def deepspeed_(self):
        self.peer(lambda: self.deepspeed.adam_update(0, self.step, LR, BETA1, BETA2, EPS, DECAY, True,
                                                     self.param, self.wide, self.m, self.v))

    def torch_(self):
        self.peer(lambda: torch._fused_adamw_(
            [self.param], [self.wide], [self.m], [self.v], [], [self.tensor_step], lr=LR,
            beta1=BETA1, beta2=BETA2, weight_decay=DECAY, eps=EPS, amsgrad=False, maximize=False))

    def move(self):
        self.moved.add_(1)

    def contestants(self):
        names = ["ringforge", "deepspeed", "torch", "move"]
        calls = [self.ringforge, self.deepspeed_, self.torch_, self.move]
        return {n: f for n, f in zip(names, calls) if not (n == "torch" and self.form == "bf16")}

    def agree(self):
        """All make the same of the same parameters, up to rounding."""
        arrays = [a for a in (self.param, self.m, self.v, self.copy) if a is not None]
        before, after = [a.clone() for a in arrays], None
        for name, update in self.contestants().items():
            if name == "move":
                continue
            for a, b in zip(arrays, before):
                a.copy_(b)
            update()
            after = after or [a.clone() for a in arrays]
            for a, b in zip(arrays, after):
                near = 1e-2 if a.dtype == torch.bfloat16 else 1e-5
                torch.testing.assert_close(a, b, rtol=near, atol=1e-6, msg=lambda s: f"{name}: {s}")


def seconds(update, clock, least=0.005):
    """Of one of a batch of updates, after an untimed one."""
    update()
    start, calls = clock(), 0
    while calls == 0 or clock() - start < least:
        update()
        calls += 1
    return (clock() - start) / calls


def compare(work, samples):
    contestants = work.contestants()
    clock = time.thread_time if work.threads == 1 else time.perf_counter
    times = {name: [] for name in contestants}
    for sample in range(samples):
        names = list(contestants)
        for name in names if sample % 2 == 0 else reversed(names):
            times[name].append(seconds(contestants[name], clock))
    return times


def report(work, count, times):
    own = times["ringforge"]
    floor = min(times.pop("move")) * work.bytes() * count / (8 * MOVED)
    line = f"{work.form:5} {count:>10.0f} {work.threads:>7} {min(own) * 1e9 / count:>9.3f}"
    for name in ("deepspeed", "torch"):
        if name not in times:
            line += f" {'-':>9} {'-':>6} {'':>17}"
            continue
        ratios = sorted(t / o for t, o in zip(times[name], own))
        quarter = len(ratios) // 4
        line += f" {min(times[name]) * 1e9 / count:>9.3f} {min(times[name]) / min(own):>6.2f}"
        line += f" {statistics.median(ratios):>5.2f} ({ratios[quarter]:.2f}, {ratios[-1 - quarter]:.2f})"
    print(f"{line} {floor / min(own):>6.2f}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description="AdamW on the host beside others'.")
    arguments.add_argument("--library", default=Path(__file__).parents[2] / "build/src/libringforge.so")
    arguments.add_argument("--elements", default="1e6,1e7,1e8")
    arguments.add_argument("--threads", default="1,2")
    arguments.add_argument("--forms", default="f32,copy,grad,bf16")
    arguments.add_argument("--samples", type=int, default=15)
    arguments.add_argument("--step", type=int, default=1000, help="of the update: bias corrections")
    o = arguments.parse_args()
    library, deepspeed = load(o.library), CPUAdamBuilder().load()
    deepspeed.create_adam(0, LR, BETA1, BETA2, EPS, DECAY, True, False)
    print(f"# torch {torch.__version__}; best ns a parameter; theirs over ringforge's: best, median (quartiles)")
    print(f"{'form':5} {'parameters':>10} {'threads':>7} {'ringforge':>9} {'deepspeed':>9} {'':>24} "
          f"{'torch':>9} {'':>24} {'bytes':>6}")
    for form in o.forms.split(","):
        for count in (int(float(n)) for n in o.elements.split(",")):
            for threads in (int(t) for t in o.threads.split(",")):
                work = Work(library, deepspeed, form, count, o.step, threads)
                work.agree()
                report(work, count, compare(work, o.samples))


if __name__ == "__main__":
    main()
