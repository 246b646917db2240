#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What compilers make of the library's kernels: compiles every pipeline for GPUs that are not there, and
# writes what was found. tests/kernels/gpus.txt lists the GPUs. Called by forge, after the build.
#
#   kernel_table.sh BUILD gpus STAGE     the GPUs of a stage, one a line
#   kernel_table.sh BUILD drivers STAGE  the drivers that these need, by their names in ci/drivers.sh
#   kernel_table.sh BUILD GPU [STAGE]    compiles for this one as in this stage (else everything); 77: there is no
#                                        such driver here
#   kernel_table.sh BUILD several STAGE JOBS UNTIL GPUS...
#                                        compiles for these, JOBS at a time, and starts none after UNTIL
#                                        (seconds of the epoch; 0: whenever it is). BUILD/kernels/GPU.status
#                                        then has the exit status and the seconds of each
#   kernel_table.sh BUILD keep           puts what the last run for the stage `test` found into tests/kernels/kept,
#                                        so that nobody's compilers take minutes for it again
#   kernel_table.sh BUILD write          puts the tables of those compiled so far into bench/results/kernels-compiled.json
set -eu
cd "$(dirname "$0")/.."
build=$1 what=$2 out=$1/kernels
mkdir -p "$out/kept"

list() {
    awk -v stage="$1" -v column="$2" '!/^#/ && ($3 == stage || $3 == "both") { print $column }' \
        tests/kernels/gpus.txt
}

# Some launches, as for a device that nobody has named: what is chosen may not spill there either.
choose() { # choose GPU RUN
    rm -rf "$out/cache-$1"
    # shellcheck disable=SC2086
    RADV_FORCE_FAMILY=$1 RF_CACHE_DIR=$out/cache-$1 KERNELS_KNOWN=tests/kernels/kept/$1-masked.txt \
        KERNELS_KEPT=$out/kept/$1-masked.txt $2 "$build/tests/kernels/kernel_forms" --masked \
        "4096x64x4096 f16" "nt 4096x64x4096 f32" "head 64 f16" "head 128 f16" && return
    echo "FAILED: what is chosen for a device without a name spills, see above"
    return 1
}

compile() { # compile GPU DRIVER MASKED STAGE
    report=$build/tests/kernels/kernel_report status=0 brief=
    [ "$4" != test ] || brief=--brief
    case $2 in
    installed)
        icd=$(find /usr/share/vulkan/icd.d -name 'radeon_icd*.json' 2>/dev/null | head -n 1)
        [ -n "$icd" ] || return 77
        run="env VK_DRIVER_FILES=$icd VK_ICD_FILENAMES=$icd"
        ;;
    lavapipe-backports) run=$build/drivers/$2/run-radv ;;
    *) run="$build/drivers/$2/run-gpu $1" ;;
    esac
    case $run in "$build"*) [ -x "${run%% *}" ] || return 77 ;; esac
    [ "$3" != "$4" ] || choose "$1" "$run" || status=1
    # What was measured or chosen on this machine before has no part in it.
    rm -rf "$out/cache-$1"
    # shellcheck disable=SC2086
    RADV_FORCE_FAMILY=$1 RF_CACHE_DIR=$out/cache-$1 KERNELS_KNOWN=tests/kernels/kept/$1.txt \
        KERNELS_KEPT=$out/kept/$1$brief.txt $run "$report" $brief --json "$out/$1.json" \
        --table "$out/$1.new" || status=$?
    [ -s "$out/$1.new" ] && mv "$out/$1.new" "$out/$1.table"
    return $status
}

several() { # several STAGE JOBS UNTIL GPUS...
    stage=$1 jobs=$2 until=$3
    shift 3
    for gpu in "$@"; do
        rm -f "$out/$gpu.status"
    done
    # shellcheck disable=SC2016
    printf '%s\n' "$@" | xargs -P "$jobs" -I GPU sh -c '
        begun=$(date +%s) status=0
        [ "$3" = 0 ] || [ "$begun" -lt "$3" ] || exit 0
        timeout -k 5 900 "$0" "$1" GPU "$4" >"$2/GPU.log" 2>&1 || status=$?
        echo "$status $(($(date +%s) - begun))" >"$2/GPU.status"
        echo "GPU: $(tail -n 1 "$2/GPU.log")"' ci/kernel_table.sh "$build" "$out" "$until" "$stage"
}

# A line for each shader, whatever its types, forms and width of access, with a column for each GPU: the
# worst of all pipelines that launchers made of it.
table() { # table GPUS...
    echo "| shader |$(printf ' %s |' "$@")"
    echo "|---|$(printf -- '---|%.0s' "$@")"
    for gpu in "$@"; do
        awk -F ' [|] ' -v gpu="$gpu" -v OFS=' | ' '$2 != "default constants" { print $1, gpu, $3 }' "$out/$gpu.table"
    done | awk -F ' [|] ' -v gpus="$*" '
        {
            while (sub(/_(f32|f16|bf16|nn|nt|tn|tt|s|v)$/, "", $1))
                ;
            names[$1]
            split($3, figure, " / ")
            for (i = 1; i <= 4; i++)
                if (!(($1, $2, i) in worst) || figure[i] + 0 > worst[$1, $2, i] + 0)
                    worst[$1, $2, i] = figure[i]
        }
        END {
            count = split(gpus, columns, " ")
            for (name in names) {
                line = "| " name " |"
                for (c = 1; c <= count; c++) {
                    cell = "-"
                    for (i = 1; (name, columns[c], i) in worst; i++)
                        cell = (i == 1 ? "" : cell " / ") worst[name, columns[c], i]
                    line = line " " cell " |"
                }
                print line
            }
        }' | LC_ALL=C sort
}

compiled() { # compiled GPUS...: those of them that there is a table of
    for gpu in "$@"; do
        [ ! -s "$out/$gpu.table" ] || echo "$gpu"
    done
}

write() {
    written=
    for tables in "amd vega10 navi21 navi31" "others dg2 bmg ga102 a750"; do
        # shellcheck disable=SC2046,SC2086
        set -- $(compiled ${tables#* })
        [ $# = 0 ] && continue
        table "$@" | bench/results/table --put kernels-compiled "${tables%% *}"
        written=yes
    done
    [ "$written" ] || {
        echo "kernel_table.sh: nothing is compiled yet" >&2
        exit 1
    }
}

# What a GPU's compiler made of pipelines is kept by their hash (tests/kernels/kept.h): in BUILD of every run,
# and in the repository of those of the stage `test`.
keep() {
    for gpu in $(list test 1); do
        for kind in "" -masked; do
            from=$out/kept/$gpu$kind.txt
            [ "$kind" ] || from=$out/kept/$gpu--brief.txt
            [ ! -s "$from" ] || cp "$from" "tests/kernels/kept/$gpu$kind.txt"
        done
    done
}

case $what in
keep) keep ;;
gpus) list "$3" 1 ;;
drivers) list "$3" 2 | grep -vx installed | sort -u ;;
several)
    shift 2
    several "$@"
    ;;
write) write ;;
*)
    row=$(awk -v gpu="$what" '$1 == gpu { print $1, $2, $4 }' tests/kernels/gpus.txt)
    [ -n "$row" ] || {
        echo "use: kernel_table.sh BUILD GPU|several|gpus|drivers|keep|write; tests/kernels/gpus.txt lists GPUs" >&2
        exit 2
    }
    # shellcheck disable=SC2086
    compile $row "${3:-all}"
    ;;
esac
