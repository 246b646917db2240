#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What AMD's compilers make of the library's kernels: compiles every pipeline for GPUs that are not
# there (RADV's null hardware), and writes what was found. Called by forge, after the build.
#
#   kernel_table.sh BUILD GPU    compiles for vega10, navi21 (with the installed Mesa) or navi31 (with
#                                that of lavapipe-backports); 77: there is no such driver here
#   kernel_table.sh BUILD write  puts the table of those compiled so far into docs/performance.md
set -eu
cd "$(dirname "$0")/.."
build=$1 what=$2 out=$1/kernels
mkdir -p "$out"

compile() { # compile GPU COMMAND...
    gpu=$1
    shift
    status=0
    RADV_FORCE_FAMILY=$gpu "$@" "$build/tests/kernels/kernel_report" \
        --json "$out/$gpu.json" --table "$out/$gpu.new" ||
        status=$?
    [ -s "$out/$gpu.new" ] && mv "$out/$gpu.new" "$out/$gpu.table"
    return $status
}

# A line for each shader, whatever its types, with a column for each GPU: the worst of all pipelines that
# launchers made of it.
table() {
    echo "| shader | pipelines | vega10 | navi21 | navi31 |"
    echo "|---|---|---|---|---|"
    awk -F ' [|] ' '
        FNR == 1 { gpu++ }
        $2 != "default constants" {
            name = $1
            gsub(/_(f32|f16|bf16)/, "", name)
            split($3, figure, " / ")
            first = !((name, gpu) in count)
            if (++count[name, gpu] > pipelines[name]) pipelines[name] = count[name, gpu]
            for (i = 1; i <= 4; i++) {
                worse = i < 4 ? figure[i] + 0 > worst[name, gpu, i] : figure[i] + 0 < worst[name, gpu, i]
                if (first || worse) worst[name, gpu, i] = figure[i] + 0
            }
        }
        END {
            for (name in pipelines) {
                line = "| " name " | " pipelines[name]
                for (g = 1; g <= 3; g++)
                    line = line " | " (!((name, g) in count) ? "-" : worst[name, g, 1] " / " \
                        worst[name, g, 2] " / " worst[name, g, 3] " / " worst[name, g, 4])
                print line " |"
            }
        }' "$out/vega10.table" "$out/navi21.table" "$out/navi31.table" | LC_ALL=C sort
}

write() {
    for gpu in vega10 navi21 navi31; do
        [ -s "$out/$gpu.table" ] || {
            echo "kernel_table.sh: not compiled for $gpu yet" >&2
            exit 1
        }
    done
    table >"$out/table.md"
    awk -v table="$out/table.md" '
        /<!-- kernels end -->/ { skip = 0 }
        !skip { print }
        /<!-- kernels begin -->/ {
            skip = 1
            while ((getline line <table) > 0)
                print line
        }' docs/performance.md >"$out/performance.md"
    cp "$out/performance.md" docs/performance.md
}

case $what in
vega10 | navi21)
    icd=$(find /usr/share/vulkan/icd.d -name 'radeon_icd*.json' 2>/dev/null | head -n 1)
    [ -n "$icd" ] || exit 77
    compile "$what" env VK_DRIVER_FILES="$icd" VK_ICD_FILENAMES="$icd"
    ;;
navi31)
    [ -x "$build/drivers/lavapipe-backports/run-radv" ] || exit 77
    compile "$what" "$build/drivers/lavapipe-backports/run-radv"
    ;;
write) write ;;
*)
    echo "use: kernel_table.sh BUILD vega10|navi21|navi31|write" >&2
    exit 2
    ;;
esac
