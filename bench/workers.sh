#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Two ranks with a link of a given speed between them train data-parallel, and as workers that exchange
# parameters in 4 bits (docs/decentralised.md): two network namespaces, with a token bucket at both ends of the
# link or without one. Prints milliseconds a step and tokens/s of both ranks together. Needs root.
#
#   bench/workers.sh PROGRAM TEXT [MBIT [TURNS]]      (100, 1)
#
# RULE: that of the workers (diloco:50,form=nf4).
set -eu
program=$1 text=$2 mbit=${3:-100} turns=${4:-1} rule=${RULE:-diloco:50,form=nf4}
folder=$(mktemp -d)
. "$(dirname "$0")/../tests/tools/spaces.sh"
cleanup() {
    spaces_down
    rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 143' INT TERM
spaces_up 2 "$folder" || exit $?
limit() {
    for host in 1 2; do
        tc qdisc replace dev "rf$spaces_id-$host" root tbf rate "${mbit}mbit" burst 16kb latency 50ms
        on "$host" tc qdisc replace dev eth0 root tbf rate "${mbit}mbit" burst 16kb latency 50ms
    done
}
free() {
    for host in 1 2; do
        tc qdisc del dev "rf$spaces_id-$host" root 2>/dev/null || true
        on "$host" tc qdisc del dev eth0 root 2>/dev/null || true
    done
}
export WORLD_SIZE=2 RF_JOB_KEY=a-key-of-this-bench HFI_NO_BACKTRACE=1 MASTER_PORT=29398 LP_NUM_THREADS=1
MASTER_ADDR=$(address 1)
export MASTER_ADDR

# run NAME COPIES SKIPPED OPTIONS...: COPIES: of the batch that a line of the log is about
run() {
    name=$1 copies=$2 skipped=$3
    shift 3
    set -- train --data "$text" --layers 4 --channels 256 --heads 4 --seq 64 --provider tcp --log "$folder/log" "$@"
    RANK=1 on 2 "$program" "$@" >"$folder/2" 2>&1 &
    RANK=0 on 1 "$program" "$@" >"$folder/1" 2>&1 || tail -n 3 "$folder/1"
    wait
    awk -v name="$name" -v copies="$copies" -v skipped="$skipped" '
        function value(key) {
            if (!match($0, "\"" key "\":[0-9.e+-]*"))
                return 0
            return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
        }
        /"step_us"/ && !/"summary"/ && ++lines > skipped { us += value("step_us"); tokens += value("tokens"); n++ }
        END { printf "%-34s %8.1f ms a step %8.0f tokens/s\n", name, us / n / 1000, copies * tokens / us * 1e6 }' \
        "$folder/log"
}
for _ in $(seq "$turns"); do
    free
    run "data-parallel, no limit" 1 2 --batch 4 --micro-batches 2 --steps 22
    run "workers, no limit" 2 50 --batch 2 --micro-batches 1 --steps 150 --sync "$rule"
    limit
    run "data-parallel, $mbit Mbit/s" 1 2 --batch 4 --micro-batches 2 --steps 22
    run "workers, $mbit Mbit/s" 2 50 --batch 2 --micro-batches 1 --steps 150 --sync "$rule"
done
