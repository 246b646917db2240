#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs every fuzz target of tests/fuzz for some seconds, several at once. What it learns stays in
# BUILD/corpus, and an input that fails in BUILD/failures. Called by forge.
#
#   run_fuzz.sh BUILD JOBS SECONDS
set -eu
cd "$(dirname "$0")/.."

if [ "$1" = --target ]; then # --target BUILD SECONDS NAME, started below
    build=$2 seconds=$3 name=$4 seeds=$PWD/tests/fuzz/seeds/$4 dict=$PWD/tests/fuzz/$4.dict
    mkdir -p "$build/corpus/$name" "$build/failures"
    cd "$build"
    set -- "corpus/$name" "$seeds"
    [ ! -f "$dict" ] || set -- "-dict=$dict" "$@"
    status=0
    "tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="failures/$name-" -print_final_stats=1 "$@" >"$name.log" 2>&1 || status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: //p' "$name.log")
    if [ $status = 0 ] && [ "${runs:-0}" -gt 0 ]; then
        echo "$name: $runs inputs"
    else
        grep -E 'runtime error|ERROR|SUMMARY|not so' "$name.log" || true
        for input in "failures/$name"-*; do # the input itself, as a CI's machine is gone afterwards
            [ ! -f "$input" ] || echo "$input, base64: $(base64 -w 0 "$input" | head -c 8000)"
        done
        echo "FAILED: $name, see $build/$name.log and $build/failures"
    fi
    exit 0
fi

mkdir -p "$1"
build=$(cd "$1" && pwd) jobs=$2 seconds=$3
# shellcheck disable=SC2012
ls tests/fuzz/seeds | xargs -n 1 -P "$jobs" "$PWD/ci/run_fuzz.sh" --target "$build" "$seconds" |
    tee "$build/results"
! grep -q '^FAILED' "$build/results" || exit 1
awk '{ names++; runs += $2 } END { printf "%d inputs in %d targets, none failed\n", runs, names }' \
    "$build/results"
