#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs GoogleTest programs in parallel shards: for drivers on which starting a process for every
# test, as ctest does, would take longer than the tests. Called by forge.
#
#   run_tests.sh LOG JOBS SECONDS RUN PROGRAM...
#
# RUN is a command that each program is run with (env, or the run of a driver); SECONDS is what one
# shard may take. With RUN_TESTS_UNTIL (seconds since 1970) none goes on behind that time; a shard that would is
# "OUT OF TIME", with the test that it was at, which is no failure. A program runs as RUN_TESTS_SHARDS shards (two
# for each job). Prints the tests that failed; LOG has all output.
# Ends with "N passed, N failed, N skipped" and exits with 1 if tests or programs failed, or if none passed
# although there was time.
set -eu

if [ "${1:-}" = --shard ]; then # --shard LOG SHARDS SECONDS RUN PROGRAM:SHARD, started below
    program=${6%:*} index=${6##*:}
    log=$2.parts/$(basename "$program").$index
    echo "$(basename "$program"), part $((index + 1)) of $3"
    status=0 seconds=$4
    if [ -n "${RUN_TESTS_UNTIL:-}" ]; then
        left=$((RUN_TESTS_UNTIL - $(date +%s)))
        [ $left -ge "$seconds" ] || seconds=$left
        [ $left -ge 1 ] || {
            echo "OUT OF TIME: $(basename "$program"), part $index" >"$log"
            exit 0
        }
    fi
    GTEST_TOTAL_SHARDS=$3 GTEST_SHARD_INDEX=$index GTEST_COLOR=no \
        timeout -k 5 "$seconds" "$5" "$program" >"$log" 2>&1 </dev/null || status=$?
    case $status in
    124 | 137)
        if [ -n "${RUN_TESTS_UNTIL:-}" ] && [ "$(date +%s)" -ge "$RUN_TESTS_UNTIL" ]; then
            at=$(sed -n 's/^\[ RUN      \] //p' "$log" | tail -n 1)
            echo "OUT OF TIME: $(basename "$program"), part $index, at $at" >>"$log"
            exit 0
        fi
        ;;
    esac
    [ $status = 0 ] || echo "PROGRAM ENDED: $(basename "$program"), part $index, with status $status" >>"$log"
    exit 0
fi

[ $# -ge 5 ] || {
    echo "use: run_tests.sh LOG JOBS SECONDS RUN PROGRAM..." >&2
    exit 2
}
log=$1 jobs=$2 seconds=$3 run=$4
shift 4
rm -rf "$log" "$log.parts"
mkdir -p "$log.parts"
# More parts than jobs, so that a long one does not leave the other jobs idle at the end.
shards=${RUN_TESTS_SHARDS:-$((2 * jobs))}
[ "$jobs" -gt 1 ] || shards=1
for program in "$@"; do
    index=0
    while [ $index -lt $shards ]; do
        printf '%s\0' "$program:$index"
        index=$((index + 1))
    done
done | xargs -0 -n 1 -P "$jobs" "$0" --shard "$log" "$shards" "$seconds" "$run"
cat "$log.parts"/* >"$log"
rm -rf "$log.parts"
passed=$(grep -c '^\[       OK \]' "$log" || true)
skipped=$(grep -c '^\[  SKIPPED \] .*(' "$log" || true)
failed=$(sed -n 's/^\[  FAILED  \] \([^ ,]*\).*(.* ms)$/failed: \1/p' "$log")
ended=$(grep '^PROGRAM ENDED' "$log" || true)
late=$(grep '^OUT OF TIME' "$log" || true)
[ -z "$late" ] || echo "$late"
[ -z "$failed" ] || echo "$failed"
[ -z "$ended" ] || echo "$ended"
count=$(printf '%s' "$failed" | grep -c . || true)
echo "$passed passed, $count failed, $skipped skipped"
[ "$passed" -gt 0 ] || [ -n "$late" ] || exit 1
[ "$count" = 0 ] && [ -z "$ended" ]
