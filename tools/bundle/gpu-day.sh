#!/bin/sh
# SPDX-License-Identifier: MIT
#
# All that a machine with a GPU can say in a few minutes: tests, the matrix product by path and type, kernels,
# training steps, and the same by PyTorch if python3 has it. One JSON and one page of text, which
# are whole after each section. Needs a shell, coreutils, awk and sed.
#
#   ./gpu-day.sh [--device WHICH] [--out DIR] [--minutes N]
set -u
export LC_ALL=C HFI_NO_BACKTRACE=1

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
device='' out=gpu-day minutes=10
die() {
    printf 'gpu-day.sh: %s\n' "$*" >&2
    exit 1
}
usage() {
    cat <<'END'
./gpu-day.sh [--device WHICH] [--out DIR] [--minutes N]

  --device WHICH  index, or part of a name as ./ringforge info shows it (the best device)
  --out DIR       where report.txt, report.json and all logs go (gpu-day)
  --minutes N     what all of it may take, 1 to 60 (10)
END
}
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage && exit 0 ;;
    --device | --out | --minutes) [ $# -ge 2 ] || die "$1 needs a value" ;;
    *) die "there is no option \"$1\"; --help lists all" ;;
    esac
    case $1 in
    --device) device=$2 ;;
    --out) out=$2 ;;
    --minutes) minutes=$2 ;;
    esac
    shift 2
done
case $minutes in '' | *[!0-9]*) die "--minutes has to be 1 to 60, not \"$minutes\"" ;; esac
[ "$minutes" -ge 1 ] && [ "$minutes" -le 60 ] || die "--minutes has to be 1 to 60, not \"$minutes\""
now() { date +%s; }
start=$(now)
until=$((start + 60 * minutes - 5))

"$here/ringforge" --version >/dev/null || exit 1
mkdir -p "$out" || die "the folder $out cannot be made"
out=$(cd "$out" && pwd)
rm -rf "$out/parts" "$out/logs" "$out/report.json" "$out/report.txt"
mkdir -p "$out/parts" "$out/logs" "$out/cache"
# Nothing that this machine was tuned to before, and nothing left for it.
export RF_CACHE_DIR="$out/cache"
[ -z "$device" ] || export RF_DEVICE="$device"
ringforge=$here/bin/ringforge

# ---- time: every section has its share of the rest, every program its own limit --------------------

# limited SECONDS LOG COMMAND...: 124 when it took longer. A process that cannot even be killed (a driver
# that hangs) is left behind.
limited() {
    l_seconds=$1 l_log=$2
    shift 2
    [ "$l_seconds" -ge 1 ] || return 124
    l_until=$(($(now) + l_seconds + 8))
    timeout -k 5 "$l_seconds" "$@" >>"$l_log" 2>&1 </dev/null &
    l_pid=$!
    while kill -0 $l_pid 2>/dev/null; do
        [ "$(now)" -lt $l_until ] || return 124
        sleep 0.1
    done
    l_status=0
    wait $l_pid || l_status=$?
    [ $l_status != 137 ] || l_status=124
    return $l_status
}
left() { # of this section
    e_left=$((section_until - $(now)))
    [ $e_left -gt 0 ] || e_left=0
    echo $e_left
}

# at_most SECONDS: or the rest of the total time, if that is less
at_most() {
    a_left=$((until - $(now)))
    [ $a_left -lt "$1" ] || a_left=$1
    echo $a_left
}

