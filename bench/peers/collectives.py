#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Collectives of ringforge beside those of Open MPI, MPICH and Gloo, in turns.

    ./forge build && bench/peers/build.sh
    bench/peers/collectives.py [--ranks N] [--provider shm|tcp] [-e BYTES] [--quick | --minutes N]
                               [--rewrite] [--json FILE] [--plot FILE.svg]

Eight operations on 2, 3 and 4 ranks, over TCP and within the host, f32. Sides: the library on its own
buffers ("library") and on the caller's memory ("own"), and each peer whose program is there. Each side
runs one after the other, the whole several times; figures are medians.
"""
import argparse
import bisect
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all"]
NETWORKS = {"tcp": "tcp", "host": "shm"}  # what it is called here, and the provider
SIDES = {"library": None, "own": None, "openmpi": "libopenmpi-dev", "mpich": "libmpich-dev", "gloo": "libgloo-dev"}
OWN_SIDES = ("library", "own")
RUN_SECONDS = 120
APART = 1.8  # two states of the cores differ by more than the samples of one


# ---- the state of the machine --------------------------------------------------------------------

class Cores:
    """Samples of the way between two cores, by bench/core_distance; none if that is not there."""

    def __init__(self, program):
        self.at, self.ns, self.limit, self.medians = [], [], None, [None, None]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=self.log) \
            if os.access(program, os.X_OK) else None

    def end(self):
        if not self.process:
            return
        self.process.stdin.close()
        self.process.wait()
        self.log.seek(0)
        for line in self.log:
            at, ns = line.split()
            self.at.append(float(at))
            self.ns.append(float(ns))
        if self.ns:
            self.divide(sorted(self.ns))

    def divide(self, ns):
        """The widest gap between neighbours, between the 2nd and the 98th of a hundred samples."""
        count = len(ns)
        inner = range(count // 50 + 1, count - count // 50)
        first = max(inner, key=lambda i: ns[i] / ns[i - 1], default=0)
        self.medians[0] = ns[count // 2]
        if first == 0 or ns[(first + count) // 2] < APART * ns[first // 2]:
            return
        self.limit = (ns[first] + ns[first - 1]) / 2
        self.medians = [ns[first // 2], ns[(first + count) // 2]]

    def states(self):
        return ["all", "near", "distant"] if self.limit else ["all"]

    def between(self, began, ended):
        """"near" or "distant" if it was so all the time, from the last sample before to the first one after."""
        if not self.limit or not 0 < began <= ended:
            return None
        first, last = bisect.bisect(self.at, began) - 1, bisect.bisect(self.at, ended)
        seen = {ns > self.limit for ns in self.ns[max(first, 0):last + 1]}
        return {(False,): "near", (True,): "distant"}.get(tuple(seen))


# ---- running -------------------------------------------------------------------------------------

def commands_of(o, op, network, ranks, side, store):
    """What runs one side, and what is in its environment besides."""
    sizes = [str(n) for n in (o.sizes[0], o.sizes[-1], o.factor, o.samples)]
    if side in OWN_SIDES:
        return [o.program, "bench", op, "--ranks", str(ranks), "--provider", NETWORKS[network], "-b", sizes[0],
                "-e", sizes[1], "-f", sizes[2], "-n", sizes[3], "--in-place", "0", "--one-clock", "--json", "-",
                *(["--private-buffers"] if side == "own" else []), *(["--rewrite"] if o.rewrite else [])], {}
    peer = [str(o.peers / side), op, *sizes, *(["rewrite"] if o.rewrite else [])]
    tcp = network == "tcp"
    if side == "gloo":
        return [o.program, "run", "--ranks", str(ranks), "--", *peer], {"PEER_STORE": store}
    if side == "openmpi":
        return ["mpirun.openmpi", "--oversubscribe", *(["--mca", "btl", "tcp,self"] if tcp else []), "-n",
                str(ranks), *peer], {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return ["mpirun.mpich", "-n", str(ranks), *peer], {"UCX_TLS": "tcp,self"} if tcp else {}


def run(command, extra):
    """Standard output, and whether it ended well. On time-out everything that it started ends."""
    try:
        done = subprocess.run(["timeout", "-k", "2", str(RUN_SECONDS), *command], env={**os.environ, **extra},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except OSError as error:
        return str(error), False
    return done.stdout, done.returncode == 0


def rows_of(text, own):
    """(microseconds, wrong elements, began, ended) of each size."""
    if own:
        try:
            rows = json.loads(text[text.index("{"):text.rindex("}") + 1])["rows"]
        except ValueError:
            return []
        return [(r["time_us"], r["wrong"] or 0, r["began_s"], r["ended_s"]) for r in rows]
    rows = []
    for line in text.splitlines():
        words = re.sub(r"^\[\d+\] ", "", line).split()
        try:
            _, us, wrong, *when = map(float, words)
        except ValueError:
            continue
        rows.append((us, wrong, *(when if len(when) == 2 else (0, 0))))
    return rows


def near_us(o):
    """4 bytes between two ranks of the host."""
    text, _ = run([o.program, "bench", "all_reduce", "--ranks", "2", "--provider", "shm", "-b", "4", "-e", "4",
                   "-n", "11", "--in-place", "0", "--json", "-"], {})
    rows = rows_of(text, True)
    return rows[0][0] if rows else None


class Measured:
    def __init__(self, o):
        self.turns = {}  # (op, network, ranks, side, size) -> [(us, began, ended)]
        self.runs = self.failed = self.wrong = 0
        groups = [(op, network, ranks) for op in OPS for network in NETWORKS for ranks in (2, 3, 4)
                  if o.ranks in (None, ranks) and o.provider in (None, NETWORKS[network])]
        self.plan = [[(*group, side) for side in o.present if self.can_run(*group, side)] for group in groups]
        self.planned = o.turns * sum(map(len, self.plan))

    @staticmethod
    def can_run(op, network, ranks, side):
        """Gloo is over TCP, and has no reduce-scatter of this kind."""
        return side != "gloo" or (network == "tcp" and op != "reduce_scatter")

    def run_all(self, o):
        start = time.monotonic()
        for _ in range(o.turns):
            for group in self.plan:
                if self.runs and o.minutes and time.monotonic() - start >= 60 * o.minutes:
                    return
                for what in group:
                    passed = f", {(time.monotonic() - start) / 60:.1f} of {o.minutes:g} minutes" if o.minutes \
                        else f" of {self.planned}"
                    print(f"\rrun {self.runs + 1}{passed}: {', '.join(map(str, what))}    ", end="", file=sys.stderr)
                    self.run_one(o, *what)

    def run_one(self, o, op, network, ranks, side):
        with tempfile.TemporaryDirectory() as store:
            command, extra = commands_of(o, op, network, ranks, side, store)
            text, good = run(command, extra)
        rows = rows_of(text, side in OWN_SIDES)
        self.runs += 1
        for size, (us, wrong, began, ended) in zip(o.sizes, rows):
            self.wrong += wrong
            if us > 0:
                self.turns.setdefault((op, network, ranks, side, size), []).append((us, began, ended))
        if not good or len(rows) < len(o.sizes):
            self.failed += 1
            variables = " ".join(f"{name}={value}" for name, value in extra.items())
            print(f"\n{side} ended early, after {len(rows)} of {len(o.sizes)} sizes; to see why: {variables} "
                  f"{' '.join(command)}", file=sys.stderr)

    def rows(self, o, cores):
        """Rows of the tables: medians of all turns, and of those during which the cores were in one state."""
        out = []
        for state in cores.states():
            for op, network, ranks in (group[0][:3] for group in self.plan):
                of_side = {(side, size): [us for us, began, ended in
                                          self.turns.get((op, network, ranks, side, size), [])
                                          if state == "all" or cores.between(began, ended) == state]
                           for side in SIDES for size in o.sizes}
                if any(of_side.values()):
                    out += [row_of(state, op, network, ranks, size, {s: of_side[s, size] for s in SIDES})
                            for size in o.sizes]
        return out


def row_of(state, op, network, ranks, size, turns):
    times = {side: statistics.median_low(us) if us else None for side, us in turns.items()}
    best = min((s for s in SIDES if s not in OWN_SIDES and times[s]), key=times.get, default=None)
    ratio = {s: times[best] / times[s] if best and times[s] else None for s in OWN_SIDES}
    counted = min(len(turns[s]) for s in (*OWN_SIDES, *([best] if best else [])))
    return {"cores": state, "op": op, "network": network, "ranks": ranks, "bytes": size, "time_us": times,
            "best_peer": best, "ratio": ratio["library"], "ratio_own": ratio["own"], "turns": counted}


# ---- printing ------------------------------------------------------------------------------------

def number(value):
    return f" {value:11.2f}" if value else f" {'-':>11}"


def print_all(o, measured, result):
    print(f"f32, microseconds, medians of up to {o.turns} turns; ratio: the best peer's time over that of this\n"
          "library on its buffers, and on the caller's memory; above 1 the library is faster")
    before, after = (f"{us:.2f} us" if us else "unknown" for us in (result["near_us_before"], result["near_us_after"]))
    print(f"machine: 4 bytes between two ranks of the host take {before} before, {after} after")
    near, distant = result["line_ns_near"], result["line_ns_distant"]
    if near:
        print(f"a cache line there and back between two cores took {near:.0f} ns" +
              (f", and {distant:.0f} ns with the cores far apart" if distant else ""))
    print(f"{measured.runs} of {measured.planned} runs, {measured.failed} of them failed")
    if o.rewrite:
        print("what a call reads is written anew before it")
    for side, key in (("library", "ratio"), ("own", "ratio_own")):
        ratios = [row[key] for row in result["rows"] if row["cores"] == "all" and row[key]]
        if ratios:
            print(f"{side}: of {len(ratios)} ratios " +
                  ", ".join(f"{sum(r >= least for r in ratios)} are {least} or more" for least in (0.9, 1.0, 1.5)))
    last = None
    for row in result["rows"]:
        head = row["cores"], row["op"], row["network"], row["ranks"]
        if head != last:
            print(f"\n{row['op']}, {row['network']}, {row['ranks']} ranks" +
                  ("" if row["cores"] == "all" else f", cores {row['cores']}"))
            print(f"{'bytes':>10}" + "".join(f" {side:>11}" for side in o.present) +
                  f" {'ratio':>11} {'ratio, own':>11} turns  best peer")
        last = head
        print(f"{row['bytes']:10}" + "".join(number(row["time_us"][side]) for side in o.present) +
              number(row["ratio"]) + number(row["ratio_own"]) + f" {row['turns']:5}  {row['best_peer'] or '-'}")


COLOURS = {"library": "#2a7de1", "own": "#7b4fc9", "openmpi": "#d9822b", "mpich": "#2f9e5b", "gloo": "#c23b6e"}


def draw(o, rows):
    """A panel for each operation and network, on the most ranks: time over size, both logarithmic."""
    ranks, most = max(row["ranks"] for row in rows), math.log(max(o.sizes[-1], 8) / 4)
    texts = [f'<text x="54" y="22">Time of collectives by size, {ranks} ranks, f32</text>']
    lines = [f'<text x="{80 + 130 * i}" y="44" fill="{COLOURS[s]}">{s}</text>' for i, s in enumerate(o.present)]
    for k, (network, op) in enumerate((network, op) for network in NETWORKS for op in OPS):
        left, top = 54 + 270 * (k % 4), 80 + 230 * (k // 4)
        texts.append(f'<text x="{left}" y="{top - 6}">{op}, {network}</text><text x="{left}" y="{top + 175}">4 B to '
                     f'{o.sizes[-1]} B</text>')
        for decade, name in enumerate(("0.1 us", "10 us", "1 ms", "0.1 s", "10 s")):
            y = top + 160 - 40 * decade
            lines.append(f'<path stroke="#8886" d="M{left} {y}h200"/>')
            texts.append(f'<text x="{left - 50}" y="{y + 4}">{name}</text>')
        panel = [r for r in rows if (r["cores"], r["op"], r["network"], r["ranks"]) == ("all", op, network, ranks)]
        for side in o.present:
            points = [f"{left + 200 * math.log(r['bytes'] / 4) / most:.1f} "
                      f"{top + 160 - 20 * (math.log10(r['time_us'][side]) + 1):.1f}" for r in panel if r["time_us"][side]]
            if points:
                lines.append(f'<path stroke="{COLOURS[side]}" stroke-width="2" d="M{" L".join(points)}"/>')
    Path(o.plot).write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1140 1000" font-family="sans-serif" '
                            'font-size="11"><rect width="1140" height="1000" fill="#fff"/><g fill="none">' +
                            "\n".join(lines) + "</g>\n" + "\n".join(texts) + "</svg>\n")


# ---- the whole -----------------------------------------------------------------------------------

def read_bytes(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text} is no size such as 64M")
    return int(match[1]) << " KMG".index(match[2] or " ") * 10


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=Path("build/ringforge"), help="the program ringforge")
    parser.add_argument("--peers", type=Path, help="folder of the programs by build.sh (peers, beside the program)")
    parser.add_argument("--ranks", type=int, choices=(2, 3, 4), help="number of ranks (each)")
    parser.add_argument("--provider", choices=("shm", "tcp"), help="network (both)")
    parser.add_argument("-e", "--maxbytes", type=read_bytes, default=64 << 20, help="largest size (64M)")
    parser.add_argument("--quick", action="store_true", help="five sizes, one turn")
    parser.add_argument("--minutes", type=float, help="as many turns as begin in that time (three turns)")
    parser.add_argument("--rewrite", action="store_true", help="input written anew before each call, untimed")
    parser.add_argument("--json", metavar="FILE", help="output file of the rows as JSON")
    parser.add_argument("--plot", metavar="FILE", help="picture of times by size (.svg)")
    o = parser.parse_args()
    if o.maxbytes < 4:
        parser.error("--maxbytes is at least 4")
    if o.plot and not o.plot.endswith(".svg"):
        parser.error("--plot draws SVG; use a file name that ends in .svg")
    if not os.access(o.program, os.X_OK):
        parser.error(f"there is no program {o.program}; build it by ./forge build")
    o.program, o.factor, o.samples = str(o.program.resolve()), (64 if o.quick else 4), (3 if o.quick else 7)
    o.turns = 1 if o.quick else 40 if o.minutes else 3
    o.sizes = [4]
    while o.sizes[-1] * o.factor <= o.maxbytes:
        o.sizes.append(o.sizes[-1] * o.factor)
    o.peers = (o.peers or Path(o.program).parent / "peers").resolve()
    o.present = [s for s in SIDES if s in OWN_SIDES or os.access(o.peers / s, os.X_OK)]
    for side in (s for s in SIDES if s not in o.present):
        print(f"{side} is left out: there is no {o.peers / side}; install {SIDES[side]}, then run "
              "bench/peers/build.sh", file=sys.stderr)
    return o


def main():
    o = options()
    measured = Measured(o)
    result = {"dtype": "f32", "rewritten": o.rewrite, "turns": o.turns, "samples": o.samples,
              "near_us_before": near_us(o)}
    cores = Cores(Path(o.program).parent / "bench" / "core_distance")
    measured.run_all(o)
    cores.end()
    print(f"\r{'':70}\r", end="", file=sys.stderr)
    result |= {"near_us_after": near_us(o), "line_ns_near": cores.medians[0], "line_ns_distant": cores.medians[1],
               "runs": measured.runs, "runs_planned": measured.planned, "runs_failed": measured.failed,
               "wrong": measured.wrong, "rows": measured.rows(o, cores)}
    print_all(o, measured, result)
    if o.json:
        Path(o.json).write_text(json.dumps(result, indent=1) + "\n")
    if o.plot and result["rows"]:
        draw(o, result["rows"])
    if measured.wrong:
        sys.exit(f"{measured.wrong:.0f} elements were wrong")


if __name__ == "__main__":
    main()
