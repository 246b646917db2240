#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Sends SIGTERM and SIGINT at random moments, also during start-up, to trainings on one and on two
# ranks, and checks how each ends: soon, by the signal, and with a checkpoint that loads if it left
# one. Not part of the quick tests.
# Usage: signals_stress.sh PROGRAM [COUNT]    COUNT of each signal, 100 by default
# LIMIT_MS: how long an end may take; by default the longest of 1 s and three first steps, which
# compile the kernels, plus 1 s for the save.
set -u
program=$1 count=${2:-100}
work=$(mktemp -d)
job=
trap '[ -z "$job" ] || kill -KILL "$job" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' TERM INT
seq 1 300 | sed 's/.*/Line & of a text that is easy to learn./' >"$work/text"
train=("$program" train --data "$work/text" --layers 1 --channels 32 --heads 2 --seq 16 --batch 4
    --micro-batches 4 --order tree)

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# How long a run takes to its second step, and its first step alone, on this machine, now.
start=$(now_ms)
"${train[@]}" --steps 2 --ranks 2 --log "$work/log" >"$work/out" 2>&1 || {
    cat "$work/out"
    exit 1
}
up_ms=$(($(now_ms) - start))
first_ms=$(sed -n 's/.*"step":1,.*"tokens_per_s":\([0-9]*\).*/\1/p' "$work/log")
first_ms=$((64000 / (first_ms > 0 ? first_ms : 1)))
limit_ms=$((3 * first_ms > 1000 ? 3 * first_ms : 1000))
limit_ms=${LIMIT_MS:-$((limit_ms + 1000))}
echo "two steps take $up_ms ms, the first $first_ms ms; an end may take $limit_ms ms"

passed=0 failed=0 saved=0 longest=0

# one SIGNAL RANKS: starts, signals, checks; 0 when all is well.
one() {
    local signal=$1 ranks=$2 want=$((128 + $(kill -l "$1"))) from took status step
    rm -rf "$work/save"
    # A shell has its background jobs ignore SIGINT; env undoes that before the program is there.
    env --default-signal=INT,TERM "${train[@]}" --steps 100000000 --save "$work/save" \
        --ranks "$ranks" >"$work/out" 2>&1 &
    job=$!
    until [ "/proc/$job/exe" -ef "$program" ]; do sleep 0.005; done
    # Early moments more often than late ones: start-up is short beside the first step.
    sleep "$(awk -v most="$up_ms" -v at="$RANDOM" \
        'BEGIN { print most * 1.5 * (at / 32767) ^ 3 / 1000 }')"
    from=$(now_ms)
    kill -s "$signal" "$job"
    wait "$job"
    status=$?
    job=
    took=$(($(now_ms) - from))
    ((took > longest)) && longest=$took
    ((status == want)) || { echo "status $status and not $want"; return 1; }
    ((took <= limit_ms)) || { echo "ended after $took ms"; return 1; }
    grep -q "stopped by" "$work/out" && [ ! -e "$work/save/latest" ] && {
        echo "says that it saved, and has not"
        return 1
    }
    [ -e "$work/save/latest" ] || return 0
    saved=$((saved + 1))
    # Asked for no more steps, it loads everything and says where it is.
    step=$(sed 's/step-//' "$work/save/latest")
    "${train[@]}" --steps "$step" --resume "$work/save" >"$work/resumed" 2>&1
    grep -q "is at step $step already" "$work/resumed" || {
        echo "the checkpoint does not load: $(cat "$work/resumed")"
        return 1
    }
}

for ((i = 0; i < count; i++)); do
    for signal in TERM INT; do
        ranks=$((1 + RANDOM % 2))
        if one "$signal" "$ranks" >"$work/why" 2>"$work/errors"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "SIG$signal to $ranks rank(s), run $i: $(cat "$work/why" "$work/out")"
        fi
    done
done
echo "$saved left a checkpoint; the longest end took $longest ms"
echo "$passed passed, $failed failed"
((failed == 0))