weights=100
number=0
# section NAME WEIGHT TITLE COMMAND...: with its weight's share of the time that is left. Its folder $part gets what
# the report is made of: results (*.json), rows (rows.tsv), and a note.
section() {
    s_name=$1 s_weight=$2 s_title=$3
    shift 3
    number=$((number + 1))
    part=$out/parts/$(printf %02d $number)-$s_name log=$out/logs/$s_name.log
    mkdir -p "$part"
    s_start=$(now)
    s_limit=$(((until - s_start) * s_weight / weights))
    [ $s_limit -gt 0 ] || s_limit=0
    weights=$((weights - s_weight))
    section_until=$((s_start + s_limit))
    printf '%s (%s s at most) ... ' "$s_title" $s_limit
    s_status=0
    "$@" || s_status=$?
    case $s_status in
    0) s_word=ok ;;
    77) s_word='not run' ;;
    124) s_word='out of time' ;;
    *) s_word=failed ;;
    esac
    echo "$s_title" >"$part/title"
    echo "$s_word" >"$part/status"
    echo $(($(now) - s_start)) >"$part/seconds"
    echo "$s_word, $(cat "$part/seconds") s$(sed 's/^/; /' "$part/note" 2>/dev/null)"
    echo $(($(now) - start)) >"$out/parts/seconds"
    "$here/bin/report.sh" "$out"
}
# log_of WHAT: a log of this section's own for one of its parts
log_of() {
    o_log=${log%.log}-$1.log
    [ -e "$o_log" ] || : >"$o_log"
    echo "$o_log"
}
note() { printf '%s\n' "$*" >"$part/note"; }
# row WHAT VALUE UNIT PERCENT OF [PEER]: one line of the report
row() { printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" "${6:-}" >>"$part/rows.tsv"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.1f", 100 * a / b }'; }
# field FILE NAME: the first string or number of that name in a JSON file of ringforge's
field() { sed -n "s/^[ \t]*\"$2\":[ \t]*\"\{0,1\}\([^\"]*[^\",]\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" 2>/dev/null | head -n 1; }

# ---- the device ------------------------------------------------------------------------------------------

has_device() {
    limited "$(at_most 60)" "$out/logs/info.log" "$ringforge" info --json "$out/info.json" || return 1
    case $1 in
    any) grep -q '"usable":[ 	]*true' "$out/info.json" ;;
    nvidia) # vendor 0x10de
        awk '/"usable":[ \t]*true/ { usable = 1 } /"usable":[ \t]*false/ { usable = 0 }
             /"vendor_id":[ \t]*4318,/ && usable { found = 1 } END { exit !found }' "$out/info.json"
        ;;
    esac
}
nvidia_works() { command -v nvidia-smi >/dev/null 2>&1 && timeout -k 2 20 nvidia-smi -L >/dev/null 2>&1; }
find_library() {
    {
        ldconfig -p 2>/dev/null | sed -n "s/^[ \t]*$1 (.*) => //p"
        ls "/usr/local/nvidia/lib64/$1" "/usr/lib/x86_64-linux-gnu/$1" "/usr/lib64/$1" "/usr/lib/$1" \
            "/run/opengl-driver/lib/$1" "/usr/lib/wsl/lib/$1" 2>/dev/null
    } | head -n 1
}
# Containers often have NVIDIA's driver without the file that tells the Vulkan loader of it, or without
# libraries of X11 that it asks for.
repair_nvidia() {
    for r_name in libGLX_nvidia.so.0 libEGL_nvidia.so.0; do
        r_library=$(find_library $r_name)
        [ -n "$r_library" ] || continue
        for r_more in '' "$(dirname "$r_library"):$here/lib/driver"; do
            printf '{"file_format_version": "1.0.0",\n "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n' \
                "$r_library" >"$out/nvidia_icd.json"
            export VK_DRIVER_FILES="$out/nvidia_icd.json" VK_ICD_FILENAMES="$out/nvidia_icd.json"
            r_old=${LD_LIBRARY_PATH:-}
            [ -z "$r_more" ] || export LD_LIBRARY_PATH="${r_old:+$r_old:}$r_more"
            if has_device nvidia; then
                note "no Vulkan driver was installed for the NVIDIA GPU; $r_library is used (VK_DRIVER_FILES=$out/nvidia_icd.json${r_more:+, LD_LIBRARY_PATH=$LD_LIBRARY_PATH})"
                return 0
            fi
            [ -z "$r_more" ] || export LD_LIBRARY_PATH="$r_old"
        done
    done
    unset VK_DRIVER_FILES VK_ICD_FILENAMES
    nvidia_advice="nvidia-smi works, but there is no Vulkan driver for the GPU: the container lacks the driver's graphics part. Start it with NVIDIA_DRIVER_CAPABILITIES=all (docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all ...), or install the driver's Vulkan files"
    return 1
}

