#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs GoogleTest programs in parallel shards: starting a process for every test, as ctest does, takes longer
# than the tests on some drivers. Called by forge.
#
#   run_tests.sh LOG JOBS SECONDS RUN PROGRAM...
#
# RUN is a command that each program is run with (env, or the run of a driver); SECONDS is what one shard may
# take. Programs after a "--waiting" wait for processes more than they compute: as many of them as JOBS run
# beside the others, which are nice to them. Prints the tests that failed; LOG has all output. Ends with "N
# passed, N failed, N skipped" and exits with 1 if tests or programs failed, or if none passed although there
# was time. "PROGRAM TOOK" in LOG has the processor time of each part. Variables:
#   RUN_TESTS_SHARDS    shards of a program (two for each job)
#   RUN_TESTS_UNTIL     seconds since 1970: no program runs after that time. A shard that would is "OUT OF TIME",
#                       with the test that it was at, which is no failure
#   RUN_TESTS_KEPT      a folder: what a part that passed has said is kept there, and taken instead of running it
#                       again while nothing that it depends on has changed. That is its program, which has the
#                       code that it tests, other programs beside it, files beside its sources, variables, and
#                       RUN_TESTS_ON, words of the caller's: of the driver, for example
#   RUN_TESTS_TREE      a hash of all programs and sources, on which tests in the folder "tools" depend
#   RUN_TESTS_BESIDE    a command that runs beside all of them; its output goes to LOG.beside. If it fails, so
#                       does the run
set -eu

# depends_on PROGRAM TEXT: all that the result of a part depends on, or hashes of it
depends_on() {
    folder=$(basename "$(dirname "$1")")
    echo "$2, ${RUN_TESTS_ON:-}"
    [ "$folder" != tools ] || echo "${RUN_TESTS_TREE:-}"
    # of ours, of drivers, of libfabric, of sanitizers and the loader
    env | grep -E '^(RF_|GTEST_|[A-Z]*SAN_OPTIONS|LP_|GALLIVM_|MESA_|VK_|FI_|LD_)' | sort
    sha256sum "$0" "$1"
    find "$(dirname "$1")" -maxdepth 1 -type f -perm -u+x ! -name '*_test' -exec sha256sum {} + | sort
    find "tests/$folder" tests/support -type f ! -name '*.cc' ! -name '*.c' ! -name '*.h' -exec sha256sum {} + | sort
}
if [ "${1:-}" = --shard ]; then # --shard LOG SHARDS SECONDS RUN PROGRAM:SHARD, started below
    program=${6%:*} index=${6##*:}
    log=$2.parts/$(basename "$program").$index
    echo "$(basename "$program"), part $((index + 1)) of $3"
    status=0 seconds=$4 kept=
    if [ -n "${RUN_TESTS_KEPT:-}" ]; then
        kept=$RUN_TESTS_KEPT/$(depends_on "$program" "$index of $3 with $5" | sha256sum | cut -c 1-40)
        if [ -f "$kept" ]; then
            cp "$kept" "$log"
            echo "PROGRAM KEPT: $(basename "$program"), part $index" >>"$log"
            exit 0
        fi
    fi
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
    if [ $status = 0 ] && [ -n "$kept" ]; then
        cp "$log" "$kept.$$" && mv "$kept.$$" "$kept"
    fi
    times >"$log.times" # not in a pipe, where it would be the time of another process
    echo "PROGRAM TOOK: $(basename "$program"), part $index: $(tail -n 1 "$log.times") (user, system)" >>"$log"
    rm "$log.times"
    exit 0
fi

[ $# -ge 5 ] || {
    echo "use: run_tests.sh LOG JOBS SECONDS RUN PROGRAM..." >&2
    exit 2
}
log=$1 jobs=$2 seconds=$3 run=$4 self=$0
shift 4
rm -rf "$log" "$log.parts" "$log.beside"
mkdir -p "$log.parts" ${RUN_TESTS_KEPT:+"$RUN_TESTS_KEPT"}
# More parts than jobs, so that a long one does not leave the other jobs idle at the end.
shards=${RUN_TESTS_SHARDS:-$((2 * jobs))}
[ "$jobs" -gt 1 ] || shards=1

# pool PREFIX PROGRAM...: all shards of these, JOBS at a time
pool() {
    prefix=$1
    shift
    for program in "$@"; do
        index=0
        while [ $index -lt "$shards" ]; do
            printf '%s\0' "$program:$index"
            index=$((index + 1))
        done
    done | xargs -0 -r -n 1 -P "$jobs" $prefix "$self" --shard "$log" "$shards" "$seconds" "$run"
}

computing='' waiting='' is_waiting=
for program in "$@"; do
    if [ "$program" = --waiting ]; then
        is_waiting=yes
    elif [ -n "$is_waiting" ]; then
        waiting="$waiting$program
"
    else
        computing="$computing$program
"
    fi
done
# What this run was told is not for a run of tests that a script among the tests makes.
beside=0 beside_pid='' beside_command=${RUN_TESTS_BESIDE:-}
unset RUN_TESTS_BESIDE RUN_TESTS_SHARDS
if [ -n "$beside_command" ]; then
    (
        unset RUN_TESTS_UNTIL RUN_TESTS_KEPT RUN_TESTS_ON RUN_TESTS_TREE GTEST_FILTER
        exec sh -c "$beside_command"
    ) >"$log.beside" 2>&1 </dev/null &
    beside_pid=$!
fi
waiting_pid=
IFS='
'
if [ -n "$waiting" ]; then
    # shellcheck disable=SC2086
    pool "" $waiting &
    waiting_pid=$!
fi
prefix=
[ -z "$waiting" ] || prefix=nice
# shellcheck disable=SC2086
pool "$prefix" $computing
[ -z "$waiting_pid" ] || wait $waiting_pid
[ -z "$beside_pid" ] || wait $beside_pid || beside=$?
unset IFS

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
kept=$(grep -c '^PROGRAM KEPT' "$log" || true)
told=
[ "$kept" = 0 ] || told="; $kept parts of programs passed before and were not run again"
echo "$passed passed, $count failed, $skipped skipped$told"
[ "$passed" -gt 0 ] || [ -n "$late" ] || exit 1
[ "$count" = 0 ] && [ -z "$ended" ] && [ "$beside" = 0 ]
