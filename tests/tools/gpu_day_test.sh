#!/bin/sh
# SPDX-License-Identifier: MIT
#
# gpu-day.sh with programs that only pretend: an NVIDIA GPU in a container without a driver file for Vulkan, a
# test that fails, a PyTorch to compare with, a kernel that crashes, a model that does not fit. What the report
# says of them. (With the real programs: bundle_test.sh.)
#
#   gpu_day_test.sh SOURCE_DIR CMAKE
set -eu
source=$1 cmake=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "$1"
    cat "$work/out/report.txt" 2>/dev/null || cat "$work/log"
    exit 1
}
in_page() { grep -q -- "$1" "$work/out/report.txt" || fail "the page does not say \"$1\""; }
above() { # above A B: in the page
    awk -v a="$1" -v b="$2" 'index($0, a) && !x { x = NR } index($0, b) && !y { y = NR } END { exit !(x && y && x < y) }' \
        "$work/out/report.txt" || fail "\"$1\" does not stand above \"$2\""
}

mkdir -p "$work/bundle/bin" "$work/bundle/tests" "$work/bundle/lib/driver" "$work/path"
cp "$source/tools/bundle/gpu-day.sh" "$source/tools/bundle/ringforge" "$work/bundle/"
sed -i 's/@GLIBC@/2.2/' "$work/bundle/ringforge"
cp "$source/tools/bundle/report.sh" "$work/bundle/bin/"
cp "$source/ci/run_tests.sh" "$work/bundle/tests/"
cat >"$work/bundle/bin/ringforge" <<'END'
#!/bin/sh
json='' type='' shape='' command="$1 ${2:-}"
while [ $# -gt 0 ]; do
    case $1 in --json) json=$2 ;; --dtype) type=$2 ;; --shape) shape=$2 ;; esac
    shift
done
device='"device":	"Stub, GPU",
	"driver":	"Stub Driver 1.0"'
case $command in
--version*) echo "ringforge 9.9.9" ;;
info*)
    case ${VK_DRIVER_FILES:-} in
    */nvidia_icd.json) devices='{
			"name":	"Stub, GPU",
			"kind":	"discrete",
			"usable":	true,
			"vendor_id":	4318,
			"device_id":	1
		}' ;;
    *) devices= ;;
    esac
    printf '{\n\t"devices":\t[%s]\n}\n' "$devices" >"$json"
    ;;
"bench layernorm") printf '{\n\t%s\n}\n' "$device" >"$json" ;;
"bench matmul")
    echo "# kernel model shape"
    echo "matmul      -       1024x1024x1024  $type cooperative   1.0  1.0  5000.00 3.0 4.0 5.0 - 1e-7"
    printf '{\n\t%s\n}\n' "$device" >"$json"
    ;;
"bench ops")
    echo "gelu        gpt2-124m  64x64 $type -   1.0  1.0  9.00 33.0 80.5 5.0 - 1e-7"
    echo "slow_kernel gpt2-124m  64x64 $type -   1.0  1.0  9.00 33.0 3.5 5.0 - 1e-7"
    [ "$type" = f32 ] || exit 139
    printf '{\n\t"half of' >"$json" # as if it had been ended
    ;;
"bench step")
    case $shape in *x4x50257 | *x2x50257)
        echo "ringforge bench: not enough device memory"
        exit 1
        ;;
    esac
    printf '{\n\t"tokens_per_s":\t1000,\n\t"gflops":\t2500\n}\n' >"$json"
    ;;
tune*)
    echo "4096x768x3072    f32   nn tiled  1.0 cooperative:2  9.0 <- taken"
    echo "#   tiled 1.0, cooperative:2 9.0"
    echo "1 choice written"
    printf '{\n\t"rows":\t[]\n}\n' >"$json"
    ;;
esac
END
cat >"$work/bundle/tests/device_test" <<'END'
#!/bin/sh
echo "[       OK ] Good.Test (1 ms)"
case $0/$GTEST_SHARD_INDEX in
*device_test/0)
    echo "[  FAILED  ] Bad.Test (1 ms)"
    exit 1
    ;;
*train_run_test/1) kill -SEGV $$ ;;
esac
END
cat >"$work/path/python3" <<'END'
#!/bin/sh
case $2 in
name) echo 'PyTorch 9.9 (eager) on Stub, GPU' ;;
matmul) echo "$3/1024x1024x1024 10.000" ;;
step) echo "step/$3 4000.0" ;;
esac
END
printf '#!/bin/sh\nexit 0\n' >"$work/path/nvidia-smi"
printf '#!/bin/sh\necho "	libGLX_nvidia.so.0 (libc6,x86-64) => /stub/libGLX_nvidia.so.0"\n' >"$work/path/ldconfig"
chmod +x "$work"/path/* "$work"/bundle/*/*
cp "$work/bundle/tests/device_test" "$work/bundle/tests/train_run_test"

unset VK_DRIVER_FILES VK_ICD_FILENAMES RF_DEVICE
status=0
PATH="$work/path:$PATH" "$work/bundle/gpu-day.sh" --out "$work/out" >"$work/log" 2>&1 || status=$?
[ $status = 1 ] || fail "a failed test gives the status $status, not 1"
in_page '^device: Stub, GPU (discrete)$'
in_page '^driver: Stub Driver 1.0$'
in_page 'no Vulkan driver was installed.*VK_DRIVER_FILES='
grep -q /stub/libGLX_nvidia.so.0 "$work/out/nvidia_icd.json" || fail "the driver file names another library"
in_page '^  Bad.Test$'
in_page '^  the program train_run_test, part 1, with status'
above Bad.Test slow_kernel
above 'slow_kernel 64x64 f32' 'GPT-2 step 12x768x12x1024x1x50257 bf16' # 3.5 %, 25 %
above 'GPT-2 step' 'matmul 1024x1024x1024 f32 (cooperative)'           # 50 % of PyTorch's
above 'matmul 1024x1024x1024' 'gelu 64x64 f32'                         # 80.5 %
in_page ' 50.0% of .*best product .*model FLOPs utilisation'
in_page 'f32 nn 4096x768x3072: cooperative:2 9.0 tiled 1.0'
in_page '^kernels  *failed'
printf 'file(READ "%s" text)\nstring(JSON n LENGTH "${text}" sections)\nstring(JSON t GET "${text}" failed_tests 0)
string(JSON rows LENGTH "${text}" rows)\nstring(JSON last GET "${text}" sections 6 status)\nmessage("${n} ${t} ${rows} ${last}")' "$work/out/report.json" >"$work/read.cmake"
"$cmake" -P "$work/read.cmake" >"$work/log" 2>&1 || fail "report.json is not JSON: $(cat "$work/log")"
[ "$(cat "$work/log")" = "7 Bad.Test 11 failed" ] || fail "report.json has other sections: $(cat "$work/log")"

# Nothing at all to run on: a sentence that says what to do.
printf '#!/bin/sh\n' >"$work/path/ldconfig"
PATH="$work/path:$PATH" "$work/bundle/gpu-day.sh" --out "$work/out" >"$work/log" 2>&1 && fail "without a device it succeeds"
grep -q 'NVIDIA_DRIVER_CAPABILITIES=all' "$work/out/report.txt" || {
    ls /usr/lib/*/libGLX_nvidia.so.0 >/dev/null 2>&1 || fail "it does not say how to start a container with the driver"
}
echo "the report of a stub GPU is as it should be"