find_device() {
    nvidia_advice=
    if [ -z "${VK_DRIVER_FILES:-}" ] && [ -z "${VK_ICD_FILENAMES:-}" ] && nvidia_works && ! has_device nvidia; then
        repair_nvidia || true
    fi
    has_device any || {
        note "${nvidia_advice:-no usable Vulkan device was found; ./ringforge info says why}"
        return 1
    }
    # Which one is taken, the one that is taken says.
    limited "$(at_most 60)" "$log" "$ringforge" bench layernorm --shape 16x64 -n 1 --json "$part/probe.json" || {
        note "the device does not compute: $(tail -n 1 "$log")"
        return 1
    }
    device_name=$(field "$part/probe.json" device)
    driver=$(field "$part/probe.json" driver)
    rm -f "$part/probe.json"
    kind=$(awk -v want="$device_name" -F '"' '$2 == "name" { name = $4 } $2 == "kind" && name == want { print $4; exit }' \
        "$out/info.json")
    printf '%s\n' "$device_name" >"$out/parts/device"
    printf '%s\n' "$driver" >"$out/parts/driver"
    printf '%s\n' "$kind" >"$out/parts/kind"
    cp "$out/info.json" "$part/info.json"
    [ -n "${nvidia_advice:-}" ] && note "$nvidia_advice"
    [ -s "$part/note" ] || note "$device_name, $driver"
}

# TFLOP/s of matrix units (bf16 or f16, not sparse) and of plain f32, as the makers' tables say; else nothing.
peak() { # peak TYPE
    case $device_name in
    *H100*PCIe*) p_pair="756 51" ;;
    *H100* | *H200*) p_pair="989 67" ;;
    *A100*) p_pair="312 19.5" ;;
    *L40S*) p_pair="362 91.6" ;;
    *"NVIDIA L4"*) p_pair="121 30.3" ;;
    *A10G*) p_pair="70 31.5" ;;
    *"NVIDIA A10"*) p_pair="125 31.2" ;;
    *"RTX 4090"*) p_pair="165 82.6" ;;
    *"RTX 3090"*) p_pair="71 35.6" ;;
    *T4*) p_pair="65 8.1" ;;
    *V100*) p_pair="125 15.7" ;;
    *MI300X*) p_pair="1307 163.4" ;;
    *MI210*) p_pair="181 22.6" ;;
    *"7900 XTX"*) p_pair="123 61.4" ;;
    *) return 0 ;;
    esac
    case $1 in f32) echo "${p_pair#* }" ;; *) echo "${p_pair% *}" ;; esac
}

find_torch() {
    command -v python3 >/dev/null 2>&1 || {
        note "there is no python3, so no PyTorch to compare with"
        return 77
    }
    f_status=0
    limited "$(left)" "$log" python3 "$here/bin/torch_peer.py" name || f_status=$?
    case $f_status in
    0) ;;
    124)
        note "PyTorch did not start in time, so it is not compared with"
        return 124
        ;;
    *)
        note "python3 has no PyTorch that sees a GPU, so there is nothing to compare with"
        return 77
        ;;
    esac
    torch=$(tail -n 1 "$log")
    case $torch in
    *"$device_name"*) ;;
    *)
        note "PyTorch sees another device ($torch), so it is not compared with"
        torch=
        return 77
        ;;
    esac
    note "$torch"
    printf '%s\n' "$torch" >"$out/parts/torch"
}

# ---- sections ----------------------------------------------------------------------------------------------

run_tests() {
    jobs=$(nproc 2>/dev/null || echo 1)
    [ "$jobs" -le 8 ] || jobs=8
    t_programs=
    # Kernels first: only this device can measure them.
    for t_name in ops_kernels_test ops_matmul_test ops_oracle_test ops_optimizer_test ops_reference_test ops_matmul_table_test device_test; do
        [ ! -x "$here/tests/$t_name" ] || t_programs="$t_programs ./$t_name"
    done
    for t_name in "$here"/tests/train_*_test; do
        t_programs="$t_programs ./$(basename "$t_name")"
    done
    # A CPU device takes minutes where a GPU takes seconds: it runs some of each kind.
    [ "$kind" != cpu ] || export GTEST_FILTER="$CPU_TESTS"
    # Every suite of every shard opens the device, which NVIDIA's driver does three times a second for all together.
    [ "$kind" = cpu ] || export RUN_TESTS_SHARDS=4
    export RF_TEST_PATIENCE=5 RUN_TESTS_UNTIL=$((section_until - 6))
    # shellcheck disable=SC2086
    (cd "$here/tests" && ./run_tests.sh "$out/logs/tests-all.log" "$jobs" "$(left)" env $t_programs) >"$log" 2>&1
    t_status=$?
    unset GTEST_FILTER RUN_TESTS_UNTIL RUN_TESTS_SHARDS
    # Status 1: tests of it failed, which are there by name.
    sed -n 's/^failed: //p; /with status 1$/d; s/^PROGRAM ENDED: /the program /p' "$log" >"$part/failed"
    t_late=$(grep -c '^OUT OF TIME' "$log")
    t_at=$(sed -n 's/^OUT OF TIME.*, at \(..*\)/\1/p' "$log" | sort -u | head -n 3 | paste -sd ' ')
    note "$(tail -n 1 "$log")$([ "$t_late" = 0 ] || echo "; $t_late parts of programs were not finished in time${t_at:+, ended at $t_at}")"
    printf '{"summary": "%s", "parts_out_of_time": %s}\n' "$(tail -n 1 "$log")" "$t_late" >"$part/tests.json"
    [ $t_status = 0 ] || return $t_status
    [ "$t_late" = 0 ] || return 124
}
CPU_TESTS='Device*:Type/Softmax.*32*:Optimizer.*:StepScalars.*:MatmulBatch.*:MatmulOracle.*:Plan.*:Safetensors.*:Run.*:Reference.*'

