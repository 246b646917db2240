#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Two ranks on two Vulkan drivers train one model together: the losses are those of two ranks on one
# driver, but for rounding. Run by forge.
#
#   mixed_drivers_test.sh PROGRAM RUN FOLDER     RUN: what a program is run with on the other driver
set -eu

if [ "$1" = --rank ]; then # --rank RUN PROGRAM ARGUMENTS...
    run=$2
    shift 2
    [ "$RANK" = 0 ] || exec "$run" "$@"
    exec "$@"
fi

program=$1 run=$2 folder=$3
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
mkdir -p "$folder"

# train NAME RUN: two ranks, rank 1 through RUN
train() {
    RF_LOG=device:2 "$program" run --ranks 2 -- "$0" --rank "$2" "$program" train --data "$here/train_test.cc" \
        --layers 2 --channels 64 --heads 4 --seq 32 --batch 8 --micro-batches 4 --steps 30 --lr 1e-3 \
        --warmup 5 --seed 7 --clip 1 --log "$folder/$1.jsonl" >"$folder/$1.out" 2>&1 || {
        tail -n 20 "$folder/$1.out"
        echo "training with $1 failed"
        exit 1
    }
    sed -n 's/^{"step":\([0-9]*\),.*"loss":\([-0-9.e+]*\).*/\1 \2/p' "$folder/$1.jsonl" >"$folder/$1.loss"
}

drivers() { grep -o 'opened .* memory' "$folder/$1.out" | sort -u | wc -l; }

train one-driver env
train two-drivers "$run"
[ "$(drivers one-driver)" = 1 ] && [ "$(drivers two-drivers)" = 2 ] || {
    grep -h opened "$folder"/*.out
    echo "expected one driver, then two"
    exit 1
}
# Drivers may round exp, log, division and a*b+c otherwise, by parts in 10^7, and Adam divides a
# gradient by its own size, which makes more of that where gradients are next to zero. A gradient that
# is lost or counted twice shows in the second or third digit.
paste -d ' ' "$folder/one-driver.loss" "$folder/two-drivers.loss" | awk -v tolerance=1e-5 '
    NF == 4 && $1 == $3 {
        difference = ($2 > $4 ? $2 - $4 : $4 - $2) / $2
        if (difference > worst) worst = difference
        if (!rows++) first = $4
        last = $4
    }
    END {
        printf "%d steps on two drivers: loss %.4f to %.4f, at most %.1e from those on one driver\n",
            rows, first, last, worst
        exit !(rows == 30 && worst <= tolerance && last < first - 0.5)
    }'
