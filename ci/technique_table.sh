#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Memory and traffic by technique: trains a small GPT-2 for two steps with each technique, and prints what
# rank 0 measured as a Markdown table. Fails if a run fails, or if measured and planned bytes differ. Run by
# hand, after a change of the memory or messages of plans.
#
#   technique_table.sh PROGRAM [DATA] | bench/results/table --put techniques techniques
#
# PROGRAM: ringforge, as built. DATA: the training text (README.md).
set -eu
[ $# -eq 1 ] || [ $# -eq 2 ] || {
    echo "use: technique_table.sh PROGRAM [DATA]" >&2
    exit 2
}
program=$1
data=${2-$(dirname "$0")/../README.md}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

# The same on every device: without the workspace, whose size is the device's choice.
model="--layers 6 --channels 64 --heads 4 --seq 64 --batch 8 --workspace 0 --steps 2 --seed 1"

field() { # field NAME <<object: a number in an object of bytes
    sed -n "s/.*\"$1\":\\([-+.0-9e]*\\).*/\\1/p"
}

# row RANKS NAME OPTIONS...: trains, and prints a line of the table.
row() {
    ranks=$1 name=$2
    shift 2
    log=$folder/log
    # shellcheck disable=SC2086
    "$program" train --ranks "$ranks" --data "$data" $model --log "$log" "$@" >"$folder/out" 2>&1 || {
        cat "$folder/out" >&2
        echo "technique_table.sh: train --ranks $ranks $* failed" >&2
        exit 1
    }
    planned=$(sed -n 's/.*"planned":\({[^}]*}\).*/\1/p' "$log")
    measured=$(sed -n 's/.*"measured":\({[^}]*}\).*/\1/p' "$log")
    if [ -z "$measured" ] || [ "$planned" != "$measured" ]; then
        echo "technique_table.sh: train --ranks $ranks $*: measured $measured, planned $planned" >&2
        exit 1
    fi
    for category in params grads optimizer activations comm scratch host; do
        bytes=$(echo "$measured" | field $category)
        [ -n "$bytes" ] || {
            echo "technique_table.sh: the log has no bytes of $category: use a newer PROGRAM" >&2
            exit 1
        }
        echo "$bytes"
    done >"$folder/bytes"
    grep '"step":2,' "$log" | field sent >>"$folder/bytes"
    sed -n '/"summary":true/p' "$log" | field loss >>"$folder/bytes"
    awk -v name="$name" -v ranks="$ranks" '
        function kib(bytes) { return sprintf("%.1f", bytes / 1024) }
        { of[NR] = $1 }
        END {
            if (NR != 9)
                exit 1
            printf "| %s | %d | %s | %s | %s | %s | %s | %s | %s | %s | %.6f |\n", name, ranks,
                kib(of[1]), kib(of[2]), kib(of[3]), kib(of[4]), kib(of[5] + of[6]), kib(of[7]),
                kib(of[1] + of[2] + of[3] + of[4] + of[5] + of[6] - of[7]), kib(of[8]), of[9]
        }' "$folder/bytes" || {
        echo "technique_table.sh: the log of train --ranks $ranks $* is not whole" >&2
        exit 1
    }
}

# shellcheck disable=SC2016 # backquotes are Markdown's
table() {
    echo "| technique | ranks | params | grads | optimizer | activations | comm, scratch | of these with the host | on the device | sent in a step | loss |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|"
    row 2 'none (DDP)'
    row 2 '`--update rank0`' --update rank0
    row 2 '`--zero 1`' --zero 1
    row 2 '`--zero 2`' --zero 2
    row 2 '`--zero 3`' --zero 3
    row 2 '`--zero 3 --keep-gathered`' --zero 3 --keep-gathered
    row 4 'none (DDP)'
    row 4 '`--zero 3`' --zero 3
    row 4 '`--zero 3 --mesh dp=4,shard=2`' --zero 3 --mesh dp=4,shard=2
    row 2 '`--recompute gelu,norms`' --recompute gelu,norms
    row 2 '`--recompute block`' --recompute block
    row 2 '`--recompute sqrt`' --recompute sqrt
    row 2 '`--reversible f32`' --reversible f32
    row 2 '`--optimizer-state bf16`' --optimizer-state bf16
    row 2 '`--optimizer-state 8bit`' --optimizer-state 8bit
    row 2 '`--reduce-dtype bf16`' --reduce-dtype bf16
    row 2 '`--dtype bf16`' --dtype bf16
    row 2 '`--dtype bf16 --zero 1`' --dtype bf16 --zero 1
    row 2 '`--dtype bf16 --zero 3`' --dtype bf16 --zero 3
    row 2 '`--dtype bf16 --residual same --no-masters --stochastic-rounding`' \
        --dtype bf16 --residual same --no-masters --stochastic-rounding
    row 2 '`--offload optimizer`' --offload optimizer
    row 2 '`--offload activations`' --offload activations
    row 2 '`--recompute block --offload activations`' --recompute block --offload activations
    row 2 '`--zero 3 --offload optimizer,params,grads`' --zero 3 --offload optimizer,params,grads
    row 2 '`--zero 3 --recompute block --offload optimizer,params,grads`' \
        --zero 3 --recompute block --offload optimizer,params,grads
    row 2 '`--zero 3 --recompute block --offload optimizer,params,grads,activations`' \
        --zero 3 --recompute block --offload optimizer,params,grads,activations
}

table