# Every path, tile and form that runs here, and the table that later products choose by.
tune() {
    set --
    for shape in $TUNE_SHAPES; do
        set -- "$@" --shape "$shape"
    done
    t_seconds=$(($(left) * 8 / 10))
    t_status=0
    limited "$(left)" "$log" "$ringforge" tune "$@" --seconds $t_seconds -n "$SAMPLES" --json "$part/tune.json" || t_status=$?
    # "#   path rate, path rate" behind "shape type form ...": best first, for the table of the report
    awk '/^[0-9]+x[0-9]+x[0-9]+ / { what = $2 " " $3 " " $1; next }
         /^#   / && what {
             sub(/^#   /, "")
             n = split($0, all, ", ")
             for (i = 1; i <= n; i++) { split(all[i], pair, " "); print what "\t" pair[1] "\t" pair[2] }
             what = ""
         }' "$log" | sort -t "$(printf '\t')" -k1,1 -k3,3nr >"$part/paths.tsv"
    note "$(tail -n 1 "$log")"
    return $t_status
}

peer() { # peer LOG ARGUMENTS...: PyTorch, in turn with ours
    [ -n "$torch" ] || return 1
    p_log=$1
    shift
    limited "$(share 2)" "$p_log" python3 "$here/bin/torch_peer.py" "$@"
}
share() { # share N: of what is left of this section, the Nth part, at least 5 s
    h_left=$(($(left) / $1))
    [ $h_left -ge 5 ] || h_left=$(left)
    echo $h_left
}
peer_value() { awk -v what="$2" '$1 == what { print $2; exit }' "$1" 2>/dev/null; }

matmuls() {
    m_status=0
    for type in f32 f16 bf16; do
        set --
        for shape in $MATMUL_SHAPES; do
            set -- "$@" --shape "$shape"
        done
        limited "$(share 2)" "$(log_of $type)" "$ringforge" bench matmul --dtype $type "$@" -n "$SAMPLES" \
            --json "$part/matmul-$type.json" || m_status=$?
        # shellcheck disable=SC2086
        peer "$(log_of $type-torch)" matmul $type $MATMUL_SHAPES || true
        # kernel model shape type path time best GFLOP/s ...
        grep '^matmul ' "$(log_of $type)" | while read -r _ _ shape _ path _ _ gflops _; do
            value=$(awk -v g="$gflops" 'BEGIN { printf "%.3f", g / 1000 }')
            theirs=$(peer_value "$(log_of $type-torch)" $type/"$shape")
            most=$(peak $type)
            what="matmul $shape $type ($path)"
            tf32=$(peer_value "$(log_of $type-torch)" tf32/"$shape")
            if [ -n "$theirs" ]; then
                row "$what" "$value" TFLOP/s "$(ratio "$value" "$theirs")" "of PyTorch's" \
                    "$theirs${tf32:+; tf32: $tf32}"
            elif [ -n "$most" ]; then
                row "$what" "$value" TFLOP/s "$(ratio "$value" "$most")" "of the device's peak" "$most"
            else
                row "$what" "$value" TFLOP/s "" "" ""
            fi
        done
    done
    return $m_status
}

