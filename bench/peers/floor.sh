#!/bin/sh
# SPDX-License-Identifier: MIT
#
# How much of a collective's time over TCP is the provider's: ringforge, the same messages as bare libfabric
# calls (libfabric.c) and Open MPI in turns, on ranks of this machine; a line for each size: medians of three
# turns in microseconds, and their ratios.
#
#   bench/peers/floor.sh [BUILD [OPS [RANKS [MOST]]]]      (build, the six of libfabric.c, "2 3 4", 16777216)
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build} ops=${2:-gather scatter broadcast reduce all_gather all_to_all} ranks=${3:-2 3 4} most=${4:-16777216}
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

for op in $ops; do
    for n in $ranks; do
        rm -f "$log"/*
        for turn in 1 2 3; do
            timeout 120 "$build/ringforge" bench "$op" --ranks "$n" --provider ofi-tcp -b 4 -e "$most" -f 4 \
                -n 9 --in-place 0 --one-clock | awk '$3 == "f32" { print $1, $6 }' >"$log/own.$turn"
            timeout 120 "$build/peers/libfabric" native "$n" "$op" 4 "$most" 4 9 >"$log/bare.$turn"
            timeout 120 mpirun.openmpi --oversubscribe --mca btl tcp,self -n "$n" "$build/peers/openmpi" \
                "$op" 4 "$most" 4 9 >"$log/openmpi.$turn"
        done
        awk -v op="$op" -v n="$n" '
            function median(side, row,    a, b, c) {
                a = time[side, row, 1]; b = time[side, row, 2]; c = time[side, row, 3]
                return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b)
            }
            FNR == 1 { count = split(FILENAME, path, "/"); split(path[count], name, ".") }
            $3 > 0 { print "wrong elements: " FILENAME; exit 1 }
            { time[name[1], FNR, name[2]] = $2; bytes[FNR] = $1; rows = FNR > rows ? FNR : rows }
            END {
                if (rows == 0)
                    print op ": nothing was measured; has bench/peers/build.sh been run?"
                for (row = 1; row <= rows; row++) {
                    own = median("own", row); bare = median("bare", row); mpi = median("openmpi", row)
                    printf "%-10s N=%d %9d B  ringforge %10.1f  bare libfabric %10.1f (%.2f)  Open MPI %10.1f (%.2f)\n",
                        op, n, bytes[row], own, bare, bare / own, mpi, mpi / own
                }
            }' "$log"/own.* "$log"/bare.* "$log"/openmpi.*
    done
done
