#!/bin/sh
# SPDX-License-Identifier: MIT
#
# opacus 1.6.0: the RDP accountant looks at orders up to 63 only. With much noise and few steps the best order is
# higher, and its epsilon is then many times that of dp-accounting 0.6.0, whose orders go up to 1024: 0.103 beside
# 0.0087 for noise 50, sampling rate 0.05, 10 steps, delta 1e-5. Where the best order is low the two agree.
#
# Expected before it was run: accountants of one method give the same epsilon.
#
# Needs the network (PyTorch is some GB). Fails if the behaviour changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q opacus==1.6.0 dp-accounting==0.6.0 torch==2.15.0
"$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import dp_accounting
from dp_accounting import rdp
from opacus.accountants import RDPAccountant


def both(noise, rate, steps, delta):
    opacus = RDPAccountant()
    opacus.history = [(noise, rate, steps)]
    other = rdp.RdpAccountant()
    other.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)), steps)
    epsilons = opacus.get_epsilon(delta), other.get_epsilon(delta)
    print(f"noise {noise}, rate {rate}, {steps} steps, delta {delta}: opacus {epsilons[0]:.5f}, "
          f"dp-accounting {epsilons[1]:.5f}")
    return epsilons


low = both(1.1, 256 / 60000, 14062, 1e-5)
high = both(50.0, 0.05, 10, 1e-5)
assert abs(low[0] / low[1] - 1) < 1e-3, "they differ where the best order is low, too"
assert high[0] > 5 * high[1], "opacus looks at higher orders now"
PYTHON