# step TYPE: with half the sequences until it fits
step() {
    i_batch=$STEP_BATCH
    while :; do
        i_shape=$STEP_BEFORE$i_batch$STEP_AFTER
        i_status=0
        limited "$(share "$2")" "$(log_of "$1")" "$ringforge" bench step --dtype "$1" --shape "$i_shape" -n "$STEPS" -w 3 \
            --json "$part/step-$1.json" || i_status=$?
        [ $i_status = 1 ] && [ "$i_batch" -gt 1 ] && tail -n 1 "$(log_of "$1")" | grep -qi 'memory' || break
        i_batch=$((i_batch / 2))
    done
    [ $i_status != 0 ] || peer "$(log_of "$1"-torch)" step "$1" "$i_shape" "$STEPS" || true
    return $i_status
}

steps() {
    e_status=0
    for type in bf16 f32; do
        step $type 2 || {
            e_status=$?
            note "$type did not come to its end: $(tail -n 1 "$(log_of $type)")"
            continue
        }
        value=$(field "$part/step-$type.json" tokens_per_s)
        tflops=$(field "$part/step-$type.json" gflops | awk '{ printf "%.4f", $1 / 1000 }')
        theirs=$(peer_value "$(log_of $type-torch)" step/$type)
        most=$(peak $type) of="of the device's peak"
        [ -n "$most" ] || { # else of the quickest product of this run
            most=$(cut -f 1-2 "$out"/parts/*-matmul/rows.tsv 2>/dev/null | awk -v type=" $type " 'index($0, type) && $NF > most { most = $NF } END { if (most) print most }')
            of="of this run's best product"
        }
        utilisation=$(ratio "$tflops" "${most:-0}")
        what="GPT-2 step $i_shape $type"
        value=$(printf '%.0f' "$value")
        if [ -n "$theirs" ]; then
            row "$what" "$value" tokens/s "$(ratio "$value" "$theirs")" "of PyTorch's" "$theirs"
        fi
        row "$what, model FLOPs utilisation" "$tflops" TFLOP/s "$utilisation" "$of" "$most"
    done
    return $e_status
}

kernels() {
    k_status=0
    for type in bf16 f32; do
        if [ "$kind" = cpu ]; then
            for op in layernorm:64x768 gelu:64x1024 adamw:65536; do
                limited "$(share 3)" "$(log_of $type)" "$ringforge" bench "${op%:*}" --shape "${op#*:}" --dtype $type -n 3 ||
                    k_status=$?
            done
        else
            limited "$(share 2)" "$(log_of $type)" "$ringforge" bench ops --dtype $type -n "$SAMPLES" \
                --json "$part/ops-$type.json" || k_status=$?
            fi
        # kernel model shape type path time best GFLOP/s GB/s %copy %mad %C error; a product's wall is above
        grep -E '^[a-z_0-9]+ +[^ ]+ +[0-9x]+ ' "$(log_of $type)" | grep -v '^matmul ' |
            while read -r op model shape dtype _ _ _ _ gbytes copied added _; do
                row "$op $shape $dtype$([ "$model" = - ] || echo " ($model)")" "$gbytes" GB/s \
                    "$(awk -v a="$copied" -v b="$added" 'BEGIN { print(a > b ? a : b) }')" "of copying or multiply-add" ""
            done
    done
    return $k_status
}

# ---- all of it -------------------------------------------------------------------------------------------------

"$ringforge" --version >"$out/parts/version"
date -u +%Y-%m-%dT%H:%M:%SZ >"$out/parts/date"
echo "$minutes" >"$out/parts/minutes"
device_name='' driver='' kind='' torch=''
section device 4 "device and driver" find_device
[ -n "$device_name" ] || {
    cat "$out/report.txt"
    exit 1
}
SAMPLES=15 STEPS=10
if [ "$kind" = cpu ]; then
    MATMUL_SHAPES="256x256x256" TUNE_SHAPES="64x64x64"
    STEP_BEFORE=2x128x4x64x STEP_BATCH=4 STEP_AFTER=x512 SAMPLES=3 STEPS=3
else
    MATMUL_SHAPES="1024x1024x1024 4096x4096x4096 4096x768x3072 4096x768x50304"
    TUNE_SHAPES="4096x4096x4096 4096x768x3072 768x4096x768"
    STEP_BEFORE=12x768x12x1024x STEP_BATCH=4 STEP_AFTER=x50257
fi
section torch 8 "PyTorch, to compare with" find_torch
section tests 30 "tests" run_tests
section tune 14 "matrix product by path and tile" tune
section matmul 10 "matrix product by type" matmuls
section step 20 "GPT-2 training step" steps
section kernels 14 "kernels" kernels
cat "$out/report.txt"
[ ! -s "$(ls -d "$out"/parts/*-tests)/failed" ]
