#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/peers/collectives.py with peers that are scripts, or absent. Only the first group of runs begins in time.

    collectives_test.py SCRIPT PROGRAM
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

SCRIPT, PROGRAM = sys.argv[1:3]


class Peers(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)

    def script(self, name, text=""):
        (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / name).chmod(0o755)

    def run_script(self, *more, status=0):
        done = subprocess.run([sys.executable, "-B", SCRIPT, "--program", PROGRAM, "--peers", self.folder, "--quick",
                               "-e", "4", "--minutes", "0.0001", "--json", self.folder / "rows.json", *more],
                              env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"},
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        if status == 0:
            self.rows = json.loads((self.folder / "rows.json").read_text())
        return done

    def test_the_best_of_those_that_are_there_is_named_with_its_ratio(self):
        self.script("openmpi")
        self.script("mpich")
        self.script("mpirun.openmpi", "echo 4 12.5 0 1.5 2.5")
        # If input is written anew for one side, it is for all.
        self.script("mpirun.mpich", 'eval "last=\\${$#}"; [ "$last" = rewrite ] && echo 4 99 0')
        done = self.run_script("--rewrite", "--plot", self.folder / "times.svg")
        self.assertIn("libgloo-dev", done.stderr)
        self.assertIn("4 of ", done.stdout)
        self.assertIn("library: of 1 ratios ", done.stdout)
        self.assertTrue(self.rows["rewritten"])
        row = self.rows["rows"][0]
        self.assertEqual((row["time_us"]["openmpi"], row["time_us"]["mpich"]), (12.5, 99))
        self.assertGreater(row["time_us"]["own"], 0)
        self.assertEqual((row["best_peer"], row["cores"], row["turns"]), ("openmpi", "all", 1))
        self.assertAlmostEqual(row["ratio"], 12.5 / row["time_us"]["library"])
        if os.access(Path(PROGRAM).parent / "bench/core_distance", os.X_OK) and len(os.sched_getaffinity(0)) > 1:
            self.assertGreater(self.rows["line_ns_near"], 0)
        ElementTree.parse(self.folder / "times.svg")

    def test_one_network_and_one_number_of_ranks_can_be_measured_alone(self):
        done = self.run_script("--provider", "shm", "--ranks", "3")
        self.assertIn("2 of 16 runs", done.stdout)
        self.assertIn("all_reduce, host, 3 ranks", done.stdout)
        self.assertNotIn("tcp", done.stdout)
        self.assertEqual(self.rows["runs"], 2)
        self.run_script("--ranks", "5", status=2)
        self.run_script("--provider", "loopback", status=2)

    def test_one_that_fails_is_reported_and_the_others_run(self):
        self.script("openmpi")
        self.script("mpirun.openmpi", "echo no network; exit 1")
        done = self.run_script()
        self.assertIn("openmpi ended early, after 0 of 1 sizes", done.stderr)
        self.assertGreater(self.rows["rows"][0]["time_us"]["library"], 0)
        self.assertIsNone(self.rows["rows"][0]["best_peer"])

    def test_wrong_elements_are_an_error(self):
        self.script("openmpi")
        self.script("mpirun.openmpi", "echo 4 12.5 3 1.5 2.5")
        self.assertIn("3 elements were wrong", self.run_script(status=1).stderr)

    def test_without_any_peer_it_says_what_to_install(self):
        done = self.run_script()
        for package in ("libopenmpi-dev", "libmpich-dev", "libgloo-dev"):
            self.assertIn(package, done.stderr)


unittest.main(argv=sys.argv[:1])
