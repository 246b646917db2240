#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kernel_loops.py finds the inner loop in each driver's text, and counts and bounds it.

Each sample is a few lines in a driver's syntax, of a kernel with a product in a loop.
"""
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "ci" / "kernel_loops.py"
sys.path.insert(0, str(SCRIPT.parent))
import kernel_loops  # noqa: E402

HEAD = "# device: none\n# shader: s\n# launch: l\n# statistic Subgroup size: %d\n# statistic %s: %d\n"

SAMPLES = {
    # The exit is laid out inside the loop's span; the loop's last block jumps back.
    "ga102": (
        HEAD % (32, "Number of GPRs", 96)
        + """=== NAK assembly
block.u 0 L1 [] -> {
      r0      = s2r sr[0x21]                        // delay=1
} -> [1]
block.u 1 L2 [0, 3] -> {
      up0     = isetp.ge.u32 ur3 ur4                // delay=9
                bra !up0 L4                         // delay=1
} -> [2, 3]
block.u 2 L3 [1] -> {
      r1      = mov r2                              // delay=1
                exit                                // delay=1
} -> []
block.u 3 L4 [1] -> {
      r4..8   = ldsm.16.m8n8.x4 [r1]                // delay=1 wr:0
      r8..12  = ld.shared.strong.cta.b128 [r1+rZ], pT // delay=1
      r12..16 = hmma.m16n8k16.f32 r4..8 r8..10 r12..16 // delay=1
      r16..20 = hmma.m16n8k16.f32 r4..8 r10..12 r16..20 // delay=1
                st.local.strong.cta.b128 [rZ+rZ] r8..12 // delay=1
@!p0            bra pT L2                           // delay=1
                bra pT L2                           // delay=1
} -> [1]
""",
        {"matrix": 2, "shared": 2, "scratch": 1, "scalar": 1, "branch": 3, "total": 9, "macs": 4096,
         "registers": 96, "bound": 66.67, "busiest": "shared"},
    ),
    "navi31": (
        HEAD % (64, "VGPRs", 120)
        + """=== ACO IR
BB9:
=== Assembly
BB0:
	s_load_b32 s1, s[2:3], 0x64                ; f4000041
BB1:
	ds_load_b128 v[0:3], v9                    ; 0000
	s_waitcnt lgkmcnt(0)                       ; 0000
	v_wmma_f32_16x16x16_f16 v[8:15], v[0:7], v[0:7], v[8:15] ; cc40
	v_add_nc_u32_e32 v9, 16, v9                ; 4a01
	s_cbranch_scc1 BB3                         ; bfa2
BB2:
	global_load_b64 v[0:1], v[2:3], off        ; dc56
	s_branch BB1                               ; bfa0
BB3:
	s_endpgm                                   ; bfb0
""",
        {"matrix": 1, "shared": 1, "global": 1, "wait": 1, "alu": 1, "branch": 2, "total": 7,
         "macs": 4096, "bound": 94.12, "busiest": "matrix"},
    ),
    "bmg": (
        HEAD % (32, "Spills", 3)
        + """=== GEN Assembly
        mov (32)                  r72           r1:uw
L0:
(f0.0)  break (32)                            jip:L1              uip:L1
(W)     send.slm (16)             r8     r38    null:0  0x0  0x0   {$0}  // wr:1+0, rd:1; load.slm.d32.a32.flat
(W)     send.ugm (1)              r9     r38    null:0  0x0  0x0   {$0}  // wr:1+0, rd:2; load.ugm.d32x32t.a32.ss[a0.4]
(W)     dpas.8x8 (16)             r101<0>:f     r91<0;0,0>:f      r71<0;0,0>:hf     r47<0;0,0>:hf {$13}
        add (16|M16)              r1:d          r2:d              1:w
L1:
        while (32)                            L0
        mov (32)                  r72           r1:uw
""",
        {"matrix": 1, "shared": 1, "scratch": 1, "alu": 1, "branch": 2, "total": 6, "macs": 2048,
         "spills": 3, "bound": 100, "busiest": "matrix"},
    ),
    "a750": (
        HEAD % (64, "STP Count", 0)
        + """=== IR3 Assembly
mov.u32u32 r0.x, 0
l3:
(sy)(rpt1)mad.f32 r1.x, (r)r2.x, (r)r3.x, (r)r1.x
(ss)ldl.f32 r2.x, l[r0.x], 4
nop
(ss)br p0.x, #l3
end
""",
        {"fma": 2, "shared": 1, "wait": 1, "branch": 1, "total": 5, "macs": 128, "bound": 12.5},
    ),
}


def check(gpu, text, wanted):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        row = kernel_loops.read_file(kernel_loops.GPUS[gpu], file.name)
        table = subprocess.run(
            [sys.executable, str(SCRIPT), gpu, file.name], capture_output=True, text=True, check=True
        )
    wrong = {
        key: (row[key], value)
        for key, value in wanted.items()
        if (abs(row[key] - value) > 0.01 if isinstance(value, (int, float)) else row[key] != value)
    }
    if wrong or "| l |" not in table.stdout:
        sys.exit(f"{gpu}: found and wanted: {wrong}\n{table.stdout}")


for name, (sample, expected) in SAMPLES.items():
    check(name, sample, expected)
