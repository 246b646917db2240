#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Builds the programs that collectives.py starts, into "peers" beside the program: the MPI
# libraries that have a compiler wrapper here (libopenmpi-dev, libmpich-dev), and Gloo (libgloo-dev).
#
#   bench/peers/build.sh [FOLDER]      (build/peers)
set -eu
cd "$(dirname "$0")/../.."
out=${1:-build/peers}
mkdir -p "$out"
for mpi in openmpi mpich; do
    if command -v mpicc.$mpi >/dev/null && command -v mpirun.$mpi >/dev/null; then
        mpicc.$mpi -O2 -o "$out/$mpi" bench/peers/mpi.c && echo "$out/$mpi"
        mpicc.$mpi -O2 -DRF_BENCH_MPI -o "$out/late_root_$mpi" bench/late_root.c && echo "$out/late_root_$mpi"
    else
        echo "no mpicc.$mpi: install lib$mpi-dev" >&2
    fi
done
if g++ -std=c++17 -O2 -o "$out/gloo" bench/peers/gloo.cc -lgloo 2>"$out/gloo.log"; then
    echo "$out/gloo"
else
    echo "no Gloo: install libgloo-dev ($out/gloo.log)" >&2
fi
# For floor.sh.
if cc -O2 -o "$out/libfabric" bench/peers/libfabric.c -lfabric 2>"$out/libfabric.log"; then
    echo "$out/libfabric"
else
    echo "no libfabric: install libfabric-dev ($out/libfabric.log)" >&2
fi
