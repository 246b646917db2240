#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Collectives between hosts whose links have a given speed: network namespaces on a bridge, a token bucket at
# both ends of every link. Prints the measured links of the ranks, the algorithms chosen by
# them, and the time of each algorithm. Needs root.
#
#   bench/shaped.sh PROGRAM [RANKS [MBIT [DELAY_US [OP [SIZES]]]]]      (4 ranks, 1000, 0, all_reduce)
#
# ALGORITHMS: which, instead of all. BENCH_OPTIONS: further options of `ringforge bench`. QUEUED: bytes that a
# connection may have in the queue before its link (the system's tcp_limit_output_bytes). AT_ONCE: the program of
# at_once.c, which runs instead of all that.
set -eu
program=$1 ranks=${2:-4} mbit=${3:-1000} delay=${4:-0} op=${5:-all_reduce}
sizes=${6:-"4 1K 16K 64K 256K 1M 4M 16M 64M"}
folder=$(mktemp -d)
. "$(dirname "$0")/../tests/tools/spaces.sh"
cleanup() {
    spaces_down
    rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 143' INT TERM
spaces_up "$ranks" "$folder" || exit $?
shape() { # COMMAND PREFIX... DEVICE
    dev=$1
    shift
    "$@" ip link set dev "$dev" gso_max_segs 16
    "$@" tc qdisc add dev "$dev" root handle 1: tbf rate "${mbit}mbit" burst 128k limit 4m
    [ "$delay" = 0 ] || "$@" tc qdisc add dev "$dev" parent 1:1 netem delay "${delay}us" limit 10000
}
for host in $(seq "$ranks"); do
    shape "rf$spaces_id-$host"
    shape eth0 on "$host"
    [ -z "${QUEUED:-}" ] || on "$host" sysctl -qw net.ipv4.tcp_limit_output_bytes="$QUEUED"
done
export WORLD_SIZE="$ranks" RF_JOB_KEY=a-key-of-this-bench HFI_NO_BACKTRACE=1 MASTER_PORT=29399
MASTER_ADDR=$(address 1)
export MASTER_ADDR
job() { # ARGUMENTS...: rank 0's output
    for host in $(seq 2 "$ranks"); do
        RANK=$((host - 1)) on "$host" "$program" "$@" >"$folder/$host" 2>&1 &
    done
    RANK=0 on 1 "$program" "$@" 2>"$folder/1" || cat "$folder/1"
    wait
}
gbps=$(awk "BEGIN { print $mbit / 1000 }")
# measure ALGORITHM ENVIRONMENT: microseconds by size, "-" if it does not support the call
measure() {
    for size in $sizes; do
        # shellcheck disable=SC2086
        job bench "$op" -b "$size" -e "$size" -n 7 --in-place 0 --link-gbps "$gbps" ${1:+--algorithm "$1"} \
            ${BENCH_OPTIONS:-} 2>&1 |
            awk '/ (f32|f16|bf16) / { print $6, $NF; found = 1 } END { if (!found) print "- -" }'
    done
}
if [ -n "${AT_ONCE:-}" ]; then
    program=$AT_ONCE
    job
    exit
fi
job info --algorithms --measure
for name in "" ${ALGORITHMS:-flat recursive_doubling rabenseifner direct ring}; do
    printf '%-18s' "${name:-chosen}"
    measure "$name" | awk '{ printf " %12s %6s", $1, $2 } END { print "" }'
done
